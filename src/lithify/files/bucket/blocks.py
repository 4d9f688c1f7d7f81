"""Blocks of large objects, for who needs a few rows of one.

A block is a copy like any other (`local_copies`), under the object's name and its place in it: it is kept, bounded and
verified as they are. Blocks of an object that somebody has replaced in between do not belong together, and are not put
together: their tags tell.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePath

from lithify.files.addresses import BucketPath
from lithify.files.bucket.local_copies import LocalCopies, Wanted
from lithify.files.bucket.reads import fetch, fetch_range
from lithify.files.read_proof import Vanished

BLOCK_BYTES = 4 << 20
BLOCKS_MAX = 4096  # of one object
_BLOCK = re.compile(r"(.+\.parquet)#(\d+)")


def fetch_copy(path: PurePath, file: Path, size_bytes: int) -> str:
    """An object, or a block of one."""
    if (block := _BLOCK.fullmatch(path.name)) is None:
        return fetch(path, file, size_bytes)
    return fetch_range(path.with_name(block[1]), file, int(block[2]) * BLOCK_BYTES, size_bytes)


def forget_blocks(copies: LocalCopies, path: BucketPath) -> bool:
    """Whether there were any."""
    blocks = [_block(path, number) for number in range(BLOCKS_MAX)]
    there = [block for block in blocks if copies.find(block) is not None]
    for block in there:
        copies.forget(block)
    return bool(there)


def _block(path: BucketPath, number: int) -> BucketPath:
    return path.with_name(f"{path.name}#{number}")


class BlockReader:
    """An object of a known size as a file that is open for reading, as Arrow wants one."""

    closed = False

    def __init__(self, copies: LocalCopies, path: BucketPath, size_bytes: int) -> None:
        self._copies, self._path, self._size = copies, path, size_bytes
        self._at = 0
        self._time_ns: int | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def read(self, length: int = -1) -> bytes:
        end = self._size if length < 0 else min(self._at + length, self._size)
        start, self._at = self._at, max(self._at, end)
        if start >= end:
            return b""
        numbers = range(start // BLOCK_BYTES, (end - 1) // BLOCK_BYTES + 1)
        if len(numbers) > 1:
            self._copies.bring(self._wanted(number) for number in numbers)
        return b"".join(self._part(number, start, end) for number in numbers)

    def _wanted(self, number: int) -> Wanted:
        return Wanted(_block(self._path, number), min(BLOCK_BYTES, self._size - number * BLOCK_BYTES))

    def _part(self, number: int, start: int, end: int) -> bytes:
        begin = number * BLOCK_BYTES
        first, last = max(start - begin, 0), min(end - begin, BLOCK_BYTES)

        def read(copy: Path) -> tuple[bytes, int]:
            fd = os.open(copy, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.pread(fd, last - first, first), os.fstat(fd).st_mtime_ns
            finally:
                os.close(fd)

        try:
            data, time_ns = self._copies.use(*self._wanted(number), read)
        except Vanished as error:
            raise Vanished.at(str(self._path)) from error
        if time_ns != (self._time_ns or time_ns) or len(data) != last - first:
            forget_blocks(self._copies, self._path)
            raise Vanished.at(str(self._path))
        self._time_ns = time_ns
        return data
