"""Merge rules (`core/merge_rules.py`) as reductions over the lines of each key.

On a table with rules a row that is upserted or updated is a contribution: a line of the operation `update`. Lines of
other operations set a row as a whole (`replace`, SQL, restore) or take it away, and begin anew. Of what a key has since
then, the whole row first, a rule makes one value; every line counts once. All of them are associative and none looks at
more than values and their order, so that any grouping of lines gives the same row.

Unlike lines that set columns, applying a line twice counts it twice. Whoever puts lines on top of rows knows the seq
that the rows are of, and takes the lines of higher ones: readers and folds by base's watermark, feeds and hot tables by
theirs. A merged change file would hold lines of both sides of such a seq, so those of a table with rules are not merged
(`maintenance/triggers.py`).

The columns of an order group (`core/order_groups.py`) come from one line (`newest`), or stay those of the whole row
where no line says anything of them. That is a maximum, so that there a line may well be applied twice.

A sum is added up in limbs of 32 bits, which do not overflow, and must then fit its column. One that does not is refused
by whoever adds it up, with the key and the way out: a delete or a replace forgets what came before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.merge_rules import RETRACTABLE, Rule
from lithify.core.names import GIVEN, given_text, names_given
from lithify.core.schema import TableSchema
from lithify.errors import InvalidRequest

_LIMB_BITS = 32
_LIMB = (1 << _LIMB_BITS) - 1


# -- rows become contributions, once, where they come in


def whole_lines(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Contributions of whole rows."""
    given = given_text(name for name in schema.names if name not in schema.key)
    lines = rows.append_column(GIVEN, pa.repeat(pa.scalar(given, pa.string()), rows.num_rows))
    return contributions(lines, schema)


def contributions(lines: pa.Table, schema: TableSchema) -> pa.Table:
    """What lines of an update say to the rules: each of them counts one, and a list is cut to what is kept of it."""
    for name, rule in schema.rules.items():
        if rule.kind == "count":
            lines = _counting(lines, name, 1)
        elif rule.kind == "append":
            lines = _set(lines, name, _cut(lines.column(name).combine_chunks(), rule.bound))
    return lines


def retractions(lines: pa.Table, schema: TableSchema) -> pa.Table:
    """Lines that take back what others said: exact for sums and counts, and for nothing else."""
    said = {name for text in lines.column(GIVEN).unique().to_pylist() for name in names_given(text)}
    exact = [name for name, rule in schema.rules.items() if rule.kind in RETRACTABLE]
    for name in schema.names:
        if name in said and name not in exact:
            rule = schema.rules.get(name, Rule("last"))
            raise InvalidRequest(
                f"column {name!r} cannot be taken back: its merge rule is {str(rule)!r}, and only sum and count are "
                f"retracted exactly; leave it out, or write the whole row with replace"
            )
    if not exact:
        raise InvalidRequest("the table has no column with the merge rule sum or count: there is nothing to retract")
    for name in exact:
        if schema.rules[name].kind == "count":
            lines = _counting(lines, name, -1)
            continue
        try:
            lines = _set(lines, name, pc.negate_checked(lines.column(name)))
        except pa.ArrowInvalid as error:
            raise InvalidRequest(f"column {name!r} has a value that cannot be taken back: {error}") from error
    return lines


def _counting(lines: pa.Table, name: str, step: int) -> pa.Table:
    coded = lines.column(GIVEN).combine_chunks().dictionary_encode()
    texts = [given_text(dict.fromkeys([*names_given(text), name])) for text in coded.dictionary.to_pylist()]
    lines = _set(lines, GIVEN, pa.array(texts, pa.string()).take(coded.indices))
    return _set(lines, name, pa.repeat(pa.scalar(step, pa.int64()), lines.num_rows))


