"""A process that runs for a year shares its heaps among its threads."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_info"), reason="this C library has no such heaps"
)

# Each thread takes memory while all of them live, so that none is given the heap of another that has ended.
PROGRAM = """
import ctypes, sys, threading
from lithify.cli.long_running import share_heaps

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.fdopen.restype = ctypes.c_void_p
if sys.argv[1] == "shared":
    share_heaps()
together = threading.Barrier(24)

def take():
    together.wait()
    libc.malloc(5000)
    together.wait()

threads = [threading.Thread(target=take) for _ in range(24)]
for thread in threads: thread.start()
for thread in threads: thread.join()
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""


def heaps(how: str, **environment: str) -> int:
    inherited = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    command = [sys.executable, "-c", PROGRAM, how]
    shown = subprocess.run(command, env=inherited | environment, capture_output=True, text=True, check=True).stdout
    return len(re.findall(r"<heap nr=", shown))


def test_threads_share_as_many_heaps_as_there_are_cores() -> None:
    cores = max(2, os.cpu_count() or 1)
    assert heaps("shared") <= cores
    assert heaps("alone") > cores or cores >= 24, "this test sees nothing"


def test_a_number_that_somebody_has_chosen_holds() -> None:
    assert heaps("shared", MALLOC_ARENA_MAX="5") == 5
