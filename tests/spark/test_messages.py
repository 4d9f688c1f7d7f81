"""Debezium's messages through streaming queries. There is no broker here: what Spark's Kafka source hands over, `key`
and `value` as bytes, is made from recorded messages in files.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from lithify import InvalidRequest, Lake, Table
from lithify.cli.main import app
from lithify.streams.folder import FileStream
from support.debezium import message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("lsn", pa.int64())])
PARSED = (
    "before struct<id: long, name: string>, after struct<id: long, name: string>, op string, ts_ms long, "
    "source struct<lsn: long, ts_ms: long>"
)


def history(seed: int, length: int) -> tuple[list[dict[str, Any]], dict[int, dict[str, Any]]]:
    """Messages of a table's life, and what it holds in the end."""
    chance, rows, told = random.Random(seed), dict[int, dict[str, Any]](), []
    for lsn in range(1, length + 1):
        key = chance.randrange(12)
        known = rows.get(key)
        if known is not None and chance.random() < 0.3:
            told.append(message("d", before=rows.pop(key), lsn=lsn))
        else:
            rows[key] = {"id": key, "name": f"v{lsn}"}
            told.append(message("c" if known is None else "u", before=known, after=rows[key], lsn=lsn))
    return told, rows


def write(folder: Path, number: int, messages: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    lines = "".join(json.dumps(each) + "\n" for each in messages)
    (folder / f"{number:04}.json").write_text(lines)


def run(stream: DataFrame, checkpoint: Path, sink: Any) -> None:
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


def held(table: Table) -> dict[int, str]:
    return {row["id"]: row["name"] for row in table.to_arrow().to_pylist()}


def names(rows: dict[int, dict[str, Any]]) -> dict[int, str]:
    return {key: row["name"] for key, row in rows.items()}


@pytest.mark.parametrize("rows_max", [None, 5], ids=["here", "on the executors"])
def test_messages_as_the_kafka_source_hands_them_over(
    lake: Lake, spark: SparkSession, tmp_path: Path, rows_max: int | None
) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id", order_by="lsn")
    told, rows = history(7, 120)
    told.append(message("?", after={"id": 1}))
    for number in range(3):
        write(tmp_path / "in", number, told[number * 60 : (number + 1) * 60])
    raw = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "in"))
    kafka = raw.selectExpr("cast(null as binary) as key", "cast(value as binary) as value", "'t' as topic")
    sink = table.stream_writer(envelope="debezium", null_keys="quarantine", rows_max=rows_max)
    run(kafka, tmp_path / "checkpoint", sink)
    run(kafka, tmp_path / "checkpoint", sink)
    assert held(table) == names(rows)
    assert table.snapshot().seq == 3
    (aside,) = (table.base_path.parent / "quarantine").rglob("*.json")
    assert "not known" in json.loads(aside.read_text())["why"]


