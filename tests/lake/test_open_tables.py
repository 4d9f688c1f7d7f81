"""The one cache of open tables: whoever uses a table, it is open at most twice, and nothing is done to one that was
dropped under the same name.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Lake, NotFound, Settings
from lithify.core.names import parse_table_name
from lithify.lake.maintenance import maintenance_of
from lithify.lake.open_tables import OpenTables
from lithify.tables import handles
from lithify.tables.handles import Handles

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
FOLDS_AT_ONCE = Settings(fold_files_max=1, loaded_tables_max=1)


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as other:
        for number in range(3):
            other.create_table(f"a.t{number}", SCHEMA, key="id").upsert([{"id": 1, "v": "x"}])
    with Lake(folder / "lake", settings=FOLDS_AT_ONCE) as opened:
        yield opened


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the tables whose logs were opened."""
    names: list[str] = []
    init = Handles.__init__

    def noted(self: Handles, runtime: Any, name: Any) -> None:
        init(self, runtime, name)
        names.append(str(name))

    monkeypatch.setattr(Handles, "__init__", noted)
    return names


def open_now(lake: Lake) -> list[str]:
    """Of each set of handles that somebody still has, but for those whose writer is about to end."""
    gc.collect()
    alive = [found() for found in handles._handles.valuerefs()]
    leaving = [left.handles for left in lake._loaded._leaving]
    mine = [found for found in alive if found is not None and found.runtime is lake._runtime]
    return sorted(str(found.name) for found in mine if found not in leaving)


def created_anew(lake: Lake, name: str) -> None:
    """By another process, as it were."""
    with Lake(lake.path) as other:
        other.drop_table(name)
        other.create_table(name, SCHEMA, key="id").upsert([{"id": 77, "v": "new"}])


USES: dict[str, Callable[[Lake], Any]] = {
    "a cycle": lambda lake: lake.upkeep(),
    "what a cycle would do": lambda lake: maintenance_of(lake).candidates(["a.t0"]),
    "a fold": lambda lake: lake.table("a.t0").fold(),
    "a compaction": lambda lake: lake.table("a.t0").compact(),
    "a vacuum": lambda lake: lake.table("a.t0").vacuum(dry_run=False),
    "a query": lambda lake: lake.sql("select * from a.t0"),
    "a write": lambda lake: lake.table("a.t0").upsert([{"id": 2, "v": "y"}]),
    "a pin in the cache": lambda lake: maintenance_of(lake).pin("a.t0"),
}


def test_a_table_is_open_at_most_twice_whoever_uses_it(lake: Lake) -> None:
    for use in USES.values():
        use(lake)
        assert open_now(lake).count("a.t0") <= 2

    assert open_now(lake).count("a.t0") == 2


def test_a_cycle_opens_no_table_a_second_time_and_unloads_none_of_those_in_use(lake: Lake, opened: list[str]) -> None:
    lake.sql("select * from a.t1")
    opened.clear()
    assert lake.upkeep().done == 3
    assert sorted(opened) == ["a.t0", "a.t1", "a.t2"]

    assert lake.upkeep().problems == ()

    assert len(opened) == 3
    assert lake._loaded.loaded() == ["a.t1"]


def test_work_that_is_asked_for_keeps_no_more_tables_open_than_may_be(lake: Lake) -> None:
    for name in lake.tables():
        lake.table(name).fold()

    assert open_now(lake) == ["a.t2", "a.t2"]


def test_what_nobody_uses_is_closed(lake: Lake) -> None:
    now_s = 0.0
    tables = OpenTables(lake._runtime, lambda: now_s)
    names = [parse_table_name(name) for name in lake.tables()]
    before = open_now(lake)
    for name in names:
        tables.background(name)
    tables.get(names[0])
    assert len(open_now(lake)) == len(before) + 4
    now_s = 1800.0
    tables.background(names[1])

    tables.refresh()

    assert tables.loaded() == []
    assert open_now(lake) == sorted([*before, "a.t1"])
    tables.close()
    assert open_now(lake) == before


def test_a_dropped_table_is_not_kept_open(lake: Lake) -> None:
    for use in USES.values():
        use(lake)

    lake.drop_table("a.t0")

    assert "a.t0" not in open_now(lake)


@pytest.mark.parametrize("use", USES)
def test_everything_is_done_to_the_table_that_has_the_name_today(use: str, lake: Lake) -> None:
    for each in USES.values():
        each(lake)
    before = lake.table("a.t0")
    created_anew(lake, "a.t0")

    USES[use](lake)

    with pytest.raises(NotFound, match=r"a\.t0 was dropped"):
        before.to_arrow()
    assert 77 in lake.table("a.t0").to_arrow()["id"].to_pylist()
    assert open_now(lake).count("a.t0") <= 2


def test_a_fold_follows_a_name_whose_old_table_only_background_work_had_open(lake: Lake) -> None:
    lake.table("a.t0").fold()
    lake.sql("select * from a.t1")  # now that of a.t0 is closed, for readers
    created_anew(lake, "a.t0")

    assert lake.table("a.t0").fold().final_rows == 1

    assert lake.table("a.t0").stats().pending_rows == 0


def test_a_table_object_that_nobody_holds_is_not_kept(lake: Lake) -> None:
    held, let_go = lake.table("a.t0"), weakref.ref(lake.table("a.t1"))

    assert lake.table("a.t0") is held
    assert let_go() is None
