"""The benchmarks that need no JVM get to their end, at a size where their figures say nothing."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from benchmarks import bucket, commits, opening, queries, service, serving, sidecar, tpch
from benchmarks.peers import __main__ as peers
from benchmarks.peers.drivers import PEERS
from benchmarks.peers.report import markdown
from benchmarks.peers.work import STEPS, Result, Work
from benchmarks.peers.workload import EXPECTED, Expected, Sizes, make
from benchmarks.report import Report
from rich.console import Console

from lithify import Lake, Settings
from support.effort import SOAK
from support.s3_servers import S3Server

pytestmark = pytest.mark.slow
SUITES = {
    "commits": commits.run,
    "opening": opening.run,
    "sidecar": sidecar.run,
    "serving": serving.run,
    "queries": queries.run,
    "service": service.run,
}
LONG = {"service"}


@pytest.mark.parametrize("suite", [suite for suite in SUITES if SOAK or suite not in LONG])
def test_a_suite_reports_its_figures(tmp_path: Path, suite: str) -> None:
    report = Report(console=Console(file=io.StringIO()))

    with Lake(tmp_path / "lake", settings=Settings(cache_bytes_max=0)) as lake:
        SUITES[suite](lake, report, scale=0.001)

    assert report.figures
    assert [figure.lithify for figure in report.figures if figure.what == "mixed load, errors"] in ([], ["0"])


@pytest.mark.bucket
def test_a_bucket_is_measured(tmp_path: Path, s3: S3Server) -> None:
    report = Report(console=Console(file=io.StringIO()))

    with Lake(tmp_path / "lake", settings=Settings(cache_bytes_max=0)) as lake:
        bucket.run(lake, report, scale=0.001)

    assert len(report.figures) == 8


def test_our_side_of_the_comparison_with_peers_answers_right(tmp_path: Path) -> None:
    """That of others needs their packages: `make bench-peers` installs them."""
    results, missing = peers.run([PEERS[0]], tmp_path, Sizes(20_000, 200, 3, 2, 20), tmp_path)

    assert not missing
    assert results["lithify"]["wrong"] == []
    assert set(results["lithify"]["took"]) == set(STEPS)
    table = markdown(results | {"ducklake": results["lithify"]}, {"hudi-spark": "no network"})
    assert "| upsert of a batch |" in table
    assert "1.0× faster" in table
    assert "Not measured: hudi-spark (no network)." in table


def test_a_peer_that_answers_wrong_is_found_out(tmp_path: Path) -> None:
    """Each answer is compared with one that was made without any of them."""
    make(tmp_path, Sizes(2_000, 100, 2, 1, 10))
    expected = Expected.read(tmp_path)
    assert expected.totals[0] != expected.totals[1]
    said = json.loads((tmp_path / EXPECTED).read_text())
    said["totals"][0]["new"][1] += 1
    (tmp_path / EXPECTED).write_text(json.dumps(said))
    (tmp_path / "lithify").mkdir()
    result = Result("lithify", "", {})
    driver = PEERS[0].driver(tmp_path / "lithify")
    try:
        Work(driver, tmp_path, result, tmp_path).run()
    finally:
        driver.close()
    assert result.wrong
    assert all("totals 0" in text for text in result.wrong)


def test_queries_of_tpch_name_tables_of_the_lake_and_leave_other_names_alone() -> None:
    query = (
        "select nation, sum(x) from (select n_name as nation, 1 as x from nation, orders) as profit group by nation;"
    )

    assert tpch.in_namespace(query, "tpch") == (
        "SELECT nation, SUM(x) FROM (SELECT n_name AS nation, 1 AS x FROM tpch.nation, tpch.orders) AS profit "
        "GROUP BY nation"
    )
    assert "FROM nation, orders" in tpch.in_namespace(query, None)


def test_answers_of_tpch_may_differ_in_order_and_last_digits_and_in_nothing_else() -> None:
    found = pa.table({"name": ["a", "b"], "sum": [Decimal("1000.004999"), Decimal("2.5")], "n": [1, 2]})

    tpch.check(1, found, [["b", "2.50", 2], ["a", "1000.005", 1]])
    for wrong in (
        [["a", "1000.005", 1]],
        [["a", "1000.005", 1], ["b", "2.6", 2]],
        [["a", "1000.005", 1], ["c", "2.5", 2]],
        [["a", "1000.005", 1], ["b", "2.5", 3]],
        [["a", "1000.005", 1], ["b", None, 2]],
    ):
        with pytest.raises(AssertionError, match="q1"):
            tpch.check(1, found, wrong)
