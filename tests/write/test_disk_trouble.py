"""A full disk, no permission, a file size limit: a clear error, nothing half done, and work goes on afterwards."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pytest

from lithify import CommitUnknown, Lake, Unavailable
from lithify.files.local import LocalStorage
from lithify.files.os_errors import translated
from support import children, trouble
from support.effort import staged, thinned
from support.faults import FaultyStore, RecordingStore, disk_full, no_permission, os_failure
from support.folders import copied, memory_folder
from support.leftovers import unsettled
from support.unchanged import nothing_changes

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    with memory_folder() as folder:
        with Lake(folder / "lake") as lake:
            table = lake.create_table("a.t", SCHEMA, key="id")
            table.upsert([{"id": 1, "v": "x"}, {"id": 2, "v": "x"}])
            table.fold()
            table.upsert([{"id": 2, "v": "y"}])
        yield folder / "lake"


@pytest.fixture
def lake(made: Path, folder: Path) -> Iterator[Lake]:
    with Lake(copied(made, folder / "lake")) as lake:
        yield lake


OPERATIONS: dict[str, Any] = {
    "upsert": lambda lake: lake.table("a.t").upsert([{"id": 3, "v": "new"}]),
    "delete": lambda lake: lake.table("a.t").delete([1]),
    "delete_where": lambda lake: lake.table("a.t").delete_where("id = 1"),
    "create": lambda lake: lake.create_table("a.new", SCHEMA),
    "fold": lambda lake: lake.table("a.t").fold(),
}


@pytest.mark.parametrize("action", [disk_full, no_permission], ids=["full", "forbidden"])
@pytest.mark.parametrize("name", ["upsert", "delete", "delete_where"])
def test_a_write_that_cannot_be_stored_is_refused(lake: Lake, name: str, action: Any) -> None:
    words = "no space left while writing .*/a/t/changes" if action is disk_full else "no permission for .*/a/t/changes"
    store = FaultyStore("store.write", action, times=None)
    with Lake(lake.path, store=store) as broken, nothing_changes(lake), pytest.raises(Unavailable, match=words):
        OPERATIONS[name](broken)


def test_a_table_is_dropped_on_a_full_disk_that_its_index_leaves_room_on(lake: Lake) -> None:
    folder = lake.path / "a" / "t"
    assert (folder / "index").is_dir()

    def full_beside_an_index() -> None:
        if (folder / "index").exists():
            with translated(folder):
                disk_full()

    with Lake(lake.path, store=FaultyStore("log.swap", full_beside_an_index, times=None)) as broken:
        broken.drop_table("a.t")
    assert lake.tables() == []
    assert sorted(entry.name for entry in folder.rglob("*.parquet")) == []


def test_a_process_that_finds_the_disk_full_leaves_no_file_behind(lake: Lake) -> None:
    processes = lake.path / "_lithify" / "processes"
    before = set(processes.iterdir())

    with Lake(lake.path, store=_Cramped()) as broken:
        assert broken.table("a.t").count() == 2
    assert set(processes.iterdir()) == before


class _Cramped(LocalStorage):
    """What is appended to comes into being, and stays empty."""

    def append(self, path: PurePath, data: bytes) -> int:
        super().append(path, b"")
        with translated(path):
            disk_full()
        raise AssertionError


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_failure_at_any_storage_call_leaves_one_exact_state(lake: Lake, folder: Path, name: str) -> None:
    """Whatever call fails, the operation has happened or not, says so, and the next one works."""
    copies = 0

    def copy() -> Path:
        nonlocal copies
        copies += 1
        return copied(lake.path, folder / f"copy-{copies}")

    recording = RecordingStore()
    with Lake(copy(), store=recording) as rehearsal:
        before = trouble.ids(lake)
        OPERATIONS[name](rehearsal)
        after = trouble.ids(rehearsal)
    for _, point, nth in thinned(staged(recording.occurrences()), lambda call: [call[:2]]):
        path = copy()
        with Lake(path, store=FaultyStore(point, os_failure(errno.ENOSPC), nth)) as broken:
            error = trouble.error_of(lambda: OPERATIONS[name](broken))
            assert error is None or isinstance(error, CommitUnknown) or "no space left" in str(error)
            allowed = {type(None): [after], CommitUnknown: [before, after], Unavailable: [before]}[type(error)]
            assert trouble.ids(broken) in allowed, f"{point} {nth}"
        with Lake(path) as again:
            assert trouble.ids(again) in allowed, f"{point} {nth}"
            again.table("a.t").upsert([{"id": 77, "v": "next"}])
            again.table("a.t").fold()
            assert 77 in trouble.ids(again)["a.t"]


def test_a_folder_without_write_permission_is_refused(lake: Lake) -> None:
    """In a child without root's rights, since root may write anywhere."""
    before = trouble.ids(lake)
    scratch = lake.path.parent / "scratch"
    scratch.mkdir()
    scratch.chmod(0o777)
    try:
        trouble.make_read_only(lake.path)
        results = children.queue()
        child = children.start(trouble.write_as_nobody, str(lake.path), results, scratch=scratch)
        answers = [results.get(timeout=60) for _ in range(4)]
        assert children.finish(child) == 0
    finally:
        trouble.make_writable(lake.path)
    for operation, kind, message in answers[:3]:
        assert kind == "Unavailable", (operation, message)
        assert "no permission" in message
        assert str(lake.path) in message
    assert answers[3] == ("read", "ok", "2"), "reading needs no permission to write"
    assert trouble.ids(lake) == before


