"""Spark reads a lake in a bucket by itself, through s3a: the rows that all see, or an error; and no key is told."""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

from lithify import Corruption, InvalidRequest, Lake, NotFound, Settings
from lithify.files.addresses import BucketPath, path_of
from lithify.files.bucket import object_marks
from lithify.files.bucket.disk_room import DiskRoom
from lithify.files.local_files import copies
from lithify.files.open_storage import storage_of
from lithify.lake.internals import internals
from lithify.spark import remote_files, s3a
from support.drivers import Driver
from support.fetched import NotHere
from support.s3_servers import S3Server, Servers
from support.s3a_jars import jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lithify import Table

pytestmark = [pytest.mark.spark, pytest.mark.bucket]

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())])
LOG = "lithify.spark.s3a"
_lakes: list[Lake] = []


def settings(cache: str, **further: Any) -> Settings:
    here = {"spark_master": "local[2]", "spark_driver_memory": "1g", "spark_shuffle_partitions": 2, "feed_rows_max": 0}
    return Settings(cache_folder=Path(cache), **{**here, **further})


@pytest.fixture(scope="module")
def connector() -> list[str]:
    try:
        return jars()
    except NotHere as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def with_s3a(_servers: Servers, tmp_path_factory: pytest.TempPathFactory, connector: list[str]) -> Iterator[Driver]:
    """A process whose lakes start a Spark with the connector."""
    scratch = tmp_path_factory.mktemp("s3a")
    (scratch / "events").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _servers.any().server.environment().items():
            patch.setenv(name, value)
        driver = Driver(scratch, own=True)
    try:
        driver.run(start, _servers.any().server.address(), str(scratch), connector)
        yield driver
    finally:
        driver.close()


def start(address: str, scratch: str, jars: list[str]) -> None:
    """The session stays while this lake is open."""
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{scratch}/events"}
    conf |= {"spark.eventLog.compress": "false", "spark.jars": ",".join(jars)}
    lake = Lake(address, settings=settings(f"{scratch}/cache", spark_conf=conf))
    _lakes.append(lake)
    assert lake.spark.range(3).count() == 3


def running() -> SparkSession:
    return _lakes[0].spark


def filled(lake: Lake) -> Table:
    """Several files of base, one of them touched by changes."""
    table = lake.create_table("s.t", SCHEMA, key="id")
    for start in (0, 1000, 2000):
        table.upsert([{"id": i, "name": f"n{i}", "amount": i / 4} for i in range(start, start + 100)])
        table.fold()
    table.upsert([{"id": 5, "name": "changed", "amount": float("nan")}, {"id": 9000, "name": "new", "amount": None}])
    table.delete([{"id": 6}])
    return table


def shown(rows: pa.Table) -> str:
    return repr(rows.sort_by("id").to_pydict())


def is_native(frame: DataFrame) -> bool:
    files = frame.inputFiles()
    return bool(files) and all(file.startswith("s3a://") or "/overlay-" in file for file in files)


def test_rows_are_those_that_all_others_see(with_s3a: Driver, address: str, tmp_path: Path) -> None:
    with_s3a.run(reads_the_same, address, str(tmp_path))


def reads_the_same(address: str, cache: str) -> None:
    with Lake(address, settings=settings(cache)) as lake:
        table = filled(lake)
        frame = table.to_spark()
        assert is_native(frame)
        assert shown(frame.toArrow()) == shown(table.to_arrow())
        assert table.to_spark() is frame, "the files of a snapshot are listed once"
        where = "id BETWEEN 1000 AND 1010"
        pruned = table.to_spark(where=where)
        assert is_native(pruned)
        assert len([file for file in pruned.inputFiles() if file.startswith("s3a://")]) == 1
        assert shown(pruned.toArrow()) == shown(table.to_arrow(where=where))
        assert table.to_spark(where="amount > 1e9").count() == 1, "Spark takes NaN for the greatest number"
        for seq in (1, 3, 4):
            assert shown(table.to_spark(as_of=seq).toArrow()) == shown(table.to_arrow(as_of=seq))
        feed = table.feed_to_spark(1)
        assert any(file.startswith("s3a://") for file in feed.inputFiles())
        assert sorted(map(repr, feed.toArrow().to_pylist())) == sorted(map(repr, table.feed(1).to_pylist()))
        table.fold()
        assert shown(table.to_spark().toArrow()) == shown(table.to_arrow())
        assert shown(frame.toArrow()) == shown(table.to_arrow()), "what was read before is still there"


