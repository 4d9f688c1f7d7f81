"""Values as text in a terminal, and sizes and times as people say them."""

from __future__ import annotations

from lithify.cli.values import cell, human_bytes, human_seconds


def test_a_cell_is_one_harmless_line() -> None:
    assert cell("a\nb\x1b[31m") == r"a\nb\x1b[31m"
    assert cell("x" * 100).endswith("…")
    assert len(cell("x" * 100)) == 60
    assert cell(None) == ""


def test_human_units() -> None:
    assert [human_bytes(n) for n in (0, 1023, 1536, 5 * 2**30)] == ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
    assert [human_seconds(s) for s in (0.0012, 0.25, 3.14, 300)] == ["1.2 ms", "250 ms", "3.1 s", "5.0 min"]
