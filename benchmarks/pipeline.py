"""Lithify inside Spark: bulk writes, scans, selective scans and streams, against what Spark users write by hand."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.data import changes, columns, file_paths, frame, load, random_keys
from benchmarks.many_files import SCHEMA, key_of, linked_table, write_files
from benchmarks.report import Report, best_of, timed
from benchmarks.upserts import merge
from lithify import Lake, Table

ROUNDS = 3
MANY_FILES = 2_000
BATCHES, BATCH_ROWS = 100, 1_000
SOME_PRIME = 1_000_003


def run(lake: Lake, report: Report, scale: float) -> None:
    rows = int(10_000_000 * scale)
    lake.spark.range(10).count()
    _bulk(lake, report, rows)
    _scan(lake, report, rows)
    _selective(lake, report, max(20, int(MANY_FILES * min(scale, 1))))
    _stream(lake, report, int(1_000_000 * scale))
    _steps(lake, report, rows)


# -- bulk writes


def _bulk(lake: Lake, report: Report, rows: int) -> None:
    in_order = frame(lake.spark, rows, text=False)
    scattered = in_order.withColumn("id", F.pmod(F.col("id") * SOME_PRIME, F.lit(rows)))
    for what, source, target in (("sorted by key", in_order, 1.25), ("in no order", scattered, None)):
        report.say(f"bulk upsert of {rows:,} rows {what}, in turns with a plain write")
        with _folder(lake, "plain") as plain:
            ours, theirs = best_of(
                ROUNDS,
                partial(_upsert, lake, source),
                partial(_plain_write, source, plain),
            )
        text = f"bulk upsert of {rows:,} rows {what}, one row per key checked, durable"
        if target is None:
            report.beside(text, ours, "Spark writes them to plain Parquet", theirs)
        else:
            report.at_most(text, ours, "Spark writes them to plain Parquet", theirs, target)


def _upsert(lake: Lake, source: DataFrame) -> None:
    table = lake.create_table("bench.bulk", columns(SCHEMA.field("id").type), key="id")
    try:
        table.upsert(source)
    finally:
        lake.drop_table("bench.bulk")


def _plain_write(source: DataFrame, folder: Path) -> None:
    source.write.mode("overwrite").parquet(str(folder / "out"))


# -- scans


def _scan(lake: Lake, report: Report, rows: int) -> None:
    table = lake.table("bench.orders") if "bench.orders" in lake.tables() else load(lake, "bench.orders", rows)
    table.fold()
    files = file_paths(table)
    for what, names in (("two columns", ["customer", "amount"]), ("all columns", list(SCHEMA.names))):

        def drain(source: Callable[[], DataFrame], chosen: list[str]) -> None:
            source().select(*chosen).write.format("noop").mode("overwrite").save()

        ours, theirs = best_of(
            2 * ROUNDS,
            partial(drain, table.to_spark, names),
            partial(drain, lambda: lake.spark.read.parquet(*files), names),
        )
        report.at_most(f"scan of {what} of {rows:,} folded rows, to_spark()", ours, "spark.read.parquet", theirs, 1.1)


def _selective(lake: Lake, report: Report, files: int) -> None:
    report.say(f"a filter that 2 of {files:,} files can match")
    with _folder(lake, "many") as folder:
        written = write_files(folder / "parts", files, 5_000)
        path = linked_table(folder / "table", written)
        table = lake.adopt("bench.many", path)
        try:
            table.build_index()
            low, high = (int(key_of(number)) for number in (5_000 * (files // 2) - 100, 5_000 * (files // 2) + 100))
            where = f"id BETWEEN {low} AND {high}"
            glob = str(path / "*.parquet")
            ours, theirs = best_of(
                ROUNDS,
                lambda: table.to_spark(where=where).count(),
                lambda: lake.spark.read.parquet(glob).where(where).count(),
            )
            report.faster(
                f"to_spark(where=…), 2 of {files:,} files", ours, "spark.read.parquet(…).filter(…)", theirs, 5
            )
        finally:
            lake.drop_table("bench.many")


# -- a stream


def _stream(lake: Lake, report: Report, rows: int) -> None:
    report.say(f"{BATCHES} micro-batches of {BATCH_ROWS:,} upserts into {rows:,} rows")
    table = load(lake, "bench.streamed", rows)
    with _folder(lake, "stream") as folder:
        copy = folder / "delta"
        shutil.copytree(table.base_path, copy)
        source = folder / "source"
        source.mkdir()
        for number in range(BATCHES):
            pq.write_table(
                changes(random_keys(rows, BATCH_ROWS, number), False, number), source / f"{number:04d}.parquet"
            )
        write = table.stream_writer("upsert")
        ours = _sink_times(lake, source, folder / "ours", write)
        # By hand the whole batch comes to the driver as well; only merging it is different.
        delta = DeltaTable(copy)
        theirs = _sink_times(lake, source, folder / "theirs", lambda batch, epoch: merge(delta, batch.toArrow()))
        rows_of = _sink_times(lake, source, folder / "fetch", lambda batch, epoch: batch.toArrow())
    lake.drop_table("bench.streamed")
    what = f"stream of {BATCHES} × {BATCH_ROWS:,} upserts into {rows:,} rows"
    report.faster(f"{what}, in the sink", ours, "deltalake merge in foreachBatch", theirs, 20)
    report.beside(
        f"{what}, less what fetching the rows from Spark takes",
        max(ours - rows_of, 1e-9),
        f"the same; fetching alone took {rows_of:.2f} s",
        theirs - rows_of,
    )


def _sink_times(lake: Lake, source: Path, checkpoint: Path, write: Callable[[DataFrame, int], object]) -> float:
    """Seconds that all calls of the sink took."""
    spent = 0.0

    def sink(batch: DataFrame, epoch: int) -> None:
        nonlocal spent
        started = time.perf_counter()
        write(batch, epoch)
        spent += time.perf_counter() - started

    spark = lake.spark
    reader = spark.readStream.schema(spark.read.parquet(str(source)).schema).option("maxFilesPerTrigger", 1)
    query = (
        reader.parquet(str(source))
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spent


# -- a pipeline

CLEAN = "SELECT id, customer, amount, country, CAST(placed AS DATE) AS day FROM {source} WHERE status <> 'returned'"
DAILY = "SELECT day, sum(amount) AS revenue, count(*) AS orders FROM {source} GROUP BY day"


def _steps(lake: Lake, report: Report, rows: int) -> None:
    changed = max(10, rows // 1_000)
    report.say(f"a pipeline over {rows:,} orders, {changed:,} changed between two runs")
    source = lake.table("bench.orders")
    clean = {"table": "bench.orders", "sql": CLEAN.format(source="source"), "target": "bench.clean", "key": "id"}
    daily = {"table": "bench.clean", "by": ["day"], "sql": DAILY.format(source="source"), "target": "bench.daily"}
    pipeline = lake.pipeline("bench", {"steps": [{"name": "clean", **clean}, {"name": "daily", **daily, "key": "day"}]})
    first = timed(pipeline.run)
    report.say(f"  first run, both steps: {first:.1f} s")
    for table in ("bench.clean", "bench.daily"):
        lake.table(table).fold()
    ours: dict[str, list[float]] = {"clean": [], "daily": []}
    theirs: dict[str, list[float]] = {"clean": [], "daily": []}
    with _folder(lake, "recomputed") as folder:
        for seed in range(ROUNDS + 1):
            # Of the last day and a half: what changes is mostly new.
            keys = rows - 1 - random_keys(min(rows, 130_000), min(changed, 100_000), seed)
            source.upsert(changes(keys, False, seed))
            for step, query, read in (("clean", CLEAN, source), ("daily", DAILY, lake.table("bench.clean"))):
                ours[step].append(timed(partial(pipeline.run, step=step)))
                theirs[step].append(timed(partial(_recompute, lake, read, query, folder)))
    against = "Spark recomputes it from all rows and writes it to plain Parquet"
    what = f"after {changed:,} of {rows:,} rows changed"
    report.faster(f"pipeline step row by row, {what}", min(ours["clean"][1:]), against, min(theirs["clean"][1:]), 10)
    report.beside(
        f"the same, totals by day, two days hit, {what}", min(ours["daily"][1:]), against, min(theirs["daily"][1:])
    )
    for name in ("bench.clean", "bench.daily"):
        lake.drop_table(name)


def _recompute(lake: Lake, source: Table, query: str, folder: Path) -> None:
    frame = lake.spark.sql(query.format(source="{source}"), source=source.to_spark())
    frame.write.mode("overwrite").parquet(str(folder / "out"))


@contextmanager
def _folder(lake: Lake, name: str) -> Iterator[Path]:
    folder = lake.path.parent / name
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
