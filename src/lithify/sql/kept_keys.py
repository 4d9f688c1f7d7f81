"""Keys of row groups that were decoded to look some up, kept for whoever looks for others of them.

Statements by key come one after another, and each looks for its keys in nearly all row groups of a large table. Where
the keys of a row group ascend, as they do in files that are sorted by them, they are kept as numbers: four bytes each,
or eight where they lie far apart. What is kept belongs to a file of a size and a tag, as footers do (`footer_cache`).

There is a bound of bytes. Beyond it some other row group goes, whichever: who goes through a larger table again and
again would lose all of it if the oldest went.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lithify.core.read_plan import Source
from lithify.files.local_files import is_far
from lithify.files.read_proof import check_whole

KEPT_BYTES_MAX = 64 * 2**20

Numbers = npt.NDArray[np.int64]


def numbers_of(values: pa.Array) -> Numbers:
    """Whole numbers that are equal where the values are, and in their order."""
    width = values.type.bit_width
    plain = values if pa.types.is_integer(values.type) else values.view(pa.int64() if width == 64 else pa.int32())
    return np.asarray(plain.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


@dataclass(frozen=True)
class Ascending:
    """Numbers, each above the one before it: how far each is from `first`."""

    first: int
    last: int
    offsets: npt.NDArray[np.unsignedinteger]

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Ascending | None:
        """None where there are nulls, or none at all, and where they do not ascend."""
        if column.null_count:
            return None
        values = numbers_of(column.combine_chunks())
        if not len(values) or not bool((values[1:] > values[:-1]).all()):
            return None
        first, last = int(values[0]), int(values[-1])
        kind = np.uint32 if last - first < 2**32 else np.uint64
        # Without a sign the difference of any two of them is right.
        return cls(first, last, (values.view(np.uint64) - values[:1].view(np.uint64)).astype(kind))

    def among(self, wanted: Numbers) -> Numbers:
        """Those of the wanted numbers, which are in order, that are here."""
        near = wanted[np.searchsorted(wanted, self.first) : np.searchsorted(wanted, self.last, "right")]
        offsets = (near.view(np.uint64) - np.array([self.first], np.int64).view(np.uint64)).astype(self.offsets.dtype)
        at = np.searchsorted(self.offsets, offsets)
        found: Numbers = near[self.offsets[at] == offsets]
        return found


class _File(NamedTuple):
    path: str
    size_bytes: int
    tag: int
    column: str
    kind: pa.DataType


@dataclass
class _Kept:
    """`count`: how many row groups the file has, where that is known."""

    count: int | None = None
    groups: dict[int, Ascending] = field(default_factory=dict)


class KeptKeys:
    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._bytes_max, self._bytes = bytes_max, 0
        self._files: dict[_File, _Kept] = {}
        self._lock = threading.Lock()

    def of(self, source: Source, column: pa.Field) -> list[Ascending] | None:
        """Of all row groups of a source; None where one is not kept. Names a file that is missing."""
        if is_far(source.path, source.size_bytes):
            return None
        file = _file(source, column)
        with self._lock:
            kept = self._files.get(file, _NONE)
            groups = range(kept.count or 0) if source.groups is None else source.groups
            found = [kept.groups[group] for group in groups if group in kept.groups]
        return found if found and len(found) == len(groups) else None

    def keep(self, source: Source, column: pa.Field, keys: Mapping[int, Ascending], count: int | None) -> None:
        """Of row groups, by their numbers."""
        if is_far(source.path, source.size_bytes) or not keys:
            return
        file = _file(source, column)
        with self._lock:
            kept = self._files.setdefault(file, _Kept())
            kept.count = count or kept.count
            new = {group: values for group, values in keys.items() if group not in kept.groups}
            kept.groups |= new
            self._bytes += sum(values.offsets.nbytes for values in new.values())
            while self._bytes > self._bytes_max:
                self._drop()

    def _drop(self) -> None:
        file = random.choice(list(self._files))
        groups = self._files[file].groups
        self._bytes -= groups.pop(random.choice(list(groups))).offsets.nbytes
        if not groups:
            del self._files[file]

    def forget(self) -> None:
        with self._lock:
            self._files.clear()
            self._bytes = 0


_NONE = _Kept()


def _file(source: Source, column: pa.Field) -> _File:
    tag = check_whole(source.path, source.size_bytes)
    return _File(source.path, source.size_bytes, tag, column.name, column.type)
