"""What every command has: --lake, --json, help with examples, and exit codes without tracebacks."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import lithify.cli
from lithify.cli.main import app

Run = Callable[..., Any]

COMMANDS = {
    "init": (),
    "create": ("a.b", "-c", "id:int64"),
    "tables": (),
    "describe": ("a.b",),
    "partitions": ("a.b",),
    "add-column": ("a.b", "note:string"),
    "rename-column": ("a.b", "n", "m"),
    "drop-column": ("a.b", "n"),
    "alter-column": ("a.b", "n", "--first"),
    "set": ("a.b", "row_group_rows=65536"),
    "settings": (),
    "help": (),
    "completion": ("bash",),
    "adopt": ("a.b", "/nowhere"),
    "drop": ("a.b", "--yes"),
    "write": ("a.b", "--row", "{}"),
    "ingest": ("a.b", "/nowhere/*.csv"),
    "stream": ("/nowhere", "a.b", "--once"),
    "get": ("a.b", "1"),
    "delete": ("a.b", "1"),
    "detach": ("a.b", "2026-11-15", "/nowhere/day"),
    "attach": ("a.b", "/nowhere"),
    "sql": ("select 1",),
    "explain": ("select 1",),
    "changes": ("a.b",),
    "history": ("a.b",),
    "stats": ("a.b",),
    "snapshot": ("a.b",),
    "tag": ("a.b", "x"),
    "tags": ("a.b",),
    "untag": ("a.b", "x"),
    "quarantine list": ("a.b",),
    "quarantine show": ("a.b", "x"),
    "quarantine retry": ("a.b", "x"),
    "quarantine purge": ("a.b", "x"),
    "restore": ("a.b", "1"),
    "erase": ("a.b", "--key", "1", "--history", "cut"),
    "erasures": (),
    "erasure show": ("0" * 32,),
    "erasure resume": ("0" * 32,),
    "erasure cancel": ("0" * 32,),
    "erasure verify": ("/nowhere/receipt.json",),
    "fold": ("a.b",),
    "compact": ("a.b",),
    "optimize": ("a.b",),
    "vacuum": ("a.b",),
    "index build": ("a.b",),
    "index rebuild": ("a.b",),
    "index inspect": ("a.b",),
    "index check": ("a.b",),
    "run": ("--once",),
    "jobs": (),
    "backup create": ("/nowhere/backups",),
    "backup list": ("/nowhere/backups",),
    "backup verify": ("/nowhere/backups",),
    "backup restore": ("/nowhere/backups", "/nowhere/new"),
    "backup remove": ("/nowhere/backups", "--keep", "1"),
    "serve": (),
    "tokens create": ("someone", "--scope", "read"),
    "tokens list": (),
    "tokens revoke": ("someone",),
    "cache pin": ("a.b",),
    "cache unpin": ("a.b",),
    "cache evict": ("a.b",),
    "cache stats": (),
    "pipeline run": (),
    "pipeline list": (),
    "pipeline status": (),
    "pipeline history": (),
    "demo": (),
    "doctor": (),
}
WITH_A_SERVER = {name for name in COMMANDS if name.startswith("cache ")}
WITHOUT_A_LAKE = (
    WITH_A_SERVER
    | {"demo", "doctor", "settings", "help", "completion"}
    | {f"backup {n}" for n in ("list", "verify", "restore", "remove")}
)
ABOUT_A_TABLE = [
    name
    for name, arguments in COMMANDS.items()
    if arguments[:1] == ("a.b",) and name not in {"create", *WITHOUT_A_LAKE}
]
HEAVY = {"pyarrow", "deltalake", "datafusion", "pyspark", "pandas", "numpy", "lithify.lake", "lithify.read"}


def names_of(commands: dict[str, Any]) -> Iterator[str]:
    """With those of groups, as they are typed."""
    for name, command in commands.items():
        inside = getattr(command, "commands", None)
        yield from [name] if inside is None else (f"{name} {below}" for below in names_of(inside))


def test_these_are_all_commands() -> None:
    assert set(names_of(get_command(app).commands)) == set(COMMANDS)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_the_shared_options_and_examples(run: Run, name: str) -> None:
    answer = run(*name.split(), "--help")
    assert answer.code == 0
    for part in ("--lake", "--json", "Examples:", f"lithify {name}"):
        assert part in answer.out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_speaks_of_values_and_not_of_types(run: Run, name: str) -> None:
    shown = run(*name.split(), "--help").out
    for part in ("<bool>", "<str>", "<list[str]>", "[[", "{NAME"):
        assert part not in shown


def test_help_of_run_and_history(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert "Every event as a line of JSON; with --once, the report as one JSON document" in run("run", "--help").out
    for part in ("compactions", "options"):
        assert part in run("history", "--help").out


@pytest.mark.parametrize("name", ABOUT_A_TABLE)
def test_unknown_table(cli: Run, name: str) -> None:
    answer = cli(*name.split(), *COMMANDS[name], "--json")
    assert answer.code == 3
    if name not in ("adopt", "ingest"):  # for these the path is missing first
        assert "a.b" in answer.json["error"]["message"]
    assert answer.json["error"]["code"] == "not_found"


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in WITHOUT_A_LAKE])
def test_no_lake(run: Run, name: str) -> None:
    answer = run(*name.split(), *COMMANDS[name])
    assert answer.code == 1
    assert "which lake?" in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("name", sorted(WITH_A_SERVER))
def test_what_only_a_server_has(cli: Run, name: str) -> None:
    answer = cli(*name.split(), *COMMANDS[name], "--json")
    assert (answer.code, answer.json["error"]["code"]) == (1, "invalid_request")
    assert "--server" in answer.json["error"]["message"]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in {"init", *WITHOUT_A_LAKE}])
def test_a_folder_that_is_no_lake(run: Run, tmp_path: Path, name: str) -> None:
    answer = run(*name.split(), *COMMANDS[name], "--lake", str(tmp_path), "--json")
    assert answer.code == 3
    assert answer.json["error"]["code"] == "not_found"
    assert "is no lake" in answer.json["error"]["message"]


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_option(run: Run, name: str) -> None:
    answer = run(*name.split(), *COMMANDS[name], "--bogus")
    assert answer.code == 2
    assert "--bogus" in answer.err
    assert f"Usage: lithify {name}" in answer.err


@pytest.mark.parametrize("side", ["before", "after"])
def test_lake_and_json_before_or_after_the_command(run: Run, cli: Run, tmp_path: Path, side: str) -> None:
    shared = ("--lake", str(tmp_path / "lake"), "--json")
    answer = run(*shared, "tables") if side == "before" else run("tables", *shared)
    assert answer.json == {"lake": str(tmp_path / "lake"), "tables": []}


def test_lake_from_the_environment(run: Run, cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITHIFY_LAKE", str(tmp_path / "lake"))
    assert run("tables").code == 0


def test_lake_from_the_settings_file(run: Run, cli: Run, tmp_path: Path) -> None:
    (tmp_path / "lithify.toml").write_text('lake = "lake"\n')
    assert run("tables").code == 0


def test_a_bad_setting_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lithify.toml").write_text("commit_attempts_max = 0\n")
    answer = run("tables")
    assert answer.code == 1
    assert "commit_attempts_max" in answer.err


def test_no_arguments_show_the_help(run: Run) -> None:
    answer = run()
    assert answer.code == 0
    assert "Usage: lithify" in answer.out


def test_a_group_of_commands_without_one_shows_its_help(run: Run) -> None:
    answer = run("index")
    assert answer.code == 0
    for part in ("Usage: lithify index", "build", "inspect", "check"):
        assert part in answer.out


def test_version(run: Run) -> None:
    answer = run("--version")
    assert (answer.code, answer.out) == (0, f"lithify {lithify.__version__}\n")


def test_unknown_command_suggests(run: Run) -> None:
    answer = run("tabels")
    assert answer.code == 2
    assert "Did you mean 'tables'" in answer.err


def test_usage_error_as_json(run: Run) -> None:
    answer = run("get", "--json")
    assert answer.code == 2
    assert answer.json == {"error": {"code": "usage", "message": "Missing argument 'NAME'."}}


def test_json_after_a_double_dash_is_an_argument(orders: Run) -> None:
    answer = orders("get", "shop.orders", "--", "--json")
    assert answer.code == 1
    assert "'--json' does not fit int64" in answer.err


class TestCrash:
    @pytest.fixture(autouse=True)
    def _broken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def crash(*_: object, **__: object) -> None:
            raise ZeroDivisionError("boom\nsecond line")

        monkeypatch.setattr("lithify.lake.lake.Lake.tables", crash)

    def test_has_an_exit_code_of_its_own_and_says_how_to_get_the_traceback(self, cli: Run) -> None:
        answer = cli("tables")
        assert answer.code == 70
        assert "lithify crashed: ZeroDivisionError: boom second line" in answer.err
        assert "LITHIFY_TRACEBACK=1" in answer.err
        assert "Traceback" not in answer.err

    def test_shows_the_traceback_on_request(self, cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LITHIFY_TRACEBACK", "1")
        assert "Traceback" in cli("tables").err

    def test_is_a_json_document_too(self, cli: Run) -> None:
        answer = cli("tables", "--json")
        assert answer.code == 70
        assert answer.json["error"]["code"] == "crash"


def test_interrupt(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lithify.lake.lake.Lake.tables", interrupted)
    answer = cli("tables")
    assert answer.code == 130
    assert len(answer.err.strip().splitlines()) == 1


def test_an_interrupt_before_the_command_is_there_ends_the_process_and_says_nothing(tmp_path: Path) -> None:
    """Whatever is imported: here it is the command line itself that takes its time."""
    (tmp_path / "typer.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    path = os.pathsep.join([str(tmp_path), str(Path(lithify.cli.__file__).parents[2])])
    with subprocess.Popen(
        [sys.executable, "-m", "lithify.cli", "tables"],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == -signal.SIGINT


@pytest.mark.slow
def test_as_a_real_process(orders: Run, process: Run) -> None:
    answer = process("sql", "select count(*) as n from shop.orders", "--json", environment={"LITHIFY_LAKE": "lake"})
    assert (answer.code, answer.err) == (0, "")
    assert answer.json["rows"] == [{"n": 3}]


@pytest.mark.slow
def test_a_handled_error_in_a_real_process(orders: Run, process: Run) -> None:
    answer = process("get", "shop.orders", "99", environment={"LITHIFY_LAKE": "lake"})
    assert (answer.code, answer.out) == (3, "")
    assert answer.err == "error: table shop.orders has no row with key 99\n"


@pytest.mark.slow
def test_looking_at_tables_imports_no_spark(orders: Run) -> None:
    program = """
import sys
from lithify.cli.main import main
sys.argv = ["lithify", "tables", "--lake", "lake"]
try:
    main()
except SystemExit as exit:
    assert exit.code == 0
assert "pyspark" not in sys.modules
"""
    source = str(Path(lithify.cli.__file__).parents[2])
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env={**os.environ, "PYTHONPATH": source})


@pytest.mark.parametrize("module", sorted(Path(lithify.cli.__file__).parent.glob("*.py")), ids=lambda p: p.stem)
def test_heavy_libraries_are_imported_only_when_a_command_needs_them(module: Path) -> None:
    for node in ast.parse(module.read_text()).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            assert not any(name == heavy or name.startswith(f"{heavy}.") for heavy in HEAVY), name
