"""Acknowledged means durable (invariant 1): what was not fsynced is lost, and every acknowledged row is there."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Lake, LithifyError, Settings, Table
from lithify.files.local import LocalStorage
from support.bags import bag
from support.effort import Thinning
from support.faults import FaultyStore, Gate, RecordingStore
from support.folders import contents
from support.powercut import Disk

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("v", pa.string())])
SETTINGS = Settings(checkpoint_every=2)
DEFINITIONS: dict[str, dict[str, Any]] = {
    "keyed": {"key": "id"},
    "keyless": {},
    "by day": {"key": "id", "time": "day"},
}
OPERATIONS: dict[str, list[Callable[[Table], Any]]] = {
    "write and fold": [
        lambda t: t.append([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], missing="null"),
        lambda t: t.append([{"id": 3, "v": "c"}], missing="null"),
        lambda t: t.fold(),
        lambda t: t.append([{"id": 4, "v": "d"}], missing="null"),
        lambda t: t.delete([{"id": 2}]),
        lambda t: t.fold(),
        lambda t: t.append([{"id": 2, "v": "again"}], missing="null"),
    ],
    "add a column": [
        lambda t: t.append([{"id": 1, "v": "a"}], missing="null"),
        lambda t: t.add_column(pa.field("w", pa.int64())),
        lambda t: t.append([{"id": 5, "v": "e", "w": 1}], missing="null"),
        lambda t: t.fold(),
        lambda t: t.delete_where("id = 1"),
    ],
}


def rows(path: Path) -> Counter[Any] | None:
    """The table's rows as a new process finds them; None where it does not exist."""
    with Lake(path, settings=SETTINGS) as lake:
        return bag(lake.table("a.t").to_arrow().to_pylist()) if "a.t" in lake.tables() else None


def assert_usable(path: Path, expected: Counter[Any]) -> None:
    """A new process finds the rows; its next write, fold and read work, and no later write is swallowed."""
    with Lake(path, settings=SETTINGS) as lake:
        table = lake.table("a.t")
        assert bag(table.to_arrow().to_pylist()) == expected
        new = {**dict.fromkeys(table.schema.names), "id": 99, "v": "next"}
        table.append([new])
        assert bag(table.to_arrow().to_pylist()) == expected + bag([new])
        table.fold()
        assert bag(table.to_arrow().to_pylist()) == expected + bag([new])


def run(lake: Lake, definition: str, operations: str, on_acknowledged: Callable[[Counter[Any]], None]) -> None:
    table = lake.create_table("a.t", SCHEMA, **DEFINITIONS[definition])
    on_acknowledged(Counter())
    for operation in OPERATIONS[operations]:
        operation(table)
        on_acknowledged(bag(table.to_arrow().to_pylist()))


# In the fast suite the keyed table stands for all.
@pytest.mark.parametrize(
    ("definition", "operations"),
    [
        ("keyed", "write and fold"),
        ("keyed", "add a column"),
        *(pytest.param(name, "write and fold", marks=pytest.mark.slow) for name in DEFINITIONS if name != "keyed"),
    ],
)
def test_what_was_acknowledged_survives_a_power_cut(folder: Path, definition: str, operations: str) -> None:
    (folder / "disk").mkdir()
    cuts = 0

    def cut(acknowledged: Counter[Any]) -> None:
        nonlocal cuts
        cuts += 1
        left = disk.strict(folder / f"cut-{cuts}")
        assert_usable(left / "lake", acknowledged)

    with Disk(folder / "disk") as disk, Lake(folder / "disk" / "lake", settings=SETTINGS) as lake:
        run(lake, definition, operations, cut)

    assert cuts == 1 + len(OPERATIONS[operations])


