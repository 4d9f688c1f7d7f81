"""Child processes that start in milliseconds.

They are forked from a server that has only imported the library: the threads of deltalake and DataFusion start with
first use, and would not survive a fork.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Semaphore
from pathlib import Path
from typing import Any

_context = multiprocessing.get_context("forkserver")
# pyarrow.dataset is what Arrow itself imports with its first join.
_context.set_forkserver_preload(["lithify.lake.maintenance", "pyarrow.dataset"])

event, queue = _context.Event, _context.Queue


def semaphore() -> Semaphore:
    """None of it is there yet."""
    return _context.Semaphore(0)


WAIT_S_MAX = 120


def pipe() -> tuple[Connection, Connection]:
    """The end to read from, and the end to write to."""
    return _context.Pipe(duplex=False)


def start(target: Callable[..., Any], *arguments: Any, scratch: Path) -> BaseProcess:
    """Run `target` in a child. Its temporary files go to `scratch`, because a killed child cannot clean up."""
    child = _context.Process(target=_run, args=(target, str(scratch), _addresses(), *arguments), daemon=True)
    child.start()
    return child


def _addresses() -> dict[str, str]:
    """Where buckets are, which may have changed since the server of the forks started."""
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


def _run(target: Callable[..., Any], scratch: str, addresses: dict[str, str], *arguments: Any) -> None:
    tempfile.tempdir = scratch
    os.environ.update(addresses)
    target(*arguments)


def finish(child: BaseProcess) -> int:
    """Wait for a child and return its exit code."""
    child.join(WAIT_S_MAX)
    if child.exitcode is None:
        child.kill()
        child.join()
        raise TimeoutError(f"child {child.pid} did not end within {WAIT_S_MAX} s")
    return child.exitcode
