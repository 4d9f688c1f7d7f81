"""What a notebook shows: escaped, bounded, and from what is known already."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from lithify.core.html import CELL_CHARS_MAX, ROWS_MAX, Shown, facts_html, table_html, text


@dataclass(frozen=True)
class Report(Shown):
    table: str
    rows: int = 1_234_567
    done: bool = True
    share: float = 0.25
    parts: tuple[object, ...] = ()
    why: str | None = None
    offices: dict[str, int] = field(default_factory=dict)


def test_markup_in_values_names_and_titles_is_escaped() -> None:
    shown = table_html(("<b>",), [("<script>alert(1)</script>",)], '"><img src=x>', "a & b")

    assert "<script>" not in shown
    assert "<img" not in shown
    assert "<b></th>" not in shown
    assert "&lt;script&gt;" in shown
    assert "a &amp; b" in shown


def test_a_long_value_is_cut() -> None:
    assert len(text("x" * 10_000)) == CELL_CHARS_MAX


def test_many_rows_are_counted_instead_of_shown() -> None:
    shown = table_html(("n",), [(n,) for n in range(10_000)])

    assert shown.count("<tr>") == ROWS_MAX + 1
    assert "and 9,980 more" in shown


def test_rows_without_end_are_cut() -> None:
    def endless() -> object:
        while True:
            yield (1,)

    assert table_html(("n",), endless()).count("<tr>") == ROWS_MAX + 1  # type: ignore[arg-type]


def test_a_report_is_shown_by_its_fields() -> None:
    shown = Report("shop.orders")._repr_html_()

    assert "Report" in shown
    assert "shop.orders" in shown
    assert "1,234,567" in shown
    assert "yes" in shown


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (None, "–"),
        ((), "–"),
        (("a", "b"), "a, b"),
        (tuple(range(1000)), "1,000 entries"),
        ((Report("x"),), "1 entry"),
        ({"day": 1}, "day: 1"),
        ({n: n for n in range(7)}, "0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 2 more"),
        (1.5, "1.5"),
        (False, "no"),
    ],
)
def test_values(value: object, wanted: str) -> None:
    assert text(value) == wanted


def test_a_hundred_thousand_facts_stay_a_small_table() -> None:
    assert len(facts_html("x", {f"name {n}": "v" * 1000 for n in range(100_000)})) < 20_000
