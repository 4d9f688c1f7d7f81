"""Which part of a column's range each row group covers, told by log and index: no data file is opened.

Row groups that cover the same part are all read by a query for it, so where they overlap, reads take longer; pending
changes are merged into whatever they overlap. To be drawn, every bound gets a place between 0 and 1: by its value where
values are numbers or times, and otherwise by its rank among all bounds, since texts have no distances.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.snapshot import DataFile, Snapshot
from lithify.errors import NotFound
from lithify.index.reader import View
from lithify.index.stats import ABSENT, HAS_MAX, HAS_MIN, ColumnStats, Kind, value_of, whole_value_of
from lithify.tables.handles import Handles

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Span:
    """A row group of base, or a file of changes, with the bounds of one column; None where they are not known."""

    path: str
    origin: str
    rows: int
    bytes: int
    seq: int | None
    low: Any
    high: Any

    @property
    def known(self) -> bool:
        return self.low is not None and self.high is not None


@dataclass(frozen=True)
class GroupMap:
    """`places`: of base's spans, then of the pending ones, where each begins and ends; None where that is not known.
    `files_unknown`: files of base that the index does not know; each counts as one span, with what the log says of it.
    """

    base: tuple[Span, ...]
    pending: tuple[Span, ...]
    places: tuple[tuple[float, float] | None, ...]
    linear: bool
    files_unknown: int


def group_map(handles: Handles, snapshot: Snapshot, column: str) -> GroupMap:
    """Raises `NotFound` for a column that the table does not have."""
    if column not in snapshot.schema.names:
        raise NotFound(
            f"table {snapshot.table} has no column {column!r}: it has {', '.join(snapshot.schema.names)[:500]}"
        )
    found = handles.base_index.ask(snapshot.base_version, lambda view: dict(_groups_in(view, snapshot.base, column)))
    known = found or {}
    base = [span for file in snapshot.base for span in known.get(file.path) or [_of_file(file, column)]]
    base.sort(key=lambda span: (span.low is None, _order(span.low) if span.low is not None else 0, span.path))
    pending = [_of_file(file, column) for file in snapshot.changes]
    places, linear = places_of([(span.low, span.high) for span in (*base, *pending)])
    unknown = sum(file.path not in known for file in snapshot.base)
    return GroupMap(tuple(base), tuple(pending), tuple(places), linear, unknown)


def _of_file(file: DataFile, column: str) -> Span:
    bound = file.bound(column)
    low, high = (bound.low, bound.high) if bound.known else (None, None)
    return Span(file.path, file.origin, max(file.rows, 0), file.size_bytes, file.seq or None, low, high)


def _groups_in(view: View, files: Sequence[DataFile], column: str) -> Iterator[tuple[str, list[Span]]]:
    by_path = {file.path: file for file in files}
    wanted = pa.array(by_path, pa.string())
    for part in view.blocks:
        block = part.block
        stats = block.stats(column)
        for number in pc.indices_nonzero(pc.is_in(block.paths, value_set=wanted)).to_pylist():
            file = by_path[block.paths[number].as_py()]
            # An entry of another size is of another file.
            if not part.live[number] or int(block.sizes[number]) != file.size_bytes:
                continue
            spans = []
            for group in range(int(block.first_group[number]), int(block.first_group[number + 1])):
                low, high = (None, None) if stats is None else _bounds(stats, group)
                rows, size = int(block.group_rows[group]), int(block.group_bytes[group])
                spans.append(Span(file.path, file.origin, rows, size, None, low, high))
            yield file.path, spans


def _bounds(stats: ColumnStats, group: int) -> tuple[Any, Any]:
    flags = int(stats.flags[group])
    if flags & ABSENT or not flags & HAS_MIN or not flags & HAS_MAX or stats.kind is Kind.OTHER:
        return None, None
    try:
        if stats.kind.keyed_by_bytes:
            return tuple(whole_value_of(stats, bound(group)) for bound in (stats.full_low, stats.full_high))
        return tuple(value_of(stats, keys[group].item()) for keys in (stats.low, stats.high))
    except (OverflowError, UnicodeDecodeError):  # beyond what Python can show, or a text that was cut
        return None, None


def places_of(bounds: Sequence[tuple[Any, Any]]) -> tuple[list[tuple[float, float] | None], bool]:
    """Where pairs of bounds lie between 0 and 1, and whether distances mean something there."""
    bounds = [(_placeable(low), _placeable(high)) for low, high in bounds]
    numbers = [tuple(_number(value) for value in pair) for pair in bounds]
    said = [pair for pair, given in zip(numbers, bounds, strict=True) if None not in given]
    linear = all(None not in pair for pair in said)
    if linear:
        # Of very large ones the difference is none of their kind any more: these go by their order.
        ends = [number for pair in said for number in pair if number is not None]
        low = min(ends, default=0.0)
        width = (max(ends, default=1.0) - low) or 1.0
        if math.isfinite(width):
            return [
                None if first is None or last is None else ((first - low) / width, (last - low) / width)
                for first, last in numbers
            ], True
    distinct = {_order(value) for pair in bounds for value in pair if value is not None}
    ranks = {value: rank for rank, value in enumerate(sorted(distinct))}
    width = max(len(ranks) - 1, 1)
    return [
        None if low is None or high is None else (ranks[_order(low)] / width, ranks[_order(high)] / width)
        for low, high in bounds
    ], False


def _placeable(value: Any) -> Any:
    """Nothing lies at infinity, nor where a bound is not a number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: Any) -> float | None:
    match value:
        case bool() | int() | float() | Decimal():
            return float(value)
        case dt.datetime():
            return ((value if value.tzinfo else value.replace(tzinfo=dt.UTC)) - _EPOCH).total_seconds()
        case dt.date():
            return (dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC) - _EPOCH).total_seconds()
    return None


def _order(value: Any) -> tuple[int, float, bytes]:
    """Numbers by their value, all else by its bytes."""
    number = _number(value)
    if number is not None:
        return 0, number, b""
    return 1, 0.0, value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
