"""Compacting 2,000 small files, against Spark doing it by hand and deltalake's optimize.

Runs in a process of its own, as `lithify run` would: what counts as its memory is the process that plans and commits,
the rewriting happens in a Spark worker beside it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.data import changes
from benchmarks.report import Report, timed
from lithify import Lake, Settings

ROUNDS = 3
PARTITIONS = 4


def run(lake: Lake, report: Report, scale: float) -> None:
    rows, files = int(10_000_000 * scale), max(80, int(2_000 * scale))
    report.say(f"compacting {files:,} files with {rows:,} rows in {PARTITIONS} partitions")
    folder = lake.path.parent / "small-files"
    _small_files(folder / "original", rows, files)
    spark = lake.spark
    by_hand, in_delta = [], []
    for number in range(ROUNDS + 1):
        shutil.copytree(folder / "original", folder / f"copy{number}")
        seconds = timed(lambda: _by_hand(lake, folder / "original", folder / "out"))
        if number:
            by_hand.append(seconds)
    copy = shutil.copytree(folder / "original", folder / "delta")
    in_delta.append(timed(lambda: DeltaTable(copy).optimize.compact(target_size=512 * 2**20)))
    spark.catalog.clearCache()
    with Lake(folder / "lake") as other:
        for number in range(ROUNDS + 1):
            other.adopt(f"bench.small{number}", folder / f"copy{number}", key="id", verify=False)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.compaction", str(folder)], check=True, capture_output=True, text=True
    )
    ours = json.loads(done.stdout.splitlines()[-1])
    rounds = (", ".join(f"{s:.2f} s" for s in times) for times in (ours["seconds"], by_hand))
    report.say("  rounds: {}; by hand {}".format(*rounds))
    best = min(ours["seconds"])
    what = f"compact {files:,} files, {rows:,} rows"
    report.at_most(what, best, "Spark by hand: read, repartition, write", min(by_hand), 1.15)
    report.beside(what, best, "deltalake optimize.compact, not durable", min(in_delta))
    report.number(
        "memory of the process that plans and commits",
        f"{ours['rss'] / 2**20:.0f} MB",
        "< 500 MB",
        ours["rss"] < 500 * 2**20,
    )
    shutil.rmtree(folder)


def _small_files(folder: Path, rows: int, files: int) -> None:
    """What a stream leaves behind: each file holds a random share of the keys of its partition."""
    numbers = np.random.default_rng(5).permutation(rows)
    for number, part in enumerate(np.array_split(numbers, files // PARTITIONS)):
        table = changes(part, False, number)
        day = pa.array([f"2026-11-{1 + n % PARTITIONS:02d}" for n in part])
        write_deltalake(folder, table.append_column("day", day), mode="append", partition_by=["day"])


def _by_hand(lake: Lake, source: Path, out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    folders = [str(path) for path in sorted(source.glob("day=*"))]
    frame = lake.spark.read.option("basePath", str(source)).parquet(*folders)
    frame.repartition(PARTITIONS, "day").write.partitionBy("day").option("compression", "zstd").parquet(str(out))


def _compact_copies(folder: Path) -> None:
    settings = Settings(batch_files_max=500, local_job_bytes_max=0)
    seconds = []
    with Lake(folder / "lake", settings=settings) as lake:
        for number in range(ROUNDS + 1):
            table = lake.table(f"bench.small{number}")
            start = time.perf_counter()
            reports = table.compact()
            if number:
                seconds.append(time.perf_counter() - start)
            assert sum(r.files_read for r in reports) > 0, "nothing was compacted"
            print([(r.files_read, r.files_written, r.engine, round(r.seconds, 2)) for r in reports], file=sys.stderr)
    print(json.dumps({"seconds": seconds, "rss": _rss_max()}))


def _rss_max() -> int:
    """Of this program alone: what getrusage says includes the process that started it, before it became another."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


if __name__ == "__main__":
    _compact_copies(Path(sys.argv[1]))
