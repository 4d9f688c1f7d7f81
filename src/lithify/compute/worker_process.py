"""One Spark worker process: its pipes, the threads that read them, and its end.

The reader thread owns the process: it alone waits for it, so that an exit code is never lost, and it alone reports
the end, after the process has been reaped, every other process of its session killed and its scratch folder removed.
Others only ask for an end, by closing standard input or by killing. What comes on standard error is kept in a ring of
bounded size, for messages about its death.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import json
import logging
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from lithify.compute import processes, wire
from lithify.files.scratch import Scratch

log = logging.getLogger(__name__)

_CHUNK_BYTES = 2**16
_TICK_S = 1.0
_ORDERLY_END_S_MAX = 30
_END_S_MAX = 10
_STDERR_LINES_MAX = 200
_STDERR_LINE_CHARS_MAX = 2000
_NONSENSE_BYTES_SHOWN = 100


class End(enum.Enum):
    """How it came to an end: by itself, killed because it no longer works, killed on request, asked."""

    DIED = "died"
    KILLED = "killed"
    CANCELLED = "cancelled"
    ASKED = "asked"


class Supervisor(Protocol):
    """Told by the reader thread what the process does."""

    def heard(self, message: dict[str, Any]) -> None: ...

    def nothing_heard(self, child: WorkerProcess, silence_s: float) -> None: ...

    def check_idle(self, child: WorkerProcess) -> None: ...

    def ended(self, child: WorkerProcess, how: End, why: str, code: int, stderr: list[str]) -> None: ...


class WorkerProcess:
    def __init__(self, config: Callable[[int, str], wire.Config], supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._scratch = Scratch("worker")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "lithify.spark.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.rss_bytes = 0
        self._end: tuple[End, str] | None = None
        self._asked_at = 0.0
        self._writing = threading.Lock()
        self._stderr: collections.deque[str] = collections.deque(maxlen=_STDERR_LINES_MAX)
        self._listener = threading.Thread(target=self._listen, name=f"worker-stderr-{self.pid}", daemon=True)
        self._reader = threading.Thread(target=self._read, name=f"worker-{self.pid}", daemon=True)
        self._listener.start()
        self._reader.start()
        self.send(config(os.getpid(), str(self._scratch.path)).line())

    @property
    def ending(self) -> bool:
        return self._end is not None

    def send(self, line: bytes) -> None:
        """A process that can no longer be written to is about to be reported dead, to its waiting orders too."""
        assert self._process.stdin is not None
        with self._writing, contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def end(self, how: End, why: str) -> None:
        """Ask the process to end, or kill it; returns at once. The first reason given is the one reported, but a kill
        overrides a polite request.
        """
        if self._end is None or self._end[0] is End.ASKED:
            self._end = (how, why)
        if how is not End.ASKED:
            processes.kill_session(self.pid)
        elif not self._asked_at:
            self._asked_at = time.monotonic()
            self._close_stdin()

    def join(self) -> None:
        """Wait until the end has been reported."""
        self._reader.join()

    def _close_stdin(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    # -- the reader thread

    def _read(self) -> None:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        heard_at, parts = time.monotonic(), list[bytes]()
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while True:
                # Silence counts only while there is nothing to read: this process may have been stopped itself.
                if not selector.select(_TICK_S):
                    self._supervisor.nothing_heard(self, time.monotonic() - heard_at)
                    if self._asked_at and time.monotonic() - self._asked_at > _ORDERLY_END_S_MAX:
                        processes.kill_session(self.pid)
                    continue
                chunk = os.read(pipe, _CHUNK_BYTES)
                if not chunk:
                    break
                heard_at = time.monotonic()
                first, *others = chunk.split(b"\n")
                parts.append(first)
                if not others:
                    continue
                lines, parts = [b"".join(parts), *others[:-1]], [others[-1]]
                if not all(self._take(line) for line in lines):
                    break
                self._supervisor.check_idle(self)
        self._bury()

    def _take(self, line: bytes) -> bool:
        message = None
        with contextlib.suppress(ValueError):
            message = json.loads(line)
        if not isinstance(message, dict):
            self.end(End.KILLED, f"it said what is no answer: {line[:_NONSENSE_BYTES_SHOWN]!r}")
            return False
        self.rss_bytes = message.get("rss_bytes", self.rss_bytes)
        self._supervisor.heard(message)
        return True

    def _bury(self) -> None:
        """It closed its side: wait for it, leave nothing of it behind, and tell."""
        try:
            code = self._process.wait(_END_S_MAX)
        except subprocess.TimeoutExpired:
            processes.kill_session(self.pid)
            code = self._process.wait()
        processes.end_session(self.pid, _END_S_MAX)
        self._listener.join(_END_S_MAX)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        with self._writing:
            self._close_stdin()
        self._scratch.close()
        how, why = self._end or (End.DIED, "")
        self._supervisor.ended(self, how, why, code, list(self._stderr))

    # -- standard error

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in iter(self._readline, b""):
            text = line.decode(errors="replace").rstrip()[:_STDERR_LINE_CHARS_MAX]
            if text:
                self._stderr.append(text)
                log.debug("worker %d: %s", self.pid, text)

    def _readline(self) -> bytes:
        assert self._process.stderr is not None
        return self._process.stderr.readline(_CHUNK_BYTES)
