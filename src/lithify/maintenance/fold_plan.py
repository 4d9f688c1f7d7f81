"""Deciding a fold: what is linked, what is rewritten, where each new row goes. Pure.

A new row goes to the first base file (of its partition) whose key range it falls into, else to a new file. Every
file that can hold a changed key is rewritten without it, so each key ends up once whichever file had it before.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lithify.core.arrow_rows import order_of, sort_by, take
from lithify.core.names import DAY
from lithify.core.ops import Overlay
from lithify.core.partitioning import partition_rows, partition_strings
from lithify.core.schema import TableSchema
from lithify.core.snapshot import DataFile, Snapshot
from lithify.index.key_ranges import solid_prefix, split_by_keys

NEW_FILE_ROWS_MAX = 2_000_000
LINK_FILES_MAX = 8
LINK_BYTES_MIN = 4 * 2**20


@dataclass(frozen=True)
class FoldStep:
    """One commit to base: all changes up to `seq`. `partitions` of the files, where they are linked as they are."""

    seq: int
    change_files: tuple[DataFile, ...]
    partitions: Mapping[str, Mapping[str, str | None]] | None = None


def next_step(snapshot: Snapshot, rows_max: int) -> FoldStep:
    """Link what stands beside base as it is; otherwise rewrite as long a prefix of the changes as fits in memory."""
    return _link_step(snapshot) or _rewrite_step(snapshot, rows_max)


def _link_step(snapshot: Snapshot) -> FoldStep | None:
    solid = linkable(solid_prefix(snapshot.schema, (*snapshot.base, *snapshot.remembered), snapshot.changes)[0])
    partitions: dict[str, Mapping[str, str | None]] = {}
    linked: list[DataFile] = []
    for group in _by_seq(solid):
        found = {file.path: partition_of_file(snapshot.schema, file) for file in group}
        if any(partition is None for partition in found.values()):
            break
        partitions.update({path: partition for path, partition in found.items() if partition is not None})
        linked += group
    return FoldStep(max(file.seq for file in linked), tuple(linked), partitions) if linked else None


def _rewrite_step(snapshot: Snapshot, rows_max: int) -> FoldStep:
    chosen: list[DataFile] = []
    rows = 0
    for group in _by_seq(snapshot.changes):
        rows += sum(file.rows for file in group)
        if chosen and rows > rows_max:
            break
        chosen += group
    return FoldStep(max(file.seq for file in chosen), tuple(chosen))


def _by_seq(files: Sequence[DataFile]) -> list[list[DataFile]]:
    groups: dict[int, list[DataFile]] = {}
    for file in sorted(files, key=lambda file: file.seq):
        groups.setdefault(file.seq, []).append(file)
    return list(groups.values())


@dataclass(frozen=True)
class Share:
    """The part of the hidden keys and new rows that one output file is made from."""

    file: DataFile | None
    partition: Mapping[str, str | None]
    hidden: tuple[int, int]
    rows: tuple[int, int]


@dataclass(frozen=True)
class Distribution:
    """`hidden` and `rows` reordered so that every share is a slice of them."""

    hidden: pa.Table
    rows: pa.Table
    shares: tuple[Share, ...]


def linkable(solid: Sequence[DataFile]) -> list[DataFile]:
    """Which of the files that could be linked are. Bulk writes and large files always; of small ones a few.

    A crowd of small files is better merged into one; linking then ends before the first of them.
    """
    small = [file for file in solid if "/" not in file.path and file.size_bytes < LINK_BYTES_MIN]
    if len(small) <= LINK_FILES_MAX:
        return list(solid)
    first_small = min(file.seq for file in small)
    return [file for file in solid if file.seq < first_small]


def distribute(schema: TableSchema, base: Sequence[DataFile], overlay: Overlay, by: Sequence[str]) -> Distribution:
    partitions, group_of = partition_rows(schema, overlay.rows)
    touched, _ = split_by_keys(base, overlay.hidden)
    first = by[0] if by else None
    hidden = sort_by(overlay.hidden, by) if by and overlay.hidden.num_rows else overlay.hidden
    in_order = order_of(overlay.rows, by) if schema.keyed else np.arange(overlay.rows.num_rows)
    lines = in_order[np.argsort(group_of[in_order], kind="stable")]
    groups = group_of[lines]
    home = np.full(len(lines), len(touched), np.int64)
    if schema.keyed and len(lines):
        values = take(overlay.rows.select([by[0]]), lines).column(0).to_pylist()
        _find_homes(schema, touched, partitions, np.searchsorted(groups, np.arange(len(partitions) + 1)), values, home)
    hidden_values = (
        hidden.column(first).to_pylist() if first and hidden.num_rows and not hidden.column(first).null_count else None
    )
    shares: list[Share] = []
    offset = 0
    for file, rows in zip(touched, np.bincount(home, minlength=len(touched) + 1).tolist(), strict=False):
        span = _slice(hidden_values, file, first) if hidden_values is not None and first else (0, hidden.num_rows)
        partition = partition_strings(schema, file.partition)
        shares.append(Share(file, partition, (span[0], span[1] - span[0]), (offset, rows)))
        offset += rows
    homeless = np.bincount(groups[home == len(touched)], minlength=len(partitions)).tolist()
    for partition, rows in zip(partitions, homeless, strict=True):
        for start in range(0, rows, NEW_FILE_ROWS_MAX):
            shares.append(Share(None, partition, (0, 0), (offset + start, min(NEW_FILE_ROWS_MAX, rows - start))))
        offset += rows
    return Distribution(hidden, take(overlay.rows, lines[np.argsort(home, kind="stable")]), tuple(shares))


def _find_homes(
    schema: TableSchema,
    touched: Sequence[DataFile],
    partitions: Sequence[Mapping[str, str | None]],
    starts: np.ndarray,
    values: Sequence[Any],
    home: np.ndarray,
) -> None:
    """Set `home` of each row that falls into a file. Rows are in order of partition (`starts`), then of key, so those
    of a file are one span, less what earlier files took of it.
    """
    wanted = {tuple(sorted(p.items())): number for number, p in enumerate(partitions)}
    free = _Free(len(home))
    for number, file in enumerate(touched):
        group = wanted.get(tuple(sorted(partition_strings(schema, file.partition).items())))
        if group is not None:
            for start, end in free.claim(*_slice(values, file, schema.key[0], *starts[group : group + 2].tolist())):
                home[start:end] = number


class _Free:
    """Rows that are not taken yet, as sorted spans."""

    def __init__(self, count: int) -> None:
        self._starts, self._ends = [0], [count]

    def claim(self, start: int, end: int) -> list[tuple[int, int]]:
        """Take what is free from `start` to `end`."""
        low, high = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if start >= end or low >= high:
            return []
        spans = list(zip(self._starts[low:high], self._ends[low:high], strict=True))
        before, after = (spans[0][0], start), (end, spans[-1][1])
        left = [span for span in (before, after) if span[0] < span[1]]
        self._starts[low:high] = [span[0] for span in left]
        self._ends[low:high] = [span[1] for span in left]
        return [(max(start, low), min(end, high)) for low, high in spans]


def _slice(
    values: Sequence[Any], file: DataFile, column: str, start: int = 0, end: int | None = None
) -> tuple[int, int]:
    """Where the file's values would lie among those from `start` to `end`, which are sorted."""
    bounds = file.bound(column)
    end = len(values) if end is None else end
    if not bounds.known:
        return start, end
    return bisect_left(values, bounds.low, start, end), bisect_right(values, bounds.high, start, end)


def partition_of_file(schema: TableSchema, file: DataFile) -> dict[str, str | None] | None:
    """The one partition that all rows of a change file belong to, from its statistics; None if there is none, or it
    is not known.
    """
    values: dict[str, Any] = {}
    for name in schema.partitions:
        bounds = file.bound(schema.time if name == DAY and schema.time else name)
        if bounds.nulls == file.rows and file.rows > 0:
            values[name] = None
            continue
        if bounds.nulls != 0 or not bounds.known:
            return None
        low, high = (_day(bounds.low), _day(bounds.high)) if name == DAY else (bounds.low, bounds.high)
        # A cut-off text bound cannot tell one value from many.
        if low != high or (isinstance(low, str) and len(low) >= 60):
            return None
        values[name] = low
    return partition_strings(schema, values)


def _day(value: dt.date | dt.datetime) -> dt.date:
    return value.date() if isinstance(value, dt.datetime) else value
