"""Commands against a served lake answer as they do on its folder."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from lithify import Lake, Settings
from lithify.cli.main import app

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.folders import memory_folder
from support.service import Served, free_port, serving

Run = Callable[..., Any]
LOCAL = {
    "init": (),
    "set": ("shop.orders", "row_group_rows=65536"),
    "settings": (),
    "help": (),
    "completion": ("bash",),
    "backup create": ("/nowhere/backups",),
    "backup list": ("/nowhere/backups",),
    "backup verify": ("/nowhere/backups",),
    "backup restore": ("/nowhere/backups", "/nowhere/new"),
    "backup remove": ("/nowhere/backups", "--keep", "1"),
    "add-column": ("shop.orders", "note:string"),
    "rename-column": ("shop.orders", "n", "m"),
    "drop-column": ("shop.orders", "n"),
    "alter-column": ("shop.orders", "n", "--first"),
    "adopt": ("a.b", "/nowhere"),
    "detach": ("shop.orders", "2026-11-15", "/nowhere/day"),
    "attach": ("shop.orders", "/nowhere"),
    "ingest": ("shop.orders", "/nowhere/*.csv"),
    "run": ("--once",),
    "stream": ("/nowhere", "shop.orders"),
    "pipeline list": (),
    "pipeline run": ("sales",),
    "pipeline history": (),
    "erase": ("shop.orders", "--key", "1", "--history", "cut"),
    "erasures": (),
    "erasure show": ("0",),
    "erasure resume": ("0",),
    "erasure cancel": ("0",),
    "erasure verify": ("receipt.json",),
    "index build": ("shop.orders",),
    "index rebuild": ("shop.orders",),
    "index inspect": ("shop.orders",),
    "index check": ("shop.orders",),
    "doctor": (),
    "demo": (),
    "serve": (),
    "tokens list": (),
    "tokens create": ("x", "--scope", "read"),
    "tokens revoke": ("x",),
}
MANY = f"select o0.id from {', '.join(f'shop.orders o{n}' for n in range(9))} order by 1"


@pytest.fixture(scope="module")
def served_lake(templates: dict[str, Path]) -> Iterator[tuple[Served, Path]]:
    """A lake with shop.orders and three rows in it, behind a service. Tests leave the table as it is."""
    settings = Settings(port=0, shutdown_s=5, cache_bytes_max=64 * 2**20)
    with memory_folder() as folder:
        shutil.copytree(templates["orders"], folder / "lake")
        with Lake(folder / "lake", settings=settings) as lake, serving(lake, settings) as served:
            yield served, folder / "lake"


@pytest.fixture
def served(served_lake: tuple[Served, Path]) -> Served:
    return served_lake[0]


@pytest.fixture
def local(run: Run, served_lake: tuple[Served, Path]) -> Run:
    """`local("tables")` on the lake's folder."""
    return partial(run, "--lake", str(served_lake[1]))


