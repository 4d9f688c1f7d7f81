"""Local copies of objects: brought once, verified at every use, bounded, and never needed for an answer."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path, PurePath

import pytest

from lithify.errors import Corruption, NotFound, Unavailable
from lithify.files.addresses import BucketPath
from lithify.files.bucket.lasting_names import LASTS_S, LastingNames
from lithify.files.bucket.local_copies import LocalCopies, Pins, Wanted
from lithify.files.os_errors import translated
from lithify.files.read_proof import Vanished
from support import children

ROOT = BucketPath("s3:/bucket/lake/shop/orders/base")


class Objects:
    """A bucket of bytes that counts what is asked of it."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.fetched: list[str] = []
        self.arrived = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def put(self, name: str, size_bytes: int = 1000) -> Wanted:
        path = ROOT / name
        self.data[str(path)] = name.encode().ljust(size_bytes, b".")
        return Wanted(path, size_bytes)

    def fetch(self, path: PurePath, file: Path, size_bytes: int) -> str:
        self.fetched.append(path.name)
        self.arrived.set()
        assert self.go_on.wait(30)
        if str(path) not in self.data:
            raise NotFound(f"{path} does not exist")
        with translated(file):
            file.write_bytes(self.data[str(path)])
        return f"tag of {path.name}"


@pytest.fixture
def objects() -> Objects:
    return Objects()


@pytest.fixture
def copies(folder: Path, objects: Objects) -> LocalCopies:
    return LocalCopies(folder / "cache", objects.fetch, 1_000_000)


def content(copy: Path) -> bytes:
    return copy.read_bytes()


def stored(folder: Path) -> list[Path]:
    return [file for file in (folder / "cache" / "copies").rglob("*") if file.is_file()]


def test_an_object_is_brought_once(copies: LocalCopies, objects: Objects) -> None:
    wanted = objects.put("a")
    assert copies.use(*wanted, content) == copies.use(*wanted, content) == objects.data[str(wanted.path)]
    assert objects.fetched == ["a"]


def test_threads_that_want_the_same_object_wait_for_one_of_them(copies: LocalCopies, objects: Objects) -> None:
    wanted, found = objects.put("a"), []
    objects.go_on.clear()
    readers = [threading.Thread(target=lambda: found.append(copies.use(*wanted, content))) for _ in range(8)]
    for reader in readers:
        reader.start()
    assert objects.arrived.wait(30)
    objects.go_on.set()
    for reader in readers:
        reader.join(30)
    assert found == [objects.data[str(wanted.path)]] * 8
    assert objects.fetched == ["a"]


@pytest.mark.parametrize("damaged", [b"", b"a...", b"x" * 1001], ids=["empty", "short", "long"])
def test_a_copy_of_another_size_is_brought_again(
    copies: LocalCopies, objects: Objects, folder: Path, damaged: bytes
) -> None:
    wanted = objects.put("a")
    copies.use(*wanted, content)
    stored(folder)[0].write_bytes(damaged)
    assert copies.use(*wanted, content) == objects.data[str(wanted.path)]
    assert objects.fetched == ["a", "a"]


def test_an_object_that_is_gone_is_named(copies: LocalCopies) -> None:
    with pytest.raises(Vanished, match="s3://bucket/lake/shop/orders/base/gone is missing"):
        copies.use(ROOT / "gone", 1000, content)


def test_an_object_that_was_replaced_is_named_and_not_kept(copies: LocalCopies, objects: Objects, folder: Path) -> None:
    wanted = objects.put("a")
    objects.data[str(wanted.path)] = b"another"
    with pytest.raises(Corruption, match=r"base/a has 7 bytes instead of 1000"):
        copies.use(*wanted, content)
    assert stored(folder) == []


