"""Finding one's way: help, completion, what a misspelt name may have meant, lines while work goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lithify.cli.output import _told

Run = Callable[..., Any]


def test_help_of_a_command_is_what_its_option_shows(run: Run) -> None:
    assert run("help", "tokens", "create").out == run("tokens", "create", "--help").out
    assert run("help").out == run("--help").out


def test_help_of_a_command_that_is_not_there(run: Run) -> None:
    answer = run("help", "tokns")
    assert answer.code == 3
    assert "there is no command `tokns`: did you mean 'tokens'?" in answer.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_ask(run: Run, shell: str) -> None:
    script = run("completion", shell).out
    assert f"_LITHIFY_COMPLETE=complete_{shell}" in script


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("lithify desc", ["describe"]),
        ("lithify --lake {lake} describe sh", ["shop.orders"]),
        ("lithify describe --lake {lake} sh", ["shop.orders"]),
        ("lithify fold --lake {lake} shop.orders sh", ["shop.orders"]),
        ("lithify --lake /nowhere describe sh", []),
        ("lithify --lake {lake} describe x", []),
    ],
)
def test_what_a_shell_completes(orders: Run, process: Run, tmp_path: Path, line: str, found: list[str]) -> None:
    words = line.format(lake=tmp_path / "lake")
    asked = {
        "_LITHIFY_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    answer = process(environment=asked)
    assert answer.out.split() == found
    assert answer.err == ""


@pytest.mark.parametrize(
    "command", [("describe", "shop.ordrs"), ("sql", "select * from shop.ordrs"), ("get", "shop.ordrs", "1")]
)
def test_a_misspelt_table_is_told_what_it_may_have_meant(orders: Run, command: tuple[str, ...]) -> None:
    answer = orders(*command)
    assert answer.code == 3
    assert "table shop.ordrs does not exist in this lake" in answer.err
    assert "did you mean 'shop.orders'?" in answer.err


def test_a_table_like_no_other_is_told_plainly(orders: Run) -> None:
    answer = orders("describe", "xyz.abcdefg")
    assert answer.code == 3
    assert "did you mean" not in answer.err


def test_work_that_takes_long_is_told_of_where_nobody_sees_it() -> None:
    lines, told = list[str](), threading.Event()

    def line(text: str) -> None:
        lines.append(text)
        told.set()

    with _told("folding shop.orders", line, every_s=0.001) as report:
        assert told.wait(10)
        told.clear()
        report("packing", 0.4)
        while not any("packing" in text for text in lines):
            assert told.wait(10)
            told.clear()
    assert lines[0].startswith("folding shop.orders: ")
    assert any(text.startswith("packing: 40%, ") for text in lines)
    count = len(lines)
    assert threading.Event().wait(0.01) is False
    assert len(lines) == count, "the line ends with the work"
