"""Spark on a lake in a bucket: tasks read and write objects themselves, and rows are those that all others see."""

from __future__ import annotations

import pickle
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pyarrow as pa
import pytest
from obstore.store import S3Store
from pyspark.sql import functions as F

from lithify import Corruption, InvalidRequest, Lake, Settings, Unavailable
from lithify.files.addresses import BucketPath
from lithify.files.local_files import copies
from lithify.files.open_storage import storage_of
from lithify.lake.datasource import LithifyDataSource
from lithify.lake.internals import internals
from lithify.streams.folder import FileStream
from support.drivers import Driver
from support.s3_servers import versitygw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lithify import Table
    from support.s3_servers import S3Server

pytestmark = [pytest.mark.spark, pytest.mark.bucket]

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())])
ROWS = 2_000


@pytest.fixture
def tasks_reach_it(spark: SparkSession, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """As if Spark had been started in this environment: its one JVM of the tests is older than the server."""
    for name, value in s3.environment().items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    return spark


@pytest.fixture
def lake(address: str, folder: Path, tasks_reach_it: SparkSession) -> Iterator[Lake]:
    """Jobs run on Spark whatever their size."""
    settings = Settings(local_job_bytes_max=0, local_frame_bytes_max=0, cache_folder=folder / "cache")
    with Lake(address, spark=tasks_reach_it, settings=settings) as opened:
        yield opened


def numbered(spark: SparkSession, rows: int, start: int = 0, name: str = "n") -> DataFrame:
    named = F.concat(F.lit(name), F.col("id").cast("string")).alias("name")
    amount = F.when(F.col("id") % 100 == 7, F.lit(float("nan"))).otherwise(F.col("id") / 4).alias("amount")
    return spark.range(start, start + rows, 1, 4).select("id", named, amount)


def same_rows(table: Table) -> bool:
    """What Spark reads is what is read without it, NaN as NaN."""
    here = table.to_arrow().sort_by("id")
    there = table.to_spark().orderBy("id").toArrow()
    return here.num_rows == there.num_rows and repr(here.to_pydict()) == repr(there.to_pydict())


def objects(address: str) -> list[str]:
    path = BucketPath(address)
    bucket = S3Store(path.bucket, client_options={"allow_http": True})
    found = [entry["path"] for page in obstore.list(bucket, path.key) for entry in page]
    return sorted(name.removeprefix(f"{path.key}/") for name in found)


def test_a_frame_is_one_commit_and_reads_are_fresh_through_changes_folds_and_compactions(
    lake: Lake, address: str, spark: SparkSession
) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")

    commit = table.upsert(numbered(spark, ROWS))

    assert (commit.seq, commit.rows) == (1, ROWS)
    assert same_rows(table)
    table.fold()
    assert same_rows(table)
    table.upsert([{"id": 3, "name": "changed", "amount": 1.0}, {"id": ROWS + 1, "name": "new", "amount": None}])
    table.delete([{"id": 4}])
    assert same_rows(table)
    assert table.to_spark().where("name = 'changed'").count() == 1
    assert table.to_spark(where="amount > 1e9").count() == ROWS // 100, "Spark takes NaN for the greatest number"
    table.upsert(numbered(spark, 100, 1000, "again"))
    assert same_rows(table)
    report = table.fold()
    assert report.final_rows == ROWS
    assert same_rows(table)
    assert table.get(1000) == {"id": 1000, "name": "again1000", "amount": 250.0}
    table.optimize(["amount"])
    assert same_rows(table)
    assert not [name for name in objects(address) if "probe-" in name or "/overlay-" in name or "/jobs/" in name]


def test_a_table_without_a_key_and_a_frame_with_duplicates(lake: Lake, spark: SparkSession) -> None:
    events = lake.create_table("s.events", SCHEMA)
    events.append(numbered(spark, 500))
    events.append([{"id": 1, "name": "twice", "amount": 0.0}])
    assert events.to_spark().count() == 501

    table = lake.create_table("s.t", SCHEMA, key="id")
    with pytest.raises(InvalidRequest, match="more than one row for the same key"):
        table.upsert(numbered(spark, 100).unionAll(numbered(spark, 100)))
    assert table.snapshot().seq == 0


def test_a_feed_through_spark_names_each_row_by_its_commit(lake: Lake, spark: SparkSession) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")
    for write in range(6):  # more than are scanned one by one
        table.upsert(
            [{"id": write, "name": f"w{write}", "amount": 0.5}, {"id": 99, "name": f"w{write}", "amount": 1.5}]
        )
    table.delete([{"id": 0}])

    def shown(rows: pa.Table) -> list[str]:
        return sorted(map(repr, rows.to_pylist()))

    assert shown(table.feed_to_spark(0).toArrow()) == shown(table.feed(0))


def test_the_data_source_reads_and_writes(lake: Lake, address: str, spark: SparkSession) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")
    table.upsert(numbered(spark, 300))
    table.fold()
    table.upsert([{"id": 5, "name": "changed", "amount": 2.0}])
    spark.dataSource.register(LithifyDataSource)

    read = spark.read.format("lithify").load(f"{address}/s/t")

    assert repr(read.orderBy("id").toArrow().to_pydict()) == repr(table.to_arrow().sort_by("id").to_pydict())
    numbered(spark, 50, 290, "written").write.format("lithify").mode("append").save(f"{address}/s/t")
    assert table.get(290) == {"id": 290, "name": "written290", "amount": 72.5}
    assert table.to_arrow().num_rows == 340
    assert not [name for name in objects(address) if "/spool-" in name]


def test_tasks_with_other_keys_are_named_and_nothing_is_written(
    lake: Lake, address: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")
    monkeypatch.setitem(spark.sparkContext.environment, "AWS_SECRET_ACCESS_KEY", "another")
    before = objects(address)

    with pytest.raises(Unavailable) as caught:
        table.upsert(numbered(spark, 10))

    assert "AWS_SECRET_ACCESS_KEY" in caught.value.message
    assert socket.gethostname() in caught.value.message
    assert "of-the-tests" not in caught.value.message
    assert objects(address) == before


def test_tasks_that_look_at_another_server_are_named(
    lake: Lake, spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with versitygw(folder / "other") as other:
        monkeypatch.setitem(spark.sparkContext.environment, "AWS_ENDPOINT_URL", other.server.url)
        with pytest.raises(Unavailable, match="another bucket of this name") as caught:
            lake.create_table("s.t", SCHEMA, key="id").upsert(numbered(spark, 10))
    assert other.server.url in caught.value.message


def test_a_frame_is_read_whatever_becomes_of_the_copies(lake: Lake, spark: SparkSession) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")
    table.upsert(numbered(spark, 300))
    frame = table.to_spark()

    shutil.rmtree(copies().folder / "copies")

    assert frame.count() == 300
    assert table.to_spark().count() == 300
    shutil.rmtree(copies().folder)
    with pytest.raises(Exception, match="does not exist"):  # a row is never passed over
        frame.count()
    assert table.to_spark().count() == 300


def test_an_object_that_is_gone_or_another_is_an_error(lake: Lake, address: str, spark: SparkSession) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")
    table.upsert(numbered(spark, 300))
    (data,) = [name for name in objects(address) if "/bulk-" in name]
    path = BucketPath(address) / data
    whole = storage_of(path).read(path)
    shutil.rmtree(copies().folder)

    storage_of(path).put(path, b"")
    with pytest.raises(Corruption, match="0 bytes instead of"):
        table.to_spark()
    storage_of(path).delete(path)
    with pytest.raises(Corruption, match="is missing although"):
        table.to_spark()
    storage_of(path).put(path, whole)
    assert table.to_spark().count() == 300


def test_a_stream_keeps_its_checkpoint_in_a_local_folder_or_is_refused(
    lake: Lake, address: str, tmp_path: Path, spark: SparkSession
) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id,name,amount\n1,a,0.5\n,b,0.5\n")

    def stream(checkpoint: Path | str | None) -> FileStream:
        return FileStream(internals(table), str(tmp_path / "in"), checkpoint=checkpoint, null_keys="quarantine")

    for checkpoint in (None, f"{address}/checkpoint"):
        with pytest.raises(InvalidRequest, match="--checkpoint DIR"):
            stream(checkpoint)
    stream(tmp_path / "checkpoint").run()

    assert table.to_arrow().to_pylist() == [{"id": 1, "name": "a", "amount": 0.5}]
    assert len([name for name in objects(address) if name.startswith("s/t/quarantine/")]) == 1
    stream(tmp_path / "checkpoint").run()
    assert table.snapshot().seq == 1


def test_a_micro_batch_is_one_commit(lake: Lake, tmp_path: Path, spark: SparkSession) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 7, "name": "a", "amount": 1.5}\n')

    def run() -> None:
        frame = spark.readStream.schema("id long, name string, amount double").json(str(tmp_path / "in"))
        writer = frame.writeStream.foreachBatch(table.stream_writer())
        query = writer.option("checkpointLocation", str(tmp_path / "taken")).trigger(availableNow=True).start()
        query.awaitTermination()

    run()
    (tmp_path / "in" / "2.json").write_text(
        '{"id": 7, "name": "b", "amount": 2.5}\n{"id": 8, "name": "c", "amount": 0}\n'
    )
    run()
    run()

    assert table.to_arrow().sort_by("id").column("name").to_pylist() == ["b", "c"]
    assert table.snapshot().seq == 2


def test_a_pipeline_takes_what_is_new(lake: Lake, address: str) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")
    table.upsert([{"id": id, "name": "x", "amount": 1.0} for id in range(5)])
    steps = [
        {"name": "up", "table": "s.t", "sql": "select id, upper(name) as v from source", "target": "s.up", "key": "id"}
    ]
    lake.pipeline("up", {"steps": steps}).run()
    table.upsert([{"id": 2, "name": "y", "amount": 1.0}])
    table.delete([3])
    table.fold()
    report = lake.pipeline("up", {"steps": steps}).run()

    found = {row["id"]: row["v"] for row in lake.table("s.up").to_arrow().to_pylist()}
    assert found == {0: "X", 1: "X", 2: "Y", 4: "X"}
    assert report.steps[0].read == 2
    assert not [name for name in objects(address) if "/spool-" in name]


def test_no_task_carries_keys(lake: Lake, s3: S3Server, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    packed, dumps = list[bytes](), pickle.dumps

    def noted(value: object, *further: object) -> bytes:
        packed.append(dumps(value, *further))  # type: ignore[arg-type]
        return packed[-1]

    monkeypatch.setattr(pickle, "dumps", noted)
    table = lake.create_table("s.t", SCHEMA, key="id")
    table.upsert(numbered(spark, 300))
    table.fold()
    table.upsert(numbered(spark, 50, 290, "later"))
    table.fold()
    table.compact()

    assert any(b"RewriteTask" in task for task in packed)
    assert not [task for task in packed for secret in (s3.access_key, s3.secret_key) if secret.encode() in task]


# -- executors of their own


def test_executors_elsewhere_write_and_read_objects_themselves(s3: S3Server, address: str, tmp_path: Path) -> None:
    memory = {"driver_memory": "1g", "executor_memory": "512m"}
    python = {"spark.pyspark.python": sys.executable}
    driver = Driver(tmp_path / "driver", master="local-cluster[2,1,512]", extra_conf=python, **memory)
    try:
        here, there, feed, feed_there, native = driver.run(on_executors, address, str(tmp_path / "cache"))
    finally:
        driver.close()
    assert there == here
    assert feed_there == feed
    assert not native, "Spark itself reads no file of a bucket"
    assert not [name for name in objects(address) if "probe-" in name]


def on_executors(spark: SparkSession, address: str, cache: str) -> tuple[object, ...]:
    with Lake(
        address,
        spark=spark,
        settings=Settings(local_job_bytes_max=0, local_frame_bytes_max=0, cache_folder=Path(cache)),
    ) as lake:
        table = lake.create_table("s.t", SCHEMA, key="id")
        table.upsert(numbered(spark, 400))
        table.fold()
        table.upsert([{"id": 3, "name": "changed", "amount": 1.0}])
        table.delete([{"id": 4}])
        for write in range(5):
            table.upsert([{"id": 500, "name": f"w{write}", "amount": 0.5}])
        frame = table.to_spark()
        there = repr(frame.orderBy("id").toArrow().to_pydict())
        feed_there = sorted(map(repr, table.feed_to_spark(1).toArrow().to_pylist()))
        feed = sorted(map(repr, table.feed(1).to_pylist()))
        table.fold()
        assert repr(table.to_spark().orderBy("id").toArrow().to_pydict()) == there
        here = repr(table.to_arrow().sort_by("id").to_pydict())
        return here, there, feed, feed_there, frame.inputFiles()
