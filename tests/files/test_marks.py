"""Whether a put is among those that made an object what it is: told by the marks that they leave behind."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from lithify.files.bucket.marks import MARKS, MARKS_MAX, NONCE, NONCE_BITS, marked, tells_of
from lithify.files.os_errors import InDoubt

METADATA_BYTES_MAX = 2048  # S3's limit for all names and values that an object carries
AT = PurePosixPath("/a/count")


def after(before: tuple[str, ...], puts: int) -> tuple[str, ...]:
    for _ in range(puts):
        before = marked(before)
    return before


def test_a_put_that_was_done_is_found_until_all_marks_are_newer() -> None:
    mine = marked(after((), 3))

    assert tells_of(mine, mine, AT)
    assert tells_of(after(mine, MARKS_MAX - 1), mine, AT)
    with pytest.raises(InDoubt):
        tells_of(after(mine, MARKS_MAX), mine, AT)


@pytest.mark.parametrize("others", [1, 31, MARKS_MAX - 1])
def test_one_that_was_not_done_is_known_not_to_be(others: int) -> None:
    before = after((), 3)

    assert not tells_of(after(before, others), marked(before), AT)


def test_who_was_held_up_for_longer_than_marks_are_kept_is_in_doubt() -> None:
    before = after((), 3)
    with pytest.raises(InDoubt, match="changed so often"):
        tells_of(after(before, MARKS_MAX), marked(before), AT)


def test_objects_have_room_for_all_marks() -> None:
    marks = after((), 2 * MARKS_MAX)

    assert len(MARKS) + len(" ".join(marks)) + len(NONCE) + len(str(NONCE_BITS)) < METADATA_BYTES_MAX - 256