def test_large_batches_are_refused_with_what_does_not_fit(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id", order_by="lsn")
    write(tmp_path / "in", 0, [message("c", after={"id": 1, "name": "a"}), message("t"), message("c", after={"id": 2})])
    sink = table.stream_writer(envelope="debezium", rows_max=1)
    with pytest.raises(Exception, match="truncate"):
        run(spark.readStream.text(str(tmp_path / "in")), tmp_path / "checkpoint", sink)
    assert isinstance(sink.error, InvalidRequest)
    assert table.snapshot().seq == 0


def test_messages_that_are_parsed_already(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id", order_by="lsn")
    told, rows = history(3, 80)
    write(tmp_path / "in", 0, told)
    sink = table.stream_writer(envelope="debezium")
    run(spark.readStream.schema(PARSED).json(str(tmp_path / "in")), tmp_path / "checkpoint", sink)
    assert held(table) == names(rows)


@pytest.mark.parametrize("rows_max", [None, 1], ids=["here", "on the executors"])
@pytest.mark.parametrize("mode", ["update", "upsert"])
def test_what_a_message_lacks_is_left_by_an_update_and_no_upsert(
    lake: Lake, spark: SparkSession, tmp_path: Path, mode: Any, rows_max: int | None
) -> None:
    table = lake.create_table("s.t", SCHEMA.append(pa.field("city", pa.string())), key="id", order_by="lsn")
    table.upsert([{"id": id, "name": "old", "lsn": 1, "city": "Rome"} for id in range(4)])
    rows = [{"id": 0, "name": "new"}, {"id": 1, "name": "new", "city": None}, {"id": 2, "city": "Oslo"}]
    told = [message("u", after=row, lsn=2) for row in rows]
    write(tmp_path / "in", 0, [*told, message("u", after={"id": 2, "name": "new"}, lsn=3), message("d", {"id": 3})])
    sink = table.stream_writer(mode, envelope="debezium", null_keys="quarantine", rows_max=rows_max)
    run(spark.readStream.text(str(tmp_path / "in")), tmp_path / "checkpoint", sink)
    cities = {row["id"]: (row["name"], row["city"]) for row in table.to_arrow().to_pylist()}
    if mode == "update":
        assert cities == {0: ("new", "Rome"), 1: ("new", None), 2: ("new", "Oslo")}
    else:
        assert cities == {0: ("old", "Rome"), 1: ("new", None), 2: ("old", "Rome")}
        files = (table.base_path.parent / "quarantine").rglob("*.json")
        assert sum(len(file.read_text().splitlines()) for file in files) == 3


def test_files_of_messages_that_lack_a_column(lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id", order_by="lsn")
    table.upsert([{"id": id, "name": "old", "lsn": 1} for id in range(2)])
    write(
        tmp_path / "in", 0, [message("u", after={"id": 0}, lsn=2), message("u", after={"id": 1, "name": None}, lsn=2)]
    )
    updated = lake.create_table("s.updated", SCHEMA, key="id", order_by="lsn")
    updated.upsert([{"id": id, "name": "old", "lsn": 1} for id in range(2)])
    FileStream(updated._internals, str(tmp_path / "in"), envelope="debezium", mode="update").run()
    assert held(updated) == {0: "old", 1: None}

    with pytest.raises(InvalidRequest, match=r"line 1, column 'name': it lacks this column"):
        FileStream(table._internals, str(tmp_path / "in"), envelope="debezium").run()
    FileStream(table._internals, str(tmp_path / "in"), envelope="debezium", null_keys="quarantine").run()
    assert held(table) == {0: "old", 1: None}


def test_a_frame_without_messages_is_refused(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id", options={"missing_columns": "null"})
    write(tmp_path / "in", 0, [{"id": 1}])
    sink = table.stream_writer(envelope="debezium")
    with pytest.raises(Exception, match="an envelope takes messages"):
        run(spark.readStream.schema("id long").json(str(tmp_path / "in")), tmp_path / "checkpoint", sink)


def test_files_of_recorded_messages(lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id", order_by="lsn")
    told, rows = history(5, 90)
    write(tmp_path / "in", 0, told[:50])
    FileStream(table._internals, str(tmp_path / "in"), envelope="debezium").run()
    write(tmp_path / "in", 1, [*told[50:], message("c", after={"id": 99, "unknown": 1})])
    with pytest.raises(InvalidRequest, match=r"0001\.json, line 41.*column 'unknown' is not in the table"):
        FileStream(table._internals, str(tmp_path / "in"), envelope="debezium").run()
    wishes = {"envelope": "debezium", "null_keys": "quarantine"}
    report = FileStream(table._internals, str(tmp_path / "in"), **wishes).run()
    assert (held(table), report.seq) == (names(rows), 2)


def test_the_command(lake: Lake, tmp_path: Path) -> None:
    lake.create_table("s.t", SCHEMA, key="id", order_by="lsn")
    told, rows = history(2, 20)
    write(tmp_path / "in", 0, told)
    command = ["--lake", str(lake.path), "stream", str(tmp_path / "in"), "s.t", "--envelope", "debezium", "--once"]
    answer = CliRunner().invoke(app, [*command, "--json"])
    assert answer.exit_code == 0, answer.output
    assert held(lake.table("s.t")) == names(rows)


def test_events_of_which_nobody_knows_the_operation_are_set_aside_by_spark_too(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id", options={"missing_columns": "null"})
    write(
        tmp_path / "in", 0, [{"op": op, "id": n, "name": "x", "lsn": 1} for n, op in enumerate(["c", "X", None, "u"])]
    )
    stream = spark.readStream.schema("op string, id long, name string, lsn long").json(str(tmp_path / "in"))
    run(stream, tmp_path / "checkpoint", table.stream_writer(op_column="op", null_keys="quarantine", rows_max=0))
    assert set(held(table)) == {0, 3}
    files = (table.base_path.parent / "quarantine").rglob("*.json")
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted(json.loads(line["record"])["id"] for line in lines) == [1, 2]