def test_many_objects_are_brought_at_once(copies: LocalCopies, objects: Objects) -> None:
    wanted = [objects.put(str(number)) for number in range(8)]
    together = threading.Barrier(8)  # broken, and an error, if they came one after the other
    single = objects.fetch

    def fetch(path: PurePath, file: Path, size_bytes: int) -> str:
        together.wait(30)
        return single(path, file, size_bytes)

    at_once = LocalCopies(copies.folder, fetch, 1_000_000)
    at_once.bring(wanted)
    assert all(copies.find(*entry) is not None for entry in wanted)


def test_what_was_not_used_for_the_longest_time_goes_first(folder: Path, objects: Objects) -> None:
    copies = LocalCopies(folder / "cache", objects.fetch, 10_000)
    wanted = [objects.put(f"file-{number}") for number in range(11)]
    for age, entry in enumerate(wanted[:10]):
        copy = copies.use(*entry, Path)
        os.utime(copy, (1_000_000 + age, copy.stat().st_mtime))
    copies.use(*wanted[0], content)  # used now
    copies.use(*wanted[10], content)
    left = {number for number, entry in enumerate(wanted) if copies.find(*entry) is not None}
    assert {0, 10} <= left
    assert left == {0, *range(11 - len(left) + 1, 11)}
    assert sum(file.stat().st_size for file in stored(folder)) <= 10_000


def test_copies_of_another_process_count(folder: Path, objects: Objects) -> None:
    ours, others = (LocalCopies(folder / "cache", objects.fetch, 10_000) for _ in range(2))
    for number in range(10):
        (ours if number % 2 else others).use(*objects.put(str(number)), content)
    ours.use(*objects.put("one more"), content)
    assert sum(file.stat().st_size for file in stored(folder)) <= 10_000


def test_an_object_larger_than_half_of_the_room_is_read_and_not_kept(folder: Path, objects: Objects) -> None:
    copies = LocalCopies(folder / "cache", objects.fetch, 10_000)
    small, large = objects.put("small"), objects.put("large", 6_000)
    copies.use(*small, content)
    assert copies.use(*large, content) == objects.data[str(large.path)]
    assert copies.find(*small) is not None
    assert copies.find(*large) is None


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_copy_that_goes_before_it_is_opened_is_brought_again(
    copies: LocalCopies, objects: Objects, times: int
) -> None:
    wanted, gone = objects.put("a"), []

    def open_late(copy: Path) -> bytes:
        if len(gone) < times:  # others make room
            gone.append(copy)
            copy.unlink()
        return content(copy)

    assert copies.use(*wanted, open_late) == objects.data[str(wanted.path)]
    assert len(objects.fetched) == times + 1


def test_pinned_copies_outlive_their_removal(copies: LocalCopies, objects: Objects, folder: Path) -> None:
    wanted = [objects.put(str(number)) for number in range(5)]
    pins = Pins(copies)
    names = pins.add(wanted)
    shutil.rmtree(folder / "cache" / "copies")
    assert [content(name) for name in names] == [objects.data[str(entry.path)] for entry in wanted]
    pins.close()
    assert not any(name.exists() for name in names)


def test_more_than_fits_can_be_pinned(folder: Path, objects: Objects) -> None:
    copies = LocalCopies(folder / "cache", objects.fetch, 5_000)
    wanted = [objects.put(str(number)) for number in range(40)]
    pins = Pins(copies)
    names = pins.add(wanted)
    assert [content(name) for name in names] == [objects.data[str(entry.path)] for entry in wanted]
    assert sum(file.stat().st_size for file in stored(folder)) <= 5_000
    pins.close()


def test_the_folder_may_go_at_any_time(copies: LocalCopies, objects: Objects, folder: Path) -> None:
    wanted = objects.put("a")
    for _ in range(2):
        assert copies.use(*wanted, content) == objects.data[str(wanted.path)]
        pins = Pins(copies)
        assert content(pins.add([wanted])[0]) == objects.data[str(wanted.path)]
        copies.keep(ROOT / "own", "tag", b"own")
        shutil.rmtree(folder / "cache")
        pins.close()
    assert objects.fetched == ["a", "a"]


