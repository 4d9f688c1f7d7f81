"""What the documentation names is there: commands and their options, targets of make, files, methods and settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import lithify
from lithify import Lake, Table
from lithify.cli.main import app
from lithify.client.lake import RemoteLake
from lithify.client.table import RemoteTable
from lithify.lake.cache import Cache

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "lithify"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += sorted(path for path in (ROOT / "deploy").rglob("*") if path.is_file())
OURS = [
    path.relative_to(ROOT).as_posix()
    for folder in ("src", "tests", "docs", "tools", "benchmarks", "deploy", "examples")
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
] + [path.name for path in ROOT.iterdir() if path.is_file()]
# Named as what a user may have, or what is made while something runs.
NOT_OURS = {"lithify.toml", "pipelines.toml", "other.toml", "spark.py", "jobs.jsonl"}
COMMANDS: Any = typer.main.get_command(app)
CONTEXT = COMMANDS.context_class(COMMANDS)


def by_page(test: object) -> object:
    return pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))(test)


def commands_of(text: str) -> Iterator[list[str]]:
    """Each `lithify …` that stands in code, as words; what does not end there as far as it goes."""
    text = text.replace("\\\n", " ")
    blocks = re.findall(r"^```(?:bash|text|)\n(.*?)^```", text, re.M | re.S)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    for code in (line for part in (*blocks, *inline) for line in part.splitlines()):
        for said in re.findall(r"(?:^|[|&;(] ?|\$ ?|/bin/)lithify +([^|;&#<>)]+)", code):
            try:
                yield shlex.split(said)
            except ValueError:  # a quote that is opened in one line and closed in another
                yield said.replace('"', " ").replace("'", " ").split()


def options_of(command: Any) -> dict[str, Any]:
    return {
        said: each for each in command.params for said in (*each.opts, *each.secondary_opts) if said.startswith("-")
    }


def wrong_in(words: list[str]) -> str | None:
    """What there is not, in a command as it is typed."""
    command: Any
    command, known = COMMANDS, {"--help": None, "-h": None, **options_of(COMMANDS)}
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.startswith("-"):
            name, _, given = word.partition("=")
            if not re.fullmatch(r"-[a-z]|--[a-z][a-z0-9-]*", name):
                continue  # … or [--option]
            if name not in known:
                return name
            option = known[name]
            if option is not None and not option.is_flag and not given:
                at += 1
        elif hasattr(command, "commands") and re.fullmatch(r"[a-z][a-z|-]*", word):
            for name in word.split("|"):
                found = command.get_command(CONTEXT, name)
                if found is None:
                    return name
            assert found is not None
            command, known = found, {**known, **options_of(found)}
    return None


@by_page
def test_commands_and_their_options(page: Path) -> None:
    found = list(commands_of(page.read_text()))
    wrong = [(said, " ".join(words)) for words in found if (said := wrong_in(words)) is not None]
    assert not wrong


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("fold shop.orders --dry-run", None),
        ("fould shop.orders", "fould"),
        ("fold shop.orders --dry-ran", "--dry-ran"),
        ("cache pin|unpin shop.orders", None),
        ("cache pin|unpinn shop.orders", "unpinn"),
        ("--json stats --lake x", None),
        ("sql 'select 1' --format=csv", None),
    ],
)
def test_what_is_wrong_is_seen(said: str, wrong: str | None) -> None:
    assert wrong_in(shlex.split(said)) == wrong


def test_many_commands_are_looked_at() -> None:
    assert sum(len(list(commands_of(page.read_text()))) for page in PAGES) > 150


@by_page
def test_targets_of_make(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"(?:`|^)make ([a-z][a-z-]*)", page.read_text(), re.M))
    assert named <= targets


def files_named(text: str) -> Iterator[tuple[str, str | None]]:
    """A file as the pages write it, `lake/table.py: Table.get`, and what it is said to have."""
    for found in re.finditer(r"`([\w/.\-]+\.(?:py|md|svg|toml|js|c|yml|json|service))(?::\s*([\w.]+))?`", text):
        if not found[1].startswith(("_lithify/", "/", "my-", ".")):
            yield found[1], found[2]


@by_page
def test_files_and_what_they_have(page: Path) -> None:
    for name, member in files_named(page.read_text()):
        found = [ours for ours in OURS if ours == name or ours.endswith("/" + name)]
        assert found or name in NOT_OURS or ("/" not in name and not name.endswith(".py")), name
        if member is not None:
            last = member.rpartition(".")[2]
            assert any(re.search(rf"\b{re.escape(last)}\b", (ROOT / each).read_text()) for each in found), (
                f"{name}: {member}"
            )


def test_files_named_in_docstrings() -> None:
    for path in SOURCE.rglob("*.py"):
        for name, _ in files_named(path.read_text()):
            assert "/" not in name or any(ours == name or ours.endswith("/" + name) for ours in OURS), (path, name)


HOLDERS: dict[str, tuple[object, ...]] = {
    "lake": (Lake, RemoteLake),
    "table": (Table, RemoteTable),
    "orders": (Table, RemoteTable),
    "lake.cache": (Cache,),
    "lithify": (lithify,),
}


@by_page
def test_methods(page: Path) -> None:
    """`lake.x(…)` and `table.x(…)` in code. SQL writes `lake.shop.orders`, so a name counts where it is called."""
    text = page.read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.S) + re.findall(r"`([^`\n]+)`", text))
    for holder, name in re.findall(r"(?<![\w.\"'/])(lake\.cache|lake|table|orders|lithify)\.(\w+)\(", code):
        assert any(hasattr(kind, name) for kind in HOLDERS[holder]), f"{holder}.{name}"
    for holder, name in re.findall(r"`(lake|table)\.(\w+)`", text):
        assert any(hasattr(kind, name) for kind in HOLDERS[holder]), f"{holder}.{name}"
