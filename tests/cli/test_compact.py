"""`lithify compact` and `lithify optimize`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lithify import Lake, Settings

Run = Callable[..., Any]


@pytest.fixture
def lake_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of four small base files, in a lake that packs from two on."""
    monkeypatch.setenv("LITHIFY_PACK_FILES_MIN", "2")
    path = tmp_path / "small"
    import pyarrow as pa

    with Lake(path, settings=Settings()) as lake:
        table = lake.create_table("shop.orders", pa.schema([("id", pa.int64()), ("c", pa.string())]), key="id")
        for number in range(4):
            table.upsert([{"id": number * 10 + i, "c": "x"} for i in range(3)])
            table.fold()
    return path


def test_a_dry_run_shows_the_plan_and_does_nothing(run: Run, lake_path: Path) -> None:
    answer = run("compact", "shop.orders", "--dry-run", "--lake", str(lake_path))

    assert answer.code == 0
    assert "4 files → 1" in answer.out
    again = run("compact", "shop.orders", "--dry-run", "--json", "--lake", str(lake_path)).json
    (plan,) = again["compactions"]
    assert (again["dry_run"], plan["files"], plan["origin"]) == (True, 4, "pack")
    assert plan["bytes_in"] > 0
    assert plan["why"]


def test_compact_says_what_it_did(run: Run, lake_path: Path) -> None:
    (done,) = run("compact", "--all", "--json", "--lake", str(lake_path)).json["compactions"]

    assert (done["files_read"], done["files_written"], done["rows"]) == (4, 1, 12)
    after = run("compact", "--all", "--lake", str(lake_path))
    assert after.code == 0
    assert "nothing to compact" in after.out


def test_optimize_orders_by_the_given_columns(run: Run, lake_path: Path) -> None:
    (plan,) = run("optimize", "shop.orders", "--by", "c, id", "--dry-run", "--json", "--lake", str(lake_path)).json[
        "optimizations"
    ]
    assert plan["why"] == "z-order by c, id"

    (done,) = run("optimize", "shop.orders", "--by", "c,id", "--json", "--lake", str(lake_path)).json["optimizations"]

    assert (done["origin"], done["files_written"], done["rows"]) == ("cluster", 1, 12)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("compact",), "say which table"),
        (("compact", "shop.orders", "--tier", "yearly"), "yearly"),
        (("optimize", "shop.orders", "--by", "nope"), "'nope' is not in table shop.orders"),
        (("compact", "shop.none"), "shop.none does not exist"),
    ],
)
def test_what_cannot_be_done_is_refused(run: Run, lake_path: Path, arguments: tuple[str, ...], words: str) -> None:
    answer = run(*arguments, "--lake", str(lake_path))

    assert answer.refused
    assert words in " ".join(answer.err.split())


def test_a_damaged_file_is_shown_and_fails_the_command(run: Run, lake_path: Path) -> None:
    with Lake(lake_path, settings=Settings()) as lake:
        table = lake.table("shop.orders")
        path = table.base_path / table.snapshot().base[0].path
    data = bytearray(path.read_bytes())
    data[8] ^= 0xFF
    path.write_bytes(data)

    shown = run("compact", "shop.orders", "--dry-run", "--lake", str(lake_path)).out
    assert "at least 2" in shown
    answer = run("compact", "shop.orders", "--json", "--lake", str(lake_path))

    assert answer.code == 1
    assert answer.err == ""
    assert [row["files_read"] for row in answer.json["compactions"] if row["files_written"]] == [3]
    assert str(path) in answer.out


def test_problems_stand_below_the_table_of_a_narrow_terminal(
    run: Run, lake_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Lake(lake_path, settings=Settings()) as lake:
        table = lake.table("shop.orders")
        path = table.base_path / table.snapshot().base[0].path
    path.write_bytes(b"PAR1" + bytes(path.stat().st_size - 8) + b"PAR1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")

    answer = run("compact", "--all", "--lake", str(lake_path))

    assert answer.code == 1
    joined = "".join(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", answer.out).split())
    assert joined.count(path.parent.name + "/" + path.name) == 1
    assert "problem" not in answer.out
    assert "WARNING" not in answer.err


def test_a_table_that_cannot_be_opened_is_told_with_all(run: Run, lake_path: Path) -> None:
    log = lake_path / "shop" / "orders" / "changes" / "_delta_log" / "00000000000000000000.json"
    log.write_text("{torn")
    for command in ("compact", "fold", "vacuum"):
        answer = run(command, "--all", "--lake", str(lake_path))
        assert answer.code == 1, command
        assert "shop.orders" in answer.out
        assert "00000000000000000000.json" in answer.out
        assert "nothing to" not in answer.out


class TestNothingToDo:
    def test_a_tier_that_is_off(self, run: Run, tmp_path: Path) -> None:
        lake = str(tmp_path / "timed")
        run("init", lake)
        run("create", "a.t", "-c", "id:int64", "-c", "at:timestamp", "--time", "at", "--lake", lake)
        shown = " ".join(run("compact", "a.t", "--tier", "weekly", "--lake", lake).out.split())
        assert "tier weekly is off" in shown
        assert "lithify set TABLE 'tiers=" in shown
        (note,) = run("compact", "--all", "--tier", "weekly", "--json", "--lake", lake).json["notes"]
        assert "tier weekly is off" in note
        run("set", "a.t", 'tiers=[{"name": "weekly", "enabled": true}]', "--lake", lake)
        assert "nothing to compact" in run("compact", "a.t", "--tier", "weekly", "--lake", lake).out

    def test_a_tier_on_a_table_with_no_time(self, run: Run, lake_path: Path) -> None:
        answer = run("compact", "shop.orders", "--tier", "hourly", "--lake", str(lake_path))
        assert answer.code == 0
        assert "shop.orders: it has no time column" in answer.out
        assert "nothing to compact" not in answer.out
