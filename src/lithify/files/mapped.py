"""Local files mapped into memory: an index is read where it lies, and never as a whole.

Arrow's mapping, because those of Python and NumPy each keep a descriptor. The buffer holds it.
"""

from __future__ import annotations

import os
from pathlib import PurePath

import pyarrow as pa

from lithify.files.os_errors import translated

Identity = tuple[int, int]


def mapped(path: PurePath) -> tuple[Identity, memoryview]:
    """Which file lies there, and its bytes, as many as it has now."""
    with translated(path):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(fd)
            identity = found.st_dev, found.st_ino
            if not found.st_size:
                return identity, memoryview(b"")
            with pa.memory_map(f"/dev/fd/{fd}") as source:
                return identity, memoryview(source.read_buffer())
        finally:
            os.close(fd)


def identity_and_size(path: PurePath) -> tuple[Identity, int]:
    with translated(path):
        found = os.stat(path)
        return (found.st_dev, found.st_ino), found.st_size