def test_the_folder_may_go_while_an_object_is_brought(copies: LocalCopies, objects: Objects, folder: Path) -> None:
    wanted, found = objects.put("a"), []
    copies.use(*objects.put("before"), content)
    objects.arrived.clear()
    objects.go_on.clear()
    reader = threading.Thread(target=lambda: found.append(copies.use(*wanted, content)))
    reader.start()
    assert objects.arrived.wait(30)
    shutil.rmtree(folder / "cache")
    objects.go_on.set()
    reader.join(30)
    assert found == [objects.data[str(wanted.path)]]


def test_what_was_written_here_need_not_be_brought(copies: LocalCopies, objects: Objects, folder: Path) -> None:
    first, second, third = objects.put("first"), objects.put("second"), objects.put("third")
    copies.keep(first.path, "tag of first", objects.data[str(first.path)])
    draft = copies.draft()
    draft.write_bytes(objects.data[str(second.path)])
    copies.keep_file(second.path, "tag of second", draft)
    draft.unlink()
    copies.same(second.path, third.path)
    assert copies.use(*first, content) == objects.data[str(first.path)]
    assert copies.use(*second, content) == copies.use(*third, content) == objects.data[str(second.path)]
    assert objects.fetched == []


def test_a_copy_has_the_time_of_its_object_whoever_made_it(copies: LocalCopies, objects: Objects) -> None:
    wanted, other = objects.put("a"), objects.put("b")
    brought = copies.use(*wanted, lambda copy: copy.stat().st_mtime_ns)
    copies.forget(wanted.path)
    copies.keep(wanted.path, "tag of a", objects.data[str(wanted.path)])
    assert copies.use(*wanted, lambda copy: copy.stat().st_mtime_ns) == brought
    assert copies.use(*other, lambda copy: copy.stat().st_mtime_ns) != brought


def test_one_address_on_two_servers_means_two_objects(folder: Path, objects: Objects) -> None:
    server = ["http://one"]
    copies = LocalCopies(folder / "cache", objects.fetch, 1_000_000, lambda: server[0])
    wanted = objects.put("a")
    copies.use(*wanted, content)
    server[0] = "http://two"
    copies.use(*wanted, content)
    assert objects.fetched == ["a", "a"]


# -- disks


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch, folder: Path, objects: Objects) -> Path:
    """Nothing can be written below the folder of copies any more, though the folder for temporary files has room."""
    (folder / "elsewhere").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "elsewhere"))
    single = objects.fetch

    def fetch(path: PurePath, file: Path, size_bytes: int) -> str:
        if file.is_relative_to(folder / "cache"):
            with translated(file):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
        return single(path, file, size_bytes)

    monkeypatch.setattr(objects, "fetch", fetch)
    return folder / "cache"


def test_on_a_full_disk_objects_are_read_without_being_kept(full_disk: Path, objects: Objects, folder: Path) -> None:
    copies, wanted = LocalCopies(full_disk, objects.fetch, 1_000_000), objects.put("a")
    assert copies.use(*wanted, content) == objects.data[str(wanted.path)]
    copies.bring([wanted])
    pins = Pins(copies)
    assert content(pins.add([wanted])[0]) == objects.data[str(wanted.path)]
    pins.close()
    assert stored(folder) == list((folder / "elsewhere").iterdir()) == []


def test_where_no_disk_has_room_the_error_says_what_to_do(
    full_disk: Path, objects: Objects, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (full_disk / "elsewhere").mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(full_disk / "elsewhere"))
    copies, wanted = LocalCopies(full_disk, objects.fetch, 1_000_000), objects.put("a")
    with pytest.raises(Unavailable, match=r"no space left for a local copy of s3://.*/a, .*cache_folder"):
        copies.use(*wanted, content)


