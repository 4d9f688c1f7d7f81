"""An erasure that ends anywhere is taken up again, and ends as if nothing had happened (E1, E5, E9)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from lithify import Lake, Table, Unavailable
from lithify.files.local import LocalStorage
from support.erasures import COLUMNS, NEW, OLD, SETTINGS, others, places_of, wanda
from support.faults import FaultyStore, RecordingStore, Stopped, stop

STEPS = ("seal", "fold", "inventory", "cut", "purge", "flush", "scan", "receipt", "forget", "end")
POINTS = (
    *("erase.needles", "erase.requested", "erase.hidden", *(f"erase.before-{step}" for step in STEPS)),
    *("cut.anchored", "vacuum.epoch", "vacuum.delete", "erase.vacuumed", "erase.scan", "erase.chained"),
)


def prepared(path: Path) -> None:
    with Lake(path, create=True, settings=SETTINGS) as lake:
        table = lake.create_table("shop.customers", COLUMNS, key="id")
        table.upsert(others(12))
        table.upsert(wanda(OLD))
        table.fold()
        table.upsert(wanda())


def test_these_are_all_points(folder: Path) -> None:
    prepared(folder / "lake")
    store = RecordingStore()
    with Lake(folder / "lake", settings=SETTINGS, store=store) as lake:
        lake.erase("shop.customers", keys=[42], history="cut").wait()
    passed = {point for point in store.points if point.startswith(("erase.", "cut."))}
    assert passed == {point for point in POINTS if not point.startswith("vacuum.")}
    assert {"vacuum.epoch", "vacuum.delete"} <= set(store.points)


@pytest.mark.parametrize("point", POINTS)
def test_stopped_at(folder: Path, point: str) -> None:
    prepared(folder / "lake")
    with Lake(folder / "lake", settings=SETTINGS, store=FaultyStore(point, stop)) as lake, pytest.raises(Stopped):
        lake.erase("shop.customers", keys=[42], history="cut").wait()

    with Lake(folder / "lake", settings=SETTINGS) as lake:
        table = lake.table("shop.customers")
        if point == "erase.needles":  # nothing counted yet
            assert (lake.erasures(), table.get(42) is not None) == ([], True)
            return
        (erasure,) = lake.erasures()
        assert erasure.wait().state == "done", (erasure.places, erasure.problems)
        assert erasure.verify().ok
        assert table.count() == 11
        assert places_of(folder, NEW, OLD, "Wanda") == []


class Disk(LocalStorage):
    full = False

    def step(self, name: str) -> None:
        if self.full and name == "store.write":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_told_and_it_goes_on_when_there_is_room(folder: Path) -> None:
    prepared(folder / "lake")
    disk = Disk()
    with Lake(folder / "lake", settings=SETTINGS, store=disk) as lake:
        erasure = lake.erase("shop.customers", keys=[42], history="cut")
        disk.full = True
        with pytest.raises(Unavailable):
            erasure.wait()
        disk.full = False
        assert erasure.state == "open"
        assert erasure.wait().state == "done"
        assert places_of(folder, NEW, OLD, "Wanda") == []


def test_a_scan_that_dies_says_nothing(lake: Lake, customers: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """E10: without an answer there is no receipt."""
    erasure = lake.erase("shop.customers", keys=[42], history="cut")
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(Unavailable, match="scan"):
        erasure.wait()
    assert (erasure.state, erasure.receipt) == ("open", None)
