"""Taking rows of a table in another order, however much text it holds.

An Arrow text array ends at 2 GiB, and Arrow's own `take` first makes one array of all chunks. A large table is
therefore taken in pieces: each gathers its lines from the chunks they lie in, so that nothing larger than a piece is
ever put together, and the result has one chunk per piece. A small table, the common case, goes to Arrow as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.column_types import type_of

PIECE_BYTES_MAX = 2**30
FEW_ROWS = 1_024


def take(table: pa.Table, lines: np.ndarray, piece_bytes_max: int | None = None) -> pa.Table:
    """The rows at `lines`, in that order."""
    bytes_max = piece_bytes_max or PIECE_BYTES_MAX
    if len(lines) == table.num_rows and np.array_equal(lines, np.arange(len(lines))):
        return table
    size = table.nbytes
    if size <= bytes_max or not len(lines):
        return table.take(pa.array(lines))
    chunks = table.to_batches()
    starts = np.cumsum([0, *(chunk.num_rows for chunk in chunks)])
    step = max(1, int(bytes_max / (size / table.num_rows)))
    pieces = [
        piece
        for start in range(0, len(lines), step)
        for piece in _pieces(chunks, starts, lines[start : start + step].astype(np.int64), bytes_max)
    ]
    return pa.Table.from_batches(pieces, table.schema)


def sort_by(table: pa.Table, names: Sequence[str], piece_bytes_max: int | None = None) -> pa.Table:
    """Rows that lie in that order already, each above the one before it, are not touched."""
    return table if lies_in_order(table, names) else take(table, order_of(table, names), piece_bytes_max)


def order_of(table: pa.Table, names: Sequence[str]) -> np.ndarray:
    """The lines of a table in ascending order of its columns `names`."""
    order = pc.sort_indices(table.select(list(names)), sort_keys=[(name, "ascending") for name in names])
    return np.asarray(order.to_numpy(), np.int64)


def lies_in_order(table: pa.Table, names: Sequence[str]) -> bool:
    """Whether every row is above the one before it, by these columns in turn; not where one of them has a null. Rows in
    no order are told by the first few of them.
    """
    columns = table.select(list(names))
    if any(column.null_count for column in columns.columns):
        return False
    for start, rows in ((0, FEW_ROWS), (FEW_ROWS - 1, None)):
        last: list[pa.Array] = []
        for arrays in (batch.columns for batch in columns.slice(start, rows).to_batches() if batch.num_rows):
            edge = [pa.concat_arrays([end, array.slice(0, 1)]) for end, array in zip(last, arrays, strict=False)]
            if (edge and not strictly_ascending(edge)) or not strictly_ascending(arrays):
                return False
            last = [array.slice(len(array) - 1) for array in arrays]
    return True


def strictly_ascending(columns: Sequence[pa.Array]) -> bool:
    """Whether every row is above the one before it, by these columns in turn. Arrays without nulls."""
    count = len(columns[0])
    if len(columns) == 1:
        column = type_of(columns[0].type).ordered(columns[0])
        return count < 2 or bool(pc.all(pc.less(column.slice(0, count - 1), column.slice(1))).as_py())
    above, same = np.zeros(max(count - 1, 0), bool), np.ones(max(count - 1, 0), bool)
    for column in columns:
        column = type_of(column.type).ordered(column)
        before, after = column.slice(0, max(count - 1, 0)), column.slice(1)
        above |= same & pc.less(before, after).to_numpy(zero_copy_only=False)
        same &= pc.equal(before, after).to_numpy(zero_copy_only=False)
    return bool(above.all())


def _pieces(
    chunks: Sequence[pa.RecordBatch], starts: np.ndarray, lines: np.ndarray, bytes_max: int
) -> Iterator[pa.RecordBatch]:
    ascending = bool((np.diff(lines) >= 0).all())
    by_line = np.arange(len(lines)) if ascending else np.argsort(lines, kind="stable")
    ordered = lines[by_line]
    cuts = np.searchsorted(ordered, starts)
    parts = [
        chunk.take(pa.array(ordered[low:high] - start))
        for chunk, start, low, high in zip(chunks, starts, cuts, cuts[1:], strict=False)
        if high > low
    ]
    if len(lines) > 1 and sum(part.nbytes for part in parts) > 2 * bytes_max - 1:
        # The average said nothing about these rows: they are much larger than others.
        half = len(lines) // 2
        yield from _pieces(chunks, starts, lines[:half], bytes_max)
        yield from _pieces(chunks, starts, lines[half:], bytes_max)
        return
    if ascending:
        yield from parts
        return
    back = np.empty(len(lines), np.int64)
    back[by_line] = np.arange(len(lines))
    yield pa.concat_batches(parts).take(pa.array(back))


def anti_join(table: pa.Table, keys: pa.Table, by: Sequence[str]) -> pa.Table:
    """Rows of `table` whose `by` columns are not in `keys`; nulls compare equal, order is kept."""
    if not keys.num_rows or not table.num_rows:
        return table
    return table.filter(pa.array(lookup(table, keys, by) < 0))


def lookup(table: pa.Table, keys: pa.Table, by: Sequence[str]) -> np.ndarray:
    """For each row of `table` the line of `keys` (unique) it matches, or -1. Nulls compare equal."""
    if len(by) == 1:
        values, wanted = table.column(by[0]), keys.column(by[0])
        if values.type != wanted.type:
            values = values.cast(wanted.type)
        found = pc.index_in(values, value_set=wanted)
        return np.asarray(found.fill_null(-1).to_numpy(), np.int64)
    both = pa.concat_tables([keys.select(list(by)), table.select(list(by)).cast(keys.select(list(by)).schema)])
    line = np.arange(both.num_rows)
    groups = (
        both.append_column("_line", pa.array(line)).group_by(list(by)).aggregate([("_line", "min"), ("_line", "list")])
    )
    members = groups.column("_line_list").combine_chunks()
    first = np.empty(both.num_rows, np.int64)
    first[members.flatten().to_numpy()] = np.repeat(
        groups.column("_line_min").to_numpy(), np.diff(members.offsets.to_numpy())
    )
    matched = first[keys.num_rows :]
    return np.where(matched < keys.num_rows, matched, -1)
