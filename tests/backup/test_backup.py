"""A lake that is lost comes back as it was, from copies that were made while it was written to."""

from __future__ import annotations

import datetime as dt
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lithify import (
    Corruption,
    InvalidRequest,
    Lake,
    LithifyError,
    NotFound,
    Settings,
    Table,
    create_backup,
    remove_backups,
    restore_backup,
    verify_backup,
)
from lithify.backup import create
from lithify.backup.place import BackupPlace
from lithify.errors import Conflict, Unavailable
from lithify.files.local import LocalStorage
from lithify.files.user_files import named_place
from lithify.tables.runtime import Owner
from support.clocks import HOUR_MS, Clock, lake_with

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
SETTINGS = Settings(cache_bytes_max=0)


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake", create=True, settings=SETTINGS) as opened:
        yield opened


@pytest.fixture
def backups(folder: Path) -> Path:
    return folder / "backups"


def rows(*ids: int, v: str = "a") -> list[dict[str, Any]]:
    return [{"id": id, "v": v} for id in ids]


def filled(lake: Lake, name: str = "shop.orders") -> Table:
    """Rows in base and pending ones, some of them deleted."""
    table = lake.create_table(name, SCHEMA, key="id")
    table.upsert(rows(*range(100)))
    table.fold()
    table.upsert(rows(3, 4, 200, v="b"), batch_id="once")
    table.delete([5, 6])
    return table


def content(table: Table, as_of: int | None = None) -> list[dict[str, Any]]:
    return table.to_arrow(as_of=as_of).sort_by("id").to_pylist()


def test_what_comes_back_is_what_was_there_and_goes_on(lake: Lake, backups: Path, folder: Path) -> None:
    table = filled(lake)
    before = content(table)
    made = create_backup(lake, backups)
    table.upsert(rows(999))

    back = restore_backup(backups, folder / "restored")

    assert (made.tables, back.tables, back.id) == (1, 1, made.id)
    with Lake(folder / "restored", create=False, settings=SETTINGS) as restored:
        again = restored.table("shop.orders")
        assert content(again) == before
        assert again.upsert(rows(3, 4, 200, v="b"), batch_id="once").replayed, "it knows what was written"
        again.upsert(rows(7, v="c"))
        assert again.get(7) == {"id": 7, "v": "c"}
        again.fold()
        assert again.vacuum(retain_hours=1, dry_run=False) is not None
        assert restored.sql("select count(*) as n from shop.orders").to_pylist() == [{"n": len(before)}]
        files = DeltaTable(str(again.base_path)).file_uris()
        assert duckdb.sql(f"select count(*) from read_parquet({files})").fetchall() == [(len(before),)]


def test_every_kind_of_table(lake: Lake, backups: Path, folder: Path) -> None:
    at = dt.datetime(2026, 11, 15, tzinfo=dt.UTC)
    timed = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    made = {
        "a.ordered": lake.create_table("a.ordered", timed, key="id", order_by="at"),
        "a.timed": lake.create_table("a.timed", timed, time="at"),
        "a.parted": lake.create_table("a.parted", timed, key="id", partition_by=("n",)),
        "a.summed": lake.create_table("a.summed", timed, key="id", merge_rules={"n": "sum"}),
    }
    for table in made.values():
        given = [{"id": n, "at": at + dt.timedelta(days=n), "n": n % 2} for n in range(6)]
        table.append(given) if table.definition.key == () else table.upsert(given)
        table.fold()
        if table.definition.key:
            table.upsert([{"id": 1, "at": at, "n": 7}])
    lake.create_table("a.empty", SCHEMA, key="id")
    create_backup(lake, backups)
    restore_backup(backups, folder / "restored")
    with Lake(folder / "restored", create=False, settings=SETTINGS) as restored:
        assert restored.tables() == lake.tables()
        for name, table in made.items():
            assert content(restored.table(name)) == content(table), name
        assert restored.table("a.empty").count() == 0


