"""Work says how far it is, and ends there if somebody asked for that."""

from __future__ import annotations

import pytest

from lithify import Cancelled
from lithify.metrics.progress import Amounts, Progress, advance, done_again, under


def test_whoever_does_a_part_of_it_says_so() -> None:
    progress = Progress("1", "fold", "a.t")
    progress.expect(files=2, rows=10, bytes=100)
    with under(progress):
        advance(rows=4)
        advance(files=1, rows=1, bytes=60)
    assert (progress.done, progress.total) == (Amounts(1, 5, 60), Amounts(2, 10, 100))


def test_where_nobody_watches_nothing_happens() -> None:
    advance(files=1)


def test_it_ends_where_it_next_says_how_far_it_is() -> None:
    progress = Progress("1", "fold", "a.t")
    with under(progress):
        advance()
        assert progress.cancel("by a test") is True
        with pytest.raises(Cancelled, match=r"^fold of a\.t was cancelled by a test$") as raised:
            advance()
    assert raised.value.details["cancelled"] is True


def test_what_is_settled_goes_to_its_end() -> None:
    progress = Progress("1", "fold", "a.t")
    progress.settle()
    assert progress.cancel("by a test") is False
    progress.advance(files=1)


def test_what_was_cancelled_is_not_settled_any_more() -> None:
    progress = Progress("1", "fold", "a.t")
    progress.cancel("by a test")
    with pytest.raises(Cancelled):
        progress.settle()


def test_what_is_asked_of_the_whole_holds_for_its_parts() -> None:
    whole = Progress("1", "cycle")
    stopped: list[str] = []
    with under(whole):
        part = Progress("2", "fold", "a.t")
    with part.stopped_by(stopped.append):
        whole.cancel("by a test")
    with pytest.raises(Cancelled):
        part.advance()
    assert stopped == ["cancelled by a test"]


def test_what_is_begun_after_that_ends_at_once() -> None:
    progress = Progress("1", "fold", "a.t")
    progress.cancel("by a test")
    stopped: list[str] = []
    with pytest.raises(Cancelled), progress.stopped_by(stopped.append):
        raise AssertionError("it was begun")
    assert stopped == []


def _fail_after(rows: int) -> None:
    with done_again():
        advance(rows=rows)
        raise ValueError("again")


def test_an_attempt_that_begins_anew_does_not_count() -> None:
    progress = Progress("1", "merge", "a.t")
    with under(progress):
        advance(rows=1)
        with pytest.raises(ValueError, match="again"):
            _fail_after(5)
        with done_again():
            advance(rows=2)
    assert progress.done.rows == 3
