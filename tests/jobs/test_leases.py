"""Leases: one holder at a time, takeover of what ended, and no harm from clocks, sleepers and damaged files."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lithify import Conflict, InvalidRequest, Lake, LithifyError, Settings
from lithify.jobs import leases
from lithify.tables.runtime import Owner, Runtime
from support.faults import FaultyStore, disk_full

DAY_MS = 86_400_000


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def here(folder: Path, clock: Clock) -> Iterator[Runtime]:
    with Lake(folder, settings=Settings()) as lake:
        yield dataclasses.replace(lake._runtime, now_ms=clock)


@pytest.fixture
def there(here: Runtime) -> Runtime:
    """Another host, of which nothing is known."""
    return dataclasses.replace(here, owner=Owner("elsewhere", 7, "1"))


def take(runtime: Runtime, lease_id: str = "a", length_s: float = 60) -> leases.Lease:
    ours, lease = leases.acquire(runtime, "cycle", lease_id, length_s)
    assert ours
    return lease


def file_of(runtime: Runtime) -> Path:
    return runtime.control / "leases" / "cycle.json"


def test_the_second_learns_who_holds_it_until_when(here: Runtime, there: Runtime, clock: Clock) -> None:
    take(here, "first")
    ours, lease = leases.acquire(there, "cycle", "second", 60)
    assert not ours
    assert (lease.id, lease.owner, lease.expires_ms) == ("first", here.owner, clock.now_ms + 60_000)


def test_leases_of_other_names_do_not_matter(here: Runtime, there: Runtime) -> None:
    take(here)
    assert leases.acquire(there, "other", "b", 60)[0]


def test_each_new_holder_gets_the_next_token(here: Runtime, there: Runtime) -> None:
    assert leases.current_token(here, "cycle") == 0
    tokens = []
    for runtime in (here, there, here):
        lease = take(runtime)
        tokens.append(lease.token)
        assert leases.current_token(there, "cycle") == lease.token
        leases.release(runtime, lease)
    assert tokens == [1, 2, 3]
    assert leases.current_token(here, "cycle") == 3
    assert leases.current(here, "cycle") is None


def test_an_ended_lease_is_taken_over_and_its_holder_learns_it(here: Runtime, there: Runtime, clock: Clock) -> None:
    mine = take(here)
    clock.now_ms += 60_000
    theirs = take(there, "b")
    assert theirs.token == mine.token + 1
    for attempt in (leases.renew, leases.check):
        with pytest.raises(leases.LeaseLost, match="taken over by elsewhere-7"):
            attempt(here, mine)
    leases.release(here, mine)
    assert leases.current(here, "cycle") == theirs


def test_renewing_keeps_others_out(here: Runtime, there: Runtime, clock: Clock) -> None:
    mine = take(here)
    for _ in range(5):
        clock.now_ms += 40_000
        mine = leases.renew(here, mine)
        assert not leases.acquire(there, "cycle", "b", 60)[0]


def test_an_ended_lease_that_nobody_took_can_be_renewed(here: Runtime, there: Runtime, clock: Clock) -> None:
    mine = take(here)
    clock.now_ms += DAY_MS
    leases.renew(here, mine)
    assert not leases.acquire(there, "cycle", "b", 60)[0]


def test_a_dead_process_of_this_host_holds_nothing(here: Runtime) -> None:
    dead = dataclasses.replace(here, owner=Owner(here.owner.host, here.owner.pid, "another start"))
    token = take(dead).token
    assert take(here, "b").token == token + 1


def test_two_lakes_of_one_process_do_not_share_a_lease(here: Runtime) -> None:
    take(here, "first lake")
    assert not leases.acquire(dataclasses.replace(here), "cycle", "second lake", 60)[0]


def test_a_clock_a_day_ahead_takes_over(here: Runtime, there: Runtime, clock: Clock) -> None:
    mine = take(here)
    ahead = dataclasses.replace(there, now_ms=lambda: clock.now_ms + DAY_MS)
    take(ahead, "b")
    with pytest.raises(leases.LeaseLost):
        leases.renew(here, mine)


def test_a_lease_from_a_clock_a_day_ahead_is_not_honoured(here: Runtime, there: Runtime, clock: Clock) -> None:
    ahead = dataclasses.replace(there, now_ms=lambda: clock.now_ms + DAY_MS)
    take(ahead)
    assert leases.current(here, "cycle") is None
    take(here, "b")


def test_a_clock_a_little_ahead_is_honoured(here: Runtime, there: Runtime, clock: Clock) -> None:
    ahead = dataclasses.replace(there, now_ms=lambda: clock.now_ms + 50_000)
    take(ahead)
    assert not leases.acquire(here, "cycle", "b", 60)[0]


def test_a_holder_whose_clock_went_back_goes_on(here: Runtime, there: Runtime, clock: Clock) -> None:
    mine = take(here)
    clock.now_ms -= DAY_MS
    mine = leases.renew(here, mine)
    assert mine.expires_ms == clock.now_ms + 60_000
    assert not leases.acquire(there, "cycle", "b", 60)[0]


def test_a_longer_lease_of_another_node_is_honoured(here: Runtime, there: Runtime) -> None:
    take(there, length_s=900)
    assert not leases.acquire(here, "cycle", "b", 60)[0]


def test_no_lease_claims_more_than_the_longest(here: Runtime, there: Runtime) -> None:
    lease = take(there)
    fields = json.loads(file_of(here).read_text())
    file_of(here).write_text(json.dumps({**fields, "length_ms": 10**15, "expires_ms": lease.expires_ms + 10**14}))
    take(here, "b")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"7",
        b"null",
        b"{}",
        b"[" * 100_000,
        b'{"name": "cycle", "owner": {}}',
        b'{"name": "other", "id": "a", "owner": {"host": "h", "pid": 1, "started": ""}, "token": 1, "started_ms": 1, '
        b'"expires_ms": 9000000000000, "length_ms": 60000, "what": ""}',
        b'{"name": "cycle", "id": "a", "owner": {"host": "h", "pid": 1, "started": ""}, "token": "1", "started_ms": 1, '
        b'"expires_ms": 1800000030000, "length_ms": 60000, "what": ""}',
    ],
)
def test_an_unreadable_file_counts_as_ended_and_is_set_aside(here: Runtime, there: Runtime, content: bytes) -> None:
    before = take(there)
    file_of(here).write_bytes(content)
    assert leases.current(here, "cycle") is None
    taken = take(here, "b")
    assert taken.token > before.token
    assert file_of(here).with_suffix(".unreadable").read_bytes() == content
    assert leases.current(there, "cycle") == taken
    with pytest.raises(leases.LeaseLost):
        leases.renew(there, before)


def test_looking_sets_nothing_aside(here: Runtime) -> None:
    take(here)
    file_of(here).write_bytes(b"{")
    assert leases.current(here, "cycle") is None
    assert leases.current_token(here, "cycle") > 1
    assert file_of(here).read_bytes() == b"{"


@pytest.mark.parametrize("damage", ["deleted", "garbled"])
def test_a_holder_writes_its_lost_file_again(here: Runtime, there: Runtime, damage: str) -> None:
    mine = take(here)
    if damage == "deleted":
        file_of(here).unlink()
    else:
        file_of(here).write_bytes(b"{")
    leases.renew(here, mine)
    assert not leases.acquire(there, "cycle", "b", 60)[0]


def test_of_many_at_once_exactly_one_gets_it(here: Runtime) -> None:
    runtimes = [dataclasses.replace(here, owner=Owner("elsewhere", number, "1")) for number in range(8)]
    for turn in range(1, 6):
        got: list[leases.Lease] = []
        barrier = threading.Barrier(len(runtimes))

        def race(runtime: Runtime, got: list[leases.Lease] = got, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            ours, lease = leases.acquire(runtime, "cycle", str(runtime.owner.pid), 60)
            if ours:
                got.append(lease)

        threads = [threading.Thread(target=race, args=(runtime,)) for runtime in runtimes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [lease.token for lease in got] == [turn]
        leases.release(next(r for r in runtimes if r.owner == got[0].owner), got[0])


def test_the_heartbeat_renews_and_gives_back(here: Runtime, clock: Clock) -> None:
    renewed = threading.Event()
    store = FaultyStore("lease.renewed", renewed.set)
    runtime = dataclasses.replace(here, store=store)
    lease = take(runtime, length_s=0.03)
    clock.now_ms += 7
    with leases.RenewedLease(runtime, lease) as renewing:
        assert renewed.wait(60)
        found = leases.current(here, "cycle")
        assert found is not None
        assert found.expires_ms == clock.now_ms + 30
        assert renewing.still_ours()
    assert leases.current(here, "cycle") is None


def test_the_heartbeat_notices_a_takeover(here: Runtime, there: Runtime, clock: Clock) -> None:
    with leases.RenewedLease(here, take(here, length_s=0.03)) as renewing:
        clock.now_ms += DAY_MS
        stolen = dataclasses.replace(renewing.lease, id="b", owner=there.owner, token=renewing.lease.token + 1)
        document = json.dumps(dataclasses.asdict(stolen)).encode()
        there.store.swap(file_of(there), lambda before: document, 60, "a test")
        assert renewing.lost.wait(60)
        assert not renewing.still_ours()
    assert leases.current_token(here, "cycle") == renewing.lease.token + 1
    assert json.loads(file_of(here).read_text())["id"] == "b"


def test_whoever_wakes_up_looks_before_it_starts_anything(here: Runtime, there: Runtime, clock: Clock) -> None:
    """The heartbeat's next turn is 20 s away."""
    with leases.RenewedLease(here, take(here)) as renewing:
        clock.now_ms += DAY_MS
        take(there, "b")
        assert not renewing.still_ours()


