"""Everything that changes a lake, each on a lake that is made for it, and how to judge what it left behind.

An operation that was disturbed has answered, refused, or said that it does not know (`CommitUnknown`; being
interrupted says as much). `judge` looks at the lake as a new process finds it, and with an oracle that knows nothing of
Lithify: what was answered is there, what was refused is not, every file that a log names exists, and the operation can
be done again.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from lithify import (
    CommitUnknown,
    Conflict,
    InvalidRequest,
    Lake,
    NotFound,
    create_backup,
    remove_backups,
    restore_backup,
    verify_backup,
)
from lithify.backup.place import BackupPlace
from lithify.core.ops import Op
from lithify.core.schema import TableSchema
from lithify.delta.checkpoints import wait_for_checkpoints
from lithify.files.local import LocalStorage
from lithify.lake.catalog import is_lake
from lithify.maintenance.plans import MinorPlan
from lithify.maintenance.table_maintenance import TableMaintenance
from lithify.write.batch_ids import conditions_of
from lithify.write.bulk import Files, write_files
from lithify.write.conditions import Write
from lithify.write.load import Bounds, load
from support import log_oracle
from support.bags import bag
from support.eager import eager
from support.folders import copied

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
DAYS = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("v", pa.string())])
SETTINGS = eager("disturbed", lock_wait_s_max=2, commit_wait_s_max=10, read_overhead_max=1000)
HOUR_S = 3600
OUTSIDE, BACKUPS, RESTORED = "outside", "backups", "restored"
_BESIDE = "beside"
_TIME = re.compile(r'("(?:timestamp|modificationTime|deletionTimestamp)":)(\d{13})')

Run = Callable[[Lake], Any]
State = dict[str, tuple[tuple[str, ...], Any, Counter[Any]]]


@dataclass(frozen=True)
class Operation:
    """`prepare` makes a lake, once; `ready` is done on each copy of it, and `at_last` in the process that runs the
    operation, right before it does. `leaves`: what there is more of afterwards. `again`: how to do it once more, where
    that is another call; `refused_again`: what says that it was done already. `deletes`: it only removes files, and an
    error does not say that all of them are there.
    """

    prepare: Run
    run: Run
    ready: Run | None = None
    at_last: Run | None = None
    leaves: str = "*/_delta_log/*.json"
    again: Run | None = None
    refused_again: type[Exception] | tuple[type[Exception], ...] | None = None
    deletes: bool = False


def rows(*ids: int, v: str = "x") -> list[dict[str, Any]]:
    return [{"id": i, "v": v} for i in ids]


def day_rows(*ids: int, v: str = "x") -> list[dict[str, Any]]:
    return [{"id": i, "at": dt.datetime(2026, 11, 1 + i % 3, tzinfo=dt.UTC), "v": v} for i in ids]


# -- lakes


def _keyed(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.upsert(rows(*range(30)))
    table.fold()
    table.upsert(rows(2, 40, v="y"))
    table.delete([3])


def _small_changes(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.upsert(rows(1, 2))
    table.fold()
    table.upsert(rows(2, v="y"))
    table.upsert(rows(3))
    table.delete([1])
    table.upsert(rows(4))


def _keyless(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA)
    table.append(rows(*range(10)))
    table.fold()
    table.append(rows(1, 2, 3))


def _many_files(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    for start in range(0, 40, 10):
        table.upsert(rows(*range(start, start + 5)))
        table.fold()
    table.upsert(rows(1, v="pending"))


def _first_loads(lake: Lake) -> None:
    """Change files that a fold links into base."""
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.upsert(rows(1, 2))
    table.upsert(rows(3, 4))


def _checkpoint_due(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    while table._internals.handles.changes.log.version % SETTINGS.checkpoint_every != SETTINGS.checkpoint_every - 1:
        table.upsert(rows(1, table._internals.handles.changes.log.version))


def _another(lake: Lake) -> None:
    lake.create_table("a.other", SCHEMA, key="id").upsert(rows(1))


def _delta_beside(lake: Lake) -> None:
    _another(lake)
    data = pa.table({"id": pa.array(range(5), pa.int64()), "v": ["d"] * 5})
    write_deltalake(str(lake.path.parent / OUTSIDE), data)


def _parquet_beside(lake: Lake) -> None:
    _another(lake)
    (lake.path.parent / OUTSIDE).mkdir()
    for part in range(2):
        data = pa.table({"id": pa.array(range(part * 5, part * 5 + 5), pa.int64()), "v": ["p"] * 5})
        pq.write_table(data, lake.path.parent / OUTSIDE / f"{part}.parquet")


def _much_to_remove(lake: Lake) -> None:
    _many_files(lake)
    wait_for_checkpoints(60)  # one that is under way would read commits which are being rewritten
    _age(lake.path)


def _dropped(lake: Lake) -> None:
    _keyed(lake)
    lake.drop_table("a.t")


def _folded(lake: Lake) -> None:
    _another(lake)
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.upsert(rows(*range(30)))
    table.fold()


def _updated(lake: Lake) -> None:
    """Pending lines that give some columns alone."""
    _keyed(lake)
    lake.table("a.t").update([{"id": 4, "v": "u"}, {"id": 5}])


def _tagged(lake: Lake) -> None:
    _keyed(lake)
    lake.table("a.t").tag("before", 1)


def _days(lake: Lake) -> None:
    table = lake.create_table("a.t", DAYS, key="id", time="at")
    table.upsert(day_rows(*range(9)))
    table.fold()
    table.upsert(day_rows(1, 40, v="y"))


def _day_beside(lake: Lake) -> None:
    _days(lake)
    lake.table("a.t").detach("2026-11-02", lake.path.parent / OUTSIDE)


def _expired(lake: Lake) -> None:
    table = lake.create_table("a.t", DAYS, key="id", expires="at + interval '1 day'")
    table.upsert([*day_rows(1, 2), {"id": 3, "at": dt.datetime(2900, 1, 1, tzinfo=dt.UTC), "v": "stays"}])


def _text_beside(lake: Lake) -> None:
    _another(lake)
    (lake.path.parent / OUTSIDE).mkdir()
    (lake.path.parent / OUTSIDE / "a.csv").write_text("id,v\n1,text\n2,text\n")


def _set_aside(lake: Lake) -> None:
    """Three records, of which two fit by now."""
    table = lake.create_table("a.t", pa.schema([("id", pa.int64()), ("n", pa.int32())]), key="id")
    (lake.path.parent / OUTSIDE).mkdir()
    records = [{"id": 1, "n": 1}, {"id": 2, "n": 2**40}, {"id": 3, "n": "many"}, {"id": 4, "n": 2**41}]
    (lake.path.parent / OUTSIDE / "in.json").write_text("".join(json.dumps(record) + "\n" for record in records))
    lake.ingest("a.t", str(lake.path.parent / OUTSIDE / "in.json"), on_bad_record="quarantine")
    table.alter_column("n", type=pa.int64())


def _to_erase(lake: Lake) -> None:
    _another(lake)
    _keyed(lake)


def _saved(lake: Lake) -> None:
    _keyed(lake)
    create_backup(lake, lake.path.parent / BACKUPS)
    lake.table("a.t").upsert(rows(70, v="later"))
    lake.table("a.t").fold()


def _saved_twice(lake: Lake) -> None:
    _saved(lake)
    create_backup(lake, lake.path.parent / BACKUPS)


def _age(lake: Path) -> None:
    """Make everything in a lake two hours older, its commits and what they say of their time included."""
    back_s = 2 * HOUR_S

    def earlier(found: re.Match[str]) -> str:
        return f"{found.group(1)}{int(found.group(2)) - back_s * 1000}"

    for file in sorted(lake.rglob("*")):
        if file.is_file():
            seen = file.stat()
            if file.suffix == ".json" and file.parent.name == "_delta_log":
                file.write_text(_TIME.sub(earlier, file.read_text()))
            os.utime(file, (seen.st_atime - back_s, seen.st_mtime - back_s))


# -- operations


def _bulk(lake: Lake) -> Any:
    """As a Spark write, with the rows written in this process."""
    from lithify.spark.write import WriteTask, write_batches

    batch = pa.table({"id": pa.array([5, 50, 51], pa.int64()), "v": ["b"] * 3})

    def produce(schema: TableSchema, root: str, folder: str) -> Files:
        return [(file, Op.UPSERT) for file in write_batches(iter(batch.to_batches()), WriteTask(schema, root, folder))]

    return write_files(
        lake.table("a.t")._internals.handles, Write("upsert", conditions=conditions_of("bulk-1")), produce
    )


def _minor(lake: Lake) -> None:
    with lake.table("a.t")._internals.maintaining() as (handles, reader):
        work = TableMaintenance(handles, reader)
        for plan in work.plans(handles.runtime.now_ms()):
            if isinstance(plan, MinorPlan):
                work.run(plan)


def _adopt(lake: Lake) -> Any:
    return lake.adopt("a.t", lake.path.parent / OUTSIDE, key="id")


def _detach(lake: Lake) -> Any:
    return lake.table("a.t").detach("2026-11-02", lake.path.parent / OUTSIDE)


def _restored_again(lake: Lake) -> Any:
    """What was cut off is no lake, and is removed by hand."""
    if not is_lake(lake.path.parent / RESTORED):
        shutil.rmtree(lake.path.parent / RESTORED, ignore_errors=True)
        restore_backup(lake.path.parent / BACKUPS, lake.path.parent / RESTORED)


def _load(lake: Lake) -> Any:
    """Many rows at once, in no order, sorted on disk."""
    ids = pa.array([(number * 7_919) % 5_000 for number in range(5_000)], pa.int64())
    data = pa.table({"id": ids, "v": ["b"] * 5_000})
    bounds = Bounds(file_bytes=20_000, run_bytes=20_000, range_bytes=20_000, held_bytes_max=20_000)
    write = Write("upsert", conditions=conditions_of("load-1"))
    return load(lake.table("a.t")._internals.handles, iter(data.to_batches(max_chunksize=1_000)), write, bounds=bounds)


def _ingest(lake: Lake) -> Any:
    return lake.ingest("a.other", str(lake.path.parent / OUTSIDE / "a.csv"))


def _merge(lake: Lake) -> Any:
    text = "merge into a.t using (values (5, 'm'), (60, 'm')) s (id, v) on a.t.id = s.id "
    return lake.execute(
        f"{text} when matched then update set v = s.v when not matched then insert (id, v) values (s.id, s.v)"
    )


def _retry(lake: Lake) -> Any:
    table = lake.table("a.t")
    return [table.retry_quarantine(each.name) for each in table.quarantine()]


def _erase(lake: Lake) -> Any:
    return lake.erase("a.t", keys=[5], history="cut")


def _erased_again(lake: Lake) -> None:
    """As it says: it goes on if it is listed."""
    if lake.erasures():
        _erased(lake)
    else:
        _erase(lake)


def _erased(lake: Lake) -> None:
    """What has been asked for is done to its end."""
    for erasure in lake.erasures():
        assert erasure.wait(60).state == "done", (erasure.state, erasure.places, erasure.problems)


def _checkpoint(lake: Lake) -> None:
    table = lake.table("a.t")
    table._internals.handles.changes.log.checkpoint(trim=True)
    wait_for_checkpoints(60)
    table._internals.handles.changes.log.trim_if_due()


OPERATIONS = {
    "upsert": Operation(_keyed, lambda lake: lake.table("a.t").upsert(rows(5, 50, v="new"))),
    "upsert_batch": Operation(_keyed, lambda lake: lake.table("a.t").upsert(rows(5, 50, v="new"), batch_id="b1")),
    "upsert_large": Operation(
        _another, lambda lake: lake.table("a.other").upsert(pa.table({"id": range(20_000), "v": ["b"] * 20_000}))
    ),
    "append": Operation(_keyless, lambda lake: lake.table("a.t").append(rows(7, 7), batch_id="b1")),
    "delete": Operation(_keyed, lambda lake: lake.table("a.t").delete([5, 40])),
    "delete_keyless": Operation(_keyless, lambda lake: lake.table("a.t").delete([{"id": 1}])),
    "delete_where": Operation(_keyed, lambda lake: lake.table("a.t").delete_where("id > 25")),
    "bulk": Operation(_keyed, _bulk),
    "fold": Operation(_keyed, lambda lake: lake.table("a.t").fold()),
    "fold_keyless": Operation(_keyless, lambda lake: lake.table("a.t").fold()),
    "fold_link": Operation(_first_loads, lambda lake: lake.table("a.t").fold()),
    "minor": Operation(_small_changes, _minor),
    "compact": Operation(_many_files, lambda lake: lake.table("a.t").compact()),
    "optimize": Operation(_many_files, lambda lake: lake.table("a.t").optimize(by=["v", "id"])),
    "vacuum": Operation(_much_to_remove, lambda lake: lake.table("a.t").vacuum(1, dry_run=False)),
    "index": Operation(
        _many_files,
        lambda lake: lake.table("a.t").build_index(),
        at_last=lambda lake: shutil.rmtree(lake.path / "a/t/index"),
        leaves="index/*.pm",
    ),
    "checkpoint": Operation(_checkpoint_due, lambda lake: lake.table("a.t").upsert(rows(60, v="due"))),
    "checkpoint_alone": Operation(_keyed, _checkpoint, leaves="*.checkpoint.parquet"),
    "create": Operation(
        _another,
        lambda lake: lake.create_table("a.t", SCHEMA, key="id"),
        again=lambda lake: lake.create_table("a.t", SCHEMA, key="id", if_not_exists=True),
    ),
    "create_again": Operation(
        _dropped,
        lambda lake: lake.create_table("a.t", SCHEMA, key="id"),
        again=lambda lake: lake.create_table("a.t", SCHEMA, key="id", if_not_exists=True),
    ),
    "drop": Operation(_keyed, lambda lake: lake.drop_table("a.t"), refused_again=NotFound),
    "drop_adopted": Operation(_delta_beside, lambda lake: lake.drop_table("a.t"), ready=_adopt, refused_again=NotFound),
    "adopt_delta": Operation(_delta_beside, _adopt, refused_again=Conflict),
    "adopt_parquet": Operation(_parquet_beside, _adopt, refused_again=Conflict),
    "add_column": Operation(
        _keyed, lambda lake: lake.table("a.t").add_column(pa.field("w", pa.int64())), refused_again=Conflict
    ),
    "update": Operation(_keyed, lambda lake: lake.table("a.t").update([{"id": 5, "v": "u"}, {"id": 80, "v": "u"}])),
    "merge": Operation(_keyed, _merge),
    "load": Operation(_keyed, _load),
    "ingest": Operation(_text_beside, _ingest),
    "restore": Operation(_keyed, lambda lake: lake.table("a.t").restore(1)),
    "rename_column": Operation(_folded, lambda lake: lake.table("a.t").rename_column("v", "w"), refused_again=NotFound),
    "alter_column": Operation(
        _folded, lambda lake: lake.table("a.t").alter_column("v", nullable=False), refused_again=InvalidRequest
    ),
    "drop_column": Operation(_folded, lambda lake: lake.table("a.t").drop_column("v"), refused_again=NotFound),
    "tag": Operation(
        _keyed, lambda lake: lake.table("a.t").tag("before", 1), leaves="tag.json", refused_again=Conflict
    ),
    "untag": Operation(_tagged, lambda lake: lake.table("a.t").untag("before"), leaves="", refused_again=NotFound),
    "detach": Operation(_days, _detach, refused_again=(Conflict, NotFound)),
    "attach": Operation(_day_beside, lambda lake: lake.table("a.t").attach(lake.path.parent / OUTSIDE, batch_id="b")),
    "backup": Operation(
        _saved, lambda lake: create_backup(lake, lake.path.parent / BACKUPS), leaves="backups/backups/*.json"
    ),
    "backup_removed": Operation(
        _saved_twice, lambda lake: remove_backups(lake.path.parent / BACKUPS, keep=1), leaves=""
    ),
    "backup_restored": Operation(
        _saved,
        lambda lake: restore_backup(lake.path.parent / BACKUPS, lake.path.parent / RESTORED),
        again=_restored_again,
    ),
    "retry_quarantine": Operation(_set_aside, _retry),
    "purge_quarantine": Operation(
        _set_aside, lambda lake: lake.table("a.t").purge_quarantine(), leaves="", deletes=True
    ),
    "erase": Operation(_to_erase, _erase, again=_erased_again),
    "erase_through": Operation(_to_erase, _erased, ready=_erase, leaves="receipt*"),
    "set_options": Operation(_keyed, lambda lake: lake.table("a.t").set_options({"fold_files_max": 7})),
}


# -- judging


def state(lake: Lake) -> State:
    found: State = {_BESIDE: ((), {}, _beside(lake))}
    for name in lake.tables():
        table = lake.table(name)
        read = table.to_arrow()
        found[name] = tuple(read.column_names), table.options, bag(read.to_pylist())
    return found


def _beside(lake: Lake) -> Counter[Any]:
    """Tags, records that were set aside and are in no row, and what lies next to the lake: how many rows files have,
    backups that hold what they say, a lake.
    """
    found: Counter[Any] = Counter()
    for name in lake.tables():
        table = lake.table(name)
        there = set(table.to_arrow(columns=["id"]).column("id").to_pylist())
        for aside in table.quarantine():
            records = [each.record for each in table.quarantined(aside.name)]
            found.update((name, record) for record in records if json.loads(record)["id"] not in there)
        for tag in table.tags():
            found[name, tag.name, table.to_arrow(as_of=tag.name).num_rows] += 1
    near = lake.path.parent
    if (near / BACKUPS).exists():
        for id in BackupPlace(near / BACKUPS).ids():
            manifest, wrong = verify_backup(near / BACKUPS, id)
            assert not wrong, wrong
            found["backup", sum(saved.rows for saved in manifest.tables.values())] = 1  # another one of it is no matter
    if is_lake(near / RESTORED):
        with Lake(near / RESTORED, create=False) as restored:
            found["restored", sum(restored.table(name).count() for name in restored.tables())] += 1
    return found


def checked_state(lake: Lake) -> State:
    """The same, after the oracle has seen the same rows."""
    found = state(lake)
    others = log_oracle.tables(lake.path)
    assert {name: found[name][2] for name in others} == others, "others see otherwise"
    return found


@contextlib.contextmanager
def opened(name: str, path: Path, store: LocalStorage | None = None) -> Iterator[Lake]:
    """With everything read once, as in a process that has been at work."""
    with Lake(path, settings=SETTINGS, store=store) as lake:
        state(lake)
        if (at_last := OPERATIONS[name].at_last) is not None:
            at_last(lake)
        yield lake


class Answer(Enum):
    """What whoever asked for an operation knows of it afterwards."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"

    @classmethod
    def of(cls, error: BaseException | None) -> Answer:
        if error is None:
            return cls.DONE
        return cls.UNKNOWN if isinstance(error, CommitUnknown) or not isinstance(error, Exception) else cls.REFUSED


