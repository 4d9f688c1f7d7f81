"""What a process takes from the operating system that is meant to run for a year."""

from __future__ import annotations

import ctypes
import os
import resource
import sys

DESCRIPTORS = 65_536
HEAPS_MIN = 2
_M_ARENA_MAX = -8  # of glibc's malloc.h


def take_descriptors() -> None:
    """As many as this process may have: the usual 1,024 are for programs that only know 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def share_heaps() -> None:
    """As many heaps as there are cores, before threads make more: each keeps what was freed in it to itself, and by
    default glibc gives a process eight for each core. A service of a hundred threads grew by half as much again in
    100,000 requests; with few heaps it stays. `MALLOC_ARENA_MAX`, if set, is somebody's own choice.
    """
    if not sys.platform.startswith("linux") or "MALLOC_ARENA_MAX" in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none, and no such heaps
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, max(HEAPS_MIN, os.cpu_count() or 1))
