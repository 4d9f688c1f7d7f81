"""Pinned snapshots keep their files from every vacuum, for as long as somebody holds them (invariant 9)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath
from typing import Any

import pytest

from lithify import Corruption, InvalidRequest, Lake, NotFound, Settings, Unavailable
from lithify.core.names import parse_table_name
from lithify.files.local import LocalStorage
from lithify.lake.internals import internals
from lithify.tables import pins
from support import children, vacuums
from support.clocks import Clock, lake_with
from support.faults import FaultyStore, Gate
from support.unchanged import nothing_changes
from support.vacuums import SCHEMA, data_files, ids, live_files, rows

pytestmark = pytest.mark.slow


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lake(folder: Path, clock: Clock) -> Iterator[Lake]:
    with lake_with(clock, folder / "lake") as lake:
        vacuums.fill(lake)
        yield lake


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.bucket)])
def either(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Lake]:
    """The same in a folder and in a bucket."""
    where = request.getfixturevalue("folder") / "lake" if request.param == "folder" else None
    with lake_with(clock, where or request.getfixturevalue("address")) as lake:
        vacuums.fill(lake)
        yield lake


def pin_files(lake: Lake) -> list[str]:
    store, folder = internals(lake).runtime.store, lake.path / "_lithify/pins"
    return [name for name in store.names(folder) if name.endswith(".json")]


def test_a_pinned_snapshot_outlives_a_vacuum_of_another_process(lake: Lake, clock: Clock, folder: Path) -> None:
    table = lake.table("a.t")
    with table.pin() as snapshot:
        table.upsert(rows(2, 3, v="later"))
        table.fold()
        child = children.start(vacuums.vacuum_ahead, str(lake.path), 200.0, scratch=folder)
        assert children.finish(child) == 0

        assert sorted(table.to_arrow(as_of=snapshot).column("id").to_pylist()) == [2, 3, 4]
        assert table.to_arrow(as_of=snapshot, where="v = 'later'").num_rows == 0
        assert sorted(table.to_arrow(as_of=snapshot.seq).column("v").to_pylist()) == ["x", "x", "y"]
        assert list((lake.path / "_lithify" / "pins").glob("*.json"))
    assert not list((lake.path / "_lithify" / "pins").glob("*.json"))
    del snapshot

    clock.jump(hours=200)
    report = table.vacuum(dry_run=False)
    assert (report.kept_by_pins, data_files(lake)) == (0, live_files(lake))


def test_a_pin_keeps_what_reading_its_seq_needs_later(either: Lake, clock: Clock) -> None:
    """After a fold of exactly the pinned seq, `as_of` reads base; a later fold replaces that."""
    table = either.table("a.t")
    with table.pin() as snapshot:
        seq = snapshot.seq
        table.fold()
        table.upsert(rows(2, 3, 4, v="later"))
        table.fold()
        del snapshot
        clock.jump(hours=200)

        report = table.vacuum(dry_run=False)

        assert report.kept_by_pins > 0
        assert ids(either, as_of=seq) == [2, 3, 4]


def test_a_pin_of_the_past(either: Lake, clock: Clock) -> None:
    table = either.table("a.t")
    with table.pin(as_of=1) as snapshot:
        clock.jump(hours=200)
        assert table.vacuum(dry_run=False).kept_by_pins == 1
        assert sorted(table.to_arrow(as_of=snapshot).column("id").to_pylist()) == [1, 2, 3]
    del snapshot
    table.vacuum(dry_run=False)
    with pytest.raises(NotFound, match="vacuum has removed"), table.pin(as_of=1):
        pass
    assert not pin_files(either)


def test_a_pin_of_the_past_waits_for_a_vacuum_that_is_deleting(lake: Lake, clock: Clock) -> None:
    gate, later = Gate(), Clock(200 * 3_600_000)
    impatient = Settings(lock_wait_s_max=0.05)
    with (
        ThreadPoolExecutor(1) as pool,
        lake_with(later, lake.path, store=FaultyStore("vacuum.delete", gate.hold)) as other,
        Lake(lake.path, settings=impatient) as reader,
    ):
        vacuuming = pool.submit(lambda: other.table("a.t").vacuum(dry_run=False))
        gate.wait()
        with pytest.raises(Unavailable, match=r"vacuum of a\.t"), reader.table("a.t").pin(as_of=1):
            pass
        with reader.table("a.t").pin() as snapshot:
            assert snapshot.seq == 4
        with pytest.raises(Unavailable, match=r"vacuum of a\.t"):
            reader.table("a.t").vacuum(dry_run=False)
        gate.open()
        vacuuming.result(60)


def test_a_snapshot_that_this_process_holds_keeps_its_files(either: Lake, clock: Clock) -> None:
    table = either.table("a.t")
    snapshot = table.snapshot(as_of=1)
    clock.jump(hours=200)

    assert table.vacuum(dry_run=False).kept_by_pins == 1
    assert sorted(table.to_arrow(as_of=snapshot).column("id").to_pylist()) == [1, 2, 3]
    del snapshot
    assert table.vacuum(dry_run=False).kept_by_pins == 0


def test_a_snapshot_of_another_table_is_refused(lake: Lake) -> None:
    other = lake.create_table("a.other", SCHEMA).snapshot()
    with pytest.raises(InvalidRequest, match="another table"):
        lake.table("a.t").to_arrow(as_of=other)


def a_pin(lake: Lake, **changed: Any) -> Path:
    """A pin of seq 1 that somebody else has left."""
    with lake.table("a.t").pin(as_of=1):
        (path,) = (lake.path / "_lithify" / "pins").glob("*.json")
        fields = json.loads(path.read_text())
    owner = {**fields["owner"], **changed.pop("owner", {})}
    path.write_text(json.dumps({**fields, **changed, "owner": owner}))
    return path


def test_a_pin_whose_owner_is_gone_keeps_nothing_and_is_removed(lake: Lake, clock: Clock) -> None:
    pin = a_pin(lake, owner={"started": "long ago"})
    clock.jump(hours=200)
    assert lake.table("a.t").vacuum().kept_by_pins == 0
    assert pin.exists(), "a dry run changes nothing"
    assert lake.table("a.t").vacuum(dry_run=False).files == 3
    assert not pin.exists()


@pytest.mark.parametrize(("hours", "files"), [(23, 1), (25, 0)])
def test_a_pin_of_another_host_lasts_a_day(lake: Lake, clock: Clock, hours: float, files: int) -> None:
    pin = a_pin(lake, owner={"host": "elsewhere"})
    clock.jump(hours=hours)
    assert lake.table("a.t").vacuum(1, dry_run=False).kept_by_pins == files
    assert pin.exists() is bool(files)


def test_a_pin_of_a_table_that_was_created_anew_keeps_nothing(lake: Lake, clock: Clock) -> None:
    a_pin(lake, table_id="an earlier one")
    clock.jump(hours=200)
    assert lake.table("a.t").vacuum(dry_run=False).files == 3


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": 1}'])
def test_a_pin_that_cannot_be_read_stops_the_vacuum(lake: Lake, clock: Clock, text: str) -> None:
    pin = a_pin(lake)
    pin.write_text(text)
    clock.jump(hours=200)
    with nothing_changes(lake), pytest.raises(Corruption, match=f"pin .*{pin.name} cannot be read"):
        lake.table("a.t").vacuum(dry_run=False)
    lake.create_table("a.other", SCHEMA).vacuum(dry_run=False)


def test_a_pin_is_renewed(folder: Path, lake: Lake, clock: Clock) -> None:
    with lake.table("a.t").pin(as_of=1):
        runtime = lake._runtime
        (pin,) = pins.pins_of(runtime, parse_table_name("a.t"))
        clock.jump(hours=20)
        renewed = pins.renew(runtime, pin)
        assert renewed.renewed_ms - pin.renewed_ms >= 20 * 3_600_000
        assert pins.pins_of(runtime, parse_table_name("a.t")) == [renewed]


def test_a_pin_that_cannot_be_removed_does_not_undo_what_was_done_under_it(folder: Path) -> None:
    """A restore is committed by then: an error would say that it is not."""

    class Stuck(LocalStorage):
        def delete(self, path: PurePath) -> None:
            if path.parent.name == "pins":
                raise Corruption(f"the disk reports an I/O error for {path}")
            super().delete(path)

    with Lake(folder / "lake", store=Stuck()) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        table.upsert(rows(1))
        table.upsert(rows(2))

        assert table.restore(1).deleted == 1

        assert table.to_arrow().column("id").to_pylist() == [1]
