"""What any storage of a lake must do, whatever it is made of. A new kind is a line in `support/storage_kinds.py`."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath

import pytest

from lithify.errors import Corruption, LithifyError, NotFound, Unavailable
from lithify.files.addresses import path_of
from lithify.files.os_errors import Exists
from lithify.files.storage import Storage
from support import children
from support.fault_proxy import FaultProxy
from support.s3_servers import S3Server
from support.storage_kinds import KINDS, Kind, count_up, make_trouble

WAIT_S = 120


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that has none."""

    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.bucket] * bool(KINDS[name].server)) for name in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    if "without links" in request.param:
        request.getfixturevalue("no_links")
    return KINDS[request.param]


@pytest.fixture
def root(
    kind: Kind, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PurePath]:
    if not kind.server:
        yield tmp_path
        return
    server: S3Server = request.getfixturevalue("serve")(kind.server)
    with FaultProxy(server) as proxy:
        if kind.troubled:
            make_trouble(proxy)
            monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.server.url)
        yield path_of(server.address())


@pytest.fixture
def storage(kind: Kind, root: PurePath) -> Storage:
    opened = kind.open(root)
    opened.make_folder(root / "a/b")
    return opened


@pytest.fixture
def at(root: PurePath) -> PurePath:
    return root / "a"


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
    def test_of_many_one_wins(self, kind: Kind, root: PurePath, at: PurePath, call: str) -> None:
        stores = [kind.open(root) for _ in range(kind.racers)]
        stores[0].make_folder(at)
        for round_ in range(kind.rounds):
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
        self, request: pytest.FixtureRequest, kind: Kind, storage: Storage, root: PurePath, tmp_path: Path
    ) -> None:
        name, times = request.node.callspec.params["kind"], kind.rounds + 5
        running = [children.start(count_up, name, str(root), times, WAIT_S, scratch=tmp_path) for _ in range(4)]
        for child in running:
            assert children.finish(child) == 0

        assert storage.read(root / "a/count") == b"%d" % (4 * times)


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
        before = storage.touch_ms(at / "clock")
        storage.touch_ms(at / "one", 1_700_000_000_000)

        if storage.remote:  # the server gives the time
            assert before <= storage.modified_ms(at / "one") <= storage.touch_ms(at / "clock")
        else:
            assert storage.modified_ms(at / "one") == 1_700_000_000_000

    def test_engines_get_a_file(self, storage: Storage, at: PurePath) -> None:
        storage.put(at / "one", b"0123456789")

        assert storage.local(at / "one").read_bytes() == b"0123456789"


class TestLists:
    def test_names_are_sorted_and_of_one_folder(self, storage: Storage, at: PurePath) -> None:
        for name in ("b/inner", "10", "9", "Z"):
            storage.put(at / name, b"")

        assert storage.names(at) == ["10", "9", "Z", "b"]
        assert storage.beginning(at) == (["10", "9", "Z", "b"], True)
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
        assert storage.entries(at / "b") == []
        assert set(storage.names(at / "b")) <= {"inner"}  # some servers keep folders that nothing is in

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

    def test_under_a_lock_content_is_replaced_and_keeps_its_time(self, locking: Storage, at: PurePath) -> None:
        locking.put(at / "one", b"first")
        locking.touch_ms(at / "one", 123_456)
        tag = locking.tag(at / "one")

        locking.replace(at / "one", b"second")

        assert (locking.read(at / "one"), locking.modified_ms(at / "one")) == (b"second", 123_456)
        assert locking.tag(at / "one") != tag
        assert list(locking.below(at)) == ["one"]
        with pytest.raises(NotFound):
            locking.replace(at / "two", b"nothing was there")
        assert list(locking.below(at)) == ["one"]

    def test_a_lock_is_held_by_one(self, locking: Storage, kind: Kind, at: PurePath, root: PurePath) -> None:
        with locking.lock(at / "lock", 0, "it"), pytest.raises(Unavailable, match="lock for it"):
            kind.open(root).lock(at / "lock", 0, "it").__enter__()

        with kind.open(root).lock(at / "lock", 0, "it"):
            pass
