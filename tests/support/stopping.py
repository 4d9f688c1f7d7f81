"""A store at whose calls the work is stopped by something that is no error of a disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lithify.store.local import Store

VERBS = (
    *("write_new", "replace", "append", "extend", "patch", "read", "exists", "sync_file", "make_folder", "names"),
    *("link_if_possible", "remove", "remove_folder", "remove_empty_folder", "move", "modified_ms", "size", "lock"),
)


class StoppingStore(Store):
    """Once `armed`, notes its calls as (the named step before it, the verb), and raises `error` at the `nth`."""

    def __init__(self, nth: int = 0, error: BaseException | None = None) -> None:
        self.calls: list[tuple[str, str]] = []
        self.armed = False
        self._nth, self._error, self._step = nth, error, ""

    def step(self, name: str) -> None:
        if not name.startswith("store."):
            self._step = name

    def _called(self, verb: str) -> None:
        if self.armed:
            self.calls.append((self._step, verb))
            if self._error is not None and len(self.calls) == self._nth:
                raise self._error


def _noted(verb: str) -> Callable[..., Any]:
    def call(self: StoppingStore, *args: Any, **options: Any) -> Any:
        self._called(verb)
        return getattr(Store, verb)(self, *args, **options)

    return call


for _verb in VERBS:
    setattr(StoppingStore, _verb, _noted(_verb))
