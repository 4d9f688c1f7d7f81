"""Folders for lakes under test."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_MEMORY = "/dev/shm"


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder that is gone afterwards; in memory where possible, because a test's fsyncs need not cost anything."""
    path = Path(tempfile.mkdtemp(prefix="lithify-test-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
