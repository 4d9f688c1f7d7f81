"""Folding 100,000 changes, against Spark rewriting the table by hand and deltalake's merge."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.data import changes, file_paths, load, random_keys
from benchmarks.report import Report, timed
from benchmarks.upserts import merge
from lithify import Lake, Table

ROUNDS = 3


def run(lake: Lake, report: Report, scale: float) -> None:
    rows = int(10_000_000 * scale)
    count = max(100, int(100_000 * scale))
    table = lake.table("bench.orders") if "bench.orders" in lake.tables() else load(lake, "bench.orders", rows)
    table.fold()
    lake.spark.range(10).count()
    for what, numbers_of, target in (
        ("random", lambda seed: random_keys(rows, count, seed), 1.0),
        ("adjacent", lambda seed: np.arange(count) + seed * count, 3.0),
    ):
        report.say(f"folding {count:,} {what} changes into {rows:,} rows")
        ours, theirs = [], []
        for seed in range(ROUNDS + 1):
            batch = changes(numbers_of(seed), False, seed)
            by_hand = timed(lambda b=batch: _by_hand(lake, table, b))  # type: ignore[misc]
            for part in batch.slice(0).to_batches(max_chunksize=10_000):
                table.upsert(pa.Table.from_batches([part]))
            folded = timed(table.fold)
            report.say(
                f"  round {seed}: fold {folded:.2f} s, by hand {by_hand:.2f} s{' (warm-up)' if seed == 0 else ''}"
            )
            if seed:
                ours.append(folded)
                theirs.append(by_hand)
        report.faster(
            f"fold of {count:,} {what} changes into {rows:,} rows",
            min(ours),
            "Spark by hand: read, join, write",
            min(theirs),
            target,
        )
        batch = changes(numbers_of(99 if what == "random" else 0), False)
        report.beside(
            f"fold of {count:,} {what} changes",
            min(ours),
            "deltalake merge, not durable",
            _merge_copy(table, batch),
        )


def _by_hand(lake: Lake, table: Table, batch: pa.Table) -> None:
    """What a careful user writes: broadcast the changes, drop what they replace, add them, write everything."""
    folder = lake.path.parent / "by-hand"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    pq.write_table(batch, folder / "changes.parquet")
    spark = lake.spark
    fresh = spark.read.parquet(str(folder / "changes.parquet"))
    base = spark.read.parquet(*file_paths(table))
    untouched = base.join(fresh.select("id").hint("broadcast"), "id", "left_anti").select(*fresh.columns)
    untouched.unionByName(fresh).write.option("compression", "zstd").parquet(str(folder / "out"))
    shutil.rmtree(folder)


def _merge_copy(table: Table, batch: pa.Table) -> float:
    copy = Path(table.base_path).parents[3] / "merge-copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(table.base_path, copy)
    try:
        return timed(lambda: merge(DeltaTable(copy), batch))
    finally:
        shutil.rmtree(copy)
