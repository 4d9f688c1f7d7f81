"""A store at whose calls something happens that is no error of a disk: the work is stopped, descriptors run out."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from typing import Any

from lithify.files.local import LocalStorage

VERBS = (
    *("create", "put", "swap", "append", "extend", "patch", "read", "exists", "sync_file", "make_folder", "names"),
    *("link", "delete", "delete_folder", "delete_empty_folder", "move", "modified_ms", "size", "lock"),
)


class StoppingStore(LocalStorage):
    """Once armed, notes its calls as (the named step before it, the verb); acts before the nth, and before the next."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self._armed, self._step, self._nth = False, "", 0
        self._act = self._then = _nothing

    def arm(self, nth: int = 0, act: Callable[[], None] | None = None, then: Callable[[], None] | None = None) -> None:
        self.calls.clear()
        self._nth, self._act, self._then = nth, act or _nothing, then or _nothing
        self._armed = True

    def disarm(self) -> None:
        self._armed = False

    def step(self, name: str) -> None:
        if not name.startswith("store."):
            self._step = name

    def called(self, verb: str) -> None:
        if self._armed:
            self.calls.append((self._step, verb))
            if len(self.calls) == self._nth:
                self._act()
            elif len(self.calls) == self._nth + 1:
                self._then()


def _nothing() -> None:
    pass


def _noted(verb: str) -> Callable[..., Any]:
    def call(self: StoppingStore, *args: Any, **options: Any) -> Any:
        self.called(verb)
        return getattr(LocalStorage, verb)(self, *args, **options)

    return call


for _verb in VERBS:
    setattr(StoppingStore, _verb, _noted(_verb))


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


class Descriptors:
    """All that this process may still open, or none of them."""

    def __init__(self, spare: int = 40) -> None:
        """`spare`: how many more than now it may open at all."""
        in_use = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + spare, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        self._open: list[int] = []

    def take(self) -> None:
        try:
            while True:
                self._open.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            return  # there are no more

    def give_back(self) -> None:
        while self._open:
            os.close(self._open.pop())
