"""Lines that say some columns of a row and leave the others: partial updates, as a part of the one merge.

A line of the operation `update` carries the names of the columns that it gives (`GIVEN`): null is a value, absent is
not. Applied to a row it sets those columns; applied to a key that has no row it makes one, with nulls. With order_by it
counts only if it is at least as new as the row (`order`), like an upsert, and it always gives the order columns.

`compose` makes as little as possible of many lines, without knowing the row that stands in base:

- behind a delete or replace, and behind an upsert where there is no order_by, base does not matter: the columns are
  put together into a whole row, each from the last line that gives it;
- otherwise they become one `update` that gives all columns that one of them gives;
- with order_by, base may beat some of them and not the others. The lines that no earlier one beats only get newer,
  so that if base lets one through it lets all later ones through: a column that a later line gives too
  is dropped, and what is left stays as several lines of one key, in their order.

A delete with an order value (`delete_at`) is a line that gives all columns as null and says that there is no row: an
update behind it makes the row anew, so it becomes a line of the chain that gives nulls; alone it stays what it is.

Any grouping of lines gives the same row, and so does applying a prefix of them twice: what is given last stands last.
On a table with merge rules (`rules`), whose upserts are such lines too, a column with a rule is what the rule makes of
all lines that give it; there the second does not hold.

`completed` puts the rows of base in front of such lines, which makes whole rows of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.arrow_rows import anti_join, order_of, take
from lithify.core.names import GIVEN, given_text, names_given
from lithify.core.ops import ORDERED_DELETES, WHOLE, Change, Op
from lithify.core.partial_rows import patch_columns
from lithify.core.schema import TableSchema, nullable
from lithify.merge.newer import ranks
from lithify.merge.rules import Grouped, newest, reduced

OPS = (Op.UPSERT, Op.REPLACE, Op.DELETE, Op.UPDATE, Op.DELETE_AT, Op.GONE_AT)
_UPSERT, _REPLACE, _DELETE, _UPDATE, _DELETE_AT, _GONE_AT = range(len(OPS))


def line_columns(schema: TableSchema, op: Op, row_key: Sequence[str] = ()) -> pa.Schema:
    """Columns of the lines of a change file. `row_key`: those that deletes go by, of a table with no key."""
    if op is Op.DELETE:
        return schema.select(schema.key or row_key)
    if op in ORDERED_DELETES:
        return schema.place_columns
    return patch_columns(schema) if op is Op.UPDATE else schema.columns


def has_patches(changes: Iterable[Change]) -> bool:
    return any(change.op is Op.UPDATE for change in changes)


def compose(schema: TableSchema, changes: Sequence[Change]) -> dict[Op, pa.Table]:
    """At most one table per operation, sorted by key, with no key in two of them; only updates of a table with order_by
    may have several lines for a key. The order of `changes` is the order of arrival.
    """
    lines = _Lines.of(schema, changes)
    return _Composed(schema, lines).parts() if lines.count else {}


def compose_events(
    schema: TableSchema, deleted: np.ndarray, keys: pa.Table, lines: pa.Table, at: pa.Table | None = None
) -> dict[Op, pa.Table]:
    """The same of single events in the order of arrival: a key each, and a line of an update unless it is deleted.
    `at`: their places, by which a delete that has one competes: one with a value of the first order column.
    """
    ops, row = np.where(deleted, _DELETE, _UPDATE), np.where(deleted, -1, np.cumsum(~deleted) - 1)
    if at is not None:
        placed = deleted & has_place(at)
        ops[placed] = _DELETE_AT
        row[placed] = lines.num_rows + np.arange(np.count_nonzero(placed))
        tombstones = pa.table([*keys.columns, *at.columns], names=[*keys.column_names, *at.column_names])
        tombstones = tombstones.filter(pa.array(placed))
        inside = patch_columns(schema)
        ends = _with_given(Change(0, Op.DELETE_AT, tombstones), schema, inside).cast(inside)
        lines = pa.concat_tables([lines, ends])
    events = _Lines(ops, keys.combine_chunks(), lines, row)
    return _Composed(schema, events).parts() if events.count else {}


def has_place(at: pa.Table) -> np.ndarray:
    """Which deletes say when: those with a value of the first order column."""
    valid: np.ndarray = pc.is_valid(at.column(0)).to_numpy()
    return valid


def completed(schema: TableSchema, patches: pa.Table, base: pa.Table) -> pa.Table:
    """Whole rows of all keys of `patches`. `base`: the rows that those keys have, where they have one."""
    key = list(schema.key)
    keys = patches.select(key).group_by(key).aggregate([]).select(key).cast(schema.select(key))
    absent = anti_join(keys, base, key)
    parts = compose(schema, [Change(0, Op.DELETE, absent), Change(0, Op.REPLACE, base), Change(0, Op.UPDATE, patches)])
    whole = [rows for op, rows in parts.items() if op in WHOLE]
    return pa.concat_tables([schema.columns.empty_table(), *whole])


@dataclass(frozen=True)
class _Lines:
    """Lines in the order of arrival: an operation and a key each, and a row each unless it is a delete."""

    ops: np.ndarray
    keys: pa.Table
    rows: pa.Table
    row: np.ndarray

    @classmethod
    def of(cls, schema: TableSchema, changes: Sequence[Change]) -> _Lines:
        inside, key = patch_columns(schema), schema.select(schema.key)
        ops = np.repeat([OPS.index(change.op) for change in changes], [change.rows.num_rows for change in changes])
        keys = pa.concat_tables([key.empty_table(), *(_fitting(each.rows.select(key.names), key) for each in changes)])
        rows = [_fitting(_with_given(each, schema, inside), inside) for each in changes if each.op is not Op.DELETE]
        row = np.where(ops == _DELETE, -1, np.cumsum(ops != _DELETE) - 1)
        return cls(ops, keys.combine_chunks(), pa.concat_tables([inside.empty_table(), *rows]), row)

    @property
    def count(self) -> int:
        return len(self.ops)


def _fitting(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    return rows if rows.schema.equals(columns) else rows.cast(columns)


def _with_given(change: Change, schema: TableSchema, inside: pa.Schema) -> pa.Table:
    if change.op is Op.UPDATE:
        return change.rows.select([*schema.names, GIVEN])
    if change.op in ORDERED_DELETES:
        rows, count = change.rows, change.rows.num_rows
        columns = [rows.column(f.name) if f.name in rows.column_names else pa.nulls(count, f.type) for f in inside]
        return pa.table(columns, inside)
    return change.rows.select(schema.names).append_column(GIVEN, pa.nulls(change.rows.num_rows, pa.string()))


class _Composed:
    """Everything is a reduction over the lines of each key, which lie beside each other in the order of arrival."""

    def __init__(self, schema: TableSchema, lines: _Lines) -> None:
        self._schema, self._lines = schema, lines
        order = order_of(lines.keys, schema.key)
        keys = take(lines.keys, order)
        differs = np.zeros(len(order), np.bool_)
        differs[:1] = True
        for column in keys.columns:
            differs[1:] |= pc.not_equal(column.slice(1), column.slice(0, len(order) - 1)).to_numpy()
        self._starts = np.flatnonzero(differs)
        self._group = np.cumsum(differs) - 1
        self._keys = take(keys, self._starts)
        self._ops, self._row = lines.ops[order], lines.row[order]
        self._position = np.arange(len(order))
        self._barrier = self._last(np.isin(self._ops, (_REPLACE, _DELETE, _GONE_AT)))
        counts = (self._ops != _DELETE) & (self._position >= self._barrier[self._group])
        if schema.order_by:
            counts = self._undefeated(counts, lines.rows.select(list(schema.order_columns)))
        whole = counts & (self._ops != _UPDATE)
        self._whole = self._last(whole)
        self._counts = counts & (self._position >= self._whole[self._group])
        self._reduced: dict[str, pa.Array] = {}
        self._sources = self._sources_of_columns()

    def _last(self, chosen: np.ndarray) -> np.ndarray:
        """For each key the position of its last chosen line, or -1."""
        found: np.ndarray = np.maximum.reduceat(np.where(chosen, self._position, -1), self._starts)
        return found

    def _undefeated(self, counts: np.ndarray, places: pa.Table) -> np.ndarray:
        """Lines that are at least as new as every one before that counts."""
        rank = np.zeros(len(self._row), np.int64)
        rank[counts] = ranks(places)[self._row[counts]]
        # Keys one above the other: the highest so far never comes from another key.
        heights = self._group * (int(rank.max(initial=0)) + 1) + rank
        undefeated: np.ndarray = counts & (heights == np.maximum.accumulate(heights))
        return undefeated

    def _sources_of_columns(self) -> dict[str, np.ndarray]:
        """For each column and key the position of the line that has the last word, or -1 where none gives it."""
        given = self._lines.rows.column(GIVEN).combine_chunks().dictionary_encode()
        sets = [frozenset(names_given(text)) for text in given.dictionary.to_pylist()]
        codes = np.full(len(self._row), len(sets))
        has_row = self._row >= 0
        codes[has_row] = given.indices.fill_null(len(sets)).to_numpy()[self._row[has_row]]
        found: dict[tuple[bool, ...], np.ndarray] = {}
        groups: dict[str, np.ndarray] = {}
        sources = {}
        for name in self._schema.names:
            member = tuple(name in names for names in sets)
            if name in self._schema.key:
                member = (True,) * len(sets)
            if member not in found:
                found[member] = self._last(self._counts & np.array([*member, True])[codes])
            sources[name] = found[member]
            rule = self._schema.rules.get(name)
            if rule is not None and rule.by:
                if rule.by not in groups:
                    said = np.array([*(rule.by in names for names in sets), True])[codes]
                    order = self._lines.rows.column(rule.by)
                    groups[rule.by] = newest(self._grouped, self._counts & said, order, self._whole)
                sources[name] = groups[rule.by]
            elif rule is not None:
                given = self._counts & np.array([*member, True])[codes]
                made = reduced(rule, name, self._lines.rows.column(name), self._grouped, given)
                if isinstance(made, np.ndarray):
                    sources[name] = made
                else:
                    self._reduced[name] = made
        return sources

    @property
    def _grouped(self) -> Grouped:
        return Grouped(self._row, self._starts, self._keys)

    def parts(self) -> dict[Op, pa.Table]:
        ordered = bool(self._schema.order_by)
        any_left = self._last(self._counts) >= 0
        behind = self._barrier >= 0
        alone = self._last(self._counts) == self._whole
        done = np.full(len(self._starts), _UPDATE)
        if not ordered:
            done[self._whole >= 0] = _UPSERT
        done[~behind & alone & any_left] = _UPSERT
        done[behind] = _REPLACE if ordered else _UPSERT
        gone = alone & np.isin(self._ops[self._whole], (_DELETE_AT, _GONE_AT))
        done[gone] = np.where(behind[gone], _GONE_AT, _DELETE_AT)
        done[~any_left] = _DELETE
        result: dict[Op, pa.Table] = {}
        for number, op in enumerate(OPS):
            chosen = np.flatnonzero(done == number)
            if not len(chosen):
                continue
            if op is Op.DELETE:
                result[op] = take(self._keys, chosen)
            elif op is Op.UPDATE:
                result[op] = self._patches(chosen) if not ordered else self._chains(chosen)
            elif op in ORDERED_DELETES:
                inside = line_columns(self._schema, op)
                result[op] = self._rows(chosen).select(inside.names).cast(inside)
            else:
                result[op] = self._rows(chosen).cast(self._schema.columns)
        return result

    def _rows(self, chosen: np.ndarray) -> pa.Table:
        """One row for each of these keys, null where no line gives a column."""
        rows = self._lines.rows
        arrays = []
        for name in self._schema.names:
            if name in self._reduced:
                arrays.append(self._reduced[name].take(pa.array(chosen)))
                continue
            source = self._sources[name][chosen]
            lines = pa.array(self._row[source], mask=source < 0)
            arrays.append(rows.column(name).take(lines))
        return pa.table(arrays, schema=nullable(self._schema.columns))

    def _patches(self, chosen: np.ndarray) -> pa.Table:
        """One line for each of these keys, which gives what any of its lines gives."""
        rows = self._rows(chosen)
        given = {name: self._sources[name][chosen] >= 0 for name in self._given_names()}
        return rows.append_column(GIVEN, _texts(given, len(chosen)))

    def _chains(self, chosen: np.ndarray) -> pa.Table:
        """The lines of these keys that count, each with the columns that no later one gives."""
        order = self._schema.order_columns
        wanted = np.zeros(len(self._starts), np.bool_)
        wanted[chosen] = True
        positions = np.flatnonzero(self._counts & wanted[self._group])
        groups = self._group[positions]
        given = {name: self._sources[name][groups] == positions for name in self._given_names() if name not in order}
        last = self._last(self._counts)[groups] == positions
        useful = np.logical_or.reduce([last, *given.values()])
        positions = positions[useful]
        given = {name: flags[useful] for name, flags in given.items()}
        rows = take(self._lines.rows.drop_columns([GIVEN]), self._row[positions])
        arrays = [
            pc.if_else(pa.array(given[name]), rows.column(name), pa.scalar(None, rows.schema.field(name).type))
            if name in given
            else rows.column(name)
            for name in rows.column_names
        ]
        every = {**given, **dict.fromkeys(order, np.ones(len(positions), np.bool_))}
        texts = _texts({name: every[name] for name in self._given_names()}, len(positions))
        return pa.table(arrays, schema=rows.schema).append_column(GIVEN, texts)

    def _given_names(self) -> list[str]:
        return [name for name in self._schema.names if name not in self._schema.key]


def _texts(given: dict[str, np.ndarray], count: int) -> pa.Array:
    """The names of the columns that each line gives."""
    if not given:
        return pa.repeat(pa.scalar(given_text(()), pa.string()), count)
    names = list(given)
    packed = np.packbits(np.column_stack([given[name] for name in names]), axis=1)
    width = packed.shape[1]
    lines = pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(packed)]).dictionary_encode()
    sets = [np.unpackbits(np.frombuffer(bits, np.uint8), count=len(names)) for bits in lines.dictionary.to_pylist()]
    texts = [given_text(name for name, flag in zip(names, flags, strict=True) if flag) for flags in sets]
    return pa.array(texts, pa.string()).take(lines.indices)
