"""Several calls at the same time, each of which mostly waits for an answer from afar."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, overload

A = TypeVar("A")
B = TypeVar("B")


@overload
def at_once(first: Callable[[], A], second: Callable[[], B], /) -> tuple[A, B]: ...
@overload
def at_once(*work: Callable[[], A]) -> tuple[A, ...]: ...
def at_once(*work: Callable[[], object]) -> tuple[object, ...]:
    """What each of them answers, once all have ended. The first error counts."""
    with ThreadPoolExecutor(len(work)) as pool:
        return tuple(one.result() for one in [pool.submit(call) for call in work])
