"""A folder that is not to be trusted: what its lithify.toml may not do, and what commands do with a prepared lake."""

from __future__ import annotations

import http.server
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.folders import memory_folder
from support.untrusted import ATTACKS, OURS, SECRET, TABLE, Outside, grow_old, make_lake, make_outside

Run = Callable[..., Any]
MINE = "lith_of_the_environment"


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[str | None]]]:
    """The address of a server, and what each request to it had for a token."""
    got: list[str | None] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got.append(self.headers.get("Authorization"))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(b'{"tables": []}')

        do_POST = do_GET

        def log_message(self, *arguments: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", got
    server.shutdown()
    thread.join()
    server.server_close()


def _sent(got: list[str | None]) -> set[str | None]:
    assert got, "nothing was asked"
    return set(got)


class TestTheTokenOfTheEnvironment:
    @pytest.fixture(autouse=True)
    def _token(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LITHIFY_TOKEN", MINE)

    @pytest.mark.parametrize("command", [("tables",), ("sql", "select 1"), ("get", "shop.orders", "1")])
    def test_is_not_sent_to_a_server_that_the_folder_names(
        self, run: Run, tmp_path: Path, elsewhere: tuple[str, list[str | None]], command: tuple[str, ...]
    ) -> None:
        (tmp_path / "lithify.toml").write_text(f'server = "{elsewhere[0]}"\n')
        run(*command)
        assert _sent(elsewhere[1]) == {None}

    def test_a_token_of_the_same_file_is_sent(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: tuple[str, list[str | None]]
    ) -> None:
        monkeypatch.delenv("LITHIFY_TOKEN")
        (tmp_path / "lithify.toml").write_text(f'server = "{elsewhere[0]}"\ntoken = "lith_of_the_file"\n')
        run("tables")
        assert _sent(elsewhere[1]) == {"Bearer lith_of_the_file"}

    @pytest.mark.parametrize("how", ["environment", "option", "config", "config variable"])
    def test_is_sent_where_it_was_told_to(
        self,
        run: Run,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        elsewhere: tuple[str, list[str | None]],
        how: str,
    ) -> None:
        url, got = elsewhere
        (tmp_path / "lithify.toml").write_text('server = "http://127.0.0.1:9"\n')
        (tmp_path / "mine.toml").write_text(f'server = "{url}"\n')
        options: tuple[str, ...] = ()
        if how == "environment":
            monkeypatch.setenv("LITHIFY_SERVER", url)
        elif how == "option":
            options = ("--server", url)
        elif how == "config":
            options = ("--config", "mine.toml")
        else:
            monkeypatch.setenv("LITHIFY_CONFIG", "mine.toml")
        run(*options, "tables")
        assert _sent(got) == {f"Bearer {MINE}"}


def test_what_a_folder_may_not_set_is_said_in_one_line_and_left_out(run: Run, tmp_path: Path) -> None:
    run("init", "lake")
    (tmp_path / "lithify.toml").write_text(
        'lake = "lake"\nspark_master = "spark://evil.example:7077"\n[spark_conf]\n"spark.jars" = "/tmp/evil.jar"\n'
    )
    answer = run("tables", "--json")
    assert (answer.code, answer.json["tables"]) == (0, [])
    (line,) = answer.err.splitlines()
    assert "spark_master" in line
    assert "spark_conf (it can run programs)" in line
    assert "--config lithify.toml" in line
    assert run("--config", "lithify.toml", "tables", "--json").err == ""
    assert run("tables", "--json", "--config", "lithify.toml").err == ""


def test_adopting_says_what_others_have_to_allow(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(str(tmp_path / "events"), pa.table({"id": [1, 2]}))
    run("init", "lake")
    answer = run("adopt", "s.events", str(tmp_path / "events"), "--key", "id", "--lake", "lake")
    assert f"LITHIFY_ALLOWED_PATHS={tmp_path / 'events'}" in answer.err
    assert run("sql", "select count(*) as n from s.events", "--lake", "lake", "--json").json["rows"] == [{"n": 2}]

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "of-somebody-else"))
    refused = run("sql", "select count(*) as n from s.events", "--lake", "lake", "--json")
    assert refused.code == 1
    assert f"LITHIFY_ALLOWED_PATHS={tmp_path / 'events'}" in refused.json["error"]["message"]
    (tmp_path / "mine.toml").write_text(f'allowed_paths = ["{tmp_path / "events"}"]\n')
    allowed = run("--config", "mine.toml", "sql", "select count(*) as n from s.events", "--lake", "lake", "--json")
    assert allowed.json["rows"] == [{"n": 2}]


# -- every command on a prepared lake

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("tables",),
    ("describe", TABLE),
    ("partitions", TABLE),
    ("sql", f"select * from {TABLE}"),
    ("get", TABLE, "7"),
    ("changes", TABLE),
    ("history", TABLE),
    ("snapshot", TABLE),
    ("explain", f"select * from {TABLE} where id = 7"),
    ("stats",),
    ("jobs", "--history"),
    ("index", "inspect", TABLE),
    ("index", "check", TABLE),
    ("index", "build", TABLE),
    ("doctor",),
    ("tokens", "list"),
    ("tokens", "create", "x", "--scope", "read"),
    ("set", TABLE, "checkpoint_every=3"),
    ("add-column", TABLE, "w:int64"),
    ("delete", TABLE, "--where", "id = 7"),
    ("fold", TABLE),
    ("compact", TABLE),
    ("run", "--once"),
    ("vacuum", TABLE, "--retain-hours", "1", "--apply"),
    ("drop", TABLE, "--yes"),
)
SOME = [
    "base adds by dots",
    "changes adds by escaped dots",
    "base_path by from the root",
    "table id",
    "manifest by id",
    "pin by id",
    "link shop",
    "link shop/t/base",
    "link shop/t/index",
    "link _lithify",
    "link _lithify/tokens.json",
    "link _lithify/history/jobs.jsonl",
    "linked data",
    "links to delete",
]


@pytest.fixture(scope="module")
def prepared() -> Iterator[Path]:
    with memory_folder() as folder:
        make_outside(folder / "outside")
        make_lake(folder / "lake", OURS)
        yield folder


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
def test_no_command_reaches_out_of_a_lake(run: Run, tmp_path: Path, prepared: Path, name: str) -> None:
    shutil.copytree(prepared, tmp_path, symlinks=True, dirs_exist_ok=True)
    outside, lake = Outside(tmp_path / "outside"), tmp_path / "lake"
    next(attack for attack in ATTACKS if attack.name == name).apply(lake, outside)
    grow_old(lake)
    before = outside.state()

    for command in COMMANDS:
        answer = run(*command, "--lake", str(lake), "--json")
        assert answer.code in (0, 1, 3), (command, answer)
        assert SECRET not in answer.out + answer.err, command
    assert outside.state() == before
