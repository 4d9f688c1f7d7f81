"""`lithify index build`, `rebuild`, `inspect` and `check`, and `lithify partitions`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Lake, Settings
from lithify.cli.index import _orders, _span
from lithify.index.rebuild import FileOrder
from support.folders import memory_folder

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    """shop.orders with three base files that its sidecar knows, and shop.empty."""
    with memory_folder() as path:
        with Lake(path / "lake") as lake:
            table = lake.create_table("shop.orders", pa.schema([("id", pa.int64()), ("c", pa.string())]), key="id")
            for number in range(3):
                table.upsert([{"id": number * 10 + i, "c": "x"} for i in range(3)])
                table.fold()
            lake.create_table("shop.empty", pa.schema([("id", pa.int64())]), key="id")
        yield path / "lake"


@pytest.fixture
def lake_path(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "indexed")


@pytest.fixture
def cli(run: Run, lake_path: Path) -> Run:
    return lambda *arguments: run("--lake", str(lake_path), *arguments)


def forget(lake_path: Path) -> None:
    shutil.rmtree(lake_path / "shop" / "orders" / "index")


def data_files(lake_path: Path) -> list[Path]:
    return sorted((lake_path / "shop" / "orders" / "base").glob("*-*/**/*.parquet"))


def damage(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


class TestRebuild:
    def test_reads_every_footer_again(self, cli: Run) -> None:
        (built,) = cli("index", "rebuild", "shop.orders", "--json").json["builds"]

        assert (built["files"], built["added"]) == (3, 3)
        assert cli("index", "check", "shop.orders").code == 0


class TestBuild:
    def test_renews_the_entries_of_files_that_were_written_to(self, cli: Run, lake_path: Path) -> None:
        def added() -> int:
            (built,) = cli("index", "build", "shop.orders", "--json").json["builds"]
            number: int = built["added"]
            return number

        assert added() == 3, "a copy of a lake has other files"
        replaced = data_files(lake_path)[1]
        replaced.write_bytes(replaced.read_bytes())

        assert cli("index", "check", "shop.orders").code == 0, "entries say what the files say"
        assert (added(), added()) == (1, 0)

    def test_adds_what_is_missing_and_then_nothing(self, cli: Run, lake_path: Path) -> None:
        forget(lake_path)

        (first,) = cli("index", "build", "shop.orders", "--json").json["builds"]
        (second,) = cli("index", "build", "shop.orders", "--json").json["builds"]

        assert (first["table"], first["files"], first["added"], first["skipped"]) == ("shop.orders", 3, 3, [])
        assert (second["files"], second["added"]) == (3, 0)

    def test_names_the_file_it_stopped_at(self, cli: Run, lake_path: Path) -> None:
        forget(lake_path)
        broken = data_files(lake_path)[1]
        damage(broken)

        answer = cli("index", "build", "shop.orders", "--json")

        assert answer.code == 1
        assert answer.json["error"]["code"] == "corruption"
        assert str(broken) in answer.json["error"]["message"]
        assert "--skip-corrupt" in answer.json["error"]["message"]

    def test_goes_on_without_a_corrupt_file_and_names_it(self, cli: Run, lake_path: Path) -> None:
        forget(lake_path)
        broken = data_files(lake_path)[1]
        damage(broken)

        answer = cli("index", "build", "shop.orders", "--skip-corrupt")

        assert answer.code == 0
        assert f"{broken} cannot be read and was skipped" in answer.out
        assert cli("index", "inspect", "shop.orders", "--json").json["base"]["files"] == 2

    def test_of_all_tables(self, cli: Run) -> None:
        rows = cli("index", "build", "--all", "--json").json["builds"]

        assert {row["table"]: row["files"] for row in rows} == {"shop.empty": 0, "shop.orders": 3}

    @pytest.mark.parametrize("verb", ["build", "check"])
    def test_needs_to_know_which_table(self, cli: Run, verb: str) -> None:
        answer = cli("index", verb)

        assert answer.code == 1
        assert "say which table" in answer.err


class TestInspect:
    def test_shows_what_the_sidecar_holds(self, cli: Run, lake_path: Path) -> None:
        found = cli("index", "inspect", "shop.orders", "--json").json

        assert found["changes"] is None
        base = found["base"]
        assert base["path"] == str(lake_path / "shop" / "orders" / "index" / "base.pm")
        assert (base["format_version"], base["files"], base["groups"]) == (1, 3, 3)
        assert base["columns"] == [["id", "signed"], ["c", "text"]]
        assert base["bytes"] == Path(base["path"]).stat().st_size
        assert base["versions"] == sorted(base["versions"], reverse=True)

    def test_as_text(self, cli: Run) -> None:
        shown = cli("index", "inspect", "shop.orders").out

        for part in ("shop.orders, base", "base.pm", "row groups", "id (signed), c (text)", "shop.orders, changes"):
            assert part in shown

    def test_the_order_of_rows_as_text(self, cli: Run, lake_path: Path) -> None:
        assert "sorted by" not in cli("index", "inspect", "shop.orders").out
        with Lake(lake_path, settings=Settings(pack_files_min=2)) as lake:
            assert lake.table("shop.orders").compact()

        shown = cli("index", "inspect", "shop.orders").out
        assert [line.split()[-1] for line in shown.splitlines() if "rows sorted by" in line] == ["id"]

    def test_files_in_several_orders_are_counted(self) -> None:
        assert _orders([FileOrder(("city", "at desc"), 12), FileOrder((), 1)]) == (
            "city, at desc (12 files); no order known (1 file)"
        )

    def test_states_of_one_version_are_no_span(self) -> None:
        assert [_span(versions) for versions in ((7,), (7, 7), (7, 7, 5))] == ["7", "7", "3 states from 5 to 7"]

    def test_of_a_table_that_has_none(self, cli: Run) -> None:
        assert cli("index", "inspect", "shop.empty", "--json").json == {
            "table": "shop.empty",
            "base": None,
            "changes": None,
        }


class TestCheck:
    def test_finds_nothing_to_complain_about(self, cli: Run) -> None:
        answer = cli("index", "check", "--all", "--json")

        assert answer.code == 0
        for row in answer.json["checks"]:
            assert (row["missing"], row["extra"], row["different"]) == ([], [], [])

    def test_a_file_that_differs_from_its_entry(self, cli: Run, lake_path: Path) -> None:
        first, second, _ = data_files(lake_path)
        shutil.copy(second, first)

        answer = cli("index", "check", "shop.orders")

        assert answer.code == 1
        assert f"{first} differs from its entry" in answer.out

    def test_a_file_without_an_entry(self, cli: Run, lake_path: Path) -> None:
        forget(lake_path)

        answer = cli("index", "check", "shop.orders", "--json")

        assert answer.code == 1
        (found,) = answer.json["checks"]
        assert sorted(found["missing"]) == [str(path) for path in data_files(lake_path)]

    def test_a_damaged_sidecar(self, cli: Run, lake_path: Path) -> None:
        damage(lake_path / "shop" / "orders" / "index" / "base.pm")

        answer = cli("index", "check", "shop.orders", "--json")

        assert answer.code == 1
        assert answer.json["error"]["code"] == "corruption"
        assert "base.pm" in answer.json["error"]["message"]

    def test_many_files_are_not_all_shown(self, cli: Run, lake_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("lithify.cli.index.PATHS_SHOWN_MAX", 1)
        for path in data_files(lake_path):
            damage(path)

        shown = cli("index", "check", "shop.orders").out

        assert shown.count("differs from its entry, or cannot be read") == 1
        assert "and 2 more files" in shown

    def test_a_table_without_a_sidecar_is_told_in_one_line(self, cli: Run, lake_path: Path) -> None:
        forget(lake_path)

        shown = cli("index", "check", "shop.orders").out

        assert "shop.orders: none of its 3 files has an entry" in shown
        assert ".parquet" not in shown
        assert "`lithify index build shop.orders` brings its entries up to date" in shown

    def test_one_table_that_cannot_be_checked_does_not_stop_the_rest(self, cli: Run, lake_path: Path) -> None:
        damage(lake_path / "shop" / "orders" / "index" / "base.pm")

        answer = cli("index", "check", "--all")

        assert answer.code == 1
        assert "shop.empty" in answer.out
        assert "base.pm cannot be used" in answer.out


class TestPartitions:
    @pytest.fixture
    def timed(self, run: Run, tmp_path: Path) -> Run:
        lake = str(tmp_path / "timed")
        run("init", lake)
        columns = ("-c", "id:int64", "-c", "at:timestamp", "-c", "country:string")
        run("create", "log.events", *columns, "--time", "at", "--partition-by", "country", "--lake", lake)
        for day, hour, country in ((1, 3, "DE"), (1, 5, "DE"), (2, 7, "FR")):
            row = f'{{"id": {hour}, "at": "2026-11-0{day}T0{hour}:00:00Z", "country": "{country}"}}'
            run("write", "log.events", "--row", row, "--lake", lake)
        run("fold", "log.events", "--lake", lake)
        return lambda *arguments: run("--lake", lake, *arguments)

    def test_as_json(self, timed: Run) -> None:
        found = timed("partitions", "log.events", "--json").json

        assert (found["table"], found["partition_by"], found["time"]) == ("log.events", ["_day", "country"], "at")
        assert [(part["values"], part["rows"]) for part in found["partitions"]] == [
            ({"_day": "2026-11-01", "country": "DE"}, 2),
            ({"_day": "2026-11-02", "country": "FR"}, 1),
        ]
        assert found["partitions"][0]["time_max"] == "2026-11-01T05:00:00Z"

    def test_fits_a_narrow_terminal(self, timed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("TTY_COMPATIBLE", "1")

        shown = timed("partitions", "log.events").out

        assert "not fit" not in shown
        for part in ("2026-11-01", "DE", "03:00:00", "05:00:00"):
            assert part in shown

    def test_long_values_leave_room_for_the_numbers(self, timed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        row = f'{{"id": 9, "at": "2026-11-03T00:00:00Z", "country": "{"long " * 15}"}}'
        timed("write", "log.events", "--row", row)
        timed("fold", "log.events")
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("TTY_COMPATIBLE", "1")

        shown = timed("partitions", "log.events").out

        for part in ("files", "rows", "size"):
            assert part in shown.split("not fit")[0]

    def test_of_a_table_without_rows(self, cli: Run) -> None:
        shown = cli("partitions", "shop.empty").out

        assert shown.strip() == "the table holds no rows yet"

    def test_says_what_is_pending(self, timed: Run) -> None:
        timed("write", "log.events", "--row", '{"id": 9, "at": "2026-11-03T00:00:00Z", "country": "DE"}')

        assert "1 pending change in 1 file" in timed("partitions", "log.events").out

    def test_of_a_table_that_is_not_partitioned(self, orders: Run) -> None:
        assert "no rows yet" in orders("partitions", "shop.orders").out
        orders("fold", "shop.orders")

        assert "not partitioned" in orders("partitions", "shop.orders").out
