"""Parquet files opened for some of their row groups, and the footers that are kept for the next time.

Where the index says in which part of the footer they are described, only that part is read (`footer_parts`); else the
whole footer. Both are kept, the least recently used go first. A file never changes, but somebody may put another one in
its place: what is kept belongs to a file of this size that was last written to at this moment.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow.parquet as pq

from lithify.core.read_plan import Source
from lithify.files.footer_parts import read_part
from lithify.files.open_parquet import open_file
from lithify.files.read_proof import check_whole

KEPT_BYTES_MAX = 96 * 2**20
# So much larger is a footer in memory than in its file, about.
MEMORY_SHARE = 6


class Opened(NamedTuple):
    """`groups`: the wanted row groups, by their numbers in `file`. `names`: of the columns that it has."""

    file: pq.ParquetFile
    groups: Sequence[int]
    names: frozenset[str]


class _Footer(NamedTuple):
    metadata: pq.FileMetaData
    names: frozenset[str]

    @property
    def memory_bytes(self) -> int:
        return int(self.metadata.serialized_size) * MEMORY_SHARE


# A file as it was, and which of its row groups (None: all of them).
_Place = tuple[str, int, int, tuple[int, ...] | None]


class Footers:
    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._kept: OrderedDict[_Place, _Footer] = OrderedDict()
        self._bytes, self._bytes_max = 0, bytes_max
        self._lock = threading.Lock()

    @property
    def kept_bytes(self) -> int:
        return self._bytes

    def forget(self) -> None:
        with self._lock:
            self._kept.clear()
            self._bytes = 0

    def open(self, source: Source) -> Opened:
        """To be closed by the caller. Raises as `open_file` does."""
        path, size_bytes = source.path, source.size_bytes
        moment = check_whole(path, size_bytes)
        whole: _Place = path, size_bytes, moment, None
        known = self._find(whole)
        if known is None and source.groups is not None and source.part is not None:
            place = path, size_bytes, moment, source.groups
            part = self._find(place)
            metadata = read_part(path, size_bytes, source.part) if part is None else part.metadata
            if metadata is not None:
                file = open_file(path, size_bytes, metadata=metadata)
                return Opened(file, range(len(source.groups)), (part or self._keep(place, file)).names)
        file = open_file(path, size_bytes, metadata=None if known is None else known.metadata)
        groups = range(file.num_row_groups) if source.groups is None else source.groups
        return Opened(file, groups, (known or self._keep(whole, file)).names)

    def _find(self, place: _Place) -> _Footer | None:
        with self._lock:
            if place in self._kept:
                self._kept.move_to_end(place)
            return self._kept.get(place)

    def _keep(self, place: _Place, file: pq.ParquetFile) -> _Footer:
        footer = _Footer(file.metadata, frozenset(file.schema_arrow.names))
        with self._lock:
            if place not in self._kept:
                self._kept[place] = footer
                self._bytes += footer.memory_bytes
            while self._bytes > self._bytes_max and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1].memory_bytes
        return footer