def test_a_full_disk_does_not_end_the_heartbeat(here: Runtime) -> None:
    renewed = threading.Event()

    class LocalStorage(FaultyStore):
        def step(self, name: str) -> None:
            super().step(name)
            if name == "lease.renewed":
                renewed.set()

    lease = take(here, length_s=0.03)
    store = LocalStorage("store.write", disk_full, times=3)
    with leases.RenewedLease(dataclasses.replace(here, store=store), lease) as renewing:
        assert renewed.wait(60)
        assert not renewing.lost.is_set()
    assert store.reached > 3


def test_a_full_disk_says_so_and_leaves_the_lease_free(here: Runtime) -> None:
    full = dataclasses.replace(here, store=FaultyStore("store.write", disk_full))
    with pytest.raises(LithifyError, match="no space left"):
        leases.acquire(full, "cycle", "a", 60)
    assert take(here).token == 1


@pytest.mark.parametrize("name", ["", "../cycle", "a/b", "Cycle", "." * 3])
def test_names_stay_in_the_folder(here: Runtime, name: str) -> None:
    with pytest.raises(InvalidRequest, match="no name of a lease"):
        leases.acquire(here, name, "a", 60)


@pytest.mark.parametrize("length_s", [0, -1, 3601, float("nan")])
def test_impossible_lengths(here: Runtime, length_s: float) -> None:
    with pytest.raises(InvalidRequest, match="a lease lasts"):
        leases.acquire(here, "cycle", "a", length_s)


def test_a_lost_lease_is_a_conflict() -> None:
    assert issubclass(leases.LeaseLost, Conflict)


def test_nothing_is_left_in_the_folder_but_the_lease_and_its_lock(here: Runtime) -> None:
    leases.release(here, take(here))
    assert sorted(os.listdir(here.control / "leases")) == ["cycle.json", "cycle.lock"]
