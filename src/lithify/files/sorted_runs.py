"""Rows in no order, sorted by key with one row per key, in bounded memory.

Rows come in runs, each sorted by itself: in memory, or laid down in a file that is mapped back, where there are more
runs to come than memory holds. Keys that cut all runs into ranges of about equal size are taken from a sample; the
pieces of one range, from all runs, are put together, sorted again, and are the next rows of the result. So no more than
one range is in memory at a time, or a few of them where threads sort ahead.

Rows of equal keys lie in the order of their arrival, or of the order columns before that, nulls lowest: the last one
wins, as `merge/winners.py` would have it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.arrow_rows import lies_in_order, take
from lithify.core.column_types import type_of
from lithify.core.schema import TableSchema
from lithify.errors import InvalidRequest
from lithify.files.encoders import Encoders
from lithify.files.os_errors import translated

SAMPLE_ROWS = 4_096
PIECE_ROWS = 131_072
EXAMPLES_MAX = 5


@dataclass(frozen=True)
class KeyOrder:
    """By what rows are sorted. `distinct`: a second row for a key is refused, where nothing says which one is newer."""

    key: tuple[str, ...]
    order: tuple[str, ...] = ()
    distinct: bool = False

    @classmethod
    def of(cls, schema: TableSchema, *, distinct: bool = False) -> KeyOrder:
        return cls(schema.key, schema.order_columns, distinct)

    def winners(self, rows: pa.Table) -> np.ndarray | None:
        """The lines of the rows that win, in the order of their keys; None: all of them, as they lie."""
        if lies_in_order(rows, self.key):
            return None
        by = rows.select([*self.key, *self.order])
        keys = [(name, "ascending") for name in self.key]
        found = pc.sort_indices(by, sort_keys=[*keys, *((name, "ascending", "at_start") for name in self.order)])
        lines: np.ndarray = np.asarray(found.to_numpy(), np.int64)
        same = np.ones(max(len(lines) - 1, 0), np.bool_)
        for name in self.key:
            column = rows.column(name).combine_chunks().take(pa.array(lines))
            same &= pc.equal(column.slice(0, len(same)), column.slice(1)).to_numpy(zero_copy_only=False)
        if not same.any():
            return lines
        if self.distinct:
            raise self._twice(take(rows.select(list(self.key)), lines[np.flatnonzero(same)[:EXAMPLES_MAX]]))
        last: np.ndarray = lines[np.append(~same, True)]
        return last

    def _twice(self, keys: pa.Table) -> InvalidRequest:
        said = "there is more than one row for the same key"
        then = "nothing says which of them is newer: remove the duplicates first, or create the table with order_by"
        shown = ", ".join(str(next(iter(row.values())) if len(row) == 1 else row) for row in keys.to_pylist())
        return InvalidRequest(f"{said}, e.g. {shown}; {then}", public=f"{said}; {then}")


@dataclass(frozen=True)
class Run:
    """Rows, and their lines in the order of the keys (None: they lie in it)."""

    rows: pa.Table
    lines: np.ndarray | None

    @classmethod
    def of(cls, rows: pa.Table, order: KeyOrder) -> Run:
        whole = rows.combine_chunks()
        return cls(whole, order.winners(whole))

    @property
    def count(self) -> int:
        return self.rows.num_rows if self.lines is None else len(self.lines)

    def piece(self, start: int, end: int) -> pa.Table:
        return self.rows.slice(start, end - start) if self.lines is None else take(self.rows, self.lines[start:end])

    def spilled(self, path: PurePath) -> Run:
        """The same rows in a new file, sorted."""
        with translated(path):
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, self.rows.schema) as file:
                for start in range(0, self.count, PIECE_ROWS):
                    file.write_table(self.piece(start, min(start + PIECE_ROWS, self.count)))
            return Run(pa.ipc.open_file(pa.memory_map(str(path))).read_all(), None)

    def keys(self, lines: np.ndarray, key: Sequence[str]) -> pa.Table:
        return take(self.rows.select(list(key)), lines if self.lines is None else self.lines[lines])


def merged(runs: Sequence[Run], order: KeyOrder, range_bytes: int, encoders: Encoders) -> Iterator[pa.Table]:
    """All rows of the runs in the order of their keys, one for each; threads sort ahead."""
    work: list[Callable[[], pa.Table]]
    if len(runs) == 1:
        run = runs[0]
        ends = [*range(0, run.count, PIECE_ROWS), run.count]
        work = [partial(run.piece, start, end) for start, end in pairwise(ends)]
    else:
        size = sum(run.rows.nbytes for run in runs)
        cuts = _cuts(runs, order.key, math.ceil(size / range_bytes))
        work = [partial(_range, runs, spans, order) for spans in zip(*map(pairwise, cuts), strict=True)]
    ahead = encoders.threads + 1
    pending = deque(encoders.submit(call) for call in work[:ahead])
    for call in (*work[ahead:], *(None for _ in pending)):
        yield encoders.result(pending.popleft())
        if call is not None:
            pending.append(encoders.submit(call))


def _range(runs: Sequence[Run], spans: Sequence[tuple[int, int]], order: KeyOrder) -> pa.Table:
    rows = pa.concat_tables([run.piece(*span) for run, span in zip(runs, spans, strict=True)]).combine_chunks()
    lines = order.winners(rows)
    return rows if lines is None else take(rows, lines)


def _cuts(runs: Sequence[Run], key: Sequence[str], ranges: int) -> list[list[int]]:
    """For each run where the ranges begin and end in it: at the same keys in all of them."""
    sampled = [np.arange(0, run.count, SAMPLE_ROWS) for run in runs]
    samples = [run.keys(lines, key) for run, lines in zip(runs, sampled, strict=True)]
    together = pa.concat_tables(samples).combine_chunks()
    order = pc.sort_indices(together, sort_keys=[(name, "ascending") for name in key]).to_numpy()
    chosen = [int(order[len(order) * number // ranges]) for number in range(1, ranges)]
    found = []
    for run, lines, sample in zip(runs, sampled, samples, strict=True):
        positions = [0]
        for cut in chosen:
            at = [together.column(name)[cut] for name in key]
            block = max(_below(sample, at) - 1, 0)  # the last sampled row below the cut: the first one above is near
            start = int(lines[block]) if len(lines) else 0
            near = np.arange(start, min(start + SAMPLE_ROWS, run.count))
            positions.append(start + _below(run.keys(near, key), at))
        found.append([*positions, run.count])
    return found


def _below(keys: pa.Table, cut: Sequence[pa.Scalar]) -> int:
    """How many of the keys are below this one."""
    below, same = np.zeros(keys.num_rows, np.bool_), np.ones(keys.num_rows, np.bool_)
    for column, value in zip(keys.columns, cut, strict=True):
        kind = type_of(column.type)
        values, limit = kind.ordered(column.combine_chunks()), kind.ordered(pa.array([value], column.type))[0]
        below |= same & pc.less(values, limit).to_numpy(zero_copy_only=False)
        same &= pc.equal(values, limit).to_numpy(zero_copy_only=False)
    return int(below.sum())


def spill_path(folder: PurePath, number: int) -> Path:
    return Path(folder, f"run-{number:05}.arrow")
