"""A lake of its own for each test, and one way to run a command on it in this process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import lithify.cli
from lithify.cli.main import app
from support.folders import memory_folder


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def refused(self) -> bool:
        """For a reason: called wrongly, not there, or anything else, which a document has to say too."""
        if not self.out.startswith("{"):
            return self.code in (1, 2, 3)
        return self.code == {"usage": 2, "not_found": 3}.get(self.json["error"]["code"], 1)


Run = Callable[..., Answer]

ORDERS = "".join(f'{{"id": {n}, "amount": {n}.50, "status": "paid"}}\n' for n in (1, 2, 3))
LINES = '[{"order": 1, "line": "a,b", "qty": 2}, {"order": 1, "line": "c"}]'
EVENTS = '[{"user_id": 1, "what": "a"}, {"user_id": 2, "what": "b"}]'


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory where possible: what is tested here is not the disk."""
    with memory_folder() as path:
        yield path


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("LITHIFY_LAKE", "LITHIFY_SERVER", "LITHIFY_TOKEN", "LITHIFY_TRACEBACK", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


COMMANDS = get_command(app)  # once: to build the sixty of them takes longer than what most tests do with one


def _invoke(*arguments: str, stdin: str | bytes | None = None) -> Answer:
    with CliRunner().isolation(input=stdin) as (out, err, _):
        with pytest.raises(SystemExit) as end:
            COMMANDS.main(list(arguments), prog_name="lithify")
        sys.stdout.flush()
        sys.stderr.flush()
        assert isinstance(end.value.code, int)
        return Answer(end.value.code, out.getvalue().decode(), err.getvalue().decode())


@pytest.fixture
def run() -> Run:
    """`run("tables", "--json")` without a lake."""
    return _invoke


@pytest.fixture
def process() -> Run:
    """The same as a process of its own."""

    def start(*arguments: str, environment: Mapping[str, str] | None = None) -> Answer:
        source = str(Path(lithify.cli.__file__).parents[2])
        done = subprocess.run(
            [sys.executable, "-m", "lithify.cli", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=250,
            env={**os.environ, "PYTHONPATH": source, **(environment or {})},
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    return start


def _on(run: Run, lake: Path) -> Run:
    def invoke(*arguments: str, stdin: str | bytes | None = None) -> Answer:
        return run("--lake", str(lake), *arguments, stdin=stdin)

    return invoke


@pytest.fixture
def cli(run: Run, tmp_path: Path) -> Run:
    """The same on a fresh lake."""
    assert run("init", str(tmp_path / "lake")).code == 0
    return _on(run, tmp_path / "lake")


@pytest.fixture(scope="session")
def templates() -> Iterator[dict[str, Path]]:
    """Lakes that are made once; each test gets a copy."""
    tables = {
        "orders": ("shop.orders", ("id:int64", "amount:decimal(10,2)", "status:string"), ("id",), ORDERS),
        "lines": ("shop.lines", ("order:int64", "line:string", "qty:int32"), ("order", "line"), LINES),
        "events": ("log.events", ("user_id:int64", "what:string"), (), EVENTS),
    }
    with memory_folder() as folder:
        for name_of_lake, (name, columns, key, rows) in tables.items():
            lake = _on(_invoke, folder / name_of_lake)
            options = [*(p for c in columns for p in ("-c", c)), *(p for k in key for p in ("--key", k))]
            options += ["--set", "missing_columns=null"]  # tests write what they are about, and nothing else
            assert lake("init").code == 0
            assert lake("create", name, *options).code == 0
            assert lake("write", name, stdin=rows).code == 0
        yield {name_of_lake: folder / name_of_lake for name_of_lake in tables}


@pytest.fixture
def orders(run: Run, tmp_path: Path, templates: dict[str, Path]) -> Run:
    """On a lake with the keyed table shop.orders and three rows in it."""
    shutil.copytree(templates["orders"], tmp_path / "lake")
    return _on(run, tmp_path / "lake")


@pytest.fixture
def lines(run: Run, tmp_path: Path, templates: dict[str, Path]) -> Run:
    """On a lake with shop.lines, whose key has two columns."""
    shutil.copytree(templates["lines"], tmp_path / "lake")
    return _on(run, tmp_path / "lake")


@pytest.fixture
def events(run: Run, tmp_path: Path, templates: dict[str, Path]) -> Run:
    """On a lake with log.events, which has no key."""
    shutil.copytree(templates["events"], tmp_path / "lake")
    return _on(run, tmp_path / "lake")
