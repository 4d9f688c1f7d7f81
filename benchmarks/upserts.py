"""Small durable upserts: against deltalake's merge, and at three table sizes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

from deltalake import DeltaTable

from benchmarks.data import changes, load, random_keys
from benchmarks.floor import floor_s
from benchmarks.report import Report, median, timed
from lithify import Lake

ROUNDS = 40
MEMORY_PROBE = """
import json, re, sys
from benchmarks.data import changes, random_keys
from lithify import Lake
def kilobytes(what):
    return int(re.search(what + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1])
lake = Lake(sys.argv[1]); rows = int(sys.argv[3])
table = lake.table(sys.argv[2])
batch = changes(random_keys(rows, 1000, 5), False)
before = kilobytes("VmRSS")
table.upsert(batch)
print(json.dumps({"added": (kilobytes("VmHWM") - before) * 1024}))
"""


def run(lake: Lake, report: Report, scale: float) -> None:
    sizes = [int(n * scale) for n in (1_000_000, 10_000_000, 30_000_000)]
    names = ["bench.million", "bench.orders", "bench.thirty"]
    upsert: dict[int, float] = {}
    memory: dict[int, int] = {}
    for name, rows in zip(names, sizes, strict=True):
        report.say(f"loading {name}: {rows:,} rows")
        table = lake.table(name) if name in lake.tables() else load(lake, name, rows)
        os.sync()  # or the upserts pay for what the load has left to be written
        batches = [changes(random_keys(rows, 1000, seed), False, seed) for seed in range(ROUNDS)]
        times = [timed(partial(table.upsert, batch)) for batch in batches]
        upsert[rows] = median(times)
        report.say(
            f"  durable upsert of 1,000 rows into {rows:,}: median {upsert[rows] * 1000:.1f} ms, worst "
            f"{max(times) * 1000:.1f} ms"
        )
        memory[rows] = _memory(lake.path, name, rows)
        table.fold()
    small, middle, large = sizes
    merge = _deltalake_merge(lake, "bench.orders", middle)
    report.faster(
        f"upsert of 1,000 random keys into {middle:,} rows, durable",
        upsert[middle],
        "deltalake merge, not durable",
        merge,
        800,
    )
    floor = floor_s(Path(lake.path).parent)
    report.at_most("the same", upsert[middle], "writing and syncing two files and two folders", floor, 3)
    report.at_most(f"the same into {middle:,}", upsert[middle], f"into {small:,}", upsert[small], 1.5)
    report.at_most(f"the same into {large:,}", upsert[large], f"into {small:,}", upsert[small], 1.5)
    for rows in (small, large):
        report.number(
            f"memory added by an upsert of 1,000 rows into {rows:,}",
            f"{memory[rows] / 2**20:.0f} MB",
            "< 150 MB",
            memory[rows] < 150 * 2**20,
        )
    lake.drop_table("bench.thirty")
    lake.drop_table("bench.million")


def _memory(lake: Path, name: str, rows: int) -> int:
    command = [sys.executable, "-c", MEMORY_PROBE, str(lake), name, str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout.splitlines()[-1])["added"])


def _deltalake_merge(lake: Lake, name: str, rows: int) -> float:
    copy = lake.path.parent / "merge-copy"
    shutil.copytree(lake.table(name).base_path, copy)
    try:
        times = []
        for seed in range(3):
            batch = changes(random_keys(rows, 1000, 100 + seed), False, seed)
            times.append(timed(partial(merge, DeltaTable(copy), batch)))  # type: ignore[misc]
        return min(times)
    finally:
        shutil.rmtree(copy)


def merge(table: DeltaTable, rows: object) -> None:
    builder = table.merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
    builder.when_matched_update_all().when_not_matched_insert_all().execute()
