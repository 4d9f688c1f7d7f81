"""Small work on threads beside others."""

from __future__ import annotations

import threading

from lithify.compute.background import Later, repeating


def test_things_are_done_in_their_order_on_one_thread() -> None:
    later, done = Later("later"), list[tuple[int, str]]()
    for number in range(20):
        later.do(lambda number=number: done.append((number, threading.current_thread().name)))  # type: ignore[misc]
    later.wait(60)
    assert done == [(number, "later") for number in range(20)]
    later.close()


def test_closing_waits_for_what_was_to_be_done() -> None:
    later, go, done = Later("later"), threading.Event(), list[str]()
    later.do(lambda: go.wait(60))
    later.do(lambda: done.append("last"))
    go.set()
    later.close()
    assert done == ["last"]


def test_it_can_be_closed_by_what_it_does_and_begin_again() -> None:
    later, done = Later("later"), threading.Event()
    later.do(later.close)
    later.do(done.set)
    assert done.wait(60)
    later.close()


def test_an_unused_one_waits_and_closes_at_once() -> None:
    later = Later("later")
    later.wait()
    later.close()


def test_what_repeats_goes_on_until_the_block_ends_and_no_longer() -> None:
    calls, thrice = list[str](), threading.Event()

    def act() -> None:
        calls.append(threading.current_thread().name)
        if len(calls) == 3:
            thrice.set()

    with repeating(act, 0.001, "again"):
        assert thrice.wait(60)
    assert set(calls) == {"again"}
    assert "again" not in {thread.name for thread in threading.enumerate()}
