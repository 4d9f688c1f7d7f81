"""Conditional puts whose answers get lost, come too late, or say that nothing was decided: each is settled, or told as
open, and none is taken for what it is not (invariant 2).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath

import obstore
import pytest

from lithify.errors import LithifyError, Unavailable
from lithify.files.addresses import path_of
from lithify.files.bucket import client as bucket_client
from lithify.files.bucket import storage as bucket_module
from lithify.files.bucket.client import client_of
from lithify.files.bucket.marks import MARKS_MAX
from lithify.files.bucket.storage import BucketStorage
from lithify.files.os_errors import Exists, InDoubt
from support.fault_proxy import Fault, FaultProxy

pytestmark = pytest.mark.bucket
WAIT_S = 60
LOST: list[Fault] = ["drop after", "500 after", "truncate", "hang after"]


@pytest.fixture(autouse=True)
def _no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """For an answer that does not come."""
    monkeypatch.setattr(bucket_client, "TIMEOUT_S", 2.0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer gives up on being told while somebody watches."""
    monkeypatch.setattr(bucket_module, "DOUBT_S_MAX", 1.0)
    monkeypatch.setattr(bucket_module, "BUSY_S_MAX", 1.0)


@pytest.fixture
def root(proxy: FaultProxy, address: str) -> PurePath:
    return path_of(address)


@pytest.fixture
def storage(root: PurePath) -> BucketStorage:
    return _opened(root)


def _opened(root: PurePath) -> BucketStorage:
    storage = BucketStorage()
    storage.path_guard.trust(root)
    return storage


@pytest.fixture
def others(root: PurePath, proxy: FaultProxy) -> BucketStorage:
    """Somebody whom nothing happens to: faults strike once."""
    return _opened(root)


class TestCreate:
    @pytest.mark.parametrize("fault", LOST)
    def test_who_is_not_told_knows_all_the_same(
        self, proxy: FaultProxy, storage: BucketStorage, root: PurePath, fault: Fault
    ) -> None:
        lost = proxy.fail(fault, "PUT")

        storage.create(root / "one", b"first")

        assert lost.hits == 1
        with pytest.raises(Exists):
            storage.create(root / "one", b"first")

    @pytest.mark.parametrize("fault", LOST)
    def test_who_lost_and_is_not_told_knows_too(
        self, proxy: FaultProxy, storage: BucketStorage, others: BucketStorage, root: PurePath, fault: Fault
    ) -> None:
        """The same bytes are no proof."""
        others.create(root / "one", b"same")
        lost = proxy.fail(fault, "PUT")

        with pytest.raises(Exists):
            storage.create(root / "one", b"same")

        assert lost.hits == 1

    @pytest.mark.parametrize("fault", ["drop before", "503", "hang before"])
    def test_what_was_not_done_is_done_again(
        self, proxy: FaultProxy, storage: BucketStorage, root: PurePath, fault: Fault
    ) -> None:
        proxy.fail(fault, "PUT")

        storage.create(root / "one", b"first")

        assert storage.read(root / "one") == b"first"

    def test_another_may_come_first_then(
        self, proxy: FaultProxy, storage: BucketStorage, others: BucketStorage, root: PurePath
    ) -> None:
        proxy.fail("drop before", "PUT", meanwhile=lambda: others.create(root / "one", b"theirs"))

        with pytest.raises(Exists):
            storage.create(root / "one", b"ours")

        assert storage.read(root / "one") == b"theirs"

    def test_a_collision_that_nobody_won_is_no_object(
        self, proxy: FaultProxy, storage: BucketStorage, root: PurePath
    ) -> None:
        collision = proxy.fail("409", "PUT", times=3)

        storage.create(root / "one", b"first")

        assert collision.hits == 3
        assert storage.read(root / "one") == b"first"

    @pytest.mark.usefixtures("impatient")
    def test_collisions_without_end_are_no_doubt(
        self, proxy: FaultProxy, storage: BucketStorage, root: PurePath
    ) -> None:
        proxy.fail("409", "PUT", times=None)

        with pytest.raises(Unavailable, match="does not decide who writes") as raised:
            storage.create(root / "one", b"first")

        assert not isinstance(raised.value, InDoubt)
        assert not storage.exists(root / "one")

    @pytest.mark.usefixtures("impatient")
    @pytest.mark.parametrize("fault", ["drop after", "500 after"])
    def test_what_stays_unknown_is_told_as_that(
        self, proxy: FaultProxy, storage: BucketStorage, root: PurePath, fault: Fault
    ) -> None:
        proxy.fail(fault, "PUT", times=None)
        proxy.fail("drop before", "HEAD", times=None)

        with pytest.raises(InDoubt, match=r"whether .*/one was written is not known"):
            storage.create(root / "one", b"first")

        proxy.heal()
        assert storage.read(root / "one") == b"first"

    def test_a_refusal_after_a_doubt_leaves_the_doubt(
        self, proxy: FaultProxy, storage: BucketStorage, root: PurePath
    ) -> None:
        """Keys that expire between two attempts say nothing about the first."""
        proxy.fail("drop after", "PUT")
        proxy.fail("403", "PUT", times=None)

        with pytest.raises(InDoubt, match=r"written before that is not known"):
            storage.create(root / "one", b"first")

        proxy.heal()
        assert storage.read(root / "one") == b"first"

    def test_a_refusal_at_once_is_none(self, proxy: FaultProxy, storage: BucketStorage, root: PurePath) -> None:
        proxy.fail("403", "PUT", times=None)

        with pytest.raises(Unavailable) as raised:
            storage.create(root / "one", b"first")

        assert not isinstance(raised.value, InDoubt)

    def test_of_many_one_wins_and_knows_it_whatever_gets_lost(self, proxy: FaultProxy, root: PurePath) -> None:
        proxy.fail("drop after", "PUT", times=None, chance=0.3)
        proxy.fail("409", "PUT", times=None, chance=0.2)
        proxy.fail("drop after", "HEAD", times=None, chance=0.2)
        stores = [_opened(root) for _ in range(4)]
        for name in map(str, range(10)):
            barrier = threading.Barrier(len(stores))

            def attempt(number: int, name: str = name, barrier: threading.Barrier = barrier) -> bool:
                barrier.wait(WAIT_S)
                try:
                    stores[number].create(root / name, b"%d" % number)
                except Exists:
                    return False
                return True

            with ThreadPoolExecutor(len(stores)) as pool:
                won = list(pool.map(attempt, range(len(stores))))

            assert won.count(True) == 1
            assert stores[0].read(root / name) == b"%d" % won.index(True)


