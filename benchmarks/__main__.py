"""`python -m benchmarks`: run everything, print the table, exit 0 whether or not a target was met."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from benchmarks import (
    bucket,
    commits,
    compaction,
    folds,
    load,
    opening,
    pipeline,
    queries,
    reads,
    service,
    serving,
    sidecar,
    statements,
    steady,
    tpch,
    upserts,
)
from benchmarks.report import Report, machine
from lithify import Lake, Settings

SUITES = {
    "upserts": upserts.run,
    "commits": commits.run,
    "reads": reads.run,
    "load": load.run,
    "folds": folds.run,
    "compaction": compaction.run,
    "statements": statements.run,
    "steady": steady.run,
    "opening": opening.run,
    "sidecar": sidecar.run,
    "serving": serving.run,
    "service": service.run,
    "queries": queries.run,
    "pipeline": pipeline.run,
    "bucket": bucket.run,
    "tpch": tpch.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", choices=[[], *SUITES], help="which suites to run; default all")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the tables, 1.0 is 10M rows (and 30M)")
    parser.add_argument("--folder", type=Path, default=None, help="where to work; default a temporary folder")
    parser.add_argument("--json", type=Path, default=None, help="also write the figures to this file")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lithify-bench-", dir=chosen.folder))
    report = Report()
    report.say(machine())
    started = time.monotonic()
    try:
        # What is measured here is files; the suites about caches have lakes of their own.
        settings = Settings(spark_driver_memory="4g", cache_bytes_max=0)
        with Lake(folder / "lake", settings=settings) as lake:
            for name in chosen.suites or SUITES:
                SUITES[name](lake, report, chosen.scale)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.print()
    report.say(f"{time.monotonic() - started:.0f} s in all")
    if chosen.json:
        report.save(chosen.json)


if __name__ == "__main__":
    main()
