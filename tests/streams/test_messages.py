"""Streams of Debezium's messages into a table, and what streams do with events and rows that are of no use."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import InvalidRequest, Lake, Table
from lithify.lake.internals import internals
from support.debezium import message, text

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("lsn", pa.int64())])


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as opened:
        yield opened


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.create_table("a.t", SCHEMA, key="id", order_by="lsn")


def messages(*documents: Any) -> pa.Table:
    return pa.table({"value": pa.array([None if each is None else text(each) for each in documents], pa.binary())})


def take(table: Table, rows: pa.Table, epoch: int = 0, mode: Any = "upsert", **wishes: Any) -> Any:
    sink = table.stream_writer(mode, name="q", **wishes)
    return sink.take(internals(table), rows, epoch, None)


def aside(table: Table) -> list[dict[str, Any]]:
    files = sorted((table.base_path.parent / "quarantine").rglob("*.json"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def named(table: Table) -> dict[int, str]:
    return {row["id"]: row["name"] for row in table.to_arrow().to_pylist()}


def test_a_table_follows_a_database(table: Table) -> None:
    ada, bob = {"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}
    commit = take(table, messages(message("c", after=ada, lsn=1), message("c", after=bob, lsn=2)), envelope="debezium")
    assert (commit.upserted, commit.deleted) == (2, 0)
    later = messages(
        message("u", before=ada, after={**ada, "name": "Ada L."}, lsn=3), message("d", before=bob, lsn=4), None
    )
    commit = take(table, later, 1, envelope="debezium")
    assert (commit.upserted, commit.deleted) == (1, 1)
    again = take(table, later, 1, envelope="debezium")
    assert again.replayed
    assert table.to_arrow().to_pylist() == [{"id": 1, "name": "Ada L.", "lsn": 3}]


def test_events_that_come_in_another_order_than_they_happened(table: Table) -> None:
    row = {"id": 1, "name": "first"}
    take(table, messages(message("c", after={**row, "name": "second"}, lsn=20)), envelope="debezium")
    take(table, messages(message("u", after=row, lsn=10)), 1, envelope="debezium")
    assert named(table) == {1: "second"}


def test_what_is_no_row_fails_the_batch_or_is_set_aside(table: Table) -> None:
    given = messages(message("c", after={"id": 1, "name": "Ada"}), message("?", after={"id": 2}), message("t"))
    with pytest.raises(InvalidRequest, match=r"2 records do not fit table a\.t; nothing was written(.|\n)*'\?'"):
        take(table, given, envelope="debezium")
    assert table.snapshot().seq == 0
    take(table, given, envelope="debezium", null_keys="quarantine")
    assert named(table) == {1: "Ada"}
    assert ["not known" in aside(table)[0]["why"], "truncate" in aside(table)[1]["why"]] == [True, True]
    assert json.loads(aside(table)[0]["record"])["after"] == {"id": 2}
    assert "2 records set aside" in (table.history()[0].detail or "")


def test_a_batch_of_tombstones_only_says_how_far_the_stream_has_come(table: Table) -> None:
    assert take(table, messages(None, None), envelope="debezium").rows == 0
    assert take(table, messages(None, None), envelope="debezium").replayed


def test_wishes_that_do_not_go_together_are_refused(lake: Lake, table: Table) -> None:
    keyless = lake.create_table("a.k", pa.schema([("x", pa.int64())]))
    for of, wishes, said in (
        (table, {"envelope": "avro"}, "not known"),
        (table, {"envelope": "debezium", "op_column": "op"}, "leave out op_column"),
        (keyless, {"envelope": "debezium", "mode": "append"}, "no key"),
        (keyless, {"mode": "append", "if_changed": True}, "goes with mode upsert"),
    ):
        with pytest.raises(InvalidRequest, match=said):
            of.stream_writer(**wishes)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="no column 'value'"):
        take(table, pa.table({"x": [1]}), envelope="debezium")
    with pytest.raises(InvalidRequest, match="not JSON as text"):
        take(table, pa.table({"value": [1]}), envelope="debezium")


def test_an_envelope_belongs_to_the_stream_that_was_begun_with_it(table: Table) -> None:
    take(table, messages(message("c", after={"id": 1, "name": "Ada"})), envelope="debezium")
    with pytest.raises(InvalidRequest, match="begun with other settings"):
        take(table, pa.table({"id": [1], "name": ["x"], "lsn": [1]}), 1)


# -- messages that lack a column


@pytest.fixture
def people(lake: Lake) -> Table:
    """Two rows that are there."""
    columns = pa.schema([*SCHEMA, ("city", pa.string())])
    table = lake.create_table("a.people", columns, key="id", order_by="lsn")
    table.upsert([{"id": id, "name": "old", "lsn": 1, "city": "Rome"} for id in (1, 2)])
    return table


def cities(table: Table) -> dict[int, tuple[str, str]]:
    return {row["id"]: (row["name"], row["city"]) for row in table.to_arrow().to_pylist()}


LACKING = message("u", after={"id": 1, "name": "new"}, lsn=2)


def test_an_update_leaves_what_a_message_lacks_and_writes_the_null_that_it_gives(people: Table) -> None:
    take(people, messages(LACKING), mode="update", envelope="debezium")
    assert cities(people) == {1: ("new", "Rome"), 2: ("old", "Rome")}
    given = message("u", after={"id": 2, "name": "new", "city": None}, lsn=2)
    other = message("u", after={"id": 1, "name": "newer"}, lsn=3)
    take(people, messages(given, other), 1, mode="update", envelope="debezium")
    assert cities(people) == {1: ("newer", "Rome"), 2: ("new", None)}
    people.fold()
    assert cities(people) == {1: ("newer", "Rome"), 2: ("new", None)}


def test_an_update_puts_together_what_messages_of_a_batch_give_of_a_row(people: Table) -> None:
    moved = message("u", after={"id": 1, "city": "Oslo"}, lsn=3)
    gone, back = message("d", before={"id": 2}, lsn=4), message("c", after={"id": 2, "name": "back"}, lsn=5)
    take(people, messages(LACKING, moved, gone, back), mode="update", envelope="debezium")
    assert cities(people) == {1: ("new", "Oslo"), 2: ("back", None)}


def test_an_update_by_a_message_sets_aside_what_is_no_row(people: Table) -> None:
    strange = message("u", after={"id": 2, "age": 7}, lsn=2)
    take(people, messages(LACKING, strange), mode="update", envelope="debezium", null_keys="quarantine")
    assert cities(people) == {1: ("new", "Rome"), 2: ("old", "Rome")}
    assert "age" in aside(people)[0]["why"]


def test_an_upsert_by_a_message_that_lacks_a_column_is_refused_or_set_aside_alone(people: Table) -> None:
    given = messages(LACKING, message("u", after={"id": 2, "name": "new", "city": None}, lsn=2))
    with pytest.raises(InvalidRequest, match="column 'city': it lacks this column"):
        take(people, given, envelope="debezium")
    take(people, given, envelope="debezium", null_keys="quarantine")
    assert cities(people) == {1: ("old", "Rome"), 2: ("new", None)}
    assert aside(people)[0]["column"] == "city"
    take(people, messages(LACKING), 1, envelope="debezium", missing="null")
    assert cities(people) == {1: ("new", None), 2: ("new", None)}


# -- operations that nobody knows


def test_an_unknown_operation_is_set_aside_where_null_keys_are(table: Table) -> None:
    rows = pa.table(
        {"op": ["c", "X", None, "d"], "id": [1, 2, 3, 4], "name": ["a", "b", "c", "d"], "lsn": [1, 1, 1, 1]}
    )
    with pytest.raises(InvalidRequest, match="the operation of row"):
        take(table, rows, op_column="op")
    commit = take(table, rows, op_column="op", null_keys="quarantine")
    assert (commit.upserted, commit.deleted) == (1, 1)
    assert [json.loads(each["record"])["id"] for each in aside(table)] == [2, 3]
    assert aside(table)[0]["why"] == "its operation is not known"


# -- rows that are there already


def test_a_stream_writes_only_what_changed(table: Table) -> None:
    first = pa.table({"id": [1, 2], "name": ["a", "b"], "lsn": [1, 1]})
    assert take(table, first, if_changed=True).upserted == 2
    second = pa.table({"id": [1, 2, 3], "name": ["a", "B", "c"], "lsn": [1, 1, 1]})
    commit = take(table, second, 1, if_changed=True)
    assert (commit.upserted, commit.skipped) == (2, 1)
    assert table.feed(1).column("id").to_pylist() == [2, 3]
    again = take(table, second, 1, if_changed=True)
    assert (again.replayed, again.skipped) == (True, 1)
    nothing = take(table, second, 2, if_changed=True)
    assert (nothing.rows, nothing.skipped) == (0, 3)
    assert take(table, second, 2, if_changed=True).replayed, "how far the stream has come is remembered"


# -- values that were left out since they did not change


@pytest.fixture
def letters(lake: Lake) -> Table:
    columns = pa.schema(
        [("id", pa.int64()), ("body", pa.binary()), ("tags", pa.list_(pa.string())), ("s", pa.string())]
    )
    table = lake.create_table("a.letters", columns, key="id")
    table.upsert([{"id": 1, "body": b"REAL", "tags": ["a", "b"], "s": "x"}])
    return table


LEFT_OUT = {
    "body": base64.b64encode(b"__debezium_unavailable_value").decode(),
    "tags": ["__debezium_unavailable_value"],
}


@pytest.mark.parametrize("column", LEFT_OUT)
def test_a_value_that_was_left_out_is_not_lost(letters: Table, column: str) -> None:
    there = letters.to_arrow().to_pylist()
    changed = messages(message("u", after={**there[0], "body": "UkVBTA==", "s": "y", column: LEFT_OUT[column]}))
    with pytest.raises(InvalidRequest, match="REPLICA IDENTITY FULL"):
        take(letters, changed, envelope="debezium")
    take(letters, changed, envelope="debezium", null_keys="quarantine")
    assert letters.to_arrow().to_pylist() == there
    assert aside(letters)[0]["column"] == column


def test_an_update_leaves_a_value_that_was_left_out(letters: Table) -> None:
    take(letters, messages(message("u", after={"id": 1, "s": "y", **LEFT_OUT})), mode="update", envelope="debezium")
    assert letters.to_arrow().to_pylist() == [{"id": 1, "body": b"REAL", "tags": ["a", "b"], "s": "y"}]
    assert not aside(letters)
