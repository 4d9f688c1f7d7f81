"""Steps of pipelines that open messages: as streams do it, from files or from a table that messages are appended to."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import InvalidRequest, Lake, Table
from support.debezium import message

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("lsn", pa.int64())])
STEP: dict[str, Any] = {"envelope": "debezium", "target": "crm.customers", "key": "id", "order_by": "lsn"}


def text(*messages: dict[str, Any] | None) -> str:
    return "".join(json.dumps(each) + "\n" for each in messages)


def came(id: int, name: str, lsn: int) -> dict[str, Any]:
    return message("c", None, {"id": id, "name": name}, lsn=lsn)


def went(id: int, lsn: int) -> dict[str, Any]:
    return message("d", {"id": id, "name": None}, None, lsn=lsn)


def names(lake: Lake) -> dict[int, str]:
    return {row["id"]: row["name"] for row in lake.table("crm.customers").to_arrow().to_pylist()}


def put(path: Path, written: str, second: int) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(written)
    os.utime(path, (1_700_000_000 + second,) * 2)


def test_messages_of_files_upsert_and_delete_in_the_order_of_their_source(lake: Lake, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    put(inbox / "a.json", text(came(1, "one", 10), came(2, "two", 11), None, came(3, "three", 12)), 1)
    step = {**STEP, "files": f"{inbox}/*.json", "schema": "id BIGINT, name STRING, lsn BIGINT"}
    pipeline = lake.pipeline("in", {"steps": [step]})

    first = pipeline.run().steps[0]

    assert (first.files, first.written, first.deleted) == (1, 3, 0)
    assert names(lake) == {1: "one", 2: "two", 3: "three"}
    assert pipeline.run().outcome == "idle"
    # The younger file was written first: what is newer is told by the log's position.
    put(inbox / "b.json", text(came(2, "late", 9), went(1, 21), came(3, "THREE", 22)), 2)
    put(inbox / "c.json", text(came(1, "later still dead", 20)), 3)
    second = pipeline.run().steps[0]
    assert (second.files, second.deleted) == (2, 1)
    assert names(lake) == {2: "two", 3: "THREE"}


def test_without_an_order_the_younger_file_wins_and_what_is_no_row_is_set_aside(lake: Lake, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    lake.create_table("crm.customers", pa.schema([("id", pa.int64()), ("name", pa.string())]), key="id")
    unknown = message("c", None, {"id": 5, "name": "x", "age": 7})
    strange, truncated = message("z", None, {"id": 6, "name": "x"}), message("t")
    put(inbox / "b.json", text(came(1, "old", 1), came(2, "two", 1), unknown, strange, truncated), 1)
    put(inbox / "a.json", text(came(1, "new", 1), went(2, 1)), 2)
    step = {"envelope": "debezium", "files": str(inbox), "target": "crm.customers"}

    with pytest.raises(InvalidRequest, match=r"(?s)3 records of the new files cannot be read.*age"):
        lake.pipeline("in", {"steps": [step]}).run()
    assert names(lake) == {}
    found = lake.pipeline("in", {"steps": [{**step, "bad_records": "quarantine"}]}).run().steps[0]

    assert (found.read, found.quarantined) == (7, 3)
    assert names(lake) == {1: "new"}


def test_messages_that_are_appended_to_a_table_are_opened_once(lake: Lake) -> None:
    raw = lake.create_table("crm.raw", pa.schema([("value", pa.string()), ("topic", pa.string())]))
    raw.append([{"value": json.dumps(each), "topic": "t"} for each in (came(1, "one", 1), came(2, "two", 2))])
    lake.create_table("crm.customers", COLUMNS, key="id", order_by="lsn")
    pipeline = lake.pipeline("in", {"steps": [{**STEP, "table": "crm.raw", "bad_records": "quarantine"}]})

    assert pipeline.run().steps[0].written == 2
    raw.append([{"value": value, "topic": "t"} for value in (json.dumps(went(1, 5)), json.dumps(came(1, "x", 4)), "{")])
    second = pipeline.run().steps[0]

    assert (second.read, second.deleted, second.quarantined) == (3, 1, 1)
    assert names(lake) == {2: "two"}
    assert pipeline.run().outcome == "idle"


@pytest.mark.parametrize("source", ["files", "table"])
def test_a_message_that_lacks_a_column_is_refused_or_set_aside_alone(lake: Lake, tmp_path: Path, source: str) -> None:
    told = [message("u", None, {"id": 1}, lsn=5), message("u", None, {"id": 2, "name": None}, lsn=5)]
    put(tmp_path / "in" / "a.json", text(*told), 1)
    raw = lake.create_table("crm.raw", pa.schema([("value", pa.string())]))
    raw.append([{"value": json.dumps(each)} for each in told])
    kept = lake.create_table("crm.customers", COLUMNS, key="id", order_by="lsn")
    kept.upsert([{"id": id, "name": "old", "lsn": 1} for id in (1, 2)])
    step = {**STEP, source: "crm.raw" if source == "table" else str(tmp_path / "in")}

    with pytest.raises(InvalidRequest, match="it lacks this column"):
        lake.pipeline("in", {"steps": [step]}).run()
    assert names(lake) == {1: "old", 2: "old"}
    lake.pipeline("in", {"steps": [{**step, "bad_records": "quarantine"}]}).run()

    assert names(lake) == {1: "old", 2: None}


@pytest.mark.parametrize(
    ("source", "target", "match"),
    [
        ({"files": "in"}, None, r"messages do not tell its columns: say schema"),
        ({"table": "crm.kept"}, {"key": "id", "order_by": "lsn"}, r"crm.kept has a key"),
        ({"table": "crm.plain"}, {"key": "id", "order_by": "lsn"}, r"no column 'value'.*it has id"),
        ({"table": "crm.raw"}, {"key": "id"}, r"rows of a table are in no order"),
        ({"table": "crm.raw"}, {}, r"has no key, so messages with deletes"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_read(
    lake: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: dict[str, Any],
    target: dict[str, Any] | None,
    match: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "in" / "a.json", text(came(1, "one", 1)), 1)
    lake.create_table("crm.raw", pa.schema([("value", pa.string())])).append([{"value": "{}"}])
    lake.create_table("crm.kept", pa.schema([("id", pa.int64()), ("value", pa.string())]), key="id")
    lake.create_table("crm.plain", pa.schema([("id", pa.int64())])).append([{"id": 1}])
    lake.table("crm.kept").upsert([{"id": 1, "value": "{}"}])
    if target is not None:
        lake.create_table("crm.customers", COLUMNS, **target)

    with pytest.raises(InvalidRequest, match=match):
        lake.pipeline("in", {"steps": [{"envelope": "debezium", "target": "crm.customers", **source}]}).run()


def test_a_column_that_nobody_named_is_no_silent_loss(lake: Lake, tmp_path: Path) -> None:
    """As in a stream; who declares the columns of files has chosen."""
    put(tmp_path / "in" / "a.json", '{"id": 1, "n": 5}\n', 1)
    step: dict[str, Any] = {"files": str(tmp_path / "in"), "target": "s.t", "key": "id"}
    lake.pipeline("in", {"steps": [step]}).run()
    put(tmp_path / "in" / "b.json", '{"id": 2, "n": 6, "more": 7}\n', 2)

    with pytest.raises(InvalidRequest, match=r"(?s)1 record .*more.*or name the columns with schema"):
        lake.pipeline("in", {"steps": [step]}).run()
    lake.pipeline("in", {"steps": [{**step, "schema": "id BIGINT, n BIGINT"}]}).run()

    assert lake.table("s.t").get(2) == {"id": 2, "n": 6}


# -- mode update


PEOPLE = pa.schema([("id", pa.int64()), ("name", pa.string()), ("city", pa.string()), ("lsn", pa.int64())])
THERE = [{"id": id, "name": "old", "city": "Rome", "lsn": 1} for id in (1, 2)]


@pytest.fixture
def people(lake: Lake) -> Table:
    table = lake.create_table("crm.customers", PEOPLE, key="id")
    table.upsert(THERE)
    return table


def found(table: Table) -> list[dict[str, Any]]:
    return table.to_arrow().sort_by("id").to_pylist()


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_an_update_sets_what_records_or_their_files_have(lake: Lake, tmp_path: Path, people: Table, kind: str) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()
    if kind == "json":
        put(inbox / "a.json", text({"id": 1, "name": "new"}, {"id": 2, "city": None}), 1)
    elif kind == "csv":
        put(inbox / "a.csv", "id,name\n1,new\n", 1)
        put(inbox / "b.csv", "city,id\n,2\n", 2)
    else:
        pq.write_table(pa.table({"id": [1], "name": ["new"]}), inbox / "a.parquet")
        pq.write_table(pa.table({"city": pa.nulls(1, pa.string()), "id": [2]}), inbox / "b.parquet")
    step = {"files": str(inbox), "target": "crm.customers", "mode": "update"}
    schema = {"schema": "id BIGINT, name STRING, city STRING, lsn BIGINT"}

    lake.pipeline("in", {"steps": [{**step, **schema}]}).run()

    assert found(people) == [{**THERE[0], "name": "new"}, {**THERE[1], "city": None}]


def test_an_update_by_a_query_sets_the_columns_that_it_answers_with(lake: Lake, tmp_path: Path, people: Table) -> None:
    put(tmp_path / "in" / "a.json", text({"id": 1, "name": "new"}, {"id": 2, "name": ""}), 1)
    step = {"files": str(tmp_path / "in"), "target": "crm.customers", "mode": "update"}
    query = {
        "sql": "select id, upper(name) as name from source",
        "expect": [{"that": "name <> ''", "otherwise": "quarantine"}],
    }

    done = lake.pipeline("in", {"steps": [{**step, **query}]}).run().steps[0]

    assert (done.written, done.quarantined) == (1, 1)
    assert found(people) == [{**THERE[0], "name": "NEW"}, THERE[1]]


def test_an_update_by_messages_leaves_what_they_lack(lake: Lake, tmp_path: Path, people: Table) -> None:
    left_out = {"id": 1, "name": "new", "city": "__debezium_unavailable_value"}
    put(tmp_path / "in" / "a.json", text(message("u", None, left_out), message("u", None, {"id": 2, "lsn": 5})), 1)
    step = {"envelope": "debezium", "files": str(tmp_path / "in"), "target": "crm.customers", "mode": "update"}

    lake.pipeline("in", {"steps": [step]}).run()

    assert found(people) == [{**THERE[0], "name": "new"}, {**THERE[1], "lsn": 5}]


def test_an_update_takes_what_is_appended_to_a_table_and_no_rows_that_change(lake: Lake, people: Table) -> None:
    lake.create_table("raw.names", pa.schema([("id", pa.int64()), ("name", pa.string())])).append(
        [{"id": 1, "name": "new"}]
    )
    step = {"table": "raw.names", "target": "crm.customers", "mode": "update"}
    lake.pipeline("in", {"steps": [step]}).run()
    assert found(people) == [{**THERE[0], "name": "new"}, THERE[1]]

    lake.create_table("raw.keyed", pa.schema([("id", pa.int64()), ("name", pa.string())]), key="id")
    with pytest.raises(InvalidRequest, match="mode update takes what arrives"):
        lake.pipeline("other", {"steps": [{**step, "table": "raw.keyed"}]}).run()
