"""Pins and vacuums on a storage without locks: whatever sleeps or dies between any two requests, what a pin was handed
out for is there until it is given back (invariant 9).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import Any

import pytest

from lithify import Corruption, Lake, NotFound, Settings
from lithify.core.names import parse_table_name
from lithify.tables.doomed import Doomed, delete_listed, doomed_files
from lithify.tables.pins import pinned, pins_of
from lithify.tables.runtime import Owner, Runtime
from support.bucket import Bucket
from support.effort import examples
from support.interleaved import Schedule, TurnBucket, turn

NAME, TABLE_ID = parse_table_name("a.t"), "incarnation"
# The files of each version; nothing of them is live any more.
VERSIONS = {1: ("one", "both"), 2: ("two", "both"), 3: ("three",)}
FILES = frozenset(f"changes/{file}" for files in VERSIONS.values() for file in files)


class TableOfOld:
    """As much of a table's handles as pinning asks for."""

    name, incarnation = NAME, TABLE_ID

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.folder = runtime.root / "a" / "t" / "changes"

    def snapshot(self, as_of: int) -> Any:
        changes = [SimpleNamespace(path=path) for path in VERSIONS[as_of]]
        numbers = {"seq": as_of, "changes_version": as_of, "base_version": 0}
        return SimpleNamespace(table=str(NAME), table_id=TABLE_ID, changes=changes, base=[], remembered=(), **numbers)

    def check_present(self, snapshot: Any) -> None:
        for file in snapshot.changes:
            if not self.runtime.store.exists(self.folder / file.path):
                raise NotFound("vacuum has removed it")

    def there(self) -> frozenset[str]:
        return frozenset(f"changes/{name}" for name in self.runtime.store.names(self.folder))

    def vacuum(self, going: AbstractSet[str] = FILES) -> None:
        """As `Vacuum` does it. One with a longer retention finds less that goes, but takes over what others listed."""
        doomed = doomed_files(self.runtime, NAME, TABLE_ID)
        there = self.there()
        doomed = Doomed(doomed.lists, doomed.files & there)

        def pinned_files() -> AbstractSet[str]:
            return frozenset().union(*(pin.files for pin in pins_of(self.runtime, NAME)))

        def delete(paths: AbstractSet[str]) -> None:
            for path in sorted(paths):
                self.runtime.store.delete(self.folder / path.removeprefix("changes/"))

        # What others listed is judged with the rest, so that what is pinned now does not go.
        going = ((going & there) | doomed.files) - pinned_files()
        delete_listed(self.runtime, NAME, TABLE_ID, going, doomed, pinned_files, delete)