def test_executors_elsewhere_read_by_themselves(address: str, tmp_path: Path, connector: list[str]) -> None:
    """Each with the keys of its own environment."""
    driver = Driver(tmp_path / "driver", own=True)
    try:
        driver.run(reads_on_executors, address, str(tmp_path), connector)
    finally:
        driver.close()


def reads_on_executors(address: str, cache: str, jars: list[str]) -> None:
    conf = {"spark.jars": ",".join(jars), "spark.pyspark.python": sys.executable}
    there = {"spark_master": "local-cluster[2,1,512]", "spark_executor_memory": "512m", "spark_conf": conf}
    with Lake(address, settings=settings(cache, **there)) as lake:
        table = filled(lake)
        frame = table.to_spark()
        files = frame.inputFiles()
        assert len(files) >= 3
        assert all(file.startswith("s3a://") for file in files), "what is laid down for executors lies there, too"
        assert shown(frame.toArrow()) == shown(table.to_arrow())
        assert sorted(map(repr, table.feed_to_spark(1).toArrow().to_pylist())) == sorted(
            map(repr, table.feed(1).to_pylist())
        )


def test_off_means_never(with_s3a: Driver, address: str, tmp_path: Path) -> None:
    with_s3a.run(reads_copies, address, str(tmp_path))


def reads_copies(address: str, cache: str) -> None:
    with Lake(address, settings=settings(cache, s3a="off")) as lake:
        table = filled(lake)
        frame = table.to_spark()
        assert frame.inputFiles()
        assert not [file for file in frame.inputFiles() if file.startswith("s3a:")]
        assert shown(frame.toArrow()) == shown(table.to_arrow())


# -- objects that vanish or become others


def harm(path: BucketPath, kind: str) -> None:
    store = storage_of(path)
    if kind == "removed":
        store.delete(path)
    elif kind == "emptied":
        store.put(path, b"")
    else:
        store.put(path, store.read(path)[:-9] + b"another99")  # of the same size


def base_file(table: Table, id: int) -> BucketPath:
    (file,) = [file for file in table.snapshot().base if file.bound("id").low <= id <= file.bound("id").high]
    found = path_of(f"{internals(table).handles.base_folder}/{file.path}")
    assert isinstance(found, BucketPath)
    return found


@pytest.mark.parametrize("kind", ["removed", "emptied", "replaced"])
def test_an_object_that_is_harmed_is_an_error_whenever_that_happens(
    with_s3a: Driver, address: str, tmp_path: Path, kind: str
) -> None:
    with_s3a.run(is_told_of_harm, address, str(tmp_path), kind)


def is_told_of_harm(address: str, cache: str, kind: str) -> None:
    spark, forgiving = running(), ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
    for name in forgiving:
        spark.conf.set(name, "true")
    try:
        with Lake(address, settings=settings(cache)) as lake:
            table = filled(lake)
            path = base_file(table, 1007)
            whole = storage_of(path).read(path)
            waiting = table.to_spark()
            assert waiting.count() == 300
            harm(path, kind)
            with pytest.raises(Exception, match=path.name):
                waiting.toArrow()
            storage_of(path).put(path, whole)
            table._internals.reader.forget_plans()
            with pytest.MonkeyPatch.context() as patch:
                done = harmed_after_the_first_look(patch, path, kind)
                with pytest.raises((Corruption, NotFound), match=path.name):
                    table.to_spark(as_of=3)
                assert done
            storage_of(path).put(path, whole)
            assert shown(table.to_spark(as_of=3).toArrow()) == shown(table.to_arrow(as_of=3))
    finally:
        for name in forgiving:
            spark.conf.unset(name)


def harmed_after_the_first_look(patch: pytest.MonkeyPatch, path: BucketPath, kind: str) -> list[str]:
    done: list[str] = []
    real = object_marks.ObjectMarks._look

    def look(self: object_marks.ObjectMarks) -> list[str]:
        found = real(self)
        if not done and any(wanted == str(path) for wanted, _ in self._wanted):
            done.append(kind)
            harm(path, kind)
        return found

    patch.setattr(object_marks.ObjectMarks, "_look", look)
    return done


# -- keys


def test_no_key_is_told(with_s3a: Driver, address: str, tmp_path: Path, s3: S3Server) -> None:
    said, events = with_s3a.run(all_that_is_said, address, str(tmp_path))
    assert "s3a://" in said
    assert "fs.s3a.endpoint" in said
    assert Path(events).is_dir()
    written = [file for file in Path(events).rglob("*") if file.is_file()]
    assert any(b"s3a://" in file.read_bytes() for file in written)
    for text in [said.encode(), *(file.read_bytes() for file in written)]:
        assert s3.secret_key.encode() not in text


