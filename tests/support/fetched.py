"""What tests need and no locked package brings: fetched once into the user's cache, for all runs and workers."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

AGAIN_S = 3600
# Tests may have another cache while they run.
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lithify-tests"


class NotHere(Exception):
    """It is not to be had here, for the reason given."""


def once(name: str, wanted: str, fetch: Callable[[Path], None], again: bool) -> Path:
    """The folder that `fetch` has filled with what is `wanted`. Where it has just failed (NotHere), so does this; but
    not `again`.
    """
    folder = _CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    done, failed = folder / "done", folder / "failed"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists() or done.read_text() != wanted:
            if not again and failed.exists() and time.time() - failed.stat().st_mtime < AGAIN_S:
                raise NotHere(failed.read_text())
            try:
                fetch(folder)
            except NotHere as error:
                failed.write_text(str(error))
                raise
            done.write_text(wanted)
    return folder
