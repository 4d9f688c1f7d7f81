"""What is kept for the next read is bounded by its number, and by that of its files."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from lithify.spark.kept_frames import KeptFrames


def test_the_least_recently_used_goes_first() -> None:
    kept: KeptFrames[str] = KeptFrames(frames_max=2)
    kept.keep("a", "of a", 1)
    kept.keep("b", "of b", 1)
    assert kept.find("a") == "of a"

    kept.keep("c", "of c", 1)

    assert (kept.find("a"), kept.find("b"), kept.find("c")) == ("of a", None, "of c")


def test_files_count_once_for_a_frame_that_is_kept_anew() -> None:
    kept: KeptFrames[str] = KeptFrames(files_max=10)
    for _ in range(5):
        kept.keep("a", "of a", 4)
    kept.keep("b", "of b", 4)
    assert len(kept) == 2

    kept.keep("c", "of c", 4)

    assert (kept.find("a"), kept.find("b"), kept.find("c")) == (None, "of b", "of c")


def test_the_newest_stays_however_many_files_it_has() -> None:
    kept: KeptFrames[str] = KeptFrames(files_max=10)
    kept.keep("a", "of a", 1)

    kept.keep("b", "of b", 100)

    assert (len(kept), kept.find("b")) == (1, "of b")
