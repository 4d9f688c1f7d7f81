"""A rewrite that ends anywhere is taken up again (E9), and after each single file operation of it every version can be
read, by us and by others, with no row there twice (E3).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lithify import Lake, Table, Unavailable
from lithify.files.local import LocalStorage
from support.effort import SOAK, Thinning, of_this_run, staged, thinned
from support.erasures import COLUMNS, NEW, OLD, SETTINGS, base_versions, others, places_of, told, wanda
from support.faults import FaultyStore, RecordingStore, Stopped, stop
from support.folders import memory_folder

BEGIN, END = "erase.before-rewrite", "erase.before-flush"
NAMED = (BEGIN, "rewrite.files", "rewrite.removed", "rewrite.named", "erase.before-purge", "erase.vacuumed", END)
FEW = SETTINGS.model_copy(update={"checkpoint_every": 4})


def prepared(path: Path) -> None:
    """Files of hers in base and in changes, live ones and replaced ones, in commits, checkpoints and a tag."""
    with Lake(path, create=True, settings=FEW) as lake:
        table = lake.create_table("shop.customers", COLUMNS, key="id")
        table.upsert(others(9))
        table.upsert(wanda(OLD))
        table.fold()
        table.tag("audit")
        for number in range(50, 54):
            table.upsert([{"id": number, "name": "x", "mail": f"{number}@example.org", "n": number}])
            table.fold()
        table.upsert(wanda())


def all_of_it(table: Table, seq: int) -> dict[str, Any]:
    return {**told(table, seq), "audit": sorted(map(repr, table.to_arrow(as_of="audit").to_pylist()))}


class Expected:
    def __init__(self, path: Path) -> None:
        prepared(path)
        with Lake(path, settings=FEW) as lake:
            table = lake.table("shop.customers")
            self.seq = table.snapshot().seq
            self.past = told(table, self.seq, 42)
            audit = table.to_arrow(as_of="audit").to_pylist()
            self.past["audit"] = sorted(repr(row) for row in audit if row["id"] != 42)
            self.base = {
                version: [row for row in rows if row["id"] != 42]
                for version, rows in base_versions(Path(table.base_path)).items()
            }

    def check_done(self, path: Path) -> None:
        with Lake(path, settings=FEW) as lake:
            table = lake.table("shop.customers")
            (erasure,) = lake.erasures()
            assert erasure.wait().state == "done", (erasure.places, erasure.problems)
            assert erasure.verify().ok
            assert all_of_it(table, self.seq) == self.past
            versions = base_versions(Path(table.base_path))
            assert {version: versions[version] for version in self.base} == self.base
        assert places_of(path, NEW, OLD, "Wanda") == []
        assert list(path.rglob("*.tmp")) == []

    def check_readable(self, path: Path) -> None:
        """With her or without, and nobody is there twice."""
        for version, rows in base_versions(path / "shop/customers/base").items():
            if version in self.base:
                assert [row for row in rows if row["id"] != 42] == self.base[version], version
                assert max(Counter(row["id"] for row in rows).values(), default=1) == 1
        with Lake(path, settings=FEW) as lake:
            table = lake.table("shop.customers")
            found = all_of_it(table, self.seq)
            for at, rows in found["rows"].items():
                assert [row for row in rows if "'id': 42," not in row] == self.past["rows"][at], at
                assert sum("'id': 42," in row for row in rows) <= 1
            assert [row for row in found["audit"] if "'id': 42," not in row] == self.past["audit"]
            assert [row for row in found["changes"] if "'id': 42," not in row] == self.past["changes"]


class Looking(LocalStorage):
    """Looks at everything before each file operation of the rewrite, which is after each but the last."""

    def __init__(self, path: Path, expected: Expected) -> None:
        self._path, self._expected, self._thinning = path, expected, Thinning()
        self._is_on = self._looks = False
        self.looked = 0

    def step(self, name: str) -> None:
        if self._looks:
            return
        if name in (BEGIN, END):
            self._is_on = name == BEGIN
        changes_something = name.startswith("store.") and name != "store.sync"
        if self._is_on and (name in NAMED or (changes_something and self._thinning.takes(name))):
            self._looks = True
            self._expected.check_readable(self._path)
            self._looks = False
            self.looked += 1


def test_every_version_can_be_read_after_each_file_operation(folder: Path) -> None:
    expected = Expected(folder / "lake")
    looking = Looking(folder / "lake", expected)
    with Lake(folder / "lake", settings=FEW, store=looking) as lake:
        lake.erase("shop.customers", keys=[42]).wait()
    assert looking.looked > 12
    expected.check_done(folder / "lake")


def points() -> list[tuple[str, str, int]]:
    """Every storage call from the rewrite to the end of the purge, with the step that came before it."""
    store = RecordingStore()
    with memory_folder() as folder:
        prepared(folder / "lake")
        with Lake(folder / "lake", settings=FEW, store=store) as lake:
            lake.erase("shop.customers", keys=[42]).wait()
    found, is_on = [], False
    for name, nth in store.occurrences():
        is_on = name == BEGIN or (is_on and name != END)
        if is_on:
            found.append((name, nth))
    return staged(found)


def test_a_crash_at_any_storage_call(folder: Path) -> None:
    calls = thinned(points(), lambda call: [call[:2]])
    assert len({step for step, _, _ in calls}) > 4
    for number, (step, call, nth) in enumerate(calls if SOAK else of_this_run(calls)):
        path = folder / str(number)
        expected = Expected(path)
        print(f"{call} {nth}, after {step}")
        with Lake(path, settings=FEW, store=FaultyStore(call, stop, nth)) as lake, pytest.raises(Stopped):
            lake.erase("shop.customers", keys=[42]).wait()
        expected.check_readable(path)
        expected.check_done(path)


@pytest.mark.parametrize("point", NAMED)
def test_stopped_twice_in_a_row(folder: Path, point: str) -> None:
    expected = Expected(folder / "lake")
    for number in range(2):
        store = FaultyStore(point, stop)
        with Lake(folder / "lake", settings=FEW, store=store) as lake, contextlib.suppress(Stopped):
            (lake.erasures() or [lake.erase("shop.customers", keys=[42])])[0].wait()
        assert store.reached or number
    expected.check_done(folder / "lake")


class FullAt(LocalStorage):
    """A disk on which the first write after a step has no room."""

    def __init__(self, point: str) -> None:
        self.point, self.is_next = point, False

    def step(self, name: str) -> None:
        self.is_next |= name == self.point
        if self.is_next and name == "store.write":
            self.point, self.is_next = "", False
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("point", ["erase.before-rewrite", "rewrite.files", "rewrite.removed", "rewrite.named"])
def test_a_full_disk_leaves_every_version_readable(folder: Path, point: str) -> None:
    expected = Expected(folder / "lake")
    with Lake(folder / "lake", settings=FEW, store=FullAt(point)) as lake:
        erasure = lake.erase("shop.customers", keys=[42])
        with pytest.raises(Unavailable):
            erasure.wait()
        expected.check_readable(folder / "lake")
    expected.check_done(folder / "lake")


def test_nothing_can_be_cancelled_once_the_past_is_being_written(folder: Path) -> None:
    from lithify import InvalidRequest

    expected = Expected(folder / "lake")
    store = FaultyStore("rewrite.removed", stop)
    with Lake(folder / "lake", settings=FEW, store=store) as lake, pytest.raises(Stopped):
        lake.erase("shop.customers", keys=[42]).wait()
    with Lake(folder / "lake", settings=FEW) as lake:
        (erasure,) = lake.erasures()
        with pytest.raises(InvalidRequest, match="no way back"):
            erasure.cancel()
    expected.check_done(folder / "lake")
