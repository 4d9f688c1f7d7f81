"""Work that failed is tried less and less often, and never forgotten about for good."""

from __future__ import annotations

from dataclasses import asdict

from lithify.maintenance.backoff import FORGET_MS, WAIT_MS_MAX, WAITING_MAX, BackOff, Work

WORK = Work("a.t", "fold")


def test_what_never_failed_runs() -> None:
    assert BackOff().hold_back(WORK, 0) is None


def test_the_same_reason_doubles_the_wait() -> None:
    backoff = BackOff()
    assert [backoff.failed(WORK, "bad", 0).turns_left for _ in range(5)] == [1, 2, 4, 8, 16]


def test_many_failures_stay_within_bounds() -> None:
    backoff = BackOff()
    for _ in range(100):
        entry = backoff.failed(WORK, "bad", 0)
    assert entry.failures == 100
    assert backoff.hold_back(WORK, WAIT_MS_MAX - 1) is not None
    assert backoff.hold_back(WORK, WAIT_MS_MAX) is None


def test_it_travels_as_documents() -> None:
    backoff = BackOff()
    backoff.failed(WORK, "bad", 5)
    documents = [asdict(entry) for entry in backoff.waiting()]
    assert BackOff.of_documents(documents, 6).waiting() == backoff.waiting()


def test_old_ones_and_those_from_the_future_are_dropped() -> None:
    backoff = BackOff()
    backoff.failed(WORK, "bad", FORGET_MS)
    documents = [asdict(entry) for entry in backoff.waiting()]
    assert BackOff.of_documents(documents, 2 * FORGET_MS).waiting() == ()
    assert BackOff.of_documents(documents, FORGET_MS - 1).waiting() == ()


def test_what_is_not_understood_is_dropped() -> None:
    odd = [
        {},
        {"table": "a.t"},
        {"table": "a", "kind": "b", "place": "", "failures": "x", "turns_left": 1, "failed_ms": 0},
    ]
    assert BackOff.of_documents(odd, 0).waiting() == ()


def test_a_report_carries_the_newest_only() -> None:
    backoff = BackOff()
    for n in range(WAITING_MAX + 50):
        backoff.failed(Work("a.t", "pack", str(n)), "bad", n)
    assert len(backoff.waiting()) == WAITING_MAX
    assert backoff.waiting()[0].failed_ms == WAITING_MAX + 49
