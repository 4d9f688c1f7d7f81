"""Making very many values pauses Python's collector for that moment, and leaves it as it was."""

from __future__ import annotations

import gc
import threading

import pytest

from lithify.delta.collector import collector_paused


def test_it_goes_on_afterwards_whatever_happens() -> None:
    with collector_paused():
        assert not gc.isenabled()
    assert gc.isenabled()

    with pytest.raises(ValueError, match="wrong"), collector_paused():
        raise ValueError("wrong")
    assert gc.isenabled()


def test_one_within_another_and_beside_another() -> None:
    inside, leave = threading.Event(), threading.Event()

    def beside() -> None:
        with collector_paused():
            inside.set()
            leave.wait(60)

    other = threading.Thread(target=beside)
    with collector_paused():
        with collector_paused():
            pass
        assert not gc.isenabled()
        other.start()
        inside.wait(60)
    assert not gc.isenabled(), "the other thread still needs it"
    leave.set()
    other.join()
    assert gc.isenabled()


def test_who_works_without_it_goes_on_without() -> None:
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