@dataclass(frozen=True)
class Expected:
    before: State
    after: State


def made(name: str, folder: Path) -> Path:
    """A folder with the lake of an operation, and what it needs beside it."""
    folder.mkdir(parents=True)
    with Lake(folder / "lake", settings=SETTINGS) as lake:
        OPERATIONS[name].prepare(lake)
    return folder


def made_ready(name: str, source: Path, target: Path) -> Path:
    """A copy of such a lake, on which the operation can run."""
    path = copied(source, target) / "lake"
    if (ready := OPERATIONS[name].ready) is not None:
        with Lake(path, settings=SETTINGS) as lake:
            ready(lake)
    return path


def expected(name: str, path: Path) -> Expected:
    """What an undisturbed run finds and leaves."""
    operation = OPERATIONS[name]
    with Lake(path, settings=SETTINGS) as lake:
        before = checked_state(lake)
    with opened(name, path) as lake:
        there = set(path.parent.rglob(operation.leaves or "*"))
        operation.run(lake)
        if operation.leaves:
            assert set(path.parent.rglob(operation.leaves)) > there, f"{name} has done nothing"
        return Expected(before, checked_state(lake))


def judge(name: str, path: Path, answer: Answer, wanted: Expected) -> State:
    """What was found. Raises AssertionError with what is wrong."""
    with Lake(path, settings=SETTINGS) as lake:
        found = checked_state(lake)
        match answer:
            case Answer.DONE:
                assert found == wanted.after, "it was acknowledged, and is not there"
            case Answer.REFUSED if not OPERATIONS[name].deletes:
                assert found == wanted.before, "it was refused, and is there"
            case _:
                assert found in (wanted.before, wanted.after), "neither done nor not done"
        again(OPERATIONS[name], lake)
        assert checked_state(lake) == wanted.after, "it cannot be done again"
    return found


def again(operation: Operation, lake: Lake) -> None:
    with contextlib.suppress(*([operation.refused_again] if operation.refused_again else [])):
        (operation.again or operation.run)(lake)
