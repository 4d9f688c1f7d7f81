"""Streams of Debezium's messages into a table, and what streams do with events and rows that are of no use."""

from __future__ import annotations

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


def take(table: Table, rows: pa.Table, epoch: int = 0, **wishes: Any) -> Any:
    sink = table.stream_writer("upsert", name="q", **wishes)
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