def test_a_folder_that_cannot_be_looked_into_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    look = os.stat

    def refuse(path: Any, **options: Any) -> os.stat_result:
        if str(path).startswith(str(lake.path)):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return look(path, **options)

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(Unavailable, match=r"no permission for .*: check the owner"):
        Lake(lake.path)


def test_a_file_size_limit_is_refused(lake: Lake) -> None:
    results = children.queue()
    child = children.start(trouble.write_with_size_limit, str(lake.path), results, scratch=lake.path.parent)
    kind, message = results.get(timeout=60)
    assert children.finish(child) == 0
    assert kind == "Unavailable", message
    assert str(lake.path) in message
    assert trouble.ids(lake)["a.t"] == [1, 2]


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own that can be filled."""
    mount = folder / "mount"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("cannot mount a small file system here")
    try:
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True)


@pytest.mark.parametrize("name", ["upsert", "fold", "create"])
@pytest.mark.slow
def test_a_disk_that_fills_up_at_any_page(small_disk: Path, made: Path, name: str) -> None:
    """With room for one page more each time, the operation fails further on each time, until it fits."""
    page = resource.getpagesize()
    for pages in range(40):
        path = small_disk / "lake"
        filler = small_disk / "filler"
        with Lake(copied(made, path)) as lake:
            before = trouble.ids(lake)
            state = os.statvfs(small_disk)
            filler.write_bytes(bytes((state.f_bavail - pages) * page))
            error = trouble.error_of(lambda: OPERATIONS[name](lake))
            if error is not None and not isinstance(error, CommitUnknown):
                assert "no space left" in str(error), f"{pages} pages"
                assert trouble.ids(lake) == before
            filler.unlink()
        with Lake(path) as lake:
            lake.table("a.t").upsert([{"id": 77, "v": "next"}])
            lake.table("a.t").fold()
            assert set(before["a.t"]) | {77} <= set(trouble.ids(lake)["a.t"])
            if name != "fold":
                assert unsettled(path) == []
        trouble.remove(path)
        if error is None:
            return
    pytest.fail("it never fitted")


def test_a_fold_that_fills_the_disk_gives_its_room_back(small_disk: Path, made: Path) -> None:
    """Its own files are what fills it: they go although no fence finds room before, and writes go on."""

    def fill() -> None:
        folder = max((path / "a/t/base").glob("fold-*"), key=lambda found: found.stat().st_mtime_ns)
        with (folder / "more.parquet").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(resource.getpagesize()))

    path = copied(made, small_disk / "lake")
    with Lake(path, store=FaultyStore("fold.written", fill)) as lake:
        with pytest.raises(OSError, match="No space left"):
            lake.table("a.t").fold()
        lake.table("a.t").upsert([{"id": 3, "v": "new"}])
        assert trouble.ids(lake)["a.t"] == [1, 2, 3]
        assert not unsettled(path)
