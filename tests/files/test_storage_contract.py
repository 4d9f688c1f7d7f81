"""What any storage of a lake must do, whatever it is made of. A new kind is a line in `KINDS`."""

from __future__ import annotations

import errno
import itertools
import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath

import pytest

import lithify.files.local
from lithify.errors import Corruption, LithifyError, NotFound, Unavailable
from lithify.files.local import LocalStorage
from lithify.files.mapped import identity_and_size, mapped
from lithify.files.open_parquet import ranges_of, read_footer
from lithify.files.os_errors import Exists
from lithify.files.read_proof import check_whole, tag_at
from lithify.files.scratch import links_to
from lithify.files.staging import stage_folder
from lithify.files.storage import Storage
from lithify.files.user_files import size_bytes
from support.bucket import Bucket
from support.faults import FaultyStore, os_failure


def local(root: Path) -> Storage:
    storage = LocalStorage()
    storage.path_guard.trust(root)
    return storage


# How each kind is opened a second time at the same root, as another process would.
KINDS: dict[str, Callable[[Path], Storage]] = {"local": local, "local without links": local, "bucket": Bucket}
WAIT_S = 30


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that has none."""

    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Callable[[Path], Storage]:
    if "without links" in request.param:
        request.getfixturevalue("no_links")
    return KINDS[request.param]


@pytest.fixture
def storage(kind: Callable[[Path], Storage], tmp_path: Path) -> Storage:
    opened = kind(tmp_path)
    opened.make_folder(tmp_path / "a/b")
    return opened


@pytest.fixture
def at(tmp_path: Path) -> PurePath:
    return PurePath(tmp_path) / "a"


class TestCreate:
    def test_what_was_created_is_read(self, storage: Storage, at: PurePath) -> None:
        storage.create(at / "one", b"first")
        storage.sync_folder(at)

        assert storage.read(at / "one") == b"first"

    def test_there_is_one_object_of_a_name(self, storage: Storage, at: PurePath) -> None:
        storage.create(at / "one", b"first")

        with pytest.raises(Exists):
            storage.create(at / "one", b"second")
        with pytest.raises(Exists):
            storage.publish(at / "one", b"second")

        assert storage.read(at / "one") == b"first"
        assert list(storage.below(at)) == ["one"]

    def test_what_is_published_is_never_seen_in_part(self, storage: Storage, at: PurePath) -> None:
        content, ended, seen = b"x" * 3_000_000, threading.Event(), set()

        def write() -> None:
            for number in range(20):
                storage.publish(at / str(number), content)
            ended.set()

        writer = threading.Thread(target=write)
        writer.start()
        while not ended.is_set():
            for name in storage.below(at):
                if name.isdigit():
                    seen.add(len(storage.read(at / name)))
        writer.join()

        assert seen <= {len(content)}
        assert list(storage.below(at)) == sorted(map(str, range(20)))

    @pytest.mark.parametrize("call", ["create", "publish"])
    def test_of_many_one_wins(self, kind: Callable[[Path], Storage], tmp_path: Path, at: PurePath, call: str) -> None:
        stores = [kind(tmp_path) for _ in range(8)]
        stores[0].make_folder(at)
        for round_ in range(20):
            barrier = threading.Barrier(len(stores))

            def attempt(number: int, path: PurePath = at / str(round_), barrier: threading.Barrier = barrier) -> bool:
                barrier.wait(WAIT_S)
                try:
                    getattr(stores[number], call)(path, b"%d" % number)
                except Exists:
                    return False
                return True

            with ThreadPoolExecutor(len(stores)) as pool:
                won = list(pool.map(attempt, range(len(stores))))

            assert won.count(True) == 1
            assert stores[0].read(at / str(round_)) == b"%d" % won.index(True)


class TestPut:
    def test_the_last_one_counts(self, storage: Storage, at: PurePath) -> None:
        storage.put(at / "one", b"first")
        storage.put(at / "one", b"second")

        assert storage.read(at / "one") == b"second"
        assert list(storage.below(at)) == ["one"]

    def test_nobody_reads_a_part_of_it(self, storage: Storage, at: PurePath) -> None:
        contents = {bytes([letter]) * 300_000 for letter in b"abc"}
        storage.put(at / "one", min(contents))
        ended = threading.Event()

        def write() -> None:
            for content in itertools.islice(itertools.cycle(contents), 30):
                storage.put(at / "one", content)
            ended.set()

        writer = threading.Thread(target=write)
        writer.start()
        seen = set()
        while not ended.is_set():
            seen.add(storage.read(at / "one"))
        writer.join()

        assert seen <= contents

    def test_each_has_a_tag_of_its_own(self, storage: Storage, at: PurePath) -> None:
        assert storage.tag(at / "one") is None
        tags = set()
        for _ in range(20):
            storage.put(at / "one", b"same")
            tags.add(storage.tag(at / "one"))
            assert storage.tag(at / "one") in tags

        assert len(tags) == 20


def _count_up(kind: str, root: str, times: int) -> None:
    storage = KINDS[kind](Path(root))
    for _ in range(times):
        storage.swap(Path(root) / "a/count", _plus_one, WAIT_S, "the count")


def _plus_one(before: bytes | None) -> bytes:
    return b"%d" % (int(before or b"0") + 1)


class TestSwap:
    def test_what_is_there_is_changed(self, storage: Storage, at: PurePath) -> None:
        told: list[bytes | None] = []

        def change(before: bytes | None) -> bytes:
            told.append(before)
            return b"first" if before is None else before + b", second"

        for _ in range(2):
            storage.swap(at / "one", change, WAIT_S, "it")

        assert storage.read(at / "one") == b"first, second"
        assert told == [None, b"first"]

    def test_nothing_is_written_where_nothing_changes(self, storage: Storage, at: PurePath) -> None:
        storage.put(at / "one", b"first")
        before = storage.tag(at / "one")

        storage.swap(at / "one", lambda content: None, WAIT_S, "it")
        storage.swap(at / "none", lambda content: None, WAIT_S, "it")

        assert storage.tag(at / "one") == before
        assert not storage.exists(at / "none")

    def test_an_error_changes_nothing(self, storage: Storage, at: PurePath) -> None:
        storage.put(at / "one", b"first")

        def change(before: bytes | None) -> bytes:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            storage.swap(at / "one", change, WAIT_S, "it")

        assert storage.read(at / "one") == b"first"

    def test_no_change_is_lost_between_processes(
        self, request: pytest.FixtureRequest, storage: Storage, at: PurePath
    ) -> None:
        kind = request.node.callspec.params["kind"]
        context = multiprocessing.get_context("fork")
        processes = [context.Process(target=_count_up, args=(kind, str(at.parent), 25)) for _ in range(4)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(WAIT_S)
            assert process.exitcode == 0

        assert storage.read(at / "count") == b"100"


class TestReading:
    def test_what_is_not_there_is_not_found(self, storage: Storage, at: PurePath) -> None:
        for call in (storage.read, storage.size, storage.modified_ms):
            with pytest.raises(NotFound):
                call(at / "none")
        with pytest.raises(NotFound):
            storage.read_range(at / "none", 0, 1)

        assert not storage.exists(at / "none")
        assert storage.look_at(at, "none") is None
        assert storage.names(at / "none") == []
        assert list(storage.below(at / "none")) == []

    def test_a_range(self, storage: Storage, at: PurePath) -> None:
        storage.put(at / "one", b"0123456789")

        assert storage.read_range(at / "one", 2, 3) == b"234"
        assert storage.read_range(at / "one", 8, 30) == b"89"
        assert storage.read_range(at / "one", 10, 1) == b""

    def test_what_is_told_of_an_object(self, storage: Storage, at: PurePath) -> None:
        before = storage.touch_ms(at / "clock")
        storage.put(at / "one", b"0123456789")
        after = storage.touch_ms(at / "clock")
        seen = storage.look_at(at, "one")

        assert storage.size(at / "one") == 10
        assert before <= storage.modified_ms(at / "one") <= after
        assert seen is not None
        assert (seen.path, seen.size_bytes) == ("one", 10)
        assert storage.exists(at / "one")
        assert not storage.is_folder(at / "one")
        assert storage.is_folder(at)

    def test_a_given_time(self, storage: Storage, at: PurePath) -> None:
        storage.touch_ms(at / "one", 1_700_000_000_000)

        assert storage.modified_ms(at / "one") == 1_700_000_000_000

    def test_engines_get_a_file(self, storage: Storage, at: PurePath) -> None:
        storage.put(at / "one", b"0123456789")

        assert storage.local(at / "one").read_bytes() == b"0123456789"


class TestLists:
    def test_names_are_sorted_and_of_one_folder(self, storage: Storage, at: PurePath) -> None:
        for name in ("b/inner", "10", "9", "Z"):
            storage.put(at / name, b"")

        assert storage.names(at) == ["10", "9", "Z", "b"]
        assert list(storage.below(at)) == ["10", "9", "Z", "b/inner"]

    def test_what_only_lithify_names(self, storage: Storage, at: PurePath) -> None:
        write, job = f"write-{'0' * 32}.parquet", f"bulk-{'1' * 32}"
        storage.make_folder(at / job)
        for name in (write, "part-0.parquet", f"{job}/part-0.parquet"):
            storage.put(at / name, b"x")

        assert sorted(file.path for file in storage.own(at).files) == [f"{job}/part-0.parquet", write]

    def test_nothing_outside_is_looked_at(self, storage: Storage, at: PurePath) -> None:
        storage.put(at / "one", b"")

        assert storage.look_at(at / "b", "../one") is None


class TestCopies:
    def test_both_are_there(self, storage: Storage, at: PurePath) -> None:
        storage.put(at / "one", b"first")

        storage.copy(at / "one", at / "b/two")
        storage.delete(at / "one")

        assert storage.read(at / "b/two") == b"first"

    def test_a_copy_takes_no_name_away(self, storage: Storage, at: PurePath) -> None:
        for name in ("one", "two"):
            storage.put(at / name, name.encode())

        with pytest.raises(LithifyError):
            storage.copy(at / "one", at / "two")

        assert storage.read(at / "two") == b"two"

    def test_a_local_file_is_taken_in(
        self, storage: Storage, at: PurePath, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        file = tmp_path_factory.mktemp("outside") / "file"
        file.write_bytes(b"from elsewhere")

        storage.upload(file, at / "one")

        assert storage.read(at / "one") == b"from elsewhere"

    def test_a_moved_object_has_one_name(self, storage: Storage, at: PurePath) -> None:
        storage.put(at / "one", b"first")
        storage.put(at / "b/two", b"second")

        storage.move(at / "one", at / "b/two")

        assert storage.read(at / "b/two") == b"first"
        assert not storage.exists(at / "one")

    def test_nothing_can_be_moved_that_is_not_there(self, storage: Storage, at: PurePath) -> None:
        with pytest.raises(NotFound):
            storage.move(at / "none", at / "two")

    def test_a_link_shares_the_bytes(self, request: pytest.FixtureRequest, storage: Storage, at: PurePath) -> None:
        storage.put(at / "one", b"first")
        if not storage.links or "no_links" in request.fixturenames:
            assert not storage.link(at / "one", at / "two")
            assert not storage.exists(at / "two")
            return

        assert storage.link(at / "one", at / "two")

        seen = [storage.look_at(at, name) for name in ("one", "two")]
        assert seen[0]
        assert seen[1]
        assert seen[0].inode == seen[1].inode


class TestCopiesWithoutLinks:
    """Only when it is whole, and lasts, does a file have its name; what fails leaves nothing."""

    @pytest.fixture
    def storage(self, tmp_path: Path, no_links: None) -> Storage:
        (tmp_path / "one").write_bytes(b"first" * 100_000)
        return local(tmp_path)

    def test_it_is_not_seen_before_it_lasts(
        self, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen, fsync = [], os.fsync

        def synced(fd: int) -> None:
            seen.append((os.fstat(fd).st_size, (tmp_path / "two").exists()))
            fsync(fd)

        monkeypatch.setattr(os, "fsync", synced)
        storage.copy(tmp_path / "one", tmp_path / "two")

        assert seen == [(500_000, False)]
        assert storage.names(tmp_path) == ["one", "two"]

    @pytest.mark.parametrize("point", ["store.write", "store.rename"])
    def test_a_copy_that_fails_leaves_nothing(self, storage: Storage, tmp_path: Path, point: str) -> None:
        faulty = FaultyStore(point, os_failure(errno.ENOSPC))

        with pytest.raises(Unavailable, match="no space left"):
            faulty.upload(tmp_path / "one", tmp_path / "two")

        assert storage.names(tmp_path) == ["one"]

    def test_what_cannot_be_made_to_last_is_not_there(
        self, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(fd: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, "fsync", fail)

        with pytest.raises(Corruption, match="I/O error"):
            storage.copy(tmp_path / "one", tmp_path / "two")

        assert storage.names(tmp_path) == ["one"]


@pytest.mark.parametrize("there", [False, True], ids=["new", "taken"])
def test_a_copy_takes_no_name_away_where_only_links_see_to_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """The file itself cannot be linked, being on another disk, say, but files beside the target can."""
    storage = local(tmp_path)
    (tmp_path / "one").write_bytes(b"first")
    monkeypatch.setattr(lithify.files.local, "_renameat2", None)
    monkeypatch.setattr(storage, "link", lambda path, target: False)
    if there:
        (tmp_path / "two").write_bytes(b"second")
        with pytest.raises(LithifyError):
            storage.copy(tmp_path / "one", tmp_path / "two")
    else:
        storage.copy(tmp_path / "one", tmp_path / "two")

    assert (tmp_path / "two").read_bytes() == (b"second" if there else b"first")
    assert storage.names(tmp_path) == ["one", "two"]


class TestDeletes:
    def test_any_number_of_times(self, storage: Storage, at: PurePath) -> None:
        storage.put(at / "one", b"first")

        for _ in range(2):
            storage.delete(at / "one")

        assert not storage.exists(at / "one")

    def test_a_folder_goes_with_what_is_in_it(self, storage: Storage, at: PurePath) -> None:
        for name in ("b/one", "b/inner/two", "beside"):
            storage.make_folder((at / name).parent)
            storage.put(at / name, b"")

        for _ in range(2):
            storage.delete_folder(at / "b")

        assert list(storage.below(at)) == ["beside"]

    def test_an_empty_folder_goes_and_a_full_one_stays(self, storage: Storage, at: PurePath) -> None:
        storage.make_folder(at / "empty")
        storage.put(at / "b/one", b"")

        for _ in range(2):
            storage.delete_empty_folder(at / "empty")
        storage.delete_empty_folder(at / "b")

        assert storage.names(at) == ["b"]


class TestPathGuard:
    @pytest.mark.parametrize("name", ["../../elsewhere", "b/../../../elsewhere"])
    def test_nothing_leaves_the_root(self, storage: Storage, at: PurePath, name: str) -> None:
        for call in (
            lambda: storage.read(at / name),
            lambda: storage.put(at / name, b""),
            lambda: storage.create(at / name, b""),
            lambda: storage.delete(at / name),
            lambda: storage.delete_folder(at / name),
            lambda: storage.swap(at / name, lambda before: b"", WAIT_S, "it"),
            lambda: storage.copy(at / "b", at / name),
            lambda: storage.move(at / "b", at / name),
        ):
            with pytest.raises(Corruption):
                call()

    def test_nor_does_anything_that_lies_below_no_root(self, storage: Storage) -> None:
        with pytest.raises(Corruption, match="outside of this lake"):
            storage.put(PurePath("/elsewhere/file"), b"")


class TestDoubt:
    def test_nothing_is_in_doubt_that_was_put_or_synced(self, storage: Storage, at: PurePath) -> None:
        storage.put(at / "one", b"first")
        storage.sync_file(at / "one")

        assert not storage.is_doubted(at / "one")

    def test_writing_anew_leaves_the_content(self, storage: Storage, at: PurePath) -> None:
        storage.put(at / "one", b"first")
        before = storage.tag(at / "one")

        storage.write_anew(at / "one", b"first")

        assert storage.read(at / "one") == b"first"
        assert storage.tag(at / "one") != before
        assert not storage.is_doubted(at / "one")


class TestCapabilities:
    @pytest.fixture
    def growing(self, storage: Storage) -> Storage:
        if not storage.grows:
            pytest.skip("its objects do not grow")
        return storage

    def test_lines_are_appended(self, growing: Storage, at: PurePath) -> None:
        assert growing.append(at / "lines", b"first\n") == 6
        growing.put(at / "lines", b"first\ncut of")

        assert growing.append(at / "lines", b"second\n") == 20
        assert growing.read(at / "lines") == b"first\ncut of\nsecond\n"

    def test_parts_are_added_and_bytes_overwritten(self, growing: Storage, at: PurePath) -> None:
        growing.put(at / "one", b"0123456789")

        growing.extend(at / "one", [b"ab", b"cd"])
        growing.patch(at / "one", 2, b"xx")

        assert growing.read(at / "one") == b"01xx456789" + bytes(6) + b"abcd"

    @pytest.fixture
    def locking(self, storage: Storage) -> Storage:
        if not storage.locks:
            pytest.skip("it has no locks")
        return storage

    def test_a_lock_is_held_by_one(
        self, locking: Storage, kind: Callable[[Path], Storage], at: PurePath, tmp_path: Path
    ) -> None:
        with locking.lock(at / "lock", 0, "it"), pytest.raises(Unavailable, match="lock for it"):
            kind(tmp_path).lock(at / "lock", 0, "it").__enter__()

        with kind(tmp_path).lock(at / "lock", 0, "it"):
            pass


def _break(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """From now on the system refuses every file, and says why."""

    def refuse(*args: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    for name in ("link", "listdir", "lstat", "makedirs", "open", "scandir", "stat", "symlink", "utime"):
        monkeypatch.setattr(os, name, refuse)


ACCESSES: dict[str, Callable[[Storage, Path], object]] = {
    "create": lambda storage, path: storage.create(path, b""),
    "publish": lambda storage, path: storage.publish(path.with_name("two"), b""),
    "put": lambda storage, path: storage.put(path, b""),
    "swap": lambda storage, path: storage.swap(path, lambda before: b"", WAIT_S, "it"),
    "copy": lambda storage, path: storage.copy(path, path.with_name("two")),
    "upload": lambda storage, path: storage.upload(path, path.with_name("two")),
    "download": lambda storage, path: storage.download(path, path.with_name("two")),
    "move": lambda storage, path: storage.move(path, path.with_name("two")),
    "delete": lambda storage, path: storage.delete(path),
    "delete_folder": lambda storage, path: storage.delete_folder(path),
    "touch_ms": lambda storage, path: storage.touch_ms(path),
    "read": lambda storage, path: storage.read(path),
    "read_range": lambda storage, path: storage.read_range(path, 0, 1),
    "exists": lambda storage, path: storage.exists(path),
    "is_folder": lambda storage, path: storage.is_folder(path),
    "size": lambda storage, path: storage.size(path),
    "modified_ms": lambda storage, path: storage.modified_ms(path),
    "tag": lambda storage, path: storage.tag(path),
    "names": lambda storage, path: storage.names(path.parent),
    "below": lambda storage, path: list(storage.below(path.parent)),
    "own": lambda storage, path: storage.own(path.parent),
    "look_at": lambda storage, path: storage.look_at(path.parent, path.name),
    "make_folder": lambda storage, path: storage.make_folder(path.with_name("new")),
    "delete_empty_folder": lambda storage, path: storage.delete_empty_folder(path),
    "sync_file": lambda storage, path: storage.sync_file(path),
    "sync_folder": lambda storage, path: storage.sync_folder(path.parent),
    "is_doubted": lambda storage, path: storage.is_doubted(path),
    "write_anew": lambda storage, path: storage.write_anew(path, b""),
    "lock": lambda storage, path: storage.lock(path, 0, "it").__enter__(),
    "link": lambda storage, path: storage.link(path, path.with_name("two")),
    "append": lambda storage, path: storage.append(path, b""),
    "extend": lambda storage, path: storage.extend(path, [b""]),
    "patch": lambda storage, path: storage.patch(path, 0, b""),
    "path_guard.is_there": lambda storage, path: storage.path_guard.is_there(path),
    "path_guard.check_entries": lambda storage, path: storage.path_guard.check_entries(path.parent),
    "path_guard.check_files": lambda storage, path: storage.path_guard.check_files(path.parent, [path.name]),
    "path_guard.followed": lambda storage, path: storage.path_guard.followed(path, 1),
    "mapped": lambda storage, path: mapped(path),
    "identity_and_size": lambda storage, path: identity_and_size(path),
    "ranges_of": lambda storage, path: ranges_of(path).__enter__(),
    "read_footer": lambda storage, path: read_footer(path),
    "tag_at": lambda storage, path: tag_at(str(path)),
    "check_whole": lambda storage, path: check_whole(str(path), 3),
    "links_to": lambda storage, path: links_to([str(path)], path.with_name("new")),
    "stage_folder": lambda storage, path: stage_folder(path.with_name("new"), {}, 1),
    "size_bytes": lambda storage, path: size_bytes(path),
}


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EIO, Corruption), (errno.ENOSPC, Unavailable), (errno.EMFILE, Unavailable)]
)
@pytest.mark.parametrize("access", ACCESSES)
def test_no_access_lets_an_error_of_the_system_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, access: str, number: int, kind: type[LithifyError]
) -> None:
    storage, file = local(tmp_path), tmp_path / "one"
    file.write_bytes(b"one")
    with monkeypatch.context() as broken:
        _break(broken, number)
        with pytest.raises(kind) as raised:
            ACCESSES[access](storage, file)

    assert isinstance(raised.value.__cause__, OSError)
    assert file.read_bytes() == b"one"


def test_every_access_is_tried() -> None:
    """All of the interface but what reaches no file."""
    methods = {name for name, found in vars(Storage).items() if not name.startswith("_") and callable(found)}

    assert methods - {"step", "local", "give_modes"} <= set(ACCESSES)


@pytest.mark.parametrize(
    ("point", "call"),
    [
        ("store.write", lambda storage, path: storage.create(path, b"")),
        ("store.write", lambda storage, path: storage.publish(path, b"")),
        ("store.rename", lambda storage, path: storage.publish(path, b"")),
        ("store.write", lambda storage, path: storage.put(path, b"")),
        ("store.rename", lambda storage, path: storage.put(path, b"")),
        ("store.sync", lambda storage, path: storage.put(path, b"")),
        ("store.rename", lambda storage, path: storage.move(path.parent / "there", path)),
        ("store.link", lambda storage, path: storage.copy(path.parent / "there", path)),
        ("store.delete", lambda storage, path: storage.delete(path)),
        ("store.delete_folder", lambda storage, path: storage.delete_folder(path)),
        ("store.make_folder", lambda storage, path: storage.make_folder(path)),
        ("store.sync", lambda storage, path: storage.sync_file(path.parent / "there")),
    ],
)
def test_errors_of_the_system_are_told_as_ours(
    tmp_path: Path, point: str, call: Callable[[Storage, PurePath], None]
) -> None:
    """With their cause, and nothing half-written stays behind."""
    storage = FaultyStore(point, os_failure(errno.ENOSPC))
    (tmp_path / "there").write_bytes(b"there")

    with pytest.raises(Unavailable, match="no space left") as raised:
        call(storage, tmp_path / "one")

    assert isinstance(raised.value.__cause__, OSError)
    assert {path.name for path in tmp_path.iterdir()} <= {"there", "one"}