@pytest.fixture
def remote(run: Run, served: Served, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`remote("tables")` through the service, with the token in the environment."""
    monkeypatch.setenv("LITHIFY_TOKEN", served.token)
    return partial(run, "--server", served.url)


def same(remote: Run, local: Run, *arguments: str, but: tuple[str, ...] = ("seconds", "resolved")) -> Any:
    """Both answer the same document; returns it."""
    there, here = remote(*arguments, "--json"), local(*arguments, "--json")
    assert (there.code, here.code) == (0, 0), there.out + there.err
    assert _without(there.json, but) == _without(here.json, but)
    return there.json


def _without(document: Any, names: tuple[str, ...]) -> Any:
    if isinstance(document, dict):
        return {name: _without(value, names) for name, value in document.items() if name not in names}
    return [_without(item, names) for item in document] if isinstance(document, list) else document


class TestLooking:
    @pytest.mark.parametrize(
        "arguments",
        [
            ("get", "shop.orders", "2"),
            ("sql", "select * from shop.orders order by id"),
            ("sql", "select count(*) as n from shop.orders", "--as-of", "0"),
            ("explain", "select * from shop.orders where id = 2"),
            ("changes", "shop.orders"),
            ("changes", "shop.orders", "--since", "0", "--until", "1"),
            ("history", "shop.orders"),
            ("snapshot", "shop.orders"),
            ("partitions", "shop.orders"),
            ("stats", "shop.orders"),
            ("jobs",),
            ("jobs", "--history"),
            ("fold", "shop.orders", "--dry-run"),
            ("compact", "shop.orders", "--dry-run"),
            ("vacuum", "shop.orders"),
        ],
        ids=" ".join,
    )
    def test_the_same_document(self, remote: Run, local: Run, arguments: tuple[str, ...]) -> None:
        same(remote, local, *arguments)

    @pytest.mark.parametrize("name", ["tables", "stats"])
    def test_lists_name_the_server_in_place_of_the_folder(
        self, remote: Run, local: Run, served: Served, name: str
    ) -> None:
        assert same(remote, local, name, but=("lake",))["lake"] == served.url

    def test_describe_leaves_out_where_the_files_are(self, remote: Run, local: Run) -> None:
        assert same(remote, local, "describe", "shop.orders", but=("path",))["base"]["path"] is None

    @pytest.mark.parametrize("arguments", [("tables",), ("describe", "shop.orders"), ("history", "shop.orders")])
    def test_text_for_people(self, remote: Run, arguments: tuple[str, ...]) -> None:
        answer = remote(*arguments)
        assert (answer.code, answer.err) == (0, "")
        assert "shop.orders" in answer.out or "upsert" in answer.out

    def test_rows_into_a_file(self, remote: Run, tmp_path: Path) -> None:
        target = tmp_path / "orders.csv"
        assert remote("sql", "select id from shop.orders order by id", "-o", str(target)).code == 0
        assert target.read_text() == "id\n1\n2\n3\n"

    def test_the_first_rows_of_more_than_the_service_answers_with(self, remote: Run) -> None:
        answer = remote("sql", MANY)
        assert (answer.code, answer.err) == (0, "")
        assert "100 of more than 10,000 rows shown" in answer.out
        assert remote("sql", MANY, "--limit", "2", "--format", "csv").out == "id\n1\n1\n"

    @pytest.mark.parametrize("arguments", [("--format", "csv"), ("--limit", "0"), ("--limit", "10001")], ids=" ".join)
    def test_all_rows_of_more_than_the_service_answers_with(self, remote: Run, arguments: tuple[str, ...]) -> None:
        answer = remote("sql", MANY, *arguments)
        assert (answer.code, answer.out) == (1, "")
        assert "query_rows_max" in answer.err


class TestChanging:
    def test_a_table_s_life(self, remote: Run, local: Run) -> None:
        assert remote("create", "shop.new", "-c", "id:int64", "-c", "at:timestamp", "--key", "id").code == 0
        written = remote(
            "write", "shop.new", "--json", stdin='{"id": 1, "at": "2026-11-15T12:00:00Z"}\n{"id": 2, "at": null}\n'
        )
        assert (written.code, written.json["upserted"], written.json["batch_id"]) == (0, 2, None)
        assert remote("delete", "shop.new", "2", "--reason", "test").code == 0
        assert local("sql", "select id from shop.new", "--json").json["rows"] == [{"id": 1}]
        assert remote("fold", "shop.new", "--json").json["folds"][0]["final_rows"] == 1
        same(remote, local, "optimize", "shop.new", "--by", "at", "--dry-run")
        assert remote("delete", "shop.new", "--where", "id = 1").code == 0
        assert remote("compact", "shop.new").code == 0
        assert remote("vacuum", "shop.new", "--apply").code == 0
        assert remote("drop", "shop.new", "--yes").code == 0
        assert [table["table"] for table in local("tables", "--json").json["tables"]] == ["shop.orders"]

    def test_a_batch_id_given_twice(self, remote: Run) -> None:
        assert remote("create", "shop.twice", "-c", "id:int64").code == 0
        for expected in (False, True):
            answer = remote("write", "shop.twice", "--row", '{"id": 9}', "--batch-id", "b", "--json")
            assert answer.json["replayed"] is expected
        assert remote("drop", "shop.twice", "--yes").code == 0

    def test_an_existing_table(self, remote: Run) -> None:
        again = ("create", "shop.orders", "-c", "id:int64", "-c", "amount:decimal(10,2)", "-c", "status:string")
        answer = remote(*again, "--key", "id", "--if-not-exists", "--json")
        assert (answer.code, answer.json["created"]) == (0, False)


class TestErrors:
    @pytest.mark.parametrize(
        "arguments",
        [
            ("get", "shop.orders", "99"),
            ("get", "shop.nowhere", "1"),
            ("write", "shop.orders", "--row", '{"nope": 1}'),
            ("delete", "shop.orders", "x"),
            ("sql", "drop schema shop"),
            ("create", "Shop.X", "-c", "id:int64"),
            ("changes", "shop.orders", "--since", "99"),
            ("history", "shop.nowhere"),
        ],
        ids=" ".join,
    )
    def test_the_same_words(self, remote: Run, local: Run, arguments: tuple[str, ...]) -> None:
        there, here = remote(*arguments, "--json"), local(*arguments, "--json")
        assert (there.code, there.json) == (here.code, here.json)
        assert there.refused

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            (("--since", "shop.orders@00000000:1"), "is no seq"),
        ],
    )
    def test_what_a_service_does_not_tell_of_changes(self, remote: Run, options: tuple[str, ...], problem: str) -> None:
        answer = remote("changes", "shop.orders", *options, "--json")
        assert answer.code == 1
        assert problem in answer.json["error"]["message"]

    def test_nobody_there(self, run: Run) -> None:
        address = f"http://127.0.0.1:{free_port()}"
        answer = run("tables", "--server", address, "--json")
        assert (answer.code, answer.json["error"]["code"]) == (1, "unavailable")
        assert address in answer.json["error"]["message"]

    def test_no_token(self, run: Run, served: Served) -> None:
        answer = run("tables", "--server", served.url, "--json")
        assert (answer.code, answer.json["error"]["code"]) == (1, "forbidden")
        assert "LITHIFY_TOKEN" in answer.json["error"]["message"]


class TestWhichLake:
    def test_a_lake_and_a_server(self, run: Run) -> None:
        answer = run("tables", "--lake", "x", "--server", "http://127.0.0.1:1")
        assert answer.code == 1
        assert "--lake and --server name two places" in answer.err

    def test_a_server_from_the_settings(self, run: Run, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LITHIFY_SERVER", served.url)
        monkeypatch.setenv("LITHIFY_TOKEN", served.token)
        assert run("tables", "--json").json["lake"] == served.url

    def test_a_lake_that_is_given_wins_over_a_server_of_the_settings(
        self, orders: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LITHIFY_SERVER", "http://127.0.0.1:1")
        assert orders("tables").code == 0

    def test_settings_that_name_both(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LITHIFY_SERVER", "http://127.0.0.1:1")
        monkeypatch.setenv("LITHIFY_LAKE", "lake")
        answer = run("tables")
        assert answer.code == 1
        assert "settings name both a lake (lake) and a server" in answer.err

    def test_an_empty_server(self, run: Run) -> None:
        assert "--server is empty" in run("tables", "--server", "").err

    @pytest.mark.parametrize("name", LOCAL)
    def test_commands_that_need_the_folder_say_so(self, run: Run, name: str) -> None:
        answer = run("--server", "http://127.0.0.1:1", *name.split(), *LOCAL[name])
        assert answer.code == 1
        assert "does not work through a service" in answer.err
        assert f"lithify {name}" in answer.err

    def test_help_shows_the_option_where_it_works(self, run: Run) -> None:
        for name, command in _commands(get_command(app).commands):  # type: ignore[attr-defined]
            shown = [option for option in command.params if "--server" in option.opts]
            assert len(shown) == 1, name
            assert shown[0].hidden is (name in LOCAL), name


def _commands(commands: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in commands.items():
        inside = getattr(command, "commands", None)
        if inside is None:
            yield f"{above}{name}", command
        else:
            yield from _commands(inside, f"{above}{name} ")


@pytest.mark.slow
def test_the_client_is_not_loaded_without_a_server(process: Run, orders: Run) -> None:
    answer = process(
        "sql", "select 1 as n", "--json", environment={"LITHIFY_LAKE": "lake", "PYTHONPROFILEIMPORTTIME": "1"}
    )
    assert json.loads(answer.out)["rows"] == [{"n": 1}]
    loaded = {line.rpartition("|")[2].strip() for line in answer.err.splitlines()}
    assert "lithify.lake.lake" in loaded
    assert not {"httpx", "fastapi", "uvicorn", "lithify.client"} & loaded
