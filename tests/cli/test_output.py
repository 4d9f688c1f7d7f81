"""What fits a terminal, and where log lines go."""

from __future__ import annotations

import logging

import pytest

from lithify.cli.logs import EVENT, logging_to
from lithify.cli.output import Column, TextOutput, long_text

COLUMNS = (
    Column("table", "table"),
    Column("a", "first"),
    Column("b", "second"),
    Column("why", "why", long_text, wrap=True),
)
ROW = {"table": "shop.orders", "a": "x" * 20, "b": "y" * 20, "why": "because " * 30}


def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, row: dict[str, str]) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    TextOutput().listing(COLUMNS, [row], {}, empty="")
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [40, 60, 80, 84, 85, 86, 120])
def test_nothing_is_cut_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    """A column is there as a whole or named below; the last text wraps."""
    text = shown(monkeypatch, capsys, width, ROW)

    assert "…" not in text.replace("… 1 more column does not", "").replace("… 2 more columns do not", "")
    assert text.count("because") == 30
    for header, value in (("first", ROW["a"]), ("second", ROW["b"])):
        assert (value in text) or header in text.rpartition("do")[2]


def test_the_last_column_that_fits_exactly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    exact = 2 + 11 + 3 + 20 + 3 + 20 + 3 + 3
    row = {**ROW, "why": "why"}

    assert "not fit" not in shown(monkeypatch, capsys, exact, row)
    assert "… 1 more column does not fit here: second" in shown(monkeypatch, capsys, exact - 1, row)


def test_problems_are_whole_and_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    TextOutput().problems(["shop.orders: " + "word " * 40 + "end", "other", "other"])
    out = capsys.readouterr().out
    assert (out.count("word"), out.count("end"), out.count("other")) == (40, 1, 1)


def test_items_of_a_property_stand_below_each_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    TextOutput().record("thing", {"why": ("first", "second"), "then": "third"}, {})
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["thing", "why   first", "      second", "then  third"]


class TestLogLines:
    @pytest.fixture
    def lines(self) -> list[str]:
        return []

    def test_what_a_report_tells_is_not_said_twice(self, lines: list[str]) -> None:
        with logging_to(lines.append, lambda: "text", logging.WARNING):
            logging.getLogger("lithify.maintenance.compact").warning("goes on without a damaged file")
            logging.getLogger("lithify.maintenance.scheduler").error("cycle failed", extra={EVENT: "cycle failed"})
            logging.getLogger("lithify.jobs.jobs").warning("setting aside a manifest")
            logging.getLogger("lithify.jobs.jobs").warning("setting aside a manifest")
            logging.getLogger("lithify.jobs.jobs").info("not of interest")
        assert [line.split(" ", 1)[1] for line in lines] == ["WARNING setting aside a manifest"]

    def test_all_of_it(self, lines: list[str]) -> None:
        with logging_to(lines.append, lambda: "text", logging.INFO, all_of_it=True):
            logging.getLogger("lithify.maintenance.compact").info("told")
        assert len(lines) == 1

    def test_one_set_up_replaces_the_other(self, lines: list[str]) -> None:
        outer: list[str] = []
        before = list(logging.getLogger("lithify").handlers)
        with (
            logging_to(outer.append, lambda: "text", logging.WARNING),
            logging_to(lines.append, lambda: "text", logging.WARNING),
        ):
            logging.getLogger("lithify.x").warning("once")
        assert (len(lines), outer) == (1, [])
        assert logging.getLogger("lithify").handlers == before

    def test_lines_do_not_run_into_a_live_view(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """In a terminal they are printed by the console that owns the view, otherwise to stderr."""
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "80")
        out = TextOutput()
        with out.working("looking"):
            out.log_line("[in the view] " + "x" * 100)
        seen = capsys.readouterr()
        assert "[in the view] " + "x" * 100 in seen.out
        assert seen.err == ""
        out.log_line("afterwards")
        assert capsys.readouterr().err == "afterwards\n"
