"""Streaming queries into tables: every event once, whatever happens to the query."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from lithify import CommitUnknown, InvalidRequest, Lake
from lithify.lake.table import Table
from lithify.streams.apply import Checkpoint, apply_batch, checkpoint_of
from support.bags import bag
from support.faults import FaultyStore, disk_full
from support.streams import EVENTS, SCHEMA, Event, applied, events_of, write_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Sink = Callable[["DataFrame", int], None]


def run(spark: SparkSession, source: Path, checkpoint: Path, sink: Sink, columns: str = EVENTS) -> None:
    """One query over all files that are there, each a micro-batch of its own."""
    stream = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).json(str(source))
    query = (
        stream.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


def rows_of(table: Table) -> dict[int, dict[str, Any]]:
    found = table.to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row for row in found}


def test_a_feed_of_changes_leaves_the_rows_that_its_events_leave(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id", order_by="at")
    files = [events_of(seed, 60) for seed in range(4)]
    for number, events in enumerate(files[:2]):
        write_file(tmp_path / "in", number, events)
    seen: list[tuple[int, int]] = []
    sink = table.stream_writer(op_column="op", on_batch=lambda batch: seen.append((batch.epoch, batch.commit.seq)))
    run(spark, tmp_path / "in", tmp_path / "checkpoint", sink)
    table.fold()
    for number, events in enumerate(files[2:], 2):
        write_file(tmp_path / "in", number, events)

    run(spark, tmp_path / "in", tmp_path / "checkpoint", table.stream_writer(op_column="op", rows_max=10))

    assert rows_of(table) == applied(event for events in files for event in events)
    assert seen == [(0, 1), (1, 2)]
    assert table.snapshot().seq == 4
    assert [entry.operation for entry in table.history(3)] == ["stream", "stream", "fold"]


def test_a_batch_that_failed_after_its_commit_is_not_written_twice(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    table, source, checkpoint = lake.create_table("s.log", SCHEMA), tmp_path / "in", tmp_path / "checkpoint"
    files = [[Event(id=i, at=n, v="x") for i in range(5)] for n in range(3)]
    for number, events in enumerate(files):
        write_file(source, number, events)
    sink = table.stream_writer("append")

    def fails_afterwards(frame: DataFrame, epoch: int) -> None:
        sink(frame.drop("op"), epoch)
        if epoch == 1:
            raise RuntimeError("the plug was pulled")

    with pytest.raises(StreamingQueryException, match="the plug was pulled"):
        run(spark, source, checkpoint, fails_afterwards)
    again = table.stream_writer("append")
    run(spark, source, checkpoint, lambda frame, epoch: again(frame.drop("op"), epoch))

    expected = [event.row for events in files for event in events]
    assert bag(table.to_arrow().to_pylist()) == bag(expected)
    assert table.snapshot().seq == 3


def test_a_driver_that_is_killed_after_a_commit_goes_on_where_it_was(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id", order_by="at")
    files = [events_of(seed, 30) for seed in range(4)]
    for number, events in enumerate(files):
        write_file(tmp_path / "in", number, events)
    code = f"from support.streams import stream_until_killed as run; run({str(lake.path)!r}, {str(tmp_path)!r})"
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    driver = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}, start_new_session=True
    )
    assert driver.wait(300) == -signal.SIGKILL
    wait_until_gone(driver.pid)
    assert table.snapshot().seq == 2, "two batches are in, and Spark knows of one"

    run(spark, tmp_path / "in", tmp_path / "checkpoint", table.stream_writer(op_column="op"))

    assert rows_of(table) == applied(event for events in files for event in events)
    assert table.snapshot().seq == len(files)


def wait_until_gone(group: int, wait_s_max: float = 60) -> None:
    """The JVM of a driver that was killed ends by itself."""
    deadline = time.monotonic() + wait_s_max
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise TimeoutError(f"process group {group} is still there")


@pytest.mark.parametrize(("point", "error"), [("bulk.written", OSError), ("bulk.committed", CommitUnknown)])
def test_a_large_batch_that_is_stopped_and_comes_again_is_in_once(
    lake: Lake, spark: SparkSession, point: str, error: type[Exception]
) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")
    frame = spark.createDataFrame([(i, 1, "x") for i in range(50)], "id long, at long, v string")
    wishes: dict[str, Any] = {"checkpoint": Checkpoint("stream.q", 0, None), "mode": "upsert", "rows_max": 10}

    with Lake(lake.path, spark, store=FaultyStore(point, disk_full)) as failing, pytest.raises(error, match="space"):
        apply_batch(failing.table("s.t")._internals, frame, **wishes)
    apply_batch(table._internals, frame, **wishes)

    assert (table.snapshot().seq, table.to_arrow().num_rows) == (1, 50)


def test_a_query_is_held_to_its_table_and_its_mode(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    first, second = (lake.create_table(name, SCHEMA, key="id") for name in ("s.first", "s.second"))
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    write_file(source, 0, events_of(1, 5))
    run(spark, source, checkpoint, first.stream_writer(op_column="op"))
    write_file(source, 1, events_of(2, 5))

    with pytest.raises(StreamingQueryException, match=r"s\.second has not begun.*belongs to another table"):
        run(spark, source, checkpoint, second.stream_writer(op_column="op"))
    with pytest.raises(StreamingQueryException, match="was begun with other settings"):
        run(spark, source, checkpoint, first.stream_writer(op_column="operation"))
    with pytest.raises(StreamingQueryException, match="the events have no column 'nothing'"):
        run(spark, source, tmp_path / "third", second.stream_writer(op_column="nothing"))
    assert (first.snapshot().seq, second.snapshot().seq) == (1, 0)

    run(spark, source, checkpoint, second.stream_writer(op_column="op", first_epoch=1))
    assert rows_of(second) == applied(events_of(2, 5))


def test_a_name_belongs_to_one_checkpoint(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")
    write_file(tmp_path / "in", 0, events_of(1, 5))
    run(spark, tmp_path / "in", tmp_path / "checkpoint", table.stream_writer(op_column="op", name="orders"))
    assert checkpoint_of(table._internals, "stream.orders") == 0

    with pytest.raises(StreamingQueryException, match="reads from something else than it did"):
        run(spark, tmp_path / "in", tmp_path / "anew", table.stream_writer(op_column="op", name="orders"))


def test_a_batch_by_hand_needs_a_name(lake: Lake, spark: SparkSession) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")
    frame = spark.createDataFrame([(1, 1, "x")], "id long, at long, v string")

    with pytest.raises(InvalidRequest, match=r"stream_writer\(name=\.\.\.\)"):
        table.stream_writer()(frame, 0)
    # As Spark Connect does it: the writer is sent to the server, and opens the lake there.
    pickle.loads(pickle.dumps(table.stream_writer(name="by-hand")))(frame, 0)

    assert table.to_arrow().num_rows == 1


@pytest.mark.parametrize("order_by", [None, "at"])
def test_a_large_batch_leaves_what_a_small_one_does(
    lake: Lake, spark: SparkSession, tmp_path: Path, order_by: str | None
) -> None:
    """Events of few keys in few rows per Arrow batch, so that the events of a key come to a task in pieces."""
    events = events_of(5, 400, keys=40) + [Event(id=7, at=n % 5, v=f"{n}", op="u") for n in range(100)]
    nulls = [Event(id=None, at=1, v="lost", op="u"), Event(id=None, at=1, v=None, op="d")]
    write_file(tmp_path / "in", 0, [*events, *nulls])
    there = [Event(id=i, at=3, v="there").row for i in range(30)]
    frame = spark.read.schema(EVENTS).json(str(tmp_path / "in"))
    tables = {}
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "13")
    try:
        for rows_max in (10_000, 100):
            table = tables[rows_max] = lake.create_table(f"s.t{rows_max}", SCHEMA, key="id", order_by=order_by)
            table.upsert(there)
            apply_batch(
                table._internals,
                frame,
                checkpoint=Checkpoint("stream.same", 0, None),
                mode="upsert",
                op_column="op",
                null_keys="quarantine",
                rows_max=rows_max,
            )
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)

    small, large = (rows_of(table) for table in tables.values())
    assert large == small == applied(events, there, ordered=order_by is not None)
    assert list((lake.path / "s" / "t100" / "changes").glob("bulk-*/part-*"))
    assert set_aside(tables[100]) == set_aside(tables[10_000]) == [None, "lost"]
    commits = [table.history(1)[0] for table in tables.values()]
    assert len({(commit.rows, commit.seq) for commit in commits}) == 1


def set_aside(table: Table) -> list[str | None]:
    files = (table.base_path.parent / "quarantine").rglob("*.json")
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert all("null" in line["why"] for line in lines)
    return sorted((json.loads(line["record"]).get("v") for line in lines), key=str)


def test_a_large_batch_of_a_table_with_no_key_is_appended_once(lake: Lake, spark: SparkSession) -> None:
    table = lake.create_table("s.log", pa.schema([("id", pa.int64())]))
    for _ in range(2):
        commit = apply_batch(
            table._internals,
            spark.range(500),
            checkpoint=Checkpoint("stream.log", 0, None),
            mode="append",
            rows_max=100,
        )
    assert (commit.replayed, commit.rows, table.to_arrow().num_rows) == (True, 500, 500)
