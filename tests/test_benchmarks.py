"""The benchmarks that need no JVM get to their end, at a size where their figures say nothing."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from benchmarks import bucket, commits, opening, queries, service, serving, sidecar
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
