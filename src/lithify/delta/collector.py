"""Making very many values at once.

Python's collector looks for cycles whenever some hundreds of values are new, and walks more of them each time. Where a
hundred thousand are made that hold none, that is a third of the time.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_lock, _pausing, _resumes = threading.Lock(), 0, False


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """For a moment, and for all threads; the last that needs it lets the collector go on, if it was at work before."""
    global _pausing, _resumes
    with _lock:
        if not _pausing:
            _resumes = gc.isenabled()
            gc.disable()
        _pausing += 1
    try:
        yield
    finally:
        with _lock:
            _pausing -= 1
            if not _pausing and _resumes:
                gc.enable()
