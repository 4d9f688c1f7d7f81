"""What is kept of commits that were read, and within which bounds."""

from __future__ import annotations

from lithify.delta.commit_bodies import BESIDE_BYTES, CommitBodies

ENTRY = BESIDE_BYTES + 100


def test_logs_do_not_meet() -> None:
    bodies, one, other = CommitBodies(), object(), object()
    bodies.keep(one, 3, b"one")

    assert bodies.find(one, 3) == b"one"
    assert bodies.find(other, 3) is None
    assert bodies.find(one, 4) is None


def test_what_was_asked_for_longest_ago_goes_first() -> None:
    bodies, log = CommitBodies(bytes_max=10 * ENTRY), object()
    for version in range(10):
        bodies.keep(log, version, b"x" * 100)
    bodies.find(log, 0)
    bodies.keep(log, 10, b"x" * 100)

    assert [version for version in range(11) if bodies.find(log, version) is None] == [1]


def test_the_same_one_is_counted_once() -> None:
    bodies, log = CommitBodies(bytes_max=10 * ENTRY), object()
    for _ in range(100):
        bodies.keep(log, 0, b"x" * 100)
    for version in range(1, 10):
        bodies.keep(log, version, b"x" * 100)

    assert all(bodies.find(log, version) is not None for version in range(10))


def test_a_large_one_is_not_kept_in_place_of_all_others() -> None:
    bodies, log = CommitBodies(bytes_max=10 * ENTRY), object()
    bodies.keep(log, 0, b"x" * 100)
    bodies.keep(log, 1, b"x" * 9 * ENTRY)

    assert bodies.find(log, 0) is not None
    assert bodies.find(log, 1) is None
