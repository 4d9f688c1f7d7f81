"""Values as text in a terminal, and sizes and times as people say them."""

from __future__ import annotations

import pytest

from lithify import InvalidRequest
from lithify.cli.values import cell, human_bytes, human_seconds, seconds_of_every


def test_a_cell_is_one_harmless_line() -> None:
    assert cell("a\nb\x1b[31m") == r"a\nb\x1b[31m"
    assert cell("x" * 100).endswith("…")
    assert len(cell("x" * 100)) == 60
    assert cell(None) == ""


def test_human_units() -> None:
    assert [human_bytes(n) for n in (0, 1023, 1536, 5 * 2**30)] == ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
    assert [human_seconds(s) for s in (0.0012, 0.25, 3.14, 300)] == ["1.2 ms", "250 ms", "3.1 s", "5.0 min"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("10s", 10), (" 2 M", 120), ("7", 7), ("1.5h", 5400), ("24h", 86_400)]
)
def test_times_are_written_as_people_do(text: str, seconds: float) -> None:
    assert seconds_of_every(text, "10ms", "24h") == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "0", "9ms", "25h", "1d", "10 days", "nan"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is no time from 10ms to 24h: write it like"):
        seconds_of_every(text, "10ms", "24h")
