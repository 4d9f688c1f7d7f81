"""The one definition of the merge, four times: in Arrow, as two SQL texts, and as a plain dict. All answer alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from datafusion import SessionContext
from hypothesis import given, settings
from hypothesis import strategies as st

from lithify.core import arrow_rows
from lithify.core.arrow_rows import anti_join, lookup
from lithify.core.ops import Change, Op, Overlay
from lithify.core.schema import TableSchema, define, nullable
from lithify.merge.apply import distributed_sql, hiding_sql, standing
from lithify.merge.winners import resolve, without_losers

Row = dict[str, Any]
KEYED = define(pa.schema([("k", pa.int64()), ("v", pa.int64())]), "k")
PAIRS = define(pa.schema([("a", pa.int32()), ("b", pa.string()), ("v", pa.int64())]), ["a", "b"])
ORDERED = define(pa.schema([("k", pa.int64()), ("o", pa.int64()), ("v", pa.int64())]), "k", "o")
KEYLESS = define(pa.schema([("x", pa.int64()), ("s", pa.string())]))

numbers = st.none() | st.integers(0, 3)
ROWS = {
    "keyed": st.fixed_dictionaries({"k": st.integers(0, 4), "v": numbers}),
    "pairs": st.fixed_dictionaries({"a": st.integers(0, 2), "b": st.sampled_from(["", "x", "é"]), "v": numbers}),
    "ordered": st.fixed_dictionaries({"k": st.integers(0, 4), "o": numbers, "v": numbers}),
    "keyless": st.fixed_dictionaries({"x": numbers, "s": st.none() | st.sampled_from(["", "x"])}),
}
SCHEMAS = {"keyed": KEYED, "pairs": PAIRS, "ordered": ORDERED, "keyless": KEYLESS}


def bag(table: pa.Table | Sequence[Row]) -> Counter[Any]:
    rows = table.to_pylist() if isinstance(table, pa.Table) else table
    return Counter(tuple(sorted(row.items())) for row in rows)


def change(schema: TableSchema, seq: int, op: Op, rows: list[Row], by: Sequence[str] = ()) -> Change:
    columns = schema.select(schema.key or by) if op is Op.DELETE else schema.columns
    picked = [{name: row[name] for name in columns.names} for row in rows]
    return Change(seq, op, pa.Table.from_pylist(picked, schema=columns))


def one_per_key(rows: list[Row], key: Sequence[str]) -> list[Row]:
    return list({tuple(row[name] for name in key): row for row in rows}.values())


# -- four ways


def by_dict(schema: TableSchema, base: list[Row], changes: list[Change]) -> Counter[Any]:
    if not schema.keyed:
        return _keyless_by_dict(base, changes)
    state = {tuple(row[name] for name in schema.key): row for row in base}
    for entry in changes:
        for row in entry.rows.to_pylist():
            key = tuple(row[name] for name in schema.key)
            rival = state.get(key)
            if entry.op is Op.DELETE:
                state.pop(key, None)
            elif entry.op is Op.REPLACE or rival is None or not _loses(schema, row, rival):
                state[key] = row
    return bag(list(state.values()))


def _loses(schema: TableSchema, row: Row, rival: Row) -> bool:
    if schema.order_by is None:
        return False
    mine, other = row[schema.order_by], rival[schema.order_by]
    return other is not None and (mine is None or mine < other)


def _keyless_by_dict(base: list[Row], changes: list[Change]) -> Counter[Any]:
    rows = list(base)
    for entry in changes:
        if entry.op is Op.DELETE:
            gone = entry.rows.to_pylist()
            rows = [row for row in rows if {name: row[name] for name in entry.rows.column_names} not in gone]
        else:
            rows += entry.rows.to_pylist()
    return bag(rows)


def by_arrow(schema: TableSchema, base: list[Row], changes: list[Change]) -> Counter[Any]:
    table, overlay, by = _resolved(schema, base, changes)
    return bag(standing(table, overlay.hidden, by)) + bag(overlay.rows)


def by_hiding(schema: TableSchema, base: list[Row], changes: list[Change]) -> Counter[Any]:
    table, overlay, by = _resolved(schema, base, changes)
    if not overlay.hidden.num_rows:
        return bag(table) + bag(overlay.rows)
    context = SessionContext()
    for name, rows in (("base", table.cast(nullable(table.schema))), ("hidden", overlay.hidden)):
        context.register_record_batches(name, [rows.to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]])
    with_nulls = {name: overlay.hidden.column(name).null_count > 0 for name in by}
    return bag(context.sql(hiding_sql("base", "_s", "hidden", "_h", with_nulls)).to_arrow_table()) + bag(overlay.rows)


def _resolved(schema: TableSchema, base: list[Row], changes: list[Change]) -> tuple[pa.Table, Overlay, list[str]]:
    table = pa.Table.from_pylist(base, schema=schema.columns)
    overlay = resolve(schema, list(reversed(changes)))
    if overlay.contested is not None:
        overlay = without_losers(schema, overlay, _losers(schema, table, overlay))
    return table, overlay, list(schema.key) or overlay.hidden.column_names


def _losers(schema: TableSchema, base: pa.Table, overlay: Overlay) -> pa.Table:
    assert overlay.contested is not None
    state = {tuple(row[name] for name in schema.key): row for row in base.to_pylist()}
    lost = [
        row
        for row in overlay.contested.to_pylist()
        if (rival := state.get(tuple(row[name] for name in schema.key))) is not None and _loses(schema, row, rival)
    ]
    return pa.Table.from_pylist(lost, schema=overlay.contested.schema).select(list(schema.key))


def by_sql(schema: TableSchema, base: list[Row], changes: list[Change], row_key: Sequence[str] = ()) -> Counter[Any]:
    lines = [{**row, "_seq": c.seq, "_op": c.op.value} for c in changes for row in c.rows.to_pylist()]
    columns = nullable(schema.columns)
    with_numbers = pa.schema([*columns, pa.field("_seq", pa.int64()), pa.field("_op", pa.string())])
    context = SessionContext()
    for name, rows, shape in (("base", base, columns), ("changes", lines, with_numbers)):
        context.register_record_batches(name, [[pa.RecordBatch.from_pylist(rows, schema=shape)]])
    return bag(context.sql(distributed_sql(schema, "base", "changes", row_key)).to_arrow_table())


# -- all alike


@st.composite
def histories(draw: st.DrawFn, name: str) -> tuple[list[Row], list[Change], tuple[str, ...]]:
    schema, rows = SCHEMAS[name], ROWS[name]
    by = schema.key or draw(st.sampled_from([("x",), ("s",), ("x", "s")]))
    ops = [Op.UPSERT, Op.UPSERT, Op.DELETE] + ([Op.REPLACE] if name == "ordered" else [])
    base = draw(st.lists(rows, max_size=6))
    changes = []
    for seq in range(1, draw(st.integers(0, 6)) + 1):
        op = draw(st.sampled_from(ops))
        batch = draw(st.lists(rows, min_size=1, max_size=4))
        reduced = one_per_key(batch, by) if schema.keyed or op is Op.DELETE else batch
        changes.append(change(schema, seq, op, reduced, by))
    has_tombstone = any(entry.op is Op.DELETE for entry in changes)
    return one_per_key(base, schema.key) if schema.keyed else base, changes, by if has_tombstone else ()


@pytest.mark.parametrize("name", SCHEMAS)
def test_arrow_sql_and_a_dict_agree(name: str) -> None:
    schema = SCHEMAS[name]

    @settings(max_examples=60, deadline=None, print_blob=True)
    @given(history=histories(name))
    def agree(history: tuple[list[Row], list[Change], tuple[str, ...]]) -> None:
        base, changes, row_key = history
        expected = by_dict(schema, base, changes)
        assert by_arrow(schema, base, changes) == expected
        assert by_hiding(schema, base, changes) == expected
        assert by_sql(schema, base, changes, row_key) == expected

    agree()


@pytest.mark.parametrize("name", SCHEMAS)
def test_any_prefix_may_be_merged_into_base_first(name: str) -> None:
    """A fold changes nothing but where the rows lie (invariant 6)."""
    schema = SCHEMAS[name]

    @settings(max_examples=40, deadline=None, print_blob=True)
    @given(history=histories(name), cut=st.integers(0, 6))
    def agree(history: tuple[list[Row], list[Change], tuple[str, ...]], cut: int) -> None:
        base, changes, _ = history
        folded = [dict(row) for row in by_arrow(schema, base, changes[:cut]).elements()]
        assert by_arrow(schema, folded, changes[cut:]) == by_dict(schema, base, changes)

    agree()


# -- by example


def test_no_changes_hide_nothing() -> None:
    for schema in SCHEMAS.values():
        assert resolve(schema, []).empty


def test_a_tombstone_hides_only_what_is_older() -> None:
    upsert = change(KEYED, 3, Op.UPSERT, [{"k": 1, "v": 3}])
    delete = change(KEYED, 2, Op.DELETE, [{"k": 1}])
    assert resolve(KEYED, [upsert, delete]).rows.to_pylist() == [{"k": 1, "v": 3}]


def test_a_tombstone_without_a_row_shows_nothing_among_late_events() -> None:
    delete = change(ORDERED, 1, Op.DELETE, [{"k": 1}])
    upsert = change(ORDERED, 2, Op.UPSERT, [{"k": 0, "o": None, "v": None}])
    assert resolve(ORDERED, [delete, upsert]).rows.to_pylist() == [{"k": 0, "o": None, "v": None}]


def test_a_late_event_loses_unless_a_barrier_stands_between() -> None:
    new = change(ORDERED, 1, Op.UPSERT, [{"k": 1, "o": 9, "v": 1}])
    late = change(ORDERED, 3, Op.UPSERT, [{"k": 1, "o": 5, "v": 2}])
    delete = change(ORDERED, 2, Op.DELETE, [{"k": 1}])
    replace = change(ORDERED, 2, Op.REPLACE, [{"k": 1, "o": 1, "v": 3}])
    assert resolve(ORDERED, [new, late]).rows.column("v").to_pylist() == [1]
    assert resolve(ORDERED, [new, delete, late]).rows.column("v").to_pylist() == [2]
    assert resolve(ORDERED, [new, replace, late]).rows.column("v").to_pylist() == [2]
    assert resolve(ORDERED, [new, replace]).rows.column("v").to_pylist() == [3]


def test_only_open_contests_are_decided_against_base() -> None:
    open_contest = change(ORDERED, 1, Op.UPSERT, [{"k": 1, "o": 5, "v": 1}])
    closed = [change(ORDERED, 1, Op.DELETE, [{"k": 2}]), change(ORDERED, 2, Op.UPSERT, [{"k": 2, "o": 5, "v": 1}])]
    contested = resolve(ORDERED, [open_contest, *closed]).contested
    assert contested is not None
    assert contested.to_pylist() == [{"k": 1, "o": 5}]


def test_nulls_are_equal_in_row_keys() -> None:
    table = pa.table({"x": pa.array([1, None, 2]), "s": ["a", None, None]})
    keys = pa.table({"x": pa.array([None], pa.int64()), "s": pa.array([None], pa.string())})
    assert lookup(table, keys, ["x"]).tolist() == [-1, 0, -1]
    assert lookup(table, keys, ["x", "s"]).tolist() == [-1, 0, -1]
    assert lookup(table, keys, ["s"]).tolist() == [-1, 0, 0]
    assert anti_join(table, keys, ["s"]).to_pylist() == [{"x": 1, "s": "a"}]


@pytest.mark.parametrize("hidden_rows", [1, 100])
def test_few_rows_meet_many_hidden_keys(hidden_rows: int) -> None:
    """Nulls of a row key are equal to each other, and to nothing else."""
    table = pa.table({"x": pa.array([1, None, 2, None]), "s": ["a", None, None, "a"]})
    many = pa.table(
        {
            "x": pa.array(range(1000, 999 + hidden_rows), pa.int64()),
            "s": pa.array(["a"] * (hidden_rows - 1), pa.string()),
        }
    )
    hidden = pa.concat_tables([many, pa.table({"x": pa.array([None], pa.int64()), "s": pa.array(["a"])})])
    assert standing(table, hidden, ["x", "s"]).equals(table.slice(0, 3))
    assert standing(table, hidden, ["x"]).column("x").to_pylist() == [1, 2]
    assert standing(table, hidden, []) is table


def test_the_rows_of_large_changes_stay_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = define(pa.schema([("k", pa.int64()), ("o", pa.int64()), ("text", pa.string())]), "k", "o")
    batches = [[{"k": k, "o": n, "text": f"{n}" * 50} for k in range(n, 20, 2)] for n in range(4)]
    changes = [change(schema, n + 1, Op.UPSERT, rows) for n, rows in enumerate(batches)]
    unordered = define(schema.columns, "k")
    whole = [resolve(each, changes) for each in (schema, unordered)]

    monkeypatch.setattr(arrow_rows, "PIECE_BYTES_MAX", 300)
    pieces = [resolve(each, changes) for each in (schema, unordered)]

    for one, other in zip(whole, pieces, strict=True):
        assert one.rows.equals(other.rows)
        assert bag(one.hidden) == bag(other.hidden)
        assert other.rows.column("text").num_chunks > 3
        assert max(chunk.nbytes for chunk in other.rows.column("text").chunks) <= 600
