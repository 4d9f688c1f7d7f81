"""Small work on threads beside others."""

from __future__ import annotations

import threading
from collections.abc import Callable

from lithify.compute.background import Later, Latest, repeating


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


def test_of_each_name_the_latest_counts_and_the_thread_ends_with_the_last() -> None:
    latest, begun, go, done = Latest("latest"), threading.Event(), threading.Event(), list[str]()

    def first(hurried: bool) -> float:
        begun.set()
        go.wait(60)
        return noted("first")(hurried)

    def noted(what: str) -> Callable[[bool], float]:
        return lambda hurried: done.append(what) or 0.0  # type: ignore[func-returns-value]

    latest.do("a", first)
    assert begun.wait(60)
    for number in range(3):
        latest.do("a", noted(f"a{number}"))
        latest.do("b", noted(f"b{number}"))
    threads = [thread for thread in threading.enumerate() if thread.name == "latest"]
    go.set()
    for thread in threads:
        thread.join(60)
    assert sorted(done) == ["a2", "b2", "first"]
    assert [thread.is_alive() for thread in threads] == [False]


def test_what_would_rather_be_left_alone_is_until_somebody_waits_for_it() -> None:
    latest, asked = Latest("latest"), list[bool]()
    rests = threading.Event()

    def work(hurried: bool) -> float:
        asked.append(hurried)
        rests.set()
        return 0.0 if hurried else 3600.0

    latest.do("a", work)
    assert rests.wait(60)
    latest.do("a", work)
    latest.flush(60)
    assert asked == [False, True]


def test_what_comes_anew_is_asked_again_at_once() -> None:
    latest, first, second = Latest("latest"), threading.Event(), threading.Event()
    latest.do("a", lambda hurried: first.set() or 3600.0)  # type: ignore[func-returns-value]
    assert first.wait(60)
    latest.do("a", lambda hurried: second.set() or 0.0, anew=True)  # type: ignore[func-returns-value]
    assert second.wait(60)
    latest.drop(60)


def test_what_is_dropped_is_not_done_and_what_is_under_way_is_waited_for() -> None:
    latest, begun, go, done = Latest("latest"), threading.Event(), threading.Event(), list[str]()

    def slow(hurried: bool) -> float:
        begun.set()
        go.wait(60)
        done.append("slow")
        return 0.0

    latest.do("a", slow)
    assert begun.wait(60)
    latest.do("b", lambda hurried: done.append("b") or 0.0)  # type: ignore[func-returns-value]
    latest.drop(0)
    go.set()
    latest.drop(60)
    assert done == ["slow"]