class Pins:
    """What was handed out and not given back, and whether it is all there."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket, self.held, self.count = bucket, list[tuple[int, Any]](), 0

    def use(self, table: TableOfOld, as_of: int) -> None:
        with contextlib.suppress(NotFound), pinned(table, as_of):  # type: ignore[arg-type]
            held = as_of, table.folder
            self.held.append(held)
            self.count += 1
            try:
                for _ in range(4):
                    turn()
            finally:
                self.held.remove(held)

    def check(self) -> None:
        for as_of, folder in self.held:
            there = Bucket.names(self._bucket, folder)
            assert set(VERSIONS[as_of]) <= set(there), f"version {as_of} is pinned, and only {there} is there"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    folder = tmp_path_factory.mktemp("doomed") / "lake"
    with Lake(folder, settings=Settings(lock_wait_s_max=3)) as lake:
        yield lake._runtime


class _Time:
    passed_s = 0.0

    def pause(self, seconds: float) -> None:
        self.passed_s += seconds
        turn(waits=True)


def tables_on(plain: Runtime, bucket: Bucket, number: int) -> list[TableOfOld]:
    """Of so many processes, each on a machine of its own."""
    found, time = [], _Time()
    for each in range(number):
        owner = Owner(f"machine-{each}", 7, "1")
        clock = {"monotonic_s": lambda: time.passed_s, "pause": time.pause}
        found.append(
            TableOfOld(dataclasses.replace(plain, root=bucket._root, store=bucket, owner=owner, _shared={}, **clock))
        )
    for path in sorted(FILES):
        bucket.put(found[0].folder / path.removeprefix("changes/"), b"rows")
    return found


@pytest.mark.parametrize("batch", range(8))
def test_what_is_pinned_is_there(plain: Runtime, tmp_path: Path, batch: int) -> None:
    number = examples(60, 5000)
    for seed in range(batch * number, (batch + 1) * number):
        bucket = TurnBucket(tmp_path)
        schedule, pins = Schedule(seed), Pins(bucket)
        vacuums, pinners = schedule.rng.choice([(2, 1), (2, 2), (3, 2)])
        tables = tables_on(plain, bucket, vacuums + pinners)
        for each, table in enumerate(tables[:vacuums]):
            going = FILES if not each or schedule.rng.random() < 0.5 else frozenset()
            schedule.actor(f"vacuum {each}", lambda table=table, going=going: table.vacuum(going))
        for each, table in enumerate(tables[vacuums:]):
            as_of = schedule.rng.choice(list(VERSIONS))
            schedule.actor(f"pin {each}", lambda table=table, as_of=as_of, pins=pins: pins.use(table, as_of))
        try:
            schedule.run(lambda name: name.startswith("vacuum"), pins.check)
            assert pins_of(tables[0].runtime, NAME) == []
            tables[0].vacuum()
            assert tables[0].there() == frozenset()
            assert bucket.names(tables[0].runtime.control / "doomed") == []
        except AssertionError as error:
            raise AssertionError(f"with the seed {seed}") from error


def test_many_of_these_schedules_hand_out_pins_beside_a_vacuum(plain: Runtime, tmp_path: Path) -> None:
    """That the test above is about something."""
    handed_out = deleted = 0
    for seed in range(20):
        (folder := tmp_path / str(seed)).mkdir()
        bucket = TurnBucket(folder)
        vacuuming, reading = tables_on(plain, bucket, 2)
        schedule, pins = Schedule(seed), Pins(bucket)
        schedule.actor("vacuum", vacuuming.vacuum)
        schedule.actor("pin", lambda table=reading, pins=pins: pins.use(table, 1))
        schedule.run(lambda name: False, pins.check)
        handed_out += pins.count
        deleted += "changes/one" not in vacuuming.there()
    assert handed_out > 2
    assert deleted > 2


@pytest.fixture
def table(plain: Runtime, tmp_path: Path) -> TableOfOld:
    return tables_on(plain, Bucket(tmp_path), 1)[0]


def listed(table: TableOfOld, files: AbstractSet[str]) -> None:
    """By a vacuum that died."""

    def die(paths: AbstractSet[str]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        delete_listed(table.runtime, NAME, TABLE_ID, files, Doomed(), frozenset, die)


def test_what_a_dead_vacuum_has_listed_cannot_be_pinned_and_the_next_one_deletes_it(table: TableOfOld) -> None:
    listed(table, {"changes/one"})
    refused = pytest.raises(NotFound, match=r"vacuum of a\.t is removing files of this version, e\.g\. changes/one")
    with refused, pinned(table, 1):  # type: ignore[arg-type]
        pass
    assert pins_of(table.runtime, NAME) == []
    with pinned(table, 2):  # type: ignore[arg-type]
        table.vacuum(frozenset())
    assert table.there() == FILES - {"changes/one"}
    assert table.runtime.store.names(table.runtime.control / "doomed") == []


def test_what_was_listed_and_is_pinned_from_before_stays_and_cannot_be_pinned_anew(table: TableOfOld) -> None:
    """The vacuum that listed it may be asleep, having found it unpinned."""
    with pinned(table, 1):  # type: ignore[arg-type]
        listed(table, {"changes/one", "changes/three"})
        table.vacuum(frozenset())
        assert table.there() == FILES - {"changes/three"}
        with pytest.raises(NotFound, match="is removing"), pinned(table, 1):  # type: ignore[arg-type]
            pass
    table.vacuum(frozenset())
    assert table.there() == FILES - {"changes/one", "changes/three"}


class Interrupted(Bucket):
    """Something happens at a step, or just before a list is read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.at: dict[str, Callable[[], None]] = {}

    def step(self, name: str) -> None:
        self.at.pop(name, lambda: None)()

    def read(self, path: PurePath) -> bytes:
        if path.parent.name == "doomed":
            self.step("list.read")
        return super().read(path)


@pytest.mark.parametrize("step", ["vacuum.doomed", "vacuum.spared"])
def test_at_no_time_of_a_take_over_can_what_was_listed_be_pinned(plain: Runtime, tmp_path: Path, step: str) -> None:
    bucket = Interrupted(tmp_path)
    vacuuming, reading = tables_on(plain, bucket, 2)
    refused = []

    def pin() -> None:
        with pytest.raises(NotFound, match="is removing"), pinned(reading, 1):  # type: ignore[arg-type]
            pass
        refused.append(step)

    with pinned(reading, 1):  # type: ignore[arg-type]
        listed(vacuuming, {"changes/one"})
        bucket.at[step] = pin
        vacuuming.vacuum()
    assert refused == [step]


def test_a_list_that_is_taken_over_while_a_pinner_reads_it_is_found_again(plain: Runtime, tmp_path: Path) -> None:
    bucket = Interrupted(tmp_path)
    vacuuming, reading = tables_on(plain, bucket, 2)
    listed(vacuuming, {"changes/one"})
    bucket.at["list.read"] = lambda: vacuuming.vacuum(frozenset())
    with pytest.raises(NotFound, match="is removing"), pinned(reading, 1):  # type: ignore[arg-type]
        pass


def test_a_list_of_a_table_that_was_dropped_dooms_nothing(table: TableOfOld) -> None:
    path = table.runtime.control / "doomed" / f"{NAME}-old.json"
    told = {"table": str(NAME), "table_id": "an earlier one", "nonce": "", "files": ["changes/one"]}
    table.runtime.store.put(path, json.dumps(told).encode())
    with pinned(table, 1):  # type: ignore[arg-type]
        pass
    table.vacuum(frozenset())
    assert table.there() == FILES
    assert not table.runtime.store.exists(path)


@pytest.mark.parametrize("text", ["", "[]", '{"files": 1}', '{"table_id": "x", "files": ["../../x"]}'])
def test_a_list_that_cannot_be_read_stops_vacuums_and_pins(table: TableOfOld, text: str) -> None:
    path = table.runtime.control / "doomed" / f"{NAME}-x.json"
    table.runtime.store.put(path, text.encode())
    with pytest.raises(Corruption, match="may name any file"):
        table.vacuum()
    with pytest.raises(Corruption, match="may name any file"), pinned(table, 1):  # type: ignore[arg-type]
        pass
    assert table.there() == FILES
