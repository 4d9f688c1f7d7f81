"""The benchmarks that need no JVM get to their end, at a size where their figures say nothing."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from benchmarks import bucket, commits, opening, queries, service, serving, sidecar
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