def _set(lines: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    at = lines.schema.get_field_index(name)
    return lines.set_column(at, lines.schema.field(at), values)


# -- the reductions


@dataclass(frozen=True)
class Grouped:
    """Lines of keys beside each other, each key's in the order of arrival. `row`: the row of a line, or -1; `starts`:
    where each key begins; `keys`: each once.
    """

    row: np.ndarray
    starts: np.ndarray
    keys: pa.Table

    def last(self, chosen: np.ndarray) -> np.ndarray:
        """For each key the position of its last chosen line, or -1."""
        found: np.ndarray = np.maximum.reduceat(np.where(chosen, np.arange(len(chosen)), -1), self.starts)
        return found

    def first(self, chosen: np.ndarray) -> np.ndarray:
        """For each key the position of its first chosen line, or -1."""
        count = len(chosen)
        found: np.ndarray = np.minimum.reduceat(np.where(chosen, np.arange(count), count), self.starts)
        return np.where(found == count, -1, found)

    def best(self, chosen: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        """For each key the position of its last chosen line of the highest rank (from 0 on), or -1."""
        count = len(chosen)
        found: np.ndarray = np.maximum.reduceat(np.where(chosen, ranks * count + np.arange(count), -1), self.starts)
        return np.where(found < 0, -1, found % count)

    def total(self, values: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.add.reduceat(values, self.starts)
        return found


def reduced(
    rule: Rule, name: str, values: pa.ChunkedArray, grouped: Grouped, given: np.ndarray
) -> np.ndarray | pa.Array:
    """What the rule makes of the lines that give a column: for each key the position of the line that has its value, or
    the values of all keys.
    """
    told = given.copy()
    if values.null_count:
        told[given] = pc.is_valid(values).to_numpy()[grouped.row[given]]
    match rule.kind:
        case "sum" | "count":
            return _summed(name, values, grouped, told)
        case "append":
            return _appended(rule.bound, values, grouped, told)
        case _:
            found = _PICKED[rule.kind](grouped, told, values)
            # Where all say null, so does the last one.
            return np.where(found < 0, grouped.last(given), found)


def newest(grouped: Grouped, told: np.ndarray, order: pa.ChunkedArray, whole: np.ndarray) -> np.ndarray:
    """For each key the position of the line that an order group comes from, or -1 where none says anything of it.
    `told`: lines that give the group; `order`: its order column; `whole`: for each key the line that sets its row.
    """
    valid = told.copy()
    valid[told] = pc.is_valid(order).to_numpy()[grouped.row[told]]
    found = _ranked(grouped, valid, order)
    return np.where(found < 0, whole, found)


def _ranked(grouped: Grouped, told: np.ndarray, values: pa.ChunkedArray, *, lowest: bool = False) -> np.ndarray:
    plain = values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values
    ranks = np.zeros(len(told), np.int64)
    if told.any():
        # Nulls come last, and NaN before them: above all numbers.
        ranks[told] = pc.rank(plain, sort_keys="ascending", tiebreaker="dense").to_numpy()[grouped.row[told]]
    return grouped.best(told, ranks.max(initial=0) - ranks if lowest else ranks)


def _lowest(grouped: Grouped, told: np.ndarray, values: pa.ChunkedArray) -> np.ndarray:
    return _ranked(grouped, told, values, lowest=True)


_PICKED: dict[str, Callable[[Grouped, np.ndarray, pa.ChunkedArray], np.ndarray]] = {
    "first": lambda grouped, told, values: grouped.first(told),
    "last_non_null": lambda grouped, told, values: grouped.last(told),
    "max": _ranked,
    "or": _ranked,
    "min": _lowest,
    "and": _lowest,
}


def _summed(name: str, values: pa.ChunkedArray, grouped: Grouped, told: np.ndarray) -> pa.Array:
    kind, positions = values.type, np.flatnonzero(told)
    words = _words(values.take(pa.array(grouped.row[positions])).combine_chunks(), kind)
    limbs = np.zeros((len(told), 2 * words.shape[1]), np.int64)
    limbs[positions, 0::2], limbs[positions, 1::2] = words & _LIMB, words >> _LIMB_BITS
    # All but the highest limb are without sign.
    limbs[:, 1:-1] &= _LIMB
    sums = grouped.total(limbs)
    for limb in range(sums.shape[1] - 1):
        sums[:, limb + 1] += sums[:, limb] >> _LIMB_BITS
        sums[:, limb] &= _LIMB
    top = sums[:, -1]
    broken = (top < -(1 << 31)) | (top >= 1 << 31)
    whole = np.ascontiguousarray(sums[:, 0::2] | (sums[:, 1::2] << _LIMB_BITS))
    if pa.types.is_decimal(kind):
        broken |= _beyond(whole)
    if broken.any():
        raise _no_room(name, kind, grouped.keys.slice(int(np.flatnonzero(broken)[0]), 1))
    found = pa.Array.from_buffers(kind, len(whole), [None, pa.py_buffer(whole)])
    none = grouped.last(told) < 0
    return found if not none.any() else pc.if_else(pa.array(none), pa.scalar(None, kind), found)


def _words(values: pa.Array, kind: pa.DataType) -> np.ndarray:
    """Values as 64-bit words, the lowest first."""
    width = kind.bit_width // 64
    words = np.frombuffer(values.buffers()[1], np.int64) if len(values) else np.zeros(0, np.int64)
    return words[width * values.offset : width * (values.offset + len(values))].reshape(-1, width)


def _beyond(words: np.ndarray) -> np.ndarray:
    """Which of these numbers of 128 bits have more than 38 digits. Few are near it, which the high word tells."""
    end = 10**38
    near = np.flatnonzero((words[:, 1] >= end >> 64) | (words[:, 1] <= -(end >> 64) - 1))
    broken = np.zeros(len(words), np.bool_)
    broken[near] = [abs((int(high) << 64) + (int(low) & (2**64 - 1))) >= end for low, high in words[near]]
    return broken


def _no_room(name: str, kind: pa.DataType, key: pa.Table) -> InvalidRequest:
    shown = ", ".join(f"{column} {value!r}" for column, value in key.to_pylist()[0].items())
    said = f"the sum of column {name!r} does not fit {kind}"
    hint = "delete that row or write it with replace, which forgets what was added to it; no other row is concerned"
    return InvalidRequest(f"{said} in the row with {shown}: {hint}", public=f"{said} in one row: {hint}")


def _appended(bound: int, values: pa.ChunkedArray, grouped: Grouped, told: np.ndarray) -> pa.Array:
    positions = np.flatnonzero(told)
    lists = values.take(pa.array(grouped.row[positions])).combine_chunks()
    lengths = np.zeros(len(told), np.int64)
    lengths[positions] = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    ends = np.cumsum(grouped.total(lengths))
    begins = np.concatenate([[0], ends[:-1]])
    # One list alone was set as it is, or cut where it came in.
    several = grouped.total(told.astype(np.int64)) > 1
    begins = np.where(several, np.maximum(begins, ends - bound), begins)
    none = grouped.last(told) < 0
    return _lists(lists.flatten(), begins, ends, none, values.type)


def _cut(lists: pa.Array, bound: int) -> pa.Array:
    """Of each list the newest elements."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    if not (lengths > bound).any():
        return lists
    ends = np.cumsum(lengths)
    begins = np.maximum(ends - lengths, ends - bound)
    return _lists(lists.flatten(), begins, ends, pc.is_null(lists).to_numpy(zero_copy_only=False), lists.type)


def _lists(elements: pa.Array, begins: np.ndarray, ends: np.ndarray, none: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Lists of the elements between these ends."""
    lengths = np.where(none, 0, ends - begins)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    taken = np.repeat(begins - offsets[:-1], lengths) + np.arange(offsets[-1])
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), elements.take(pa.array(taken, pa.int64())), type=kind, mask=pa.array(none)
    )
