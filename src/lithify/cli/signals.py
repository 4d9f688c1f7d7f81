"""Work that runs on another thread, while this one waits for its end or for a signal.

The first Ctrl-C or SIGTERM stops the work, the second ends the process at once, as a power cut would.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

from lithify.cli.command import INTERRUPTED, Session
from lithify.cli.output import TextOutput

STOP_GRACE_S = 10.0
LOOK_UP_S = 0.5
T = TypeVar("T")
_ENDED = object()


@contextlib.contextmanager
def caught() -> Iterator[SimpleQueue[object]]:
    """Signals arrive in the queue. Putting into this kind of queue is safe wherever a handler interrupts us."""
    inbox: SimpleQueue[object] = SimpleQueue()
    before = {number: signal.signal(number, lambda n, _: inbox.put(n)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield inbox
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def next_of(inbox: SimpleQueue[object]) -> object:
    """Looks up now and then: a signal that another thread was interrupted for is handled only when this one wakes."""
    while True:
        try:
            return inbox.get(timeout=LOOK_UP_S)
        except Empty:
            continue


def in_thread(inbox: SimpleQueue[object], work: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
        inbox.put(_ENDED)

    threading.Thread(target=run, name="lithify-run", daemon=True).start()
    return future


def wait(
    session: Session,
    inbox: SimpleQueue[object],
    work: Future[T],
    stop: Callable[[], None],
    stopping_text: str,
    forced_text: str,
    *,
    stopping: bool = False,
) -> T:
    """Until the work has ended; the first signal stops it, the next one ends the process."""
    while next_of(inbox) is not _ENDED:
        if stopping:
            _force(session, forced_text)
        stopping = True
        session.out.aside(stopping_text)
        threading.Thread(target=stop, name="lithify-stop", daemon=True).start()
    return work.result()


def _force(session: Session, text: str) -> None:
    session.out.leave()
    if session.as_json:
        session.out.error("interrupted", text)
    else:
        session.out.aside(text)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def in_terminal(session: Session) -> bool:
    return isinstance(session.out, TextOutput) and session.out.console.is_terminal
