"""Child processes that start in milliseconds.

They are forked from a server that has only imported the library: the threads of deltalake and DataFusion start with
first use, and would not survive a fork.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

_context = multiprocessing.get_context("forkserver")
# pyarrow.dataset is what Arrow itself imports with its first join.
_context.set_forkserver_preload(["lithify.lake.maintenance", "pyarrow.dataset"])

event, queue = _context.Event, _context.Queue
WAIT_S_MAX = 120


def pipe() -> tuple[Connection, Connection]:
    """The end to read from, and the end to write to."""
    return _context.Pipe(duplex=False)


def start(target: Callable[..., Any], *arguments: Any, scratch: Path) -> BaseProcess:
    """Run `target` in a child. Its temporary files go to `scratch`, because a killed child cannot clean up."""
    child = _context.Process(target=_run, args=(target, str(scratch), *arguments), daemon=True)
    child.start()
    return child


def _run(target: Callable[..., Any], scratch: str, *arguments: Any) -> None:
    tempfile.tempdir = scratch
    target(*arguments)


def finish(child: BaseProcess) -> int:
    """Wait for a child and return its exit code."""
    child.join(WAIT_S_MAX)
    if child.exitcode is None:
        child.kill()
        child.join()
        raise TimeoutError(f"child {child.pid} did not end within {WAIT_S_MAX} s")
    return child.exitcode
