"""A Spark driver in a process of its own: one process has one Spark, and that of the tests is local.

It runs functions of importable modules, one at a time, each with the session as its first argument, and can be killed
in the middle of one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lithify.errors import LithifyError
from support import children

WAIT_S_MAX = 300


class Driver:
    """`options` are those of `SparkOptions`; with `own`, there is no session but the ones that functions start.
    Temporary files go to `scratch`, which is also its current folder.
    """

    def __init__(self, scratch: Path, *, own: bool = False, **options: Any) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self._results, results = children.pipe()
        orders, self._orders = children.pipe()
        self._child = children.start(_serve, orders, results, None if own else options, str(scratch), scratch=scratch)
        # Ours alone: the child's death is the end of what can be read.
        orders.close()
        results.close()

    def start(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._orders.send((function, arguments))

    def result(self) -> Any:
        """What the function that was started answered, or raised."""
        assert self._results.poll(WAIT_S_MAX), "the driver did not answer"
        result, error, trace = self._results.recv()
        if error is not None:
            error.add_note(trace)
            raise error
        return result

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.start(function, *arguments)
        return self.result()

    def kill(self) -> None:
        """As kill -9. Its JVM ends when it notices."""
        assert self._child.pid is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child.pid, signal.SIGKILL)
        self._child.join()

    def close(self) -> None:
        if self._child.is_alive():
            with contextlib.suppress(OSError):
                self._orders.send(None)
            self._child.join(60)
        self.kill()


def _serve(orders: Connection, results: Connection, options: dict[str, Any] | None, folder: str) -> None:
    from lithify.spark.session import SparkOptions, local_session, release

    # The parent decides about Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.chdir(folder)
    session = None
    while (order := orders.recv()) is not None:
        function, arguments = order
        try:
            if options is not None:
                session = session or local_session(SparkOptions(**options))
                arguments = (session, *arguments)
            answer = (function(*arguments), None, "")
        except LithifyError as error:
            answer = (None, error, traceback.format_exc())
        except BaseException as error:
            # Spark's own hold on to what cannot be sent.
            answer = (None, RuntimeError(f"{type(error).__name__}: {error}"), traceback.format_exc())
        results.send(answer)
    if session is not None:
        release(session)
