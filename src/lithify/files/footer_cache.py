"""Parquet files opened for some of their row groups, and the footers that are kept for the next time.

Where the index says in which part of the footer they are described, only that part is read (`footer_parts`); else the
whole footer. Both are kept, the least recently used go first. A file never changes, but somebody may put another one in
its place: what is kept belongs to a file of this size and tag.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import NamedTuple

import pyarrow.parquet as pq

from lithify.core.read_plan import Source
from lithify.files.examine import check_foreign
from lithify.files.footer_parts import read_part
from lithify.files.local_files import bring_soon, is_far
from lithify.files.open_parquet import open_far, open_file
from lithify.files.read_proof import check_whole

CACHED_BYTES_MAX = 96 * 2**20
# So much larger is a footer in memory than in its file, about.
MEMORY_SHARE = 6
# An object that was opened so often is brought after all; of so many it is counted.
FAR_OPENS_MAX = 8
FAR_KNOWN_MAX = 10_000
_AFAR = 0  # in place of a tag: of an object that is not here


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
_Key = tuple[str, int, int, tuple[int, ...] | None]


def open_for(
    path: PurePath | str, size_bytes: int, columns: Sequence[str], groups: Callable[[int], Sequence[int]]
) -> pq.ParquetFile:
    """For a reader of these columns, where the file has them, and of the row groups that `groups` says, told how many
    there are. Less than half of a far object is read as `open_far` does.
    """
    if not is_far(path, size_bytes):
        return open_file(path, size_bytes)
    check_foreign([(str(path), size_bytes)])
    file = open_far(path, size_bytes)
    wanted, metadata = set(columns), file.metadata
    chosen = [metadata.row_group(number) for number in groups(metadata.num_row_groups)]
    leaves = [
        number for number in range(metadata.num_columns) if file.schema.column(number).path.split(".")[0] in wanted
    ]
    wanted_bytes = sum(group.column(leaf).total_compressed_size for group in chosen for leaf in leaves)
    return file if 2 * wanted_bytes < size_bytes else open_file(path, size_bytes)


class Footers:
    def __init__(self, bytes_max: int = CACHED_BYTES_MAX) -> None:
        self._cached: OrderedDict[_Key, _Footer] = OrderedDict()
        self._bytes, self._bytes_max = 0, bytes_max
        self._far: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def cached_bytes(self) -> int:
        return self._bytes

    def forget(self) -> None:
        with self._lock:
            self._cached.clear()
            self._bytes = 0

    def open(self, source: Source) -> Opened:
        """To be closed by the caller. Raises as `open_file` does."""
        path, size_bytes = source.path, source.size_bytes
        if is_far(path, size_bytes):
            return self._open_far(source)
        tag = check_whole(path, size_bytes)
        whole: _Key = path, size_bytes, tag, None
        known = self._find(whole)
        if known is None and source.groups is not None and source.part is not None:
            key = path, size_bytes, tag, source.groups
            part = self._find(key)
            metadata = read_part(path, size_bytes, source.part) if part is None else part.metadata
            if metadata is not None:
                file = open_file(path, size_bytes, metadata=metadata)
                return Opened(file, range(len(source.groups)), (part or self._keep(key, file)).names)
        file = open_file(path, size_bytes, metadata=None if known is None else known.metadata)
        groups = range(file.num_row_groups) if source.groups is None else source.groups
        return Opened(file, groups, (known or self._keep(whole, file)).names)

    def _open_far(self, source: Source) -> Opened:
        with self._lock:
            self._far[source.path] += 1
            often = self._far[source.path] == FAR_OPENS_MAX
            if len(self._far) > FAR_KNOWN_MAX:
                self._far.clear()
        if often:  # from a copy it is read faster, and page by page
            bring_soon([(source.path, source.size_bytes)])
        key: _Key = source.path, source.size_bytes, _AFAR, None
        known = self._find(key)
        file = open_far(source.path, source.size_bytes, None if known is None else known.metadata)
        groups = range(file.num_row_groups) if source.groups is None else source.groups
        return Opened(file, groups, (known or self._keep(key, file)).names)

    def _find(self, key: _Key) -> _Footer | None:
        with self._lock:
            if key in self._cached:
                self._cached.move_to_end(key)
            return self._cached.get(key)

    def _keep(self, key: _Key, file: pq.ParquetFile) -> _Footer:
        footer = _Footer(file.metadata, frozenset(file.schema_arrow.names))
        with self._lock:
            if key not in self._cached:
                self._cached[key] = footer
                self._bytes += footer.memory_bytes
            while self._bytes > self._bytes_max and len(self._cached) > 1:
                self._bytes -= self._cached.popitem(last=False)[1].memory_bytes
        return footer