def test_only_what_is_new_is_copied(lake: Lake, backups: Path) -> None:
    table = filled(lake)
    first = create_backup(lake, backups)
    same = create_backup(lake, backups)
    table.upsert(rows(300))
    more = create_backup(lake, backups)
    assert first.files_copied > 1
    assert (same.files_copied, same.bytes_copied) == (0, 0)
    assert more.files_copied == 1
    assert [each.id for each in BackupPlace(backups).manifests()] == [first.id, same.id, more.id]


def test_bytes_that_go_bad_in_the_lake_are_good_in_the_backup(lake: Lake, backups: Path, folder: Path) -> None:
    table = filled(lake)
    before = content(table)
    create_backup(lake, backups)
    for file in (folder / "lake" / "shop").rglob("*.parquet"):
        with file.open("r+b") as opened:
            opened.write(b"XXXX")
    restore_backup(backups, folder / "restored")
    with Lake(folder / "restored", create=False, settings=SETTINGS) as restored:
        assert content(restored.table("shop.orders")) == before


def test_while_it_is_written_to_folded_and_vacuumed(backups: Path, folder: Path) -> None:
    """Each backup is a state that was acknowledged: the rows as of its seq, no more and no less."""
    lake = lake_with(Clock(2 * HOUR_MS), folder / "lake", SETTINGS)  # what was removed is old enough at once
    table = lake.create_table("shop.orders", SCHEMA, key="id")
    table.upsert(rows(*range(50)))
    stop, failed, vacuumed = threading.Event(), list[BaseException](), list[int]()
    states = {table.snapshot().seq: content(table)}

    def churn() -> None:
        number = 0
        try:
            while not stop.is_set() and number < 100:  # before the log is trimmed, by the same clock
                number += 1
                seq = table.upsert(rows(number % 60, v=f"{number}")).seq
                states[seq] = content(table, seq)
                if number % 3 == 0:
                    table.fold()
                    vacuumed.append(table.vacuum(retain_hours=1, dry_run=False).files)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        made = [create_backup(lake, backups) for _ in range(4)]
    finally:
        stop.set()
        thread.join()
        lake.close()
    assert (failed, sum(vacuumed) > 0) == ([], True)
    for number, each in enumerate(made):
        assert verify_backup(backups, each.id)[1] == []
        restore_backup(backups, folder / f"restored-{number}", each.id)
        with Lake(folder / f"restored-{number}", create=False, settings=SETTINGS) as restored:
            again = restored.table("shop.orders")
            assert content(again) == states[again.snapshot().seq]