class TestSwap:
    @pytest.mark.parametrize("fault", LOST)
    def test_a_change_that_nobody_was_told_of_is_made_once(
        self, proxy: FaultProxy, storage: BucketStorage, others: BucketStorage, root: PurePath, fault: Fault
    ) -> None:
        """Though others have changed it since."""
        storage.swap(root / "one", lambda before: b"a", WAIT_S, "it")
        proxy.fail(fault, "PUT", meanwhile=lambda: others.swap(root / "one", _with(b"c"), WAIT_S, "it"))

        storage.swap(root / "one", _with(b"b"), WAIT_S, "it")

        assert storage.read(root / "one") == b"abc"

    def test_a_content_that_came_back_is_not_changed_a_second_time(
        self, proxy: FaultProxy, storage: BucketStorage, others: BucketStorage, root: PurePath
    ) -> None:
        storage.swap(root / "one", lambda before: b"free", WAIT_S, "it")
        asked: list[bytes | None] = []

        def take(before: bytes | None) -> bytes:
            asked.append(before)
            return b"taken"

        proxy.fail("drop after", "PUT", meanwhile=lambda: others.swap(root / "one", lambda b: b"free", WAIT_S, "it"))
        storage.swap(root / "one", take, WAIT_S, "it")

        assert asked == [b"free"]
        assert storage.read(root / "one") == b"free"

    def test_who_read_before_others_came_and_went_reads_again(
        self, storage: BucketStorage, others: BucketStorage, root: PurePath
    ) -> None:
        storage.swap(root / "one", lambda before: b"free", WAIT_S, "it")
        asked = []

        def slow(before: bytes | None) -> bytes:
            asked.append(before)
            if len(asked) == 1:
                for content in (b"taken", b"free"):
                    others.swap(root / "one", lambda before, content=content: content, WAIT_S, "it")
            return b"taken"

        storage.swap(root / "one", slow, WAIT_S, "it")

        assert asked == [b"free", b"free"]

    def test_too_many_changes_to_tell_are_told(
        self, proxy: FaultProxy, storage: BucketStorage, others: BucketStorage, root: PurePath
    ) -> None:
        storage.swap(root / "one", lambda before: b"", WAIT_S, "it")

        def many() -> None:
            for _ in range(MARKS_MAX + 1):
                others.swap(root / "one", _with(b"x"), WAIT_S, "it")

        proxy.fail("drop after", "PUT", meanwhile=many)

        with pytest.raises(InDoubt, match="changed so often"):
            storage.swap(root / "one", _with(b"y"), WAIT_S, "it")

        assert storage.read(root / "one") == b"y" + b"x" * (MARKS_MAX + 1)

    def test_others_who_never_stop_are_told_of(
        self, storage: BucketStorage, others: BucketStorage, root: PurePath
    ) -> None:
        def raced(before: bytes | None) -> bytes:
            others.swap(root / "one", _with(b"x"), WAIT_S, "it")
            return b"y"

        with pytest.raises(Unavailable, match="others kept changing it"):
            storage.swap(root / "one", raced, 0, "it")

    def test_nobody_sees_what_makes_each_different(self, storage: BucketStorage, root: PurePath) -> None:
        tags = set()
        for _ in range(3):
            storage.swap(root / "one", lambda before: b'{"a": 1}', WAIT_S, "it")
            tags.add(obstore.head(client_of(root), f"{root.key}/one")["e_tag"])
        raw = bytes(obstore.get(client_of(root), f"{root.key}/one").bytes())
        storage.copy(root / "one", root / "two")

        assert len(tags) == 3
        assert raw.strip() == b'{"a": 1}'
        for name in ("one", "two"):
            assert storage.read(root / name) == b'{"a": 1}'
            assert storage.size(root / name) == 8
            assert storage.read_range(root / name, 4, 100) == b": 1}"


