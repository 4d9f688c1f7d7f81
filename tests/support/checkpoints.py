"""Checkpoints written where a test can tell when: at once, by whoever commits."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

import pytest

from lithify.compute.background import Latest
from lithify.delta import checkpoints


class AtOnce(Latest):
    def do(self, name: Hashable, work: Callable[[bool], float], *, anew: bool = False) -> None:
        work(True)


@contextmanager
def at_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "beside", AtOnce("at once"))
        yield


@contextmanager
def beside() -> Iterator[Latest]:
    """As they are written outside of tests."""
    with pytest.MonkeyPatch.context() as patch:
        thread = Latest("lithify-checkpoints")
        patch.setattr(checkpoints, "beside", thread)
        yield thread
        thread.drop(60)
