"""The process that query processes are forked from, and what the service knows of it.

It has the engine imported, a single thread, and does nothing else: a fork of it is ready within milliseconds, where a
new interpreter needs a second, and no fork ever inherits a lock that some thread of the service holds. It ends with the
service, whose end it hears because the socket between them closes; its forks end with it, because the kernel kills
them then, and it removes the folders that they wrote to. The service has one for all its lakes.

Where the template is run (`python -m`), it is only the second half of this module.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO

from lithify.errors import Unavailable
from lithify.files.os_errors import translated
from lithify.settings import bare_environment
from lithify.sql.isolated.channel import Channel, Gone, readable

# However busy the machine is, a fork takes no longer.
ANSWER_S_MAX = 60.0
PARENT_LOOK_S = 2.0
STATUS_S_MAX = 10.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Forked:
    """`pidfd` stands for the process even after its number is another's."""

    pid: int
    pidfd: int


class Template:
    """The service's end of it. It is started when it is first needed, and again should it have died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        # What it wrote to stderr: nothing, unless it could not start.
        self._said: IO[bytes] = io.BytesIO()

    def fork(self, theirs: socket.socket, scratch: str, folders: Sequence[str] | None) -> Forked:
        """A new query process at the other end of a socket. It writes into `scratch`; of the lake it can read `folders`
        alone, if that is to be held.
        """
        with self._lock:
            for last in (False, True):
                channel = self._started()
                try:
                    channel.send(("fork", (scratch, folders)), [theirs.fileno()])
                    (pid,), descriptors = channel.receive()
                    if not descriptors:  # the kernel drops what there is no room for
                        raise Unavailable("too many files are open to start a process for the query: try again")
                    return Forked(pid, descriptors[0])
                except (Gone, TimeoutError) as error:
                    self._stop()
                    if last:
                        raise Unavailable(
                            f"no process could be started for the query: {error} {self._last_words()}"
                        ) from error
        raise AssertionError

    def status(self, forked: Forked) -> int | None:
        """How an ended process ended, as `subprocess` has it; None where nobody knows any more. Asked once of each."""
        with self._lock:
            if self._channel is None:
                return None
            try:
                self._channel.send(("status", forked.pid))
                (code,), _ = self._channel.receive()
            except (Gone, TimeoutError):
                self._stop()
                return None
            return None if code is None else int(code)

    def start(self) -> None:
        with self._lock:
            self._started()

    def _started(self) -> Channel:
        if self._channel is not None:
            return self._channel
        with translated("a process for queries"):
            ours, theirs = socket.socketpair()
        try:
            self._said.close()
            self._said = tempfile.TemporaryFile()  # noqa: SIM115 (it is open as long as the process lives)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "lithify.sql.isolated.template", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                env=bare_environment(),
                process_group=0,  # a Ctrl-C is for the service, which ends it
            )
        except OSError as error:
            ours.close()
            raise Unavailable(f"no process could be started for queries: {error}") from error
        finally:
            theirs.close()
        channel = self._channel = Channel(ours, trusting=True)
        channel.watch(ANSWER_S_MAX, _too_late)
        return channel

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").splitlines()
        return lines[-1] if lines else ""

    def _stop(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._channel = self._process = None


def _too_late() -> None:
    raise TimeoutError(f"nothing was heard for {ANSWER_S_MAX:g} s")


@functools.cache
def _template_of(pid: int) -> Template:
    return Template()


def template() -> Template:
    """The one of this process. A fork of the service has its own."""
    return _template_of(os.getpid())


# -- the template itself


def main(control: socket.socket) -> None:
    parent = os.getppid()
    # One thread: libraries that start some of their own at once are told not to.
    for name, value in (
        ("OPENBLAS_NUM_THREADS", "1"),
        ("OMP_NUM_THREADS", "1"),
        ("JE_ARROW_MALLOC_CONF", "background_thread:false"),
    ):
        os.putenv(name, value)
    import gc

    from lithify.sql.isolated import process as query_process  # all that a query needs

    gc.collect()
    gc.freeze()
    living: dict[int, str] = {}
    channel = Channel(control, trusting=True)
    try:
        while True:
            while not readable(control.fileno(), PARENT_LOOK_S):
                if os.getppid() != parent:
                    return
            (question, about), descriptors = channel.receive()
            if question == "status":
                living.pop(about, None)
                channel.send((_status(about),))
                continue
            scratch, folders = about
            with socket.socket(fileno=descriptors[0]) as end:
                pid = os.fork()
                if pid == 0:
                    control.close()
                    _as_query_process(partial(query_process.serve, end, scratch, folders), scratch)
            living[pid] = scratch
            pidfd = os.pidfd_open(pid)
            channel.send((pid,), [pidfd])
            os.close(pidfd)
    except Gone:
        return
    finally:
        _end(living)


def _as_query_process(serve: Callable[[], None], scratch: str) -> None:
    """In the fork; never returns."""
    code = 1
    try:
        _die_with_parent(os.getppid())
        stderr = os.open(os.path.join(scratch, "stderr"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(stderr, 2)
        os.close(stderr)
        serve()
        code = 0
    finally:
        os._exit(code)


def _die_with_parent(parent: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was dead before it could be asked for
        os._exit(1)


def _status(pid: int) -> int | None:
    deadline = time.monotonic() + STATUS_S_MAX
    while time.monotonic() < deadline:
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return None


def _end(living: dict[int, str]) -> None:
    import shutil

    for pid in living:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    for pid, scratch in living.items():
        _status(pid)
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
