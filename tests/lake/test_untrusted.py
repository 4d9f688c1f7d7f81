"""A lake is opened as data: whatever was put into its folder, nothing outside of it is read, changed or deleted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lithify import Corruption, Lake, LithifyError, Settings, Unavailable
from support.folders import memory_folder
from support.untrusted import (
    ATTACKS,
    COLUMNS,
    OURS,
    SECRET,
    SETTINGS,
    TABLE,
    Attack,
    Outside,
    grow_old,
    make_lake,
    make_outside,
)

Operations = dict[str, Callable[[Lake], Any]]
READS: Operations = {
    "tables": lambda lake: lake.tables(),
    "repr": lambda lake: lake._repr_html_(),
    "sql": lambda lake: lake.sql(f"select * from {TABLE}").to_pylist(),
    "count": lambda lake: lake.sql(f"select count(*), max(v), min(v) from {TABLE} where p = 'x'").to_pylist(),
    "as of": lambda lake: lake.sql(f"select * from {TABLE}", as_of=2).to_pylist(),
    "to_arrow": lambda lake: lake.table(TABLE).to_arrow().to_pylist(),
    "get": lambda lake: [lake.table(TABLE).get(key) for key in range(12)],
    "changes": lambda lake: lake.table(TABLE).changes(0).to_pylist(),
    "feed": lambda lake: lake.table(TABLE).feed(0).to_pylist(),
    "history": lambda lake: lake.table(TABLE).history(),
    "stats": lambda lake: lake.table(TABLE).stats(),
    "partitions": lambda lake: lake.table(TABLE).partitions(),
    "jobs": lambda lake: (lake.jobs(), lake.ended_jobs(), lake.past_cycles(), lake.running_cycle()),
    "pin": lambda lake: _pinned(lake),
}
WRITES: Operations = {
    "upsert": lambda lake: lake.table(TABLE).upsert([{"id": 7, "p": "x", "v": OURS}]),
    "delete": lambda lake: lake.table(TABLE).delete([1]),
    "delete_where": lambda lake: lake.table(TABLE).delete_where("id = 11"),
    "fold": lambda lake: lake.table(TABLE).fold(),
    "compact": lambda lake: lake.table(TABLE).compact(),
    "index": lambda lake: lake.table(TABLE).build_index(),
    "add_column": lambda lake: lake.table(TABLE).add_column(pa.field("w", pa.int64())),
    "upkeep": lambda lake: lake.maintain(),
    "vacuum": lambda lake: lake.table(TABLE).vacuum(1, dry_run=False),
    "drop": lambda lake: lake.drop_table(TABLE),
    "create": lambda lake: lake.create_table(TABLE, COLUMNS, key="id", partition_by="p").upsert(
        [{"id": 1, "p": "x", "v": OURS}]
    ),
    "drop again": lambda lake: lake.drop_table(TABLE),
}


def _pinned(lake: Lake) -> Any:
    with lake.table(TABLE).pin() as snapshot:
        return snapshot


@pytest.fixture(scope="module")
def templates() -> Iterator[Path]:
    with memory_folder() as folder:
        make_outside(folder / "outside")
        make_lake(folder / "lake", OURS)
        yield folder


@pytest.fixture
def here(templates: Path) -> Iterator[Path]:
    """A lake as it should be, and `Outside` beside it."""
    with memory_folder() as folder:
        shutil.copytree(templates, folder, symlinks=True, dirs_exist_ok=True)
        yield folder


def _attempt(lake: Path, **settings: Any) -> dict[str, str]:
    """What is said to everything that can be asked for. What writes, writes to a lake that was opened for it."""
    said: dict[str, str] = {}
    for operations in (READS, *({name: operation} for name, operation in WRITES.items())):
        try:
            with Lake(lake, create=False, settings=Settings(**SETTINGS, **settings)) as opened:
                for name, operation in operations.items():
                    said[name] = _said(operation, opened)
        except LithifyError as error:
            said[f"opening for {next(iter(operations))}"] = f"{error!r} {error.__cause__!r}"
    return said


def _said(operation: Callable[[Lake], Any], lake: Lake) -> str:
    try:
        return repr(operation(lake))
    except LithifyError as error:
        return f"{error!r} {error.details} {error.__cause__!r}"


def _refusals(said: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in said.items() if text.startswith(("Corruption(", "Unavailable("))}


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_nothing_outside_is_read_changed_or_deleted(here: Path, attack: Attack) -> None:
    lake, outside = here / "lake", Outside(here / "outside")
    attack.apply(lake, outside)
    grow_old(lake)
    before = outside.state()

    # The index of a table may have a folder of its own, which the settings name.
    said = _attempt(lake, **({"index_folder": here / "indexes"} if attack.name == "table id" else {}))

    assert {name: text for name, text in said.items() if SECRET in text} == {}
    assert outside.state() == before


def test_a_lake_without_attacks_does_all_of_it(here: Path) -> None:
    """Else the test above would hold for a lake that refuses everything."""
    said = _attempt(here / "lake")

    assert _refusals(said) == {}
    assert OURS in said["sql"]


def test_the_twin_would_tell_its_secret(here: Path) -> None:
    assert SECRET in _attempt(here / "outside" / "lake")["sql"]


def test_hard_links_are_files_like_any_other(here: Path) -> None:
    lake = here / "lake"
    for file in [path for path in (lake / "shop/t/base").rglob("*.parquet") if "_delta_log" not in path.parts]:
        os.link(file, here / "second-name")
        (here / "second-name").rename(here / f"second-{file.name}-{file.stat().st_ino}")
    said = _attempt(lake)

    assert _refusals(said) == {}
    assert OURS in said["sql"]


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_a_checkpoint_that_names_files_elsewhere_is_refused(here: Path, kind: str) -> None:
    name = "checkpoint sidecar" if kind == "parquet" else "checkpoint sidecar in json"
    next(attack for attack in ATTACKS if attack.name == name).apply(here / "lake", Outside(here / "outside"))

    with Lake(here / "lake") as lake, pytest.raises(Corruption, match=r"names the file.*actions\.parquet"):
        lake.sql(f"select * from {TABLE}")


# -- what the settings of the opener allow


@pytest.fixture
def adopted(here: Path) -> Path:
    """A lake with an adopted table, as somebody else finds it."""
    write_deltalake(str(here / "events"), pa.table({"id": [1, 2], "v": ["a", "b"]}))
    with Lake(here / "lake") as lake:
        lake.adopt("shop.events", here / "events", key="id")
        assert lake.sql("select count(*) as n from shop.events").to_pylist() == [{"n": 2}]
    return here


def test_who_adopted_a_table_may_open_it_again(adopted: Path) -> None:
    with Lake(adopted / "lake") as lake:
        lake.table("shop.events").upsert([{"id": 3, "v": "c"}])
        lake.table("shop.events").fold()
        assert lake.sql("select count(*) as n from shop.events").to_pylist() == [{"n": 3}]


def test_others_are_told_which_setting_allows_an_adopted_table(
    adopted: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with Lake(adopted / "lake") as lake:
        for operation in (lambda: lake.sql("select * from shop.events"), lambda: lake.drop_table("shop.events")):
            with pytest.raises(Unavailable, match=f"LITHIFY_ALLOWED_PATHS={adopted / 'events'}"):
                operation()
        assert lake.sql(f"select count(*) as n from {TABLE}").to_pylist() == [{"n": 8}]
        assert "shop.events" in lake.tables()

    monkeypatch.setenv("LITHIFY_ALLOWED_PATHS", f"{adopted / 'elsewhere'},{adopted / 'events'}")
    with Lake(adopted / "lake") as lake:
        assert lake.sql("select count(*) as n from shop.events").to_pylist() == [{"n": 2}]
        lake.drop_table("shop.events")
    assert (adopted / "events" / "_delta_log").is_dir()


def test_what_was_allowed_for_one_lake_is_not_for_another(adopted: Path) -> None:
    shutil.copytree(adopted / "lake", adopted / "copy")

    with Lake(adopted / "copy") as lake, pytest.raises(Unavailable, match="allowed_paths"):
        lake.sql("select * from shop.events")


def test_a_linked_namespace_is_one_of_the_lake_where_the_settings_allow_it(here: Path) -> None:
    lake, disk = here / "lake", here / "disk"
    disk.mkdir()
    (lake / "shop").rename(disk / "shop")
    (lake / "shop").symlink_to(disk / "shop")
    with Lake(lake, settings=Settings(**SETTINGS)) as refused:
        assert refused.tables() == []
        with pytest.raises(Corruption, match="is a link"):
            refused.table(TABLE)

    assert _refusals(_attempt(lake, allowed_paths=(disk,))) == {}
    assert (lake / "shop").is_symlink()


def test_linked_files_of_an_allowed_place_are_read_and_never_deleted(here: Path) -> None:
    lake, outside = here / "lake", Outside(here / "outside")
    next(attack for attack in ATTACKS if attack.name == "linked data").apply(lake, outside)
    before = outside.state()

    assert SECRET in _attempt(lake, allowed_paths=(outside.root,))["sql"]
    assert outside.state() == before


def test_a_folder_of_parquet_files_is_not_followed_out_of_when_it_is_adopted(here: Path) -> None:
    outside = Outside(here / "outside")
    (here / "given").mkdir()
    (here / "given" / "a.parquet").symlink_to(outside.parquet)

    with Lake(here / "lake") as lake, pytest.raises(Corruption, match="is a link"):
        lake.adopt("shop.given", here / "given", key="id")
    assert not (here / "lake/shop/given/base").exists()
