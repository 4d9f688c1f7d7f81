"""What a handle keeps of the files of its log."""

from __future__ import annotations

from pathlib import PurePosixPath

from lithify.delta.commit_files import Needed
from lithify.delta.kept_files import KEPT_BYTES_MAX, KeptFiles

CHECKPOINT, FIFTH, SIXTH, SEVENTH = (PurePosixPath(name) for name in ("c", "5", "6", "7"))


def kept() -> KeptFiles:
    found = KeptFiles()
    found.take(Needed(5, (CHECKPOINT,), range(5, 6)), {CHECKPOINT: b"c", FIFTH: b"five"})
    return found


def test_commits_that_follow_lead_to_their_version() -> None:
    files = kept()
    files.follow(6, SIXTH, b"six")

    assert files.needed_for(5) is None
    assert files.needed_for(6) == Needed(6, (CHECKPOINT,), range(5, 7))
    assert [files.find(path) for path in (CHECKPOINT, FIFTH, SIXTH)] == [b"c", b"five", b"six"]


def test_a_commit_that_does_not_follow_says_nothing() -> None:
    files = kept()
    files.follow(7, SEVENTH, b"seven")

    assert files.needed_for(7) is None
    assert files.needed_for(5) is not None
    assert files.find(SEVENTH) is None


def test_a_log_that_begins_is_known() -> None:
    files = KeptFiles()
    files.follow(0, FIFTH, b"first")

    assert files.needed_for(0) == Needed(0, (), range(1))


def test_more_than_a_little_is_not_kept() -> None:
    files = kept()
    files.follow(6, SIXTH, bytes(KEPT_BYTES_MAX))

    assert files.needed_for(6) is None
    assert files.find(FIFTH) is None
