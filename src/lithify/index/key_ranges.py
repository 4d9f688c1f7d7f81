"""Which files can hold a key. A file without statistics can hold anything."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from lithify.core.ops import WHOLE
from lithify.core.schema import TableSchema
from lithify.core.snapshot import Bounds, DataFile

# A few spans are inserted into many; more than one in so many, and all are sorted anew.
BUILD_SHARE = 16


def split_by_keys(files: Sequence[DataFile], keys: pa.Table) -> tuple[list[DataFile], list[DataFile]]:
    """(files that can hold one of the keys, files that cannot)."""
    if not keys.num_rows:
        return [], list(files)
    probes = [_KeyColumn(name, keys.column(name)) for name in keys.column_names]
    touched: list[DataFile] = []
    clean: list[DataFile] = []
    for file in files:
        (touched if all(probe.may_be_in(file.bound(probe.name)) for probe in probes) else clean).append(file)
    return touched, clean


class _KeyColumn:
    def __init__(self, name: str, values: pa.ChunkedArray) -> None:
        self.name = name
        self.nulls = values.null_count > 0
        self.sorted = sorted(set(values.drop_null().to_pylist()))

    def may_be_in(self, bounds: Bounds) -> bool:
        if self.nulls and bounds.nulls != 0:
            return True
        if not bounds.known:
            return True
        position = bisect_left(self.sorted, bounds.low)
        return position < len(self.sorted) and bool(self.sorted[position] <= bounds.high)


class Intervals:
    """A set of values as sorted, disjoint, closed intervals."""

    def __init__(self, bounds: Iterable[Bounds] = ()) -> None:
        self._lows: list[Any] = []
        self._highs: list[Any] = []
        self.add(bounds)

    def add(self, bounds: Iterable[Bounds]) -> None:
        new = [(b.low, b.high) for b in bounds]
        if len(new) * BUILD_SHARE < len(self._lows):
            for low, high in new:
                self._insert(low, high)
        else:
            self._build([*zip(self._lows, self._highs, strict=True), *new])

    def _insert(self, low: Any, high: Any) -> None:
        first, end = bisect_left(self._highs, low), bisect_right(self._lows, high)
        if first < end:
            low, high = min(low, self._lows[first]), max(high, self._highs[end - 1])
        self._lows[first:end] = [low]
        self._highs[first:end] = [high]

    def _build(self, spans: list[tuple[Any, Any]]) -> None:
        spans.sort(key=lambda span: span[0])
        self._lows, self._highs = [], []
        for low, high in spans:
            if self._highs and low <= self._highs[-1]:
                self._highs[-1] = max(self._highs[-1], high)
            else:
                self._lows.append(low)
                self._highs.append(high)

    def meets(self, bounds: Bounds) -> bool:
        position = bisect_right(self._lows, bounds.high)
        return position > 0 and bool(self._highs[position - 1] >= bounds.low)


def solid_prefix(
    schema: TableSchema,
    base: Sequence[DataFile],
    changes: Sequence[DataFile],
    rows_min: int = 0,
) -> tuple[list[DataFile], list[DataFile]]:
    """(the oldest change files that stand beside base as they are, the rest).

    A commit's files hold one row per key, so they need no merge when nothing older can hold one of their keys. The
    first commit that could meet an older key, deletes or updates something, or has a file below `rows_min` ends the
    prefix.
    """
    groups: dict[int, list[DataFile]] = {}
    for file in changes:
        groups.setdefault(file.seq, []).append(file)
    solid: list[DataFile] = []
    first = schema.key[0] if schema.keyed else None
    known = [file.bound(first) for file in base] if first else []
    if any(not bounds.known for bounds in known):
        known, open_ended = [], True
    else:
        open_ended = False
    taken = Intervals(known)
    for _, group in sorted(groups.items()):
        if any(file.op not in WHOLE or file.rows < rows_min for file in group):
            break
        if first:
            bounds = [file.bound(first) for file in group]
            if open_ended or any(not b.known or taken.meets(b) for b in bounds):
                break
            taken.add(bounds)
        solid += group
    chosen = {file.log_path for file in solid}
    return solid, [file for file in changes if file.log_path not in chosen]