def _with(more: bytes) -> Callable[[bytes | None], bytes]:
    return lambda before: (before or b"") + more


class TestReads:
    def test_an_answer_that_breaks_off_is_asked_for_again(
        self, proxy: FaultProxy, storage: BucketStorage, root: PurePath
    ) -> None:
        content = os.urandom(3_000_000)
        storage.put(root / "one", content)
        for kind in ("GET", "LIST", "HEAD"):
            proxy.fail("truncate", kind)

        assert storage.read(root / "one") == content
        assert storage.names(root) == ["one"]
        assert storage.size(root / "one") == len(content)

    def test_a_long_list_goes_on_where_it_broke_off(
        self, proxy: FaultProxy, storage: BucketStorage, root: PurePath
    ) -> None:
        names = [f"{number:04}" for number in range(2300)]
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda name: storage.put(root / "many" / name, b""), names))
        broken = proxy.fail("truncate", "LIST", "continuation-token|start-after", times=2)

        with proxy.counted() as requests:
            assert list(storage.below(root / "many")) == names

        assert broken.hits == 2
        assert requests == {"LIST": 5}

    def test_but_not_without_end(self, proxy: FaultProxy, storage: BucketStorage, root: PurePath) -> None:
        storage.put(root / "one", b"first")
        broken = proxy.fail("truncate", "GET", times=None)

        with pytest.raises(LithifyError, match="broke off"):
            storage.read(root / "one")

        assert broken.hits <= 50

    def test_a_delete_whose_answer_is_lost_is_done(
        self, proxy: FaultProxy, storage: BucketStorage, root: PurePath
    ) -> None:
        for fault in ("drop after", "truncate", "500 after"):
            storage.put(root / "one", b"first")
            lost = proxy.fail(fault, "DELETE")

            storage.delete(root / "one")

            assert lost.hits == 1
            assert not storage.exists(root / "one")


def test_a_forked_process_is_told_what_to_do(storage: BucketStorage, root: PurePath) -> None:
    storage.put(root / "one", b"first")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            storage.read(root / "one")
        except Unavailable as error:
            os.write(writing, error.message.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as said:
        assert "forkserver" in said.read()
    os.waitpid(child, 0)
