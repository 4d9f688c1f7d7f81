"""What drivers on a cluster, or behind Spark Connect, are told to do with a lake in these tests.

Each function opens the lake for itself, by its path, with the session that it is given. Rows are (id, v); answers are
plain values.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lithify import Lake, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lithify import Table

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.string())])
# Everything on Spark, however small.
SETTINGS = Settings(local_job_bytes_max=0, local_ingest_bytes_max=0, local_frame_bytes_max=0, pack_files_min=2)


def rows_of(table: Table) -> dict[int, str]:
    return {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}


def make(path: Path, rows: Mapping[int, str], parts: int = 1) -> None:
    """A table with these rows folded, in so many files of base. Needs no Spark."""
    with Lake(path, create=True) as lake:
        table = lake.create_table("s.t", SCHEMA, key="id")
        ids = sorted(rows)
        share = -(-len(ids) // parts) or 1
        for first in range(0, len(ids), share):
            table.upsert([{"id": n, "v": rows[n]} for n in ids[first : first + share]])
            table.fold()


def upsert(path: Path, rows: Mapping[int, str]) -> None:
    with Lake(path, create=True) as lake:
        lake.table("s.t").upsert([{"id": n, "v": v} for n, v in rows.items()])


def make_here(spark: SparkSession, path: Path) -> None:
    """A table with no rows, at a path that means something to the driver only."""
    make(path, {})


def traces(spark: SparkSession, path: Path) -> list[str]:
    """What lies in the table's folders besides the logs, and what was begun."""
    found = (*path.glob("s/t/*/*"), *path.glob("_lithify/jobs/*"), *path.glob("_lithify/probe-*"))
    return [str(entry) for entry in found if entry.name != "_delta_log"]


def bulk_upsert(spark: SparkSession, path: Path, first: int, last: int, v: str, parts: int = 2) -> int:
    with Lake(path, spark=spark, settings=SETTINGS) as lake:
        frame = spark.range(first, last, 1, parts).selectExpr("id", f"'{v}' as v")
        return lake.table("s.t").upsert(frame).rows


def small_upsert(spark: SparkSession, path: Path, rows: dict[int, str]) -> str:
    """Of rows that this process hands over. What the name of the file begins with tells who has written it."""
    with Lake(path, spark=spark, settings=Settings()) as lake:
        table = lake.table("s.t")
        table.upsert(spark.createDataFrame(list(rows.items()), "id long, v string"))
        return max(table.snapshot().changes, key=lambda file: file.seq).path.split("-")[0]


def read(spark: SparkSession, path: Path, where: str | None = None) -> dict[int, str]:
    """Through `to_spark`."""
    with Lake(path, spark=spark, settings=SETTINGS) as lake:
        return {row["id"]: row["v"] for row in lake.table("s.t").to_spark(where=where).collect()}


def ingest(spark: SparkSession, path: Path, files: str) -> int:
    with Lake(path, spark=spark, settings=SETTINGS) as lake:
        return lake.ingest("s.t", files).rows


def fold(spark: SparkSession, path: Path) -> str:
    with Lake(path, spark=spark, settings=SETTINGS) as lake:
        return lake.table("s.t").fold().engine


def compact(spark: SparkSession, path: Path) -> list[str]:
    with Lake(path, spark=spark, settings=SETTINGS) as lake:
        return [report.engine for report in lake.table("s.t").compact()]


def optimize(spark: SparkSession, path: Path) -> list[str]:
    with Lake(path, spark=spark, settings=SETTINGS) as lake:
        return [report.engine for report in lake.table("s.t").optimize(by=["id", "v"])]


def write_batches(inbox: Path, batches: Sequence[Mapping[int, str]]) -> Path:
    """A file for each micro-batch. Spark takes the oldest first."""
    inbox.mkdir()
    for number, rows in enumerate(batches):
        file = inbox / f"{number}.json"
        file.write_text("\n".join(json.dumps({"id": n, "v": v}) for n, v in rows.items()))
        os.utime(file, (time.time() - 3600 + number, time.time() - 3600 + number))
    return inbox


def stream(spark: SparkSession, path: Path, inbox: Path, checkpoint: Path, rows_max: int) -> None:
    """All files of the inbox, one by one, as micro-batches."""
    with Lake(path, spark=spark, settings=SETTINGS) as lake:
        source = spark.readStream.schema("id long, v string").option("maxFilesPerTrigger", 1).json(str(inbox))
        sink = lake.table("s.t").stream_writer("upsert", name="events", rows_max=rows_max)
        query = source.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()


def surroundings(spark: SparkSession, path: Path) -> list[dict[str, Any]]:
    """What the executors' Python can import, and where Lithify comes from there."""

    # Inside, so that it is sent as it is: these tests cannot be imported there.
    def look_around(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from importlib.util import find_spec

        import pyarrow as pa

        for _ in batches:
            pass
        others = [name for name in ("deltalake", "pydantic", "datafusion", "xxhash") if find_spec(name)]
        found = find_spec("lithify")
        yield pa.RecordBatch.from_pylist([{"lithify": found.origin if found else "", "others": ",".join(others)}])

    with Lake(path, spark=spark, settings=SETTINGS) as lake:
        frame = lake.spark.range(0, 2, 1, 2).mapInArrow(look_around, "lithify string, others string")
        return [row.asDict() for row in frame.collect()]
