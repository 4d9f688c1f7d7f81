"""What the tests of buckets stand on: the servers decide who wins, the proxy breaks what it says and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from support import s3_servers
from support.fault_proxy import Fault, FaultProxy
from support.left_out import left_out
from support.s3_servers import BUCKET, SERVERS, NoServer, S3Server, Servers, versitygw

pytestmark = pytest.mark.bucket


@pytest.fixture
def store(address: str) -> Callable[..., S3Store]:
    """A client of what the environment leads to, that never tries again by itself."""

    def make(timeout_s: float = 60) -> S3Store:
        return S3Store(
            BUCKET,
            prefix=address.rpartition("/")[2],
            retry_config={"max_retries": 0},
            client_options={"timeout": timedelta(seconds=timeout_s), "allow_http": True},
        )

    return make


@pytest.mark.parametrize("s3", SERVERS, indirect=True)
class TestServers:
    def test_of_many_creators_one_wins(self, store: Callable[..., S3Store]) -> None:
        for name in ("one", "two"):
            barrier = threading.Barrier(3)

            def create(number: int, name: str = name, barrier: threading.Barrier = barrier) -> bool:
                client = store()
                barrier.wait(30)
                try:
                    client.put(name, b"%d" % number, mode="create")
                except AlreadyExistsError:
                    return False
                return True

            with ThreadPoolExecutor(3) as pool:
                won = list(pool.map(create, range(3)))

            assert won.count(True) == 1
            assert bytes(store().get(name).bytes()) == b"%d" % won.index(True)

    def test_a_swap_on_an_old_tag_fails(self, store: Callable[..., S3Store]) -> None:
        first = store().put("one", b"first")
        store().put("one", b"second", mode={"e_tag": first["e_tag"]})

        with pytest.raises(PreconditionError):
            store().put("one", b"third", mode={"e_tag": first["e_tag"]})

        assert bytes(store().get("one").bytes()) == b"second"

    def test_wrong_keys_are_refused(self, store: Callable[..., S3Store], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "guessed")

        with pytest.raises(BaseError, match="403"):
            store().put("one", b"")


def test_a_server_that_was_killed_starts_over_the_same_objects(
    s3: S3Server, store: Callable[..., S3Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if s3.name != "versitygw":
        pytest.skip("versitygw is not here")
    with versitygw(tmp_path / "own") as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.server.url)
        store().put("one", b"first")

        running.kill()
        with pytest.raises(BaseError):
            store().get("one")
        running.start()

        assert bytes(store().get("one").bytes()) == b"first"
    assert not (tmp_path / "own").exists()


def test_a_server_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(s3_servers, "_CACHE", tmp_path)
    servers = Servers(lambda name: tmp_path / name)

    with pytest.raises(NoServer, match="no Go to build it") as raised:
        servers.get("versitygw")

    assert raised.value.tolerable


def test_a_build_that_has_just_failed_is_not_tried_in_every_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/asked\necho no network >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(s3_servers, "_CACHE", tmp_path / "cache")

    for _ in range(3):
        with pytest.raises(NoServer, match="no network") as raised:
            s3_servers.find_versitygw()
        assert not raised.value.tolerable
    with pytest.raises(NoServer, match="no network"):
        s3_servers.find_versitygw(again=True)

    assert (tmp_path / "asked").read_text().split() == ["asked"] * 2


LANDS: dict[Fault, bool] = {
    "403": False,
    "skewed": False,
    "409": False,
    "503": False,
    "500 after": True,
    "drop before": False,
    "drop after": True,
    "hang before": False,
    "hang after": True,
    "truncate": True,
}


class TestProxy:
    @pytest.mark.parametrize("fault", LANDS)
    def test_a_fault_strikes_once_and_lands_or_not(
        self, proxy: FaultProxy, store: Callable[..., S3Store], fault: Fault
    ) -> None:
        rule = proxy.fail(fault, "PUT", "/one$")

        store().put("other", b"")
        with pytest.raises(BaseError):
            store(2 if "hang" in fault else 60).put("one", b"first", mode="create")

        assert rule.hits == 1
        assert [found["path"].rpartition("/")[2] for page in store().list() for found in page] == (
            ["one", "other"] if LANDS[fault] else ["other"]
        )
        store().put("one", b"second")
        assert bytes(store().get("one").bytes()) == b"second"

    def test_requests_are_counted_by_what_they_are_for(self, proxy: FaultProxy, store: Callable[..., S3Store]) -> None:
        client = store()
        client.put("before", b"")

        with proxy.counted() as requests:
            client.put("one", b"x" * 3_000_000)
            client.put("two", b"", mode="create")
            client.copy("one", "three")
            assert bytes(client.get("three").bytes()) == b"x" * 3_000_000
            client.head("two")
            assert len([found for page in client.list() for found in page]) == 4
        client.put("after", b"")

        assert requests == {"PUT": 2, "COPY": 1, "GET": 1, "HEAD": 1, "LIST": 1}

    def test_only_what_hangs_on_a_condition_is_struck(self, proxy: FaultProxy, store: Callable[..., S3Store]) -> None:
        proxy.fail("503", conditional=True, times=None)

        store().put("one", b"")
        with pytest.raises(BaseError):
            store().put("two", b"", mode="create")
        proxy.heal()
        store().put("two", b"", mode="create")


def test_what_is_left_out_for_want_of_something_is_told_by_its_reason() -> None:
    def skipped(reason: str, *marks: str) -> SimpleNamespace:
        return SimpleNamespace(keywords=dict.fromkeys(marks, 1), longrepr=("a.py", 1, f"Skipped: {reason}"))

    reports = [skipped("no Go", "bucket"), skipped("no jars", "bucket", "spark"), skipped("no Go", "bucket")]

    assert left_out([*reports, skipped("no browser", "browser")]) == ["no Go (2)", "no jars (1)"]