def test_without_a_folder_that_can_be_written_objects_are_read(folder: Path, objects: Objects) -> None:
    (folder / "cache").write_bytes(b"no folder")
    copies, wanted = LocalCopies(folder / "cache", objects.fetch, 1_000_000), objects.put("a")
    assert copies.use(*wanted, content) == objects.data[str(wanted.path)]
    pins = Pins(copies)
    assert content(pins.add([wanted])[0]) == objects.data[str(wanted.path)]
    pins.close()


# -- processes


def read_and_churn(folder: str, told: Connection) -> None:
    """Use far more objects than there is room for, again and again."""
    objects = Objects()
    copies = LocalCopies(Path(folder, "cache"), objects.fetch, 20_000)
    wanted = [objects.put(str(number)) for number in range(60)]
    for turn in range(8):
        for entry in wanted[turn % 7 :: 3]:
            assert copies.use(*entry, content) == objects.data[str(entry.path)]
        pins = Pins(copies)
        for entry, name in zip(wanted, pins.add(wanted), strict=True):
            assert content(name) == objects.data[str(entry.path)]
        pins.close()
    told.send_bytes(b"all read")


def test_processes_share_a_folder_that_is_too_small_for_them(folder: Path) -> None:
    pipes = [children.pipe() for _ in range(3)]
    readers = [children.start(read_and_churn, str(folder), end, scratch=folder) for _, end in pipes]
    for _, end in pipes:
        end.close()
    assert [told.recv_bytes() for told, _ in pipes] == [b"all read"] * 3
    assert [children.finish(reader) for reader in readers] == [0] * 3
    assert sum(file.stat().st_size for file in stored(folder)) <= 3 * 20_000


@pytest.fixture(autouse=True)
def nothing_is_left(folder: Path) -> Iterator[None]:
    """Of drafts and names, once nobody uses them."""
    yield
    left = list((folder / "cache").rglob("*.draft")) if (folder / "cache").is_dir() else []
    assert left == []


# -- names for an engine that opens them later


def test_a_lasting_name_ends_as_the_objects_and_is_the_same_each_time(copies: LocalCopies, objects: Objects) -> None:
    names, wanted = LastingNames(copies), [objects.put("a.parquet"), objects.put("b.parquet")]

    first = names.of([(str(entry.path), entry.size_bytes) for entry in wanted])
    shutil.rmtree(copies.folder / "copies")
    again = names.of([(str(entry.path), entry.size_bytes) for entry in wanted])

    assert [Path(name).name for name in first] == ["a.parquet", "b.parquet"]
    assert [Path(name).read_bytes() for name in first] == [objects.data[str(entry.path)] for entry in wanted]
    assert again == first
    assert sorted(objects.fetched) == ["a.parquet", "b.parquet"]


def test_lasting_names_go_when_they_are_old_and_there_is_no_room(folder: Path, objects: Objects) -> None:
    now = [0.0]
    names = LastingNames(LocalCopies(folder / "cache", objects.fetch, 2_500), lambda: now[0])

    def name_of(name: str) -> Path:
        entry = objects.put(name)
        return Path(names.of([(str(entry.path), entry.size_bytes)])[0])

    first, second = name_of("a.parquet"), name_of("b.parquet")
    now[0] = LASTS_S + 1
    assert name_of("b.parquet") == second
    third, fourth = name_of("c.parquet"), name_of("d.parquet")

    assert [name.exists() for name in (first, second, third, fourth)] == [False, True, True, True], "only what is old"
    assert name_of("a.parquet") == first
    assert first.read_bytes() == objects.data[str(ROOT / "a.parquet")]


def test_a_lasting_name_of_another_size_is_not_believed(copies: LocalCopies, objects: Objects) -> None:
    names, entry = LastingNames(copies), objects.put("a.parquet")
    (name,) = names.of([(str(entry.path), entry.size_bytes)])
    os.truncate(name, 10)

    assert names.of([(str(entry.path), entry.size_bytes)]) == [name]
    assert Path(name).read_bytes() == objects.data[str(entry.path)]
