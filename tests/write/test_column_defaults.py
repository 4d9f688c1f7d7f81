"""Defaults of columns: what rows get that do not name the column, through every door, and what stays as it was."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from lithify import Conflict, InvalidRequest, Lake, LithifyError, NotFound, Table
from lithify.core.schema import DEFAULTS_FORMAT
from lithify.core.type_text import parse_type
from lithify.files.local import LocalStorage
from support.effort import SOAK
from support.faults import FaultyStore, RecordingStore, Stopped, stop

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("status", pa.string()), ("stock", pa.int32())])
DEFAULTS = {"status": "new", "stock": 7}


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as lake:
        yield lake


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.create_table("s.t", COLUMNS, key="id", defaults=DEFAULTS)


def rows_of(table: Table, **asked: Any) -> list[dict[str, Any]]:
    return sorted(table.to_arrow(**asked).to_pylist(), key=lambda found: found["id"])


def row(i: int, name: str = "n", status: str | None = "new", stock: int | None = 7) -> dict[str, Any]:
    return {"id": i, "name": name, "status": status, "stock": stock}


FRAMES: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "dicts": lambda rows: rows,
    "arrow": pa.Table.from_pylist,
    "polars": pl.DataFrame,
    "pandas": lambda rows: pa.Table.from_pylist(rows).to_pandas(),
}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("write", ["upsert", "append", "replace"])
def test_rows_without_the_column_have_its_default(table: Table, kind: str, write: str) -> None:
    getattr(table, write)(FRAMES[kind]([{"id": 1, "name": "n"}, {"id": 2, "name": "n"}]))

    assert rows_of(table) == [row(1), row(2)]
    table.fold()
    assert rows_of(table) == [row(1), row(2)]


def test_null_that_is_written_is_null_and_each_row_speaks_for_itself(table: Table) -> None:
    table.upsert(
        [
            {"id": 1, "name": "n", "status": None, "stock": 1},
            {"id": 2, "name": "n"},
            {"id": 3, "name": "n", "stock": None},
        ]
    )
    table.upsert(pa.table({"id": [4], "name": ["n"], "status": pa.nulls(1)}))

    assert rows_of(table) == [row(1, status=None, stock=1), row(2), row(3, stock=None), row(4, status=None)]


def test_record_batches_with_other_columns_speak_for_themselves(table: Table) -> None:
    table.upsert(
        [
            pa.record_batch({"id": [1], "name": ["n"], "status": ["x"]}),
            pa.record_batch({"id": [2], "name": ["n"], "stock": [2]}),
        ]
    )

    assert rows_of(table) == [row(1, status="x"), row(2, stock=2)]


def test_a_column_without_a_default_is_asked_for_as_ever(table: Table) -> None:
    with pytest.raises(InvalidRequest, match="the column 'name'"):
        table.upsert([{"id": 1}])
    table.upsert([{"id": 1}], missing="null")
    assert rows_of(table) == [{**row(1), "name": None}]


def test_an_update_leaves_what_is_there_and_inserts_null(table: Table) -> None:
    table.upsert([row(1, status="paid", stock=1)])
    table.update([{"id": 1, "name": "m"}, {"id": 2, "name": "m"}])

    assert rows_of(table) == [row(1, "m", "paid", 1), row(2, "m", None, None)]


def test_a_table_without_a_key_has_defaults_too(lake: Lake) -> None:
    columns = pa.schema([pa.field("id", pa.int64()), pa.field("must", pa.string(), nullable=False)])
    table = lake.create_table("s.log", columns, defaults={"must": "x"})
    table.append([{"id": 1}, {"id": 2, "must": "y"}])

    assert [found["must"] for found in rows_of(table)] == ["x", "y"]
    with pytest.raises(InvalidRequest, match="null"):
        table.append([{"id": 3, "must": None}])


def test_rows_that_were_there_keep_null_and_a_changed_default_changes_none(lake: Lake) -> None:
    table = lake.create_table("s.t", pa.schema([("id", pa.int64())]), key="id")
    table.upsert([{"id": 1}])
    table.fold()
    table.upsert([{"id": 2}])

    table.add_column(pa.field("status", pa.string()), default="new")
    table.upsert([{"id": 3}])
    before = table.snapshot().seq
    table.alter_column("status", default="old")
    table.upsert([{"id": 4}])
    table.alter_column("status", default=None)
    with pytest.raises(InvalidRequest, match="lack the column 'status'"):
        table.upsert([{"id": 5}])

    expected = [None, None, "new", "old"]
    assert [found["status"] for found in rows_of(table)] == expected
    table.fold()
    table.compact()
    assert [found["status"] for found in rows_of(table)] == expected
    assert [found["status"] for found in rows_of(table, as_of=before)] == expected[:3]
    assert [found["status"] for found in table.feed(0).to_pylist()] == expected
    assert lake.sql("select id from s.t where status = 'new'").to_pylist() == [{"id": 3}]


@pytest.mark.parametrize(
    ("kind", "value", "written", "kept"),
    [
        ("int8", -3, "-3", -3),
        ("float64", 0.1, "0.1", 0.1),
        ("float32", 2, "2", 2.0),
        ("decimal(10,2)", Decimal("1.50"), "1.5", Decimal("1.50")),
        ("string", "it's", "'it''s'", "it's"),
        ("bool", False, "false", False),
        ("date", dt.date(2024, 2, 29), "DATE '2024-02-29'", dt.date(2024, 2, 29)),
        (
            "timestamp",
            dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
            "TIMESTAMP '2024-02-29 12:00:00'",
            dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
        ),
        ("timestamp_ntz", dt.datetime(2024, 2, 29), "'2024-02-29 00:00:00'", dt.datetime(2024, 2, 29)),
        ("binary", b"\x00\xff", "X'00ff'", b"\x00\xff"),
    ],
)
def test_a_default_is_a_value_of_the_type_in_python_and_in_sql(
    lake: Lake, folder: Path, kind: str, value: Any, written: str, kept: Any
) -> None:
    sql_type = {"timestamp": "timestamptz"}.get(kind, kind)
    table = lake.create_table("s.t", pa.schema([("id", pa.int64())]), key="id")
    table.add_column(pa.field("a", parse_type(kind)), default=value)
    lake.execute(f"ALTER TABLE s.t ADD COLUMN b {sql_type} DEFAULT {written}")
    lake.execute(f"ALTER TABLE s.t ADD COLUMN c {sql_type}")
    lake.execute(f"ALTER TABLE s.t ALTER COLUMN c SET DEFAULT {written}")
    lake.execute(f"CREATE TABLE s.u (id bigint PRIMARY KEY, a {sql_type} DEFAULT {written})")

    table.upsert([{"id": 1}])
    lake.execute("INSERT INTO s.u (id) VALUES (1)")

    assert table.get(1) == {"id": 1, "a": kept, "b": kept, "c": kept}
    with Lake(folder / "lake") as other:  # as it is kept
        assert other.table("s.u").get(1) == {"id": 1, "a": kept}
        other.table("s.u").upsert([{"id": 2}])
        assert other.table("s.u").get(2) == {"id": 2, "a": kept}


@pytest.mark.parametrize(
    ("what", "error", "said"),
    [
        (lambda t: t.add_column(pa.field("x", pa.int8()), default=300), InvalidRequest, "does not fit int8"),
        (lambda t: t.add_column(pa.field("x", pa.int8()), default="now()"), InvalidRequest, "does not fit int8"),
        (lambda t: t.add_column(pa.field("x", pa.float64()), default=float("nan")), InvalidRequest, "finite"),
        (lambda t: t.add_column(pa.field("x", pa.list_(pa.int8())), default=[1]), InvalidRequest, "one plain value"),
        (lambda t: t.add_column(pa.field("x", pa.int8(), nullable=False), default=1), InvalidRequest, "nullable"),
        (lambda t: t.alter_column("id", default=1), InvalidRequest, "is in key"),
        (lambda t: t.alter_column("gone", default=1), NotFound, "'gone' is not in table"),
        (lambda t: t.alter_column("stock", default="many"), InvalidRequest, "does not fit int32"),
        (lambda t: t.alter_column("stock", default=1, type="int64"), InvalidRequest, "one way at a time"),
    ],
)
def test_what_is_no_default_is_refused_and_nothing_changes(
    table: Table, what: Callable[[Table], Any], error: type[LithifyError], said: str
) -> None:
    before = table.definition
    with pytest.raises(error, match=said):
        what(table)
    assert table.definition == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ALTER TABLE s.t ADD COLUMN x int DEFAULT now()", "a default is a value"),
        ("ALTER TABLE s.t ADD COLUMN x int DEFAULT 1 + 1", "not accepted"),
        ("ALTER TABLE s.t ADD COLUMN x int DEFAULT '5'", "is text"),
        ("ALTER TABLE s.t ADD COLUMN x string DEFAULT 5", "does not fit string"),
        ("ALTER TABLE s.t ADD COLUMN x string NOT NULL DEFAULT 'a'", "without NOT NULL"),
        ("ALTER TABLE s.t ALTER COLUMN status SET DEFAULT -'a'", "a default is a value"),
        ("ALTER TABLE s.t ALTER COLUMN status SET DEFAULT", "a default is a value"),
        ("CREATE TABLE s.u (id bigint PRIMARY KEY DEFAULT 1)", "is in key"),
    ],
)
def test_sql_takes_a_constant_and_nothing_else(lake: Lake, table: Table, text: str, said: str) -> None:
    before = table.definition
    with pytest.raises(InvalidRequest, match=said):
        lake.execute(text)
    assert table.definition == before
    assert lake.tables() == ["s.t"]


def test_columns_that_say_nothing_when_they_are_missing_have_no_default(lake: Lake) -> None:
    columns = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("at", pa.int64()), ("x", pa.string())])
    with pytest.raises(InvalidRequest, match="merge rule"):
        lake.create_table("s.a", columns, key="id", merge_rules={"n": "sum"}, defaults={"n": 1})
    with pytest.raises(InvalidRequest, match="order_by"):
        lake.create_table("s.b", columns, key="id", order_by="at", defaults={"at": 1})
    with pytest.raises(InvalidRequest, match="order group"):
        lake.create_table("s.c", columns, key="id", order_groups={"at": ["n"]}, defaults={"n": 1})
    with pytest.raises(InvalidRequest, match="empty text"):
        lake.create_table("s.d", columns, key="id", partition_by="x", defaults={"x": ""})
    with pytest.raises(InvalidRequest, match="no column"):
        lake.create_table("s.e", columns, key="id", defaults={"y": 1})

    ruled = lake.create_table("s.f", columns, key="id", merge_rules={"n": "sum"}, defaults={"x": "d"})
    ruled.upsert([{"id": 1, "n": 1, "at": 1}])
    ruled.upsert([{"id": 1, "n": 2, "at": 2, "x": None}])
    assert rows_of(ruled) == [{"id": 1, "n": 3, "at": 2, "x": None}]
    ruled.upsert([{"id": 1, "n": 0, "at": 2}])
    assert rows_of(ruled) == [{"id": 1, "n": 3, "at": 2, "x": "d"}]


def test_a_default_goes_along_with_its_column(table: Table) -> None:
    table.rename_column("status", "state")
    table.alter_column("stock", type="decimal(12,2)")
    table.upsert([{"id": 1, "name": "n"}])
    assert rows_of(table) == [{"id": 1, "name": "n", "state": "new", "stock": Decimal("7.00")}]

    table.drop_column("state")
    assert dict(table.definition.column_defaults) == {"stock": "7.00"}
    table.add_column(pa.field("state", pa.int64()), default=5)  # another one, of which files know the name
    table.upsert([{"id": 2, "name": "n"}])
    assert [found["state"] for found in rows_of(table)] == [None, 5]


def test_a_process_that_knew_another_default_asks_again(folder: Path, table: Table) -> None:
    with Lake(folder / "lake") as other:
        there = other.table("s.t")
        assert there.definition.column_defaults == DEFAULTS
        table.alter_column("status", default="fresh")
        there.upsert([{"id": 1, "name": "n"}])
        table.alter_column("name", default="any")  # what is refused by what is known may fit by now
        there.upsert([{"id": 2}])
    assert rows_of(table) == [row(1, status="fresh"), row(2, "any", "fresh")]


def test_a_writer_that_does_not_know_a_new_column_writes_its_default(folder: Path, table: Table) -> None:
    with Lake(folder / "lake") as other:
        there = other.table("s.t")
        assert "extra" not in there.schema.names
        table.add_column(pa.field("extra", pa.int64()), default=9)
        there.upsert([row(1)])
    assert table.get(1) == {**row(1), "extra": 9}


def test_statements_fill_in_defaults(lake: Lake, table: Table) -> None:
    lake.execute("INSERT INTO s.t (id, name) VALUES (1, 'n')")
    lake.execute("INSERT INTO s.t (name, id, stock) SELECT name, id + 1, NULL FROM s.t")
    lake.execute(
        "MERGE INTO s.t USING (SELECT 3 AS id, 'n' AS name) AS s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"
    )
    lake.execute(
        "INSERT INTO s.t (id, name) VALUES (3, 'm'), (4, 'm') ON CONFLICT (id) DO UPDATE SET name = excluded.name"
    )

    assert rows_of(table) == [row(1), row(2, stock=None), row(3, "m"), row(4, "m")]
    lake.execute("ALTER TABLE s.t ALTER COLUMN status DROP DEFAULT")
    lake.execute("INSERT INTO s.t (id) VALUES (5)")
    assert table.get(5) == {"id": 5, "name": None, "status": None, "stock": 7}


def test_the_same_table_has_the_same_defaults(lake: Lake, table: Table) -> None:
    lake.create_table("s.t", COLUMNS, key="id", if_not_exists=True, defaults=DEFAULTS)
    lake.create_table("s.t", COLUMNS, key="id", if_not_exists=True)
    with pytest.raises(Conflict, match="other defaults"):
        lake.create_table("s.t", COLUMNS, key="id", if_not_exists=True, defaults={"stock": 8})


def test_a_program_that_does_not_know_defaults_refuses_the_table(
    lake: Lake, table: Table, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = lake.create_table("s.plain", COLUMNS, key="id")
    monkeypatch.setattr("lithify.core.schema.FORMAT_MAX", DEFAULTS_FORMAT - 1)
    with Lake(folder / "lake") as older:
        with pytest.raises(InvalidRequest, match="newer Lithify"):
            older.table("s.t").to_arrow()
        assert older.table("s.plain").to_arrow().num_rows == 0
        monkeypatch.undo()
        plain.alter_column("stock", default=1)
        monkeypatch.setattr("lithify.core.schema.FORMAT_MAX", DEFAULTS_FORMAT - 1)
        with pytest.raises(InvalidRequest, match="newer Lithify"):
            older.table("s.plain").to_arrow()


def test_a_column_and_its_default_come_together_whenever_somebody_dies(folder: Path) -> None:
    """Whatever point a process dies at: the column is there with its default, or can still be added."""
    recording = RecordingStore()
    assert _added(folder / "recorded", recording)
    points = [point for point in recording.occurrences() if SOAK or not point[0].startswith("store.")]
    assert {"add_column.commit", "add_column.committed"} <= {name for name, _ in points}
    for number, (name, nth) in enumerate(points):
        path = folder / f"dies-{number}"
        assert not _added(path, FaultyStore(name, stop, nth=nth)), f"{name} {nth}"
        with Lake(path) as lake:
            table = lake.table("s.t")
            if "status" not in table.schema.names:
                table.add_column(pa.field("status", pa.string()), default="new")
            table.upsert([{"id": 2}])
            table.fold()
            assert rows_of(table) == [{"id": 1, "status": None}, {"id": 2, "status": "new"}], f"{name} {nth}"


def _added(path: Path, store: LocalStorage) -> bool:
    """Whether nobody died of it."""
    with Lake(path) as lake:
        lake.create_table("s.t", pa.schema([("id", pa.int64())]), key="id").upsert([{"id": 1}])
    try:
        with Lake(path, store=store) as lake:
            lake.table("s.t").add_column(pa.field("status", pa.string()), default="new")
    except Stopped:
        return False
    return True