@pytest.mark.slow
@pytest.mark.parametrize("operations", OPERATIONS)
def test_a_power_cut_at_any_moment_loses_nothing_acknowledged(folder: Path, operations: str) -> None:
    """Before each step and kind of storage call the power goes, and what was not fsynced is torn at random."""
    with Lake(folder / "rehearsal", settings=SETTINGS) as lake:
        states: list[Counter[Any] | None] = [None]
        run(lake, "keyed", operations, states.append)
    (folder / "disk").mkdir()
    acknowledged = 0
    cuts = 0
    wrong: list[str] = []
    known: set[Any] = set()  # many cuts leave the same

    def cut() -> None:
        nonlocal cuts
        for seed in (None, cuts):
            cuts += 1
            target = folder / "cut"
            left = disk.strict(target) if seed is None else disk.torn(target, seed)
            what = acknowledged, frozenset(contents(left).items())
            if what in known:
                shutil.rmtree(target)
                continue
            known.add(what)
            try:
                found = rows(left / "lake")
                assert found in states[acknowledged : acknowledged + 2]
                if found is not None:
                    assert_usable(left / "lake", found)
            except (LithifyError, AssertionError) as error:
                wrong.append(f"cut {cuts} after {acknowledged} operations, seed {seed}: {error}")
            shutil.rmtree(target)

    def acknowledge(_: Counter[Any]) -> None:
        nonlocal acknowledged
        acknowledged += 1

    with Disk(folder / "disk") as disk:
        Lake(folder / "disk" / "lake", settings=SETTINGS).close()
        store = Cutting(cut)
        with Lake(folder / "disk" / "lake", settings=SETTINGS, store=store) as lake:
            run(lake, "keyed", operations, acknowledge)
    assert cuts >= 80
    assert wrong == []


class Cutting(LocalStorage):
    """Acts at some steps of each class."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action, self._thinning = action, Thinning()

    def step(self, name: str) -> None:
        if self._thinning.takes(name):
            self._action()


@pytest.mark.parametrize("rival", ["append", "fold"])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_nothing_is_built_on_a_commit_that_a_power_cut_can_take_back(folder: Path, rival: str, seed: int) -> None:
    """A writer has committed but not fsynced yet; a rival goes on from there and is acknowledged (or about to be)."""
    (folder / "disk").mkdir()
    path = folder / "disk" / "lake"
    with Lake(path) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        table.append([{"id": 1, "v": "a"}], missing="null")
        table.fold()
    gate = Gate()
    left: list[Path] = []

    def cut() -> None:
        left.append(disk.torn(folder / f"cut-{len(left)}", seed))

    points = {"append": "write.committed", "fold": "fold.durable"}
    with Disk(folder / "disk") as disk, ThreadPoolExecutor(1) as pool:
        slow = Lake(path, store=FaultyStore("write.committed", gate.hold))
        writing = pool.submit(lambda: slow.table("a.t").append([{"id": 2, "v": "b"}], missing="null"))
        gate.wait()
        with Lake(path, store=FaultyStore(points[rival], cut)) as other:
            if rival == "append":
                other.table("a.t").append([{"id": 3, "v": "c"}], missing="null")
            else:
                other.table("a.t").fold()
            cut()
        gate.open()
        writing.result(60)
        slow.close()

    during, after = (rows(cut_path / "lake") for cut_path in left)
    one, two, three = ({"id": i, "day": None, "v": v} for i, v in ((1, "a"), (2, "b"), (3, "c")))
    if rival == "append":
        assert during in (bag([one, two]), bag([one, two, three]))
        assert after == bag([one, two, three])
    else:
        assert during == after == bag([one, two])
    for cut_path, found in zip(left, (during, after), strict=True):
        assert_usable(cut_path / "lake", found)


def test_a_replayed_batch_is_durable_when_it_is_acknowledged(folder: Path) -> None:
    """The first writer died before its fsync; the answer to the second acknowledges the same commit."""
    (folder / "disk").mkdir()
    path = folder / "disk" / "lake"

    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    with Disk(folder / "disk") as disk:
        with Lake(path) as lake:
            lake.create_table("a.t", SCHEMA)
        with Lake(path, store=FaultyStore("write.committed", die)) as lake, pytest.raises(Died):
            lake.table("a.t").append([{"id": 1}], batch_id="b")
        with Lake(path) as lake:
            assert lake.table("a.t").append([{"id": 1}], batch_id="b").replayed
        left = disk.strict(folder / "cut")

    assert rows(left / "lake") == bag([{"id": 1, "day": None, "v": None}])


def test_every_fsync_is_a_step(folder: Path) -> None:
    """So that the crash tests stop there too."""
    store = RecordingStore()
    with Lake(folder / "lake", store=store) as lake:
        lake.create_table("a.t", SCHEMA).append([{"id": 1}])
    assert store.points.count("store.sync") >= 10