def test_no_vacuum_takes_what_is_being_copied(backups: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, removed = create.transfer, list[int]()
    with lake_with(Clock(2 * HOUR_MS), folder / "lake", SETTINGS) as lake:
        table = filled(lake)
        before = content(table)

        def meanwhile(*arguments: Any) -> str:
            if not removed:
                assert list((folder / "lake" / "_lithify" / "pins").iterdir()), "other processes are told, too"
                table.upsert(rows(*range(100), v="new"))
                table.fold()
                removed.append(table.vacuum(retain_hours=1, dry_run=False).files)
            return real(*arguments)

        monkeypatch.setattr(create, "transfer", meanwhile)
        create_backup(lake, backups)
    restore_backup(backups, folder / "restored")
    with Lake(folder / "restored", create=False, settings=SETTINGS) as restored:
        assert content(restored.table("shop.orders")) == before


def damage(backups: Path, kind: str) -> Path:
    file = next(path for path in sorted((backups / kind).rglob("*")) if path.is_file())
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    return file


@pytest.mark.parametrize("kind", ["data", "logs"])
def test_a_flipped_bit_is_found_and_nothing_is_restored(lake: Lake, backups: Path, folder: Path, kind: str) -> None:
    filled(lake)
    create_backup(lake, backups)
    bad = damage(backups, kind)
    assert [str(bad) in problem for problem in verify_backup(backups)[1]] == [True]
    with pytest.raises(Corruption, match=str(bad)):
        restore_backup(backups, folder / "restored")
    with pytest.raises(LithifyError):
        Lake(folder / "restored", create=False)


def test_a_file_that_is_missing_is_found(lake: Lake, backups: Path) -> None:
    filled(lake)
    create_backup(lake, backups)
    gone = next((backups / "data").rglob("*.parquet"))
    gone.unlink()
    assert [str(gone) in problem for problem in verify_backup(backups)[1]] == [True]
    assert create_backup(lake, backups).files_copied == 1, "the next one has it again"
    assert verify_backup(backups)[1] == []


def test_one_that_dies_half_way_is_none_and_the_next_one_is_whole(
    lake: Lake, backups: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(filled(lake))
    copied = list[object]()
    real = create.transfer

    def dying(*arguments: Any) -> str:
        copied.append(arguments)
        if len(copied) > 1:
            raise OSError(28, "No space left on device")
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(create, "transfer", dying)
        with pytest.raises(OSError, match="No space left"):
            create_backup(lake, backups)
    with pytest.raises(NotFound, match="no backup that was finished"):
        restore_backup(backups, folder / "restored")
    create_backup(lake, backups)
    restore_backup(backups, folder / "restored")
    with Lake(folder / "restored", create=False, settings=SETTINGS) as restored:
        assert content(restored.table("shop.orders")) == before


def test_removing_leaves_what_other_backups_need(lake: Lake, backups: Path) -> None:
    table = filled(lake)
    ids = [create_backup(lake, backups).id]
    for number in (300, 301):
        table.upsert(rows(number))
        table.fold()
        ids.append(create_backup(lake, backups).id)
    gone, deleted = remove_backups(backups, keep=1)
    assert (gone, deleted > 0) == (ids[:2], True)
    assert BackupPlace(backups).ids() == ids[2:]
    assert verify_backup(backups)[1] == []
    named = {str(path) for path, _ in BackupPlace(backups).files_of(BackupPlace(backups).manifest())}
    there = {str(path) for kind in ("data", "logs") for path in (backups / kind).rglob("*") if path.is_file()}
    assert there == named


def test_one_backup_is_made_or_removed_at_a_time(lake: Lake, backups: Path) -> None:
    filled(lake)
    create_backup(lake, backups)
    create_backup(lake, backups)
    with BackupPlace(backups).alone("backup x"):
        for call in (lambda: remove_backups(backups, keep=1), lambda: create_backup(lake, backups)):
            with pytest.raises(Conflict, match=r"is being made or removed in .*backup x, process"):
                call()
    assert len(BackupPlace(backups).ids()) == 2
    remove_backups(backups, keep=1)


@pytest.mark.parametrize(("host", "goes_on"), [(None, True), ("elsewhere", False)])
def test_what_a_dead_process_left_is_passed_over_where_that_is_known(
    lake: Lake, backups: Path, host: str | None, goes_on: bool
) -> None:
    filled(lake)
    create_backup(lake, backups)
    dead = {"what": "backup x", "host": host or socket.gethostname(), "pid": 2**22 + 1, "started": "1"}
    (backups / "busy.json").write_text(json.dumps(dead))
    if goes_on:
        create_backup(lake, backups)
        return
    with pytest.raises(Conflict, match="if that process is gone, delete"):
        create_backup(lake, backups)


def both_take_over(place: Path | str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What becomes of two who find the mark of a dead process: the second comes while the first looks at it."""
    first, second = BackupPlace(named_place(place)), BackupPlace(named_place(place))
    first.prepare()
    dead = {"what": "backup x", "host": socket.gethostname(), "pid": 2**22 + 1, "started": "1"}
    first.store.put(first.path / "busy.json", json.dumps(dead).encode())
    outcomes: list[str] = []
    decided, both = threading.Event(), threading.Barrier(2, timeout=30)

    def settle(outcome: str) -> None:
        outcomes.append(outcome)
        decided.set()
        both.wait()

    def take(kept: BackupPlace) -> None:
        try:
            with kept.alone("backup y"):
                settle("alone")
        except Conflict as error:
            settle("refused" if "is being made or removed" in str(error) else str(error))

    threads = [threading.Thread(target=take, args=(kept,)) for kept in (first, second)]
    looks, may_be_alive = iter(["the first one"]), Owner.may_be_alive

    def looking(owner: Owner) -> bool:
        alive = may_be_alive(owner)
        if next(looks, None):
            threads[1].start()
            decided.wait(0.5)  # where the first one holds a lock meanwhile, the second one cannot decide
        return alive

    monkeypatch.setattr(Owner, "may_be_alive", looking)
    threads[0].start()
    threads[0].join(30)
    threads[1].join(30)
    return sorted(outcomes)


def test_of_two_who_find_what_a_dead_process_left_one_goes_on(backups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert both_take_over(backups, monkeypatch) == ["alone", "refused"]


@pytest.mark.bucket
def test_of_two_who_find_it_in_a_bucket_one_goes_on(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert both_take_over(f"{address}/backups", monkeypatch) == ["alone", "refused"]


def test_what_one_that_died_has_copied_serves_the_next(
    lake: Lake, backups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(lake)
    with monkeypatch.context() as patch:
        patch.setattr(BackupPlace, "write", lambda *arguments: (_ for _ in ()).throw(OSError("died")))
        with pytest.raises(OSError, match="died"):
            create_backup(lake, backups)
    assert create_backup(lake, backups).files_copied == 0
    assert verify_backup(backups)[1] == []
    for file in (backups / "data").rglob("*.parquet"):
        file.write_bytes(b"X" * file.stat().st_size)
    for file in (backups / "backups").iterdir():
        file.unlink()
    assert create_backup(lake, backups).files_copied > 0, "what is not the same is copied again"
    assert verify_backup(backups)[1] == []


def test_a_manifest_that_cannot_be_read_stops_no_other_backup(lake: Lake, backups: Path) -> None:
    filled(lake)
    create_backup(lake, backups)
    (backups / "backups" / "20200101T000000000Z-aaaaaa.json").write_text("{")
    create_backup(lake, backups)
    with pytest.raises(Corruption, match="delete this file if it is of no use"):
        remove_backups(backups, BackupPlace(backups).ids()[1:2])
    assert len(BackupPlace(backups).ids()) == 3, "nothing is removed while something cannot be read"
    assert remove_backups(backups, ["20200101T000000000Z-aaaaaa"])[0] == ["20200101T000000000Z-aaaaaa"]
    assert verify_backup(backups)[1] == []


def test_some_tables(lake: Lake, backups: Path, folder: Path) -> None:
    for name in ("a.x", "a.y", "b.z"):
        filled(lake, name)
    create_backup(lake, backups, ["a.x", "b.z"])
    restore_backup(backups, folder / "restored", tables=["b.z"])
    with Lake(folder / "restored", create=False, settings=SETTINGS) as restored:
        assert restored.tables() == ["b.z"]
    with pytest.raises(NotFound, match=r"has no table a\.y: it has a\.x, b\.z"):
        restore_backup(backups, folder / "other", tables=["a.y"])
    with pytest.raises(NotFound, match=r"table a\.none does not exist"):
        create_backup(lake, backups, ["a.none"])
    assert not (folder / "other").exists()


def test_an_adopted_table_is_told_to_be_left_out(lake: Lake, backups: Path, folder: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(str(folder / "events"), pa.table({"id": [1, 2]}))
    lake.adopt("s.events", str(folder / "events"), key="id")
    filled(lake)
    made = create_backup(lake, backups)
    assert (made.tables, list(made.left_out)) == (1, ["s.events"])
    assert "adopted" in made.left_out["s.events"]


WRONG: dict[str, tuple[Callable[[Lake, Path, Path], object], type[LithifyError], str]] = {
    "a place with something else": (
        lambda lake, backups, folder: create_backup(lake, lake.path.parent / "full"),
        InvalidRequest,
        "holds something that is no backup",
    ),
    "a place inside of the lake": (
        lambda lake, backups, folder: create_backup(lake, lake.path / "backups"),
        InvalidRequest,
        "lie in each other",
    ),
    "a place that a link leads into the lake": (
        lambda lake, backups, folder: create_backup(lake, folder / "link" / "backups"),
        InvalidRequest,
        "lie in each other",
    ),
    "into the backups": (
        lambda lake, backups, folder: restore_backup(backups, backups / "data" / "mine"),
        InvalidRequest,
        "lie in each other",
    ),
    "onto a lake": (
        lambda lake, backups, folder: restore_backup(backups, lake.path),
        InvalidRequest,
        "is there already",
    ),
    "an id that is not there": (
        lambda lake, backups, folder: restore_backup(backups, folder / "new", "20200101T000000000Z-000000"),
        NotFound,
        "no backup '20200101T000000000Z-000000'",
    ),
    "a place without backups": (
        lambda lake, backups, folder: restore_backup(folder / "nowhere", folder / "new"),
        NotFound,
        "holds no backups",
    ),
    "to remove none": (
        lambda lake, backups, folder: remove_backups(backups, keep=0),
        InvalidRequest,
        "at least 1",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_is_refused_and_changes_nothing(lake: Lake, backups: Path, folder: Path, case: str) -> None:
    filled(lake)
    create_backup(lake, backups)
    (folder / "full").mkdir()
    (folder / "full" / "letters.txt").write_text("mine")
    (folder / "link").symlink_to(folder / "lake")
    before = sorted(str(path) for path in folder.rglob("*"))
    call, error, said = WRONG[case]
    with pytest.raises(error, match=said):
        call(lake, backups, folder)
    assert sorted(str(path) for path in folder.rglob("*")) == before


@pytest.mark.parametrize("path", ["../../outside", "/etc/passwd", "a/../../b", ""])
def test_a_manifest_leads_nowhere_else(lake: Lake, backups: Path, folder: Path, path: str) -> None:
    filled(lake)
    made = create_backup(lake, backups)
    file = backups / "backups" / f"{made.id}.json"
    document = json.loads(file.read_bytes())
    document["tables"]["shop.orders"]["data"]["base"][0]["path"] = path
    file.write_text(json.dumps(document))
    with pytest.raises(Corruption, match="cannot be read"):
        restore_backup(backups, folder / "restored")
    assert not (folder / "restored").exists()


@pytest.mark.bucket
@pytest.mark.parametrize("way", ["to", "from"])
def test_to_and_from_a_bucket(address: str, folder: Path, way: str) -> None:
    here, there = str(folder / "place"), f"{address}/place"
    source, backups = (here, there) if way == "to" else (there, here)
    with Lake(source, create=True, settings=SETTINGS) as lake:
        before = content(filled(lake))
        create_backup(lake, backups)
        assert create_backup(lake, backups).files_copied == 0
    assert verify_backup(backups)[1] == []
    restore_backup(backups, f"{address}/restored")
    with Lake(f"{address}/restored", create=False, settings=SETTINGS) as restored:
        table = restored.table("shop.orders")
        assert content(table) == before
        table.upsert(rows(1000))
        table.fold()
        assert table.count() == len(before) + 1


def test_a_mark_that_this_process_could_not_take_away_stops_nobody(lake: Lake, backups: Path) -> None:
    """The work that it tells of has ended."""

    class Stuck(LocalStorage):
        def delete(self, path: PurePath) -> None:
            raise Corruption(f"the disk reports an I/O error for {path}")

    filled(lake)
    create_backup(lake, backups)
    place = BackupPlace(named_place(backups))
    place.store = Stuck()
    with (
        place.alone("a backup"),
        pytest.raises(Conflict, match="another backup is being made"),
        BackupPlace(place.path).alone("another"),
    ):
        pass
    assert (backups / "busy.json").exists()

    create_backup(lake, backups)

    assert not (backups / "busy.json").exists()


def test_a_removal_that_stops_says_which_backups_are_gone(
    lake: Lake, backups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(lake)
    first, second = (create_backup(lake, backups).id for _ in range(2))
    forget = BackupPlace.forget

    def stopped(place: BackupPlace, id: str) -> None:
        if id == second:
            raise Unavailable("the disk refuses")
        forget(place, id)

    monkeypatch.setattr(BackupPlace, "forget", stopped)

    with pytest.raises(Unavailable, match=f"the disk refuses .removed before that, for good: {first}."):
        remove_backups(backups, [first, second])

    assert BackupPlace(backups).ids() == [second]
