"""Columns that are renamed, dropped, widened, relaxed and moved: what every door shows of it, then and now."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from lithify import Conflict, InvalidRequest, Lake, LithifyError, NotFound, Settings, Table
from lithify.core.column_changes import ColumnChange, Reshape, is_wider, stood_as
from lithify.core.schema import COLUMNS_FORMAT, FORMAT_PROPERTY
from lithify.core.type_text import parse_type
from lithify.jobs import recovery
from support.faults import FaultyStore, Gate, Stopped, stop

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("n", pa.int32()),
        pa.field("note", pa.string()),
        pa.field("must", pa.string(), nullable=False),
    ]
)
SETTINGS = Settings(pack_files_min=2)


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake", settings=SETTINGS) as lake:
        yield lake


@pytest.fixture
def table(lake: Lake) -> Table:
    """Rows in base and pending."""
    table = lake.create_table("s.t", COLUMNS, key="id")
    table.upsert([row(i) for i in range(4)])
    table.fold()
    table.upsert([row(1, n=11), row(9)])
    return table


def row(i: int, n: int | None = None, note: str | None = "old", must: str = "m") -> dict[str, Any]:
    return {"id": i, "n": i if n is None else n, "note": note, "must": must}


def rows_of(table: Table, **asked: Any) -> list[dict[str, Any]]:
    return sorted(table.to_arrow(**asked).to_pylist(), key=lambda found: found["id"])


def renamed(rows: list[dict[str, Any]], old: str, new: str) -> list[dict[str, Any]]:
    return [{new if name == old else name: value for name, value in found.items()} for found in rows]


def base_rows(table: Table) -> list[dict[str, Any]]:
    """As another engine sees it."""
    found = pa.table(deltalake.DeltaTable(str(table.base_path)).to_pyarrow_table())
    return sorted(found.to_pylist(), key=lambda found: found["id"])


# -- each change


def test_a_renamed_column_has_its_values_under_the_new_name_everywhere(lake: Lake, table: Table) -> None:
    before = rows_of(table)

    seq = table.rename_column("n", "amount")

    after = renamed(before, "n", "amount")
    assert table.schema.names == ["id", "amount", "note", "must"]
    assert rows_of(table) == after
    assert table.get(1) == after[1]
    assert lake.sql("select amount from s.t where amount = 11").to_pylist() == [{"amount": 11}]
    assert rows_of(table, as_of=seq) == after
    assert rows_of(table, as_of=seq - 1) == before
    assert base_rows(table) == after
    assert table.count("amount = 11") == 1


def test_a_dropped_column_is_gone_now_and_there_then(lake: Lake, table: Table) -> None:
    before, version = rows_of(table), table.snapshot().base
    seq = table.drop_column("must")

    assert table.snapshot().base == version, "no file is written for it"
    assert table.schema.names == ["id", "n", "note"]
    table.upsert([{"id": 20, "n": 1, "note": None}])  # it was NOT NULL
    table.fold()
    table.compact()
    assert {"must"}.isdisjoint(base_rows(table)[0])
    assert rows_of(table, as_of=seq - 1) == before
    assert rows_of(table)[:4] == [{k: v for k, v in found.items() if k != "must"} for found in before[:4]]


@pytest.mark.parametrize("kept", ["base", "pending", "updates"])
def test_what_a_dropped_column_held_does_not_come_back_with_a_new_one_of_its_name(
    table: Table, kept: str, lake: Lake
) -> None:
    if kept == "base":
        table.fold()
    if kept == "updates":
        table.update([{"id": 1, "note": "given"}], missing="refuse")
    since = table.snapshot().seq
    table.drop_column("note")
    table.add_column(pa.field("NOTE" if kept == "base" else "note", pa.int64()))

    name = table.schema.names[-1]
    assert {found[name] for found in rows_of(table)} == {None}
    assert {found[name] for found in table.feed(0).to_pylist()} == {None}
    assert lake.sql(f'select count("{name}") as there from s.t').to_pylist() == [{"there": 0}]
    table.update([{"id": 2, name: 5}], missing="refuse")
    table.fold()
    assert [found[name] for found in rows_of(table)] == [None, None, 5, None, None]
    assert "given" in {found["note"] for found in rows_of(table, as_of=since)} or kept != "updates"
    assert table.count(f'"{name}" = 5') == 1


@pytest.mark.parametrize(
    ("kind", "wider", "value", "then"),
    [
        ("int8", "int16", 7, 7),
        ("int16", "int64", -7, -7),
        ("int32", "double", 2**31 - 1, 2.0**31 - 1),
        ("int64", "decimal(21,2)", 2**62, Decimal(2**62)),
        ("float32", "float64", 0.5, 0.5),
        ("decimal(5,2)", "decimal(8,4)", Decimal("123.45"), Decimal("123.4500")),
        ("date", "timestamp_ntz", dt.date(2024, 2, 29), dt.datetime(2024, 2, 29)),
    ],
)
def test_a_wider_type_holds_the_same_values(lake: Lake, kind: str, wider: str, value: Any, then: Any) -> None:
    columns = pa.schema([("id", pa.int64()), ("x", parse_type(kind))])
    table = lake.create_table("s.w", columns, key="id")
    table.upsert([{"id": 1, "x": value}, {"id": 2, "x": None}])
    table.fold()
    table.update([{"id": 3, "x": value}])

    table.alter_column("x", type=wider)

    expected = [{"id": 1, "x": then}, {"id": 2, "x": None}, {"id": 3, "x": then}]
    assert table.schema.field("x").type == parse_type(wider)
    assert rows_of(table) == expected
    assert [found["x"] for found in table.feed(0).to_pylist()] == [then, None, then]
    table.fold()
    assert base_rows(table) == expected
    assert rows_of(table, as_of=1) == [{"id": 1, "x": value}, {"id": 2, "x": None}]


def test_what_is_wider() -> None:
    """Of every pair of types at most one direction, and none that loses a value."""
    names = ["int8", "int16", "int32", "int64", "float32", "float64", "decimal(5,2)", "decimal(6,2)", "decimal(6,3)"]
    names += ["decimal(38,0)", "date", "timestamp_ntz", "timestamp", "string", "binary", "bool", "list<int32>"]
    types = [parse_type(name) for name in names]
    wider = {(a, b) for a in names for b in names if is_wider(parse_type(a), parse_type(b))}
    assert not any(is_wider(kind, kind) for kind in types)
    assert not any((b, a) in wider for a, b in wider)
    assert ("int64", "float64") not in wider
    assert ("int32", "float32") not in wider
    assert ("decimal(5,2)", "decimal(6,3)") in wider
    assert ("decimal(6,2)", "decimal(6,3)") not in wider
    assert ("date", "timestamp") not in wider
    assert ("int64", "decimal(38,0)") in wider


def test_a_column_may_be_null_from_then_on(table: Table) -> None:
    with pytest.raises(LithifyError):
        table.upsert([{"id": 30, "n": 1, "note": None, "must": None}])
    table.alter_column("must", nullable=True)
    table.upsert([{"id": 30, "n": 1, "note": None, "must": None}])
    table.fold()
    assert base_rows(table)[-1]["must"] is None


def test_a_column_may_not_be_null_once_no_row_is(table: Table) -> None:
    table.upsert([row(2, note=None)])
    with pytest.raises(Conflict, match=r"'note' .* null in 1 rows"):
        table.alter_column("note", nullable=False)
    assert table.schema.field("note").nullable
    table.upsert([row(2)])
    table.alter_column("note", nullable=False)
    with pytest.raises(LithifyError):
        table.upsert([row(2, note=None)])
    table.fold()
    assert len(base_rows(table)) == len(rows_of(table)) == 5


def test_not_null_is_decided_on_the_rows_that_are_there_when_it_counts(folder: Path, table: Table, lake: Lake) -> None:
    """A null that comes between the look and the commit is seen by the next look."""
    gate = Gate()
    store = FaultyStore("require_column.commit", gate.hold)
    with Lake(folder / "lake", settings=SETTINGS, store=store) as slow, ThreadPoolExecutor(1) as beside:
        asked = beside.submit(lambda: slow.table("s.t").alter_column("note", nullable=False))
        gate.wait()
        table.upsert([row(3, note=None)])
        gate.open()
        with pytest.raises(Conflict, match="null in 1 rows"):
            asked.result()


def test_a_column_moves(table: Table) -> None:
    table.alter_column("must", first=True)
    assert table.schema.names == ["must", "id", "n", "note"] == list(base_rows(table)[0])
    table.alter_column("must", after="n")
    assert table.schema.names == ["id", "n", "must", "note"] == list(base_rows(table)[0])
    assert rows_of(table)[1] == row(1, n=11)


def test_evolve_adds_what_is_new(table: Table) -> None:
    table.upsert(
        [{**row(1), "tags": ["a"], "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}, row(2)], evolve=True, missing="null"
    )
    table.append(
        pa.table({"id": [60], "n": [1], "note": ["x"], "must": ["m"], "size": [2.5]}), evolve=True, missing="null"
    )
    assert table.schema.names == [*COLUMNS.names, "tags", "at", "size"]
    assert table.schema.field("at").type == pa.timestamp("us", "UTC")
    assert [found["size"] for found in rows_of(table)] == [None] * 5 + [2.5]
    for bad, match in (
        ([{**row(1), "x": None}], "'x' is new, and null in all rows"),
        ([{**row(1), "_seq": 1}], "reserved"),
        ([{**row(1), "x": 1}, {**row(2), "x": "a"}], "of no one type"),
        (iter([row(1)]), "looks at the rows"),
    ):
        with pytest.raises(InvalidRequest, match=match):
            table.upsert(bad, evolve=True)
    assert table.schema.names[-1] == "size"


# -- what is refused


@pytest.mark.parametrize(
    ("wish", "error", "match"),
    [
        (lambda t: t.rename_column("zz", "y"), NotFound, "'zz' is not in table s.t: it has id, n"),
        (lambda t: t.rename_column("n", "note"), Conflict, "has a column 'note' already"),
        (lambda t: t.rename_column("n", "NOTE"), Conflict, "has a column 'note' already"),
        (lambda t: t.rename_column("n", "n"), Conflict, "already"),
        (lambda t: t.rename_column("n", "_seq"), InvalidRequest, "reserved"),
        (lambda t: t.rename_column("n", "_lithify_x"), InvalidRequest, "reserved"),
        (lambda t: t.rename_column("n", "a b"), InvalidRequest, "holds ' '"),
        (lambda t: t.rename_column("n", ""), InvalidRequest, "told by its name"),
        (lambda t: t.rename_column(1, "x"), InvalidRequest, "told by its name"),
        (lambda t: t.rename_column("id", "key"), InvalidRequest, "'id' cannot be renamed: .* in its key"),
        (lambda t: t.drop_column("id"), InvalidRequest, "'id' cannot be dropped: .* in its key"),
        (lambda t: t.drop_column("nothing"), NotFound, "'nothing' is not in"),
        (lambda t: t.alter_column("n", type="int16"), InvalidRequest, "does not hold all of its values"),
        (lambda t: t.alter_column("n", type="int32"), InvalidRequest, "is int32 already"),
        (lambda t: t.alter_column("n", type="text"), InvalidRequest, "does not hold"),
        (lambda t: t.alter_column("n", type="intt"), InvalidRequest, "intt"),
        (lambda t: t.alter_column("n", type=7), InvalidRequest, "not 7"),
        (lambda t: t.alter_column("id", type="decimal(30,0)"), InvalidRequest, "in its key"),
        (lambda t: t.alter_column("id", nullable=True), InvalidRequest, "never null"),
        (lambda t: t.alter_column("n", nullable=True), InvalidRequest, "may be null already"),
        (lambda t: t.alter_column("must", nullable=False), InvalidRequest, "is NOT NULL already"),
        (lambda t: t.alter_column("n", after="n"), InvalidRequest, "behind itself"),
        (lambda t: t.alter_column("n", after="zz"), NotFound, "'zz' is not in"),
        (lambda t: t.alter_column("n"), InvalidRequest, "one way at a time"),
        (lambda t: t.alter_column("n", type="int64", nullable=False), InvalidRequest, "one way at a time"),
    ],
)
def test_a_change_that_cannot_be_says_why_and_changes_nothing(
    table: Table, wish: Callable[[Table], Any], error: type[LithifyError], match: str
) -> None:
    before, columns = table.snapshot().identity, table.schema
    with pytest.raises(error, match=match):
        wish(table)
    assert table.snapshot().identity == before
    assert table.schema == columns


@pytest.mark.parametrize("role", ["order_by", "time", "partition_by"])
@pytest.mark.parametrize("what", ["rename", "drop", "widen"])
def test_a_column_that_rows_are_laid_out_by_stays_as_it_is(lake: Lake, role: str, what: str) -> None:
    columns = pa.schema([("id", pa.int64()), ("at", pa.date32() if role == "time" else pa.int32())])
    table = lake.create_table("s.r", columns, key="id", **{role: "at"})
    changes = {
        "rename": lambda: table.rename_column("at", "moment"),
        "drop": lambda: table.drop_column("at"),
        "widen": lambda: table.alter_column("at", type="timestamp_ntz" if role == "time" else "int64"),
    }
    with pytest.raises(InvalidRequest, match=f"'at' cannot be .* in its {role}"):
        changes[what]()


def test_a_column_that_an_option_names_stays_until_the_option_is_changed(table: Table) -> None:
    table.set_options({"sort_by": ["note"]})
    with pytest.raises(InvalidRequest, match=r"option sort_by of table s\.t names it"):
        table.drop_column("note")
    table.set_options({"sort_by": None})
    table.drop_column("note")


def test_columns_of_an_adopted_base_are_its_owners(lake: Lake, folder: Path) -> None:
    deltalake.write_deltalake(str(folder / "theirs"), pa.table({"id": [1, 2], "n": [1, 2]}))
    table = lake.adopt("s.a", folder / "theirs", key="id")
    for wish in (lambda: table.rename_column("n", "m"), lambda: table.drop_column("n")):
        with pytest.raises(InvalidRequest, match="adopted"):
            wish()
    assert rows_of(table) == [{"id": 1, "n": 1}, {"id": 2, "n": 2}]


def test_a_table_without_a_key_renames_and_widens_but_does_not_drop(lake: Lake) -> None:
    table = lake.create_table("s.k", pa.schema([("id", pa.int64()), ("n", pa.int32())]))
    table.append([{"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 2, "n": 3}])
    table.fold()
    table.delete([{"n": 2}])
    table.rename_column("n", "m")
    table.delete([{"m": 1}])
    assert rows_of(table) == [{"id": 2, "m": 3}]
    table.alter_column("m", type="int64")
    assert [(r["id"], r["m"], r["_kind"]) for r in table.feed(1).to_pylist()] == [(2, 2, "delete"), (1, 1, "delete")]
    with pytest.raises(InvalidRequest, match="no key"):
        table.drop_column("m")


# -- beside others


def test_another_process_goes_on_with_the_new_columns(folder: Path, table: Table) -> None:
    with Lake(folder / "lake", settings=SETTINGS) as other:
        theirs = other.table("s.t")
        assert theirs.get(1) == row(1, n=11)
        table.rename_column("n", "amount")
        with pytest.raises(LithifyError, match="'n' is not in the table"):
            theirs.upsert([row(1)], missing="null")
        theirs.upsert([{"id": 1, "amount": 12, "note": None, "must": "m"}])
        assert table.get(1) == theirs.get(1)


POINTS = ["columns.written", "columns.commit", "columns.durable", "columns_settled.commit"]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("what", ["upsert", "update", "delete", "fold", "compact", "read", "rename", "add", "vacuum"])
def test_a_change_that_meets_others_on_its_way(folder: Path, table: Table, lake: Lake, point: str, what: str) -> None:
    """Whoever comes between its halves sees the columns from before, or ends it (invariants 2, 5)."""
    before = rows_of(table)
    gate = Gate()
    done: list[str] = []
    store = FaultyStore(point, gate.hold)
    with Lake(folder / "lake", settings=SETTINGS, store=store) as slow, ThreadPoolExecutor(1) as beside:
        asked = beside.submit(lambda: slow.table("s.t").rename_column("n", "amount"))
        gate.wait()
        assert rows_of(table) == before
        match what:
            case "upsert":
                table.upsert([row(2, n=22)])
                before[2]["n"] = 22
            case "update":
                table.update([{"id": 2, "n": 22}], missing="refuse")
                before[2]["n"] = 22
            case "delete":
                table.delete([3])
                before = [found for found in before if found["id"] != 3]
            case "fold":
                table.upsert([row(0, n=7)])
                before[0]["n"] = 7
                table.fold()
            case "compact":
                table.compact()
            case "vacuum":
                table.vacuum(1, dry_run=False)
            case "rename":
                table.rename_column("note", "remark")
                done.append("remark")
            case "add":
                table.add_column(pa.field("more", pa.int64()))
                done.append("more")
        gate.open()
        asked.result()
    expected = renamed(before, "n", "amount")
    if "remark" in done:
        expected = renamed(expected, "note", "remark")
    if "more" in done:
        expected = [{**found, "more": None} for found in expected]
    assert rows_of(table) == expected
    table.fold()
    assert base_rows(table) == [{name: found[name] for name in table.schema.names} for found in expected]


def test_whoever_reads_between_the_halves_reads_the_columns_from_before(folder: Path, table: Table) -> None:
    """Killed behind the first half, the change is ended by recovery, and until then nothing of it is seen."""
    before, seq = rows_of(table), table.snapshot().seq
    store = FaultyStore("columns_settled.commit", stop)
    with Lake(folder / "lake", settings=SETTINGS, store=store) as dies, pytest.raises(Stopped):
        dies.table("s.t").rename_column("n", "amount")
    with Lake(folder / "lake", settings=SETTINGS) as next_one:
        found = next_one.table("s.t")
        assert found.schema.names == COLUMNS.names
        assert rows_of(found) == before
        assert found.snapshot().seq == seq
        assert next_one.sql("select count(*) c from s.t where n = 11").to_pylist() == [{"c": 1}]
        found.upsert([row(3, n=33)])
        recovery.recover(next_one._runtime)
        found.fold()
        before[3]["n"] = 33
        assert rows_of(found) == renamed(before, "n", "amount")


def test_a_column_that_somebody_died_adding_is_there_before_another_changes(folder: Path, table: Table) -> None:
    """Else the name could be taken twice, by the change in base and by the new column in changes."""
    store = FaultyStore("add_column.durable", stop)
    with Lake(folder / "lake", settings=SETTINGS, store=store) as dies, pytest.raises(Stopped):
        dies.table("s.t").add_column(pa.field("amount", pa.int64()))
    with pytest.raises(Conflict, match="has a column 'amount' already"):
        table.rename_column("n", "amount")
    table.rename_column("n", "number")
    assert table.schema.names == ["id", "number", "note", "must", "amount"] == list(base_rows(table)[0])


# -- what looks at the past


def test_tags_and_restore_go_across(table: Table) -> None:
    table.tag("before")
    then = rows_of(table)
    table.rename_column("n", "amount")
    table.upsert([{"id": 1, "amount": 99, "note": "new", "must": "m"}, {"id": 50, "amount": 1, "note": "", "must": ""}])
    table.drop_column("note")
    assert rows_of(table, as_of="before") == then
    table.restore("before")
    assert rows_of(table) == [{k: v for k, v in found.items() if k != "note"} for found in renamed(then, "n", "amount")]


def test_a_hot_table_shows_the_new_columns(lake: Lake, table: Table) -> None:
    lake.cache.pin("s.t")
    assert lake.sql("select sum(n) as n from s.t").to_pylist() == [{"n": 0 + 11 + 2 + 3 + 9}]
    table.rename_column("n", "amount")
    assert lake.sql("select sum(amount) as n from s.t").to_pylist() == [{"n": 25}]
    table.drop_column("note")
    table.add_column(pa.field("note", pa.string()))
    assert lake.sql("select count(note) as n from s.t").to_pylist() == [{"n": 0}]
    table.upsert([{"id": 1, "amount": 1, "note": "x", "must": "m"}])
    assert lake.sql("select sum(amount) as n, count(note) as c from s.t").to_pylist() == [{"n": 15, "c": 1}]


def test_changes_and_feed_show_the_columns_of_now(table: Table) -> None:
    table.update([{"id": 2, "n": 5, "note": "given"}], missing="refuse")
    table.delete([3])
    table.rename_column("n", "amount")
    table.drop_column("note")
    table.alter_column("amount", type="int64")
    changes = table.changes(1)
    assert [(r["id"], r["amount"], r["_seq"]) for r in changes.to_pylist()] == [
        *((1, 11, 2), (9, 9, 2)),
        *((2, 5, 3), (3, None, 4)),
    ]
    assert changes.column("_given").to_pylist()[2] == ["amount"]
    assert [(r["id"], r["amount"], r["_kind"]) for r in table.feed(2).to_pylist()] == [
        (2, 5, "update"),
        (3, 3, "delete"),
    ]
    assert "note" not in table.feed(0).column_names


def test_a_program_that_does_not_know_changed_columns_refuses_the_table(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert table._internals.handles.changes.log.properties[FORMAT_PROPERTY] == "1"
    table.drop_column("note")
    assert table._internals.handles.changes.log.properties[FORMAT_PROPERTY] == str(COLUMNS_FORMAT)
    monkeypatch.setattr("lithify.core.schema.FORMAT_MAX", COLUMNS_FORMAT - 1)
    with Lake(table._internals.runtime.root) as older, pytest.raises(InvalidRequest, match="newer Lithify"):
        older.table("s.t").to_arrow()


# -- how files of then are read


def test_columns_are_followed_back_through_their_changes() -> None:
    changes = [
        ColumnChange("rename", "a", "b", seq=1),
        ColumnChange("drop", "x", seq=2),
        ColumnChange("widen", "b", "int64", "int32", seq=3),
        ColumnChange("rename", "b", "x", seq=4),
    ]
    x, a = pa.field("x", pa.int64()), pa.field("a", pa.int64())
    assert stood_as(x, changes) == pa.field("a", pa.int32())
    assert stood_as(x, changes[3:]) == pa.field("b", pa.int64())
    assert stood_as(a, changes) is None, "what was called so is called x by now"
    assert stood_as(pa.field("y", pa.int8()), changes) == pa.field("y", pa.int8())
    rows = Reshape.of(pa.schema([x, a]), changes).apply(pa.table({"a": pa.array([1], pa.int32())}))
    assert rows.to_pylist() == [{"x": 1, "a": None}]
