"""What is kept from one read to the next: it saves work, and changes no answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from lithify import Lake
from lithify.core.schema import define
from lithify.core.snapshot import Bounds, DataFile
from lithify.delta import live_files
from lithify.delta.log import DeltaLog
from lithify.files.local import LocalStorage
from lithify.index.key_ranges import split_by_keys
from lithify.read import reader as reader_module
from lithify.read.base_part import KEYS_AT_ONCE_MAX, BasePart
from lithify.read.reader import drop_cached
from lithify.tables.handles import Handles, live_snapshots

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as opened:
        yield opened


def rows(*ids: int, v: str = "x") -> list[dict[str, Any]]:
    return [{"id": i, "v": v} for i in ids]


def told(log: DeltaLog) -> list[dict[str, Any]]:
    return sorted((asdict(file) for file in log.files(["id"])), key=lambda file: str(file["path"]))


def newly_told(path: Path, version: int | None = None) -> list[dict[str, Any]]:
    """Without what other handles know."""
    known = dict(live_files.newest_known)
    live_files.newest_known.clear()
    try:
        return told(DeltaLog.open(path, LocalStorage(), version))
    finally:
        live_files.newest_known.update(known)


# -- lists of live files


def test_a_list_that_is_built_holds_the_version_still(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.upsert(rows(1))
    table.fold()
    live_files.newest_known.clear()
    log = DeltaLog.open(table._internals.handles.base_folder, LocalStorage())
    taken: list[bool] = []

    def looked_at(*arguments: Any) -> Iterator[DataFile]:
        other = threading.Thread(target=lambda: taken.append(log.lock.acquire(blocking=False)))
        other.start()
        other.join()
        return real(*arguments)

    real = live_files.data_files
    monkeypatch.setattr(live_files, "data_files", looked_at)
    assert len(log.files(())) == 1
    assert taken == [False]


def test_files_are_taken_over_from_version_to_version(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    base = table._internals.handles.base
    for start in range(0, 3000, 1000):
        table.append(pa.table({"id": range(start, start + 1000), "v": ["x"] * 1000}))
    table.fold()
    before = {file.path: file for file in table.snapshot().base}
    table.upsert(rows(1500, v="y"))
    table.fold()
    after = {file.path: file for file in table.snapshot().base}

    assert len(before.keys() & after.keys()) == 2
    assert all(after[path] is before[path] for path in before.keys() & after.keys())
    assert told(base.log) == newly_told(table._internals.handles.base_folder)
    assert base.log.files(()) is base.log.files(["id"])
    table.delete(list(range(3000)))
    table.fold()
    assert table.snapshot().base == base.log.files(()) == ()
    table.upsert(rows(1))
    table.fold()
    assert told(base.log) == newly_told(table._internals.handles.base_folder)


def test_a_list_asked_for_without_bounds_first_gets_them_later(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.upsert(rows(1, 5))
    table.fold()
    live_files.newest_known.clear()
    log = DeltaLog.open(table._internals.handles.base_folder, LocalStorage())
    assert log.files(())[0].bound("id") == (None, None, None)
    assert log.files(["id"])[0].bound("id") == (1, 5, 0)
    assert log.files(["v"])[0].bound("id") == (1, 5, 0)


def test_a_file_that_another_writer_adds_again_is_read_anew(folder: Path) -> None:
    write_deltalake(folder / "d", pa.table({"id": [1]}))
    log = DeltaLog.open(folder / "d", LocalStorage())
    path = log.files(["id"])[0].path
    DeltaTable(folder / "d").delete()
    write_deltalake(folder / "d", pa.table({"id": [7]}), mode="append")
    last = folder / "d" / "_delta_log" / f"{2:020d}.json"
    added = DeltaTable(folder / "d").file_uris()[0].rpartition("/")[2]
    last.write_text(last.read_text().replace(added, path))

    log.refresh()

    assert [(file.path, file.bound("id").low) for file in log.files(["id"])] == [(path, 7)]


def test_the_past_is_told_with_files_of_the_present(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.upsert(rows(1))
    table.fold()
    past = table.snapshot()
    table.upsert(rows(1, v="y"))
    table.upsert(rows(9))
    table.fold()
    table.snapshot()

    log = table._internals.handles.base.log.at(past.base_version)
    assert told(log) == newly_told(table._internals.handles.base_folder, past.base_version)
    assert table.to_arrow(as_of=past.seq).to_pylist() == rows(1)


def test_handles_share_what_they_know(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.upsert(rows(1))
    table.fold()
    with Lake(lake.path) as elsewhere:
        assert elsewhere.table("a.t").snapshot().base is table.snapshot().base
    lake.drop_table("a.t")
    table = lake.create_table("a.t", SCHEMA, key="id")
    assert table.snapshot().base == ()


# -- readers


def test_rows_of_folded_changes_are_not_kept(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    reader = table._internals.reader
    table.upsert(rows(1))
    seq = table.upsert(rows(2)).seq
    assert table.to_arrow().num_rows == 2
    assert len(reader._changes) == 2
    table.fold()
    table.upsert(rows(3))
    assert table.to_arrow().num_rows == 3
    assert set(reader._changes) == {file.path for file in table.snapshot().changes}
    assert reader._changes_bytes == sum(cached.nbytes for cached in reader._changes.values())
    assert table.to_arrow(as_of=seq).num_rows == 2


def test_a_key_is_found_wherever_it_stands(lake: Lake) -> None:
    """In base, in a first load that stands beside it, in a change, and nowhere."""
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.append(pa.table({"id": range(0, 1000), "v": ["base"] * 1000}))
    table.fold()
    table.append(pa.table({"id": range(1000, 31_000), "v": ["load"] * 30_000}))
    table.upsert(rows(5, 2000, v="change"))
    table.delete([7])
    expected = {4: "base", 5: "change", 7: None, 1500: "load", 2000: "change", 99_999: None}
    found = {key: (table.get(key) or {"v": None})["v"] for key in expected}
    assert found == expected
    table.upsert(rows(4, v="again"))
    assert table.get(4) == {"id": 4, "v": "again"}
    assert table.get(3) == {"id": 3, "v": "base"}


@given(
    bounds=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9), st.booleans())),
    keys=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3))),
    many=st.booleans(),
)
def test_files_that_can_hold_a_key_are_found(
    bounds: list[tuple[int, int, bool]], keys: list[tuple[int, int]], many: bool
) -> None:
    files = tuple(
        DataFile(
            f"f{number}",
            f"f{number}",
            1,
            1,
            {"a": Bounds(low, low + width, 0) if known else Bounds(None, None, None), "b": Bounds(1, 2, 0)},
        )
        for number, (low, width, known) in enumerate(bounds)
    )
    keys = keys * KEYS_AT_ONCE_MAX if many else keys
    columns = {"a": pa.array([a for a, _ in keys], pa.int64()), "b": pa.array([b for _, b in keys], pa.int64())}
    schema = define(pa.schema([("a", pa.int64()), ("b", pa.int64())]), ("a", "b"), None, None, ())

    touched = BasePart(files, "/base", schema).touched(pa.table(columns))

    assert [source.path for _, source in touched] == [f"/base/{file.path}" for file, _ in touched]
    assert [file for file, _ in touched] == split_by_keys(files, pa.table(columns))[0]


def test_sources_are_taken_over_while_their_files_stay() -> None:
    schema = define(SCHEMA, "id", None, None, ())
    files = tuple(DataFile(f"f{number}", f"f{number}", 1, number) for number in range(4))
    before = BasePart(files[:3], "/base", schema)
    again = DataFile("f1", "f1", 1, 99)

    after = BasePart((files[0], again, files[3]), "/base", schema, before)

    assert after.sources[0] is before.sources[0]
    assert [(source.path, source.rows) for _, source in after.sources] == [
        ("/base/f0", 0),
        ("/base/f1", 99),
        ("/base/f3", 3),
    ]


def test_a_snapshot_that_a_handle_keeps_for_the_next_reader_does_not_stop_vacuum(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.upsert(rows(1))
    table.fold()
    handles = Handles(lake._runtime, table._internals.handles.name)
    old = {file.path for file in handles.snapshot().base}
    table.upsert(rows(1, v="y"))
    table.fold()

    drop_cached(handles.incarnation)

    live = {file.path for snapshot in live_snapshots(handles.incarnation) for file in snapshot.base}
    assert not live & old


def test_a_change_file_is_read_and_counted_once_however_many_ask(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.upsert(rows(1))
    snapshot, reader = table.snapshot(), table._internals.reader
    read, times, another = reader_module.read, list[Path](), threading.Event()

    def counted(path: Path, columns: pa.Schema, **options: Any) -> pa.Table:
        times.append(path)
        if len(times) > 1:
            another.set()
        another.wait(0.2)
        return read(path, columns, **options)

    monkeypatch.setattr(reader_module, "read", counted)
    threads = [threading.Thread(target=reader.change, args=(snapshot.changes[0], snapshot)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(times) == 1
    assert reader._changes_bytes == sum(cached.nbytes for cached in reader._changes.values())
