"""What a process does when it is killed, and what must hold afterwards.

A scenario prepares a lake, then runs operations one after the other; each that returned is noted as acknowledged.
After a kill the lake must be in the state after the acknowledged operations, or after one more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from lithify import Lake, Settings
from lithify.files.local import LocalStorage
from lithify.maintenance.plans import MinorPlan
from lithify.maintenance.table_maintenance import TableMaintenance
from support.bags import bag
from support.faults import FaultyStore, RecordingStore, kill_process

KEYED = pa.schema([("id", pa.int64()), ("v", pa.string())])
ORDERED = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("v", pa.string())])
SETTINGS = Settings(actor="crash", checkpoint_every=2, pack_files_min=2, minor_files_min=2)

Operation = Callable[[Lake], Any]
State = dict[str, tuple[tuple[str, ...], Counter[Any]]]


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


def _put(*ids: int, v: str = "x") -> Operation:
    return lambda lake: lake.table("a.t").append(rows(*ids, v=v))


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


def _twice(operation: Operation) -> tuple[Operation, Operation]:
    return operation, operation


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("create", (_create,)),
        Scenario("append", (_put(1, 2), _put(1, 3)), (_create_keyless,)),
        Scenario("upsert", (_put(1, 2), _put(2, 3, v="y")), (_create, _put(0, 2))),
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
            (lambda lake: lake.table("a.t").optimize(by=["v", "id"]), _put(1, v="z")),
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
    )
}


def prepare(scenario: Scenario, path: Path) -> None:
    with Lake(path, settings=SETTINGS) as lake:
        for operation in scenario.prepare:
            operation(lake)


def state_of(lake: Lake) -> State:
    """Columns and rows of every table."""
    state = {}
    for name in lake.tables():
        found = lake.table(name).to_arrow()
        state[name] = tuple(found.column_names), bag(found.to_pylist())
    return state


def run_and_record(name: str, path: Path) -> tuple[list[tuple[str, int]], list[State]]:
    """The points of an undisturbed run, and the states before and after each operation."""
    store = RecordingStore()
    with Lake(path, settings=SETTINGS, store=store) as lake, Lake(path, settings=SETTINGS) as other:
        states = [state_of(other)]
        for operation in SCENARIOS[name].operations:
            operation(lake)
            states.append(state_of(other))
    return store.occurrences(), states


def run_until_killed(name: str, path: str, acknowledged: str, point: str, nth: int) -> None:
    """In a child: run the scenario and die at the point."""
    run(FaultyStore(point, kill_process, nth), name, path, acknowledged)


def run(store: LocalStorage, name: str, path: str, acknowledged: str) -> None:
    with Lake(path, settings=SETTINGS, store=store) as lake:
        for number, operation in enumerate(SCENARIOS[name].operations, 1):
            operation(lake)
            Path(acknowledged).write_text(str(number))


def open_until_killed(path: str, point: str, nth: int) -> None:
    """In a child: make a lake and die at the point."""
    Lake(path, store=FaultyStore(point, kill_process, nth))