def all_that_is_said(address: str, cache: str) -> tuple[str, str]:
    spark = running()
    with Lake(address, settings=settings(cache)) as lake:
        frame = filled(lake).to_spark(where="id > 10")
        frame.collect()
        plan = frame._jdf.queryExecution().toString()  # type: ignore[operator]
        plan += frame._jdf.queryExecution().optimizedPlan().toJSON()  # type: ignore[operator]
    context = spark.sparkContext
    hadoop = context._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    known = [f"{name}={hadoop.get(name)}" for name in ("fs.s3a.secret.key", "fs.s3a.access.key", "fs.s3a.endpoint")]
    conf = [f"{name}={value}" for name, value in context.getConf().getAll()]
    every = [f"{row[0]}={row[1]}" for row in spark.sql("SET").collect()]
    return "\n".join([plan, *known, *conf, *every]), context.getConf().get("spark.eventLog.dir", "")[len("file://") :]


def test_tasks_without_the_connector_carry_no_key(
    address: str, by_tasks: SparkSession, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []
    real = type(by_tasks.range(1)).mapInArrow

    def noted(frame: DataFrame, function: Callable[..., Any], *rest: Any) -> DataFrame:
        sent.append(cloudpickle.dumps(function))
        return real(frame, function, *rest)

    monkeypatch.setattr(type(by_tasks.range(1)), "mapInArrow", noted)
    with Lake(address, spark=by_tasks, settings=settings(str(tmp_path))) as lake:
        assert filled(lake).to_spark().count() == 300
    assert any(b"part-" in task for task in sent)
    assert not [task for task in sent if s3.secret_key.encode() in task or s3.access_key.encode() in task]
    pickle.loads(pickle.dumps(sent))


# -- tasks read for Spark


@pytest.fixture
def by_tasks(spark: SparkSession, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """As on a cluster without the connector."""
    for name, value in s3.environment().items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    monkeypatch.setattr(remote_files, "runs_here", lambda _: False)
    return spark


def spoil(table: Table, column: str, group: int) -> None:
    """Turn bytes of one column of one row group around, in the one file that the table has."""
    (file,) = table.snapshot().base
    path = path_of(f"{internals(table).handles.base_folder}/{file.path}")
    data = bytearray(storage_of(path).read(path))
    footer = pq.read_metadata(pa.BufferReader(bytes(data)))
    chunk = footer.row_group(group).column(footer.schema.to_arrow_schema().names.index(column))
    middle = chunk.data_page_offset + chunk.total_compressed_size // 2
    data[middle : middle + 8] = bytes(255 - byte for byte in data[middle : middle + 8])
    storage_of(path).put(path, bytes(data))


def test_tasks_read_the_columns_and_row_groups_that_are_asked_for(
    address: str, by_tasks: SparkSession, tmp_path: Path
) -> None:
    """What they do not read may be damaged."""
    rows = 300_000
    with Lake(address, spark=by_tasks, settings=settings(str(tmp_path))) as lake:
        table = lake.create_table("s.t", SCHEMA, key="id")
        numbers = pa.array(range(rows), pa.int64())
        table.upsert(pa.table({"id": numbers, "name": numbers.cast(pa.string()), "amount": numbers.cast(pa.float64())}))
        table.fold()
        table.upsert([{"id": 7, "name": "changed", "amount": 0.5}])
        table.delete([{"id": 8}])
        expected = [{"amount": float(id)} for id in range(11)]
        expected[7:9] = [{"amount": 0.5}]
        spoil(table, "name", 0)
        spoil(table, "amount", 1)
        shutil.rmtree(copies().folder)

        few = table.to_spark(columns=["amount"], where="id <= 10")

        assert sorted(few.toArrow().to_pylist(), key=lambda row: row["amount"]) == sorted(
            expected, key=lambda row: row["amount"]
        )
        assert table.to_spark(columns=["id"]).count() == rows - 1
        assert table.to_spark(columns=["id"], where="ID > 5").columns == ["id"]
        assert table.to_spark(columns=[]).count() == rows - 1
        for columns, where in ((None, "id <= 10"), (["amount"], None), (["amount"], "NAME <> 'x' AND id <= 10")):
            with pytest.raises(Exception, match="part-"):
                table.to_spark(columns=columns, where=where).toArrow()
        with pytest.raises(InvalidRequest, match="no column 'other'"):
            table.to_spark(columns=["other"])


def test_where_the_disk_has_no_room_for_copies_tasks_read(
    address: str, spark: SparkSession, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    with Lake(address, spark=spark, settings=settings(str(tmp_path), s3a="off")) as lake:
        table = filled(lake)
        shutil.rmtree(copies().folder)
        with monkeypatch.context() as full:
            full.setattr(DiskRoom, "free_bytes", lambda _: 1000)
            frame = table.to_spark()
            assert not [file for file in frame.inputFiles() if "/overlay-" not in file]
            assert shown(frame.toArrow()) == shown(table.to_arrow())
        assert [file for file in table.to_spark().inputFiles() if "/overlay-" not in file]


def test_columns_are_those_that_are_named(tmp_path: Path, spark: SparkSession) -> None:
    with Lake(tmp_path / "lake", spark=spark) as lake:
        frame = filled(lake).to_spark(columns=["name", "id"], where="amount > 2.0 AND id < 12")
        assert frame.columns == ["name", "id"]
        assert {row.id for row in frame.collect()} == {5, 9, 10, 11}


# -- sessions that lack it


def test_a_session_without_the_connector_is_told_what_to_add_once(
    address: str, spark: SparkSession, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    monkeypatch.setattr(s3a, "_verdicts", type(s3a._verdicts)())
    caplog.set_level(logging.INFO, LOG)

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == LOG]

    with Lake(address, spark=spark, settings=settings(str(tmp_path), s3a="off")) as lake:
        table = filled(lake)
        assert table.to_spark().count() == 300
        assert lines() == []
    with Lake(address, spark=spark, settings=settings(str(tmp_path))) as lake:
        table = lake.table("s.t")
        for where in (None, "id > 3", "id > 4"):
            assert table.to_spark(where=where).count() > 200
    (line,) = lines()
    assert "spark.jars.packages=org.apache.hadoop:hadoop-aws:" in line
    assert "local copies are read" in line


# -- what a session is started with


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    return lambda url: monkeypatch.setenv("AWS_ENDPOINT_URL", url) if url else None


def told(conf: dict[str, str]) -> dict[str, str]:
    prefix = "spark.hadoop.fs.s3a."
    return {name.removeprefix(prefix): value for name, value in conf.items() if name.startswith(prefix)}


def test_a_session_learns_where_the_server_is_and_no_key(endpoint: Callable[[str | None], None]) -> None:
    endpoint("http://127.0.0.1:9000")
    conf = s3a.launch_conf("auto", {})
    assert "very-secret" not in repr(conf)
    found = told(conf)
    assert found["endpoint"] == "http://127.0.0.1:9000"
    assert (found["path.style.access"], found["connection.ssl.enabled"]) == ("true", "false")
    assert (found["access.key"], found["secret.key"], found["endpoint.region"]) == ("", "", "us-east-1")
    assert "EnvironmentVariable" in found["aws.credentials.provider"]
    endpoint("https://s3.example.com")
    assert told(s3a.launch_conf("auto", {}))["connection.ssl.enabled"] == "true"


def test_amazon_needs_no_address(endpoint: Callable[[str | None], None], monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint(None)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    found = told(s3a.launch_conf("auto", {}))
    assert found["endpoint.region"] == "eu-central-1"
    assert not {"endpoint", "path.style.access"} & set(found)


def test_what_the_caller_asks_for_wins(endpoint: Callable[[str | None], None]) -> None:
    endpoint("http://127.0.0.1:9000")
    asked = {"spark.hadoop.fs.s3a.access.key": "theirs", s3a.PACKAGES_CONF: "a:b:1", s3a.EXCLUDES_CONF: "c:d"}
    conf = s3a.launch_conf("packages", asked)
    assert told(conf)["access.key"] == "theirs"
    assert not {"secret.key", "aws.credentials.provider"} & set(told(conf))
    assert conf[s3a.PACKAGES_CONF].split(",")[:2] == ["a:b:1", f"org.apache.hadoop:hadoop-aws:{s3a.hadoop_version()}"]
    assert conf[s3a.EXCLUDES_CONF].split(",")[:2] == ["c:d", "software.amazon.awssdk:bundle"]
    assert s3a.launch_conf("off", asked) == asked
    assert s3a.PACKAGES_CONF not in s3a.launch_conf("auto", {})


def test_a_spark_of_another_hadoop_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3a, "hadoop_version", lambda: "9.9.9")
    with pytest.raises(InvalidRequest, match=r"9\.9\.9.*hadoop-aws of that version"):
        s3a.packages()
