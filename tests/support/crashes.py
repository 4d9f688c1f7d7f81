"""What a process does when it is killed, and what must hold afterwards.

A scenario prepares a lake, then runs operations one after the other; each that returned is noted as acknowledged.
After a kill the lake must be in the state after the acknowledged operations, or after one more. It lies in a folder or
in a bucket: scenarios do not know.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lithify import Lake, Settings
from lithify.core.snapshot import ADOPTED
from lithify.files.storage import Storage
from lithify.maintenance.plans import MinorPlan
from lithify.maintenance.table_maintenance import TableMaintenance
from lithify.write.conditions import Write
from lithify.write.load import Bounds, load
from support.bags import bag
from support.clocks import HOUR_MS, Clock, lake_with
from support.faults import FaultyStore, RecordingStore, kill_process
from support.folders import put_text
from support.leftovers import cut_off_tags, never_committed, unsettled

KEYED = pa.schema([("id", pa.int64()), ("v", pa.string())])
ORDERED = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("v", pa.string())])
TINY = Bounds(file_bytes=16, run_bytes=32, range_bytes=16, held_bytes_max=16)
SETTINGS = Settings(actor="crash", checkpoint_every=2, pack_files_min=2, minor_files_min=2)

TIMED = pa.schema([("id", pa.int64()), ("v", pa.string()), ("at", pa.timestamp("us", "UTC"))])
LATER = Clock(48 * HOUR_MS)

Operation = Callable[[Lake], Any]
# Of each table: columns, rows, and the rows of each tag.
State = dict[str, tuple[tuple[str, ...], Counter[Any], dict[str, Counter[Any]]]]


@dataclass(frozen=True)
class Scenario:
    name: str
    operations: tuple[Operation, ...]
    prepare: tuple[Operation, ...] = field(default=())


def rows(*ids: int, v: str = "x") -> list[dict[str, Any]]:
    return [{"id": i, "v": v} for i in ids]


def _create(lake: Lake) -> Any:
    return lake.create_table("a.t", KEYED, key="id")


def _create_keyless(lake: Lake) -> Any:
    return lake.create_table("a.t", KEYED)


def _create_wide(lake: Lake) -> Any:
    return lake.create_table("a.t", KEYED.append(pa.field("w", pa.int32())), key="id")


def _put_wide(*ids: int, v: str = "x") -> Operation:
    return lambda lake: lake.table("a.t").append([{**row, "w": row["id"] * 10} for row in rows(*ids, v=v)])


def _put(*ids: int, v: str = "x") -> Operation:
    return lambda lake: lake.table("a.t").append(rows(*ids, v=v))


def _load(*ids: int, v: str) -> Operation:
    """As many rows would come: in several files, sorted on disk."""

    def operation(lake: Lake) -> Any:
        batches = [pa.Table.from_pylist(rows(i, v=v), KEYED) for i in ids]
        return load(lake.table("a.t")._internals.handles, batches, Write("upsert"), bounds=TINY)

    return operation


def _fold(lake: Lake) -> Any:
    return lake.table("a.t").fold()


def _compact(lake: Lake) -> Any:
    return lake.table("a.t").compact()


def _merge_changes(lake: Lake) -> Any:
    with lake.table("a.t")._internals.maintaining() as (handles, reader):
        work = TableMaintenance(handles, reader)
        for plan in work.plans(handles.runtime.now_ms()):
            if isinstance(plan, MinorPlan):
                work.run(plan)


def _optimize(lake: Lake) -> Any:
    return lake.table("a.t").optimize(by=["v", "id"])


def _vacuum(lake: Lake) -> Any:
    """Two days later."""
    with lake_with(LATER, lake.path, lake._runtime.settings, lake._runtime.store) as later:
        return later.table("a.t").vacuum(1, dry_run=False)


def _tag(name: str) -> Operation:
    return lambda lake: lake.table("a.t").tag(name)


def _untag(name: str) -> Operation:
    return lambda lake: lake.table("a.t").untag(name)


def _given(*ids: int, v: str) -> pa.Table:
    """Rows of one day."""
    at = dt.datetime(2026, 11, 14, tzinfo=dt.UTC)
    return pa.Table.from_pylist([{"id": i, "v": v, "at": at} for i in ids], TIMED)


def _with_files(take: Callable[[Lake, Path], Any], *tables: pa.Table) -> Operation:
    """Of a user, in a folder of this machine that goes away afterwards."""

    def operation(lake: Lake) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for number, table in enumerate(tables):
                pq.write_table(table, Path(folder) / f"{number}.parquet")
            take(lake, Path(folder))

    return operation


def _detach(lake: Lake) -> None:
    """What has gone out is not looked at here."""
    with tempfile.TemporaryDirectory() as folder:
        lake.table("a.t").detach("2026-11-14", Path(folder) / "day")


def _create_timed(lake: Lake) -> Any:
    return lake.create_table("a.t", TIMED, key="id", time="at")


def _attach(*tables: pa.Table) -> Operation:
    return _with_files(lambda lake, folder: lake.table("a.t").attach(folder), *tables)


_OTHER_DAY = [{"id": 7, "v": "y", "at": dt.datetime(2026, 11, 15, tzinfo=dt.UTC)}]


def _put_timed(lake: Lake) -> Any:
    return lake.table("a.t").upsert([*_given(1, 2, v="x").to_pylist(), *_OTHER_DAY])


def _twice(operation: Operation) -> tuple[Operation, Operation]:
    return operation, operation


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("create", (_create,)),
        Scenario("append", (_put(1, 2), _put(1, 3)), (_create_keyless,)),
        Scenario("upsert", (_put(1, 2), _put(2, 3, v="y")), (_create, _put(0, 2))),
        Scenario("load", (_load(1, 2, 5, v="y"), _load(7, 3, 9, 5, 3, v="z"), _fold), (_create, _put(0, 2))),
        Scenario(
            "replace",
            (
                lambda lake: lake.table("a.t").upsert([{"id": 1, "at": 5, "v": "new"}]),
                lambda lake: lake.table("a.t").replace([{"id": 1, "at": 1, "v": "corrected"}]),
            ),
            (lambda lake: lake.create_table("a.t", ORDERED, key="id", order_by="at"),),
        ),
        Scenario(
            "delete",
            (lambda lake: lake.table("a.t").delete([1]), lambda lake: lake.table("a.t").delete([2, 9])),
            (_create, _put(1, 2, 3)),
        ),
        Scenario(
            "delete_where",
            (lambda lake: lake.table("a.t").delete_where("id > 2"), _put(3, v="again")),
            (_create, _put(1, 2, 3, 4)),
        ),
        Scenario(
            "add_column",
            (
                lambda lake: lake.table("a.t").add_column(pa.field("w", pa.int64())),
                lambda lake: lake.table("a.t").upsert([{"id": 2, "v": "x", "w": 1}]),
            ),
            (_create, _put(1, 2), _fold, _put(2, v="y")),
        ),
        Scenario(
            "rename_column",
            (
                lambda lake: lake.table("a.t").rename_column("w", "x"),
                lambda lake: lake.table("a.t").update([{"id": 2, "x": 7}]),
                lambda lake: lake.table("a.t").alter_column("x", type="int64"),
            ),
            (_create_wide, _put_wide(1, 2), _fold, _put_wide(3), _put_wide(2, v="y")),
        ),
        Scenario(
            "drop_column",
            (
                lambda lake: lake.table("a.t").drop_column("w"),
                _put(2, v="z"),
                lambda lake: lake.table("a.t").add_column(pa.field("w", pa.string())),
            ),
            (
                _create_wide,
                _put_wide(1, 2),
                _fold,
                _put_wide(2, 3, v="y"),
                lambda lake: lake.table("a.t").update([{"id": 1, "w": 5}]),
            ),
        ),
        Scenario("drop", (lambda lake: lake.drop_table("a.t"), _create), (_create, _put(1), _fold, _put(2))),
        Scenario("fold_links", _twice(_fold), (_create, _put(1, 2), _put(3, 4))),
        Scenario(
            "fold_rewrites",
            (_fold, _put(2, v="z"), _fold),
            (_create, _put(*range(20)), _fold, _put(2, 25, v="y"), lambda lake: lake.table("a.t").delete([3])),
        ),
        Scenario(
            "compact",
            (_compact, _put(1, 31, v="z"), _fold),
            (_create, _put(1, 2), _fold, _put(11, 12), _fold, _put(21), _fold, _put(2, v="pending")),
        ),
        Scenario(
            "cluster",
            (_optimize, _put(1, v="z")),
            (_create, _put(1, 2), _fold, _put(11, 12, v="b"), _fold),
        ),
        Scenario(
            "merge_changes",
            (_merge_changes, _put(2, v="z"), _fold),
            (_create, _put(1, 2), _fold, _put(2, v="y"), _put(3), lambda lake: lake.table("a.t").delete([1]), _put(4)),
        ),
        Scenario(
            "fold_without_key",
            (_fold, _put(4)),
            (
                _create_keyless,
                _put(1, 1, 2),
                _fold,
                _put(3),
                lambda lake: lake.table("a.t").delete([{"id": 1}]),
                _put(1),
            ),
        ),
        Scenario(
            "vacuum",
            (_vacuum, _put(2, v="z"), _vacuum),
            (_create, _put(1, 2), _fold, _put(2, v="y"), _fold, _tag("kept"), _put(2, 3, v="w"), _fold, _put(4)),
        ),
        Scenario(
            "tag",
            (_tag("one"), _put(1, v="z"), _untag("one"), _tag("one")),
            (_create, _put(1, 2), _fold, _put(3)),
        ),
        Scenario(
            "adopt",
            (
                _with_files(
                    lambda lake, folder: lake.adopt("a.t", folder, key="id"), _given(1, 2, v="x"), _given(3, v="y")
                ),
                lambda lake: lake.table("a.t").upsert(_given(3, 4, v="z")),
            ),
        ),
        Scenario("attach", _twice(_attach(_given(1, v="x"), _given(2, 3, v="y"))), (_create_timed, _put_timed, _fold)),
        Scenario("detach", (_detach, _put_timed), (_create_timed, _put_timed)),
    )
}


def prepare(scenario: Scenario, path: Path | str, settings: Settings = SETTINGS) -> None:
    with Lake(path, settings=settings) as lake:
        for operation in scenario.prepare:
            operation(lake)


def state_of(lake: Lake) -> State:
    """Columns, rows and tags of every table."""
    state = {}
    for name in lake.tables():
        table = lake.table(name)
        found = table.to_arrow()
        tags = {tag.name: bag(table.to_arrow(as_of=tag.name).to_pylist()) for tag in table.tags()}
        state[name] = tuple(found.column_names), bag(found.to_pylist()), tags
    return state


def run_and_record(name: str, path: Path) -> tuple[list[tuple[str, int]], list[State]]:
    """The points of an undisturbed run, and the states before and after each operation."""
    store = RecordingStore()
    states = states_of_run(name, path, store)
    return store.occurrences(), states


def states_of_run(
    name: str, path: Path | str, store: Storage | None = None, settings: Settings = SETTINGS
) -> list[State]:
    with Lake(path, settings=settings, store=store) as lake, Lake(path, settings=settings) as other:
        states = [state_of(other)]
        for operation in SCENARIOS[name].operations:
            operation(lake)
            states.append(state_of(other))
    return states


def run_until_killed(name: str, path: str, acknowledged: str, point: str, nth: int) -> None:
    """In a child: run the scenario and die at the point."""
    run(FaultyStore(point, kill_process, nth), name, path, acknowledged)


def run(store: Storage, name: str, path: str, acknowledged: str, settings: Settings = SETTINGS) -> None:
    with Lake(path, settings=settings, store=store) as lake:
        for number, operation in enumerate(SCENARIOS[name].operations, 1):
            operation(lake)
            put_text(Path(acknowledged), str(number))


def open_until_killed(path: str, point: str, nth: int) -> None:
    """In a child: make a lake and die at the point."""
    Lake(path, store=FaultyStore(point, kill_process, nth))


def assert_nothing_is_lost(
    path: Path | str, files: Path, acknowledged: Path, states: list[State], what: str, settings: Settings = SETTINGS
) -> None:
    """Of what a kill has left: the rows and tags are there, work goes on, and a vacuum two days later clears the rest
    away. `files`: where what lies in the lake can be looked at.
    """
    done = int(acknowledged.read_text()) if acknowledged.exists() else 0
    with Lake(path, settings=settings) as lake:
        found = state_of(lake)
        assert found in states[done : done + 2], f"{what} after {done} operations"
        before = found["a.t"][1] if "a.t" in found else Counter()
        table = _create(lake) if "a.t" not in lake.tables() else lake.table("a.t")
        new = {**dict.fromkeys(table.schema.names), "id": 1000, "v": "next"}
        expected = before + bag([new])

        table.append([new])
        table.fold()

        columns = tuple(table.schema.names)
        if "a.t" in found and columns != found["a.t"][0]:
            # A change of columns whose first half stood has come to its end.
            assert found == states[done], what
            assert columns == states[done + 1]["a.t"][0], what
            expected = states[done + 1]["a.t"][1] + bag([{**dict.fromkeys(columns), "id": 1000, "v": "next"}])
        assert bag(table.to_arrow().to_pylist()) == expected, what
        assert table.stats().pending_files == 0, what
        assert [left for left in unsettled(files) if f"/{ADOPTED}-" not in left] == [], what
    with lake_with(LATER, lake.path, settings) as later:
        later.table("a.t").vacuum(1, dry_run=False)
        assert unsettled(files) == never_committed(files) == cut_off_tags(files) == [], what
        assert bag(later.table("a.t").to_arrow().to_pylist()) == expected, what
        tags = found["a.t"][2] if "a.t" in found else {}
        assert state_of(later)["a.t"][2] == tags, what
