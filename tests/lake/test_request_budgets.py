"""How many requests a lake in a bucket takes for what is done all the time, as the server counts them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from lithify import Lake, Table
from lithify.lake.internals import internals
from support.fault_proxy import FaultProxy

pytestmark = pytest.mark.bucket


@pytest.fixture
def table(proxy: FaultProxy, address: str) -> Iterator[Table]:
    """One that has been written and read by this process."""
    with Lake(address, create=True) as lake:
        schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
        table = lake.create_table("shop.orders", schema, key="id")
        table.upsert([{"id": 1, "v": "a"}])
        assert table.count() == 1
        yield table


def test_a_small_write_is_two_puts(table: Table, proxy: FaultProxy) -> None:
    for number in range(3):
        with proxy.counted() as requests:
            table.upsert([{"id": number, "v": "b"}])

        assert requests == {"PUT": 2}


def test_who_lost_to_one_commit_reads_it_and_tries_again(table: Table, address: str, proxy: FaultProxy) -> None:
    with Lake(address) as other:
        other.table("shop.orders").upsert([{"id": 2, "v": "other"}])
    with proxy.counted() as requests:
        table.upsert([{"id": 3, "v": "b"}])

    assert requests == {"PUT": 3, "GET": 1}
    assert table.count() == 3


def test_who_is_far_behind_asks_for_many_at_a_time(table: Table, address: str, proxy: FaultProxy) -> None:
    with Lake(address) as other:
        for number in range(2, 12):
            other.table("shop.orders").upsert([{"id": number, "v": "other"}])
    looks = list[int]()
    commits = internals(table).handles.changes.log._commits
    with pytest.MonkeyPatch.context() as patch, proxy.counted() as requests:
        ahead = commits.ahead
        patch.setattr(commits, "ahead", lambda version, count: looks.append(count) or ahead(version, count))
        assert table.count() == 11

    assert looks == [1, 1, 1, 1, 2, 3, 4], "half as many as have come, until there are no more"
    assert requests["GET"] <= sum(looks) + 10 + 2, "the files of ten commits; and base, twice"


def test_base_is_asked_again_where_changes_moved(table: Table, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold that comes between the two looks would have taken rows from changes that this base does not have yet."""
    handles = internals(table).handles
    base, changes = handles.base.log, handles.changes.log
    looked, look_at_base, look_at_changes = threading.Event(), base.is_newest, changes.refresh

    def look_early() -> bool:
        found = look_at_base()
        looked.set()
        return found

    def look_late() -> None:
        assert looked.wait(60)
        with Lake(address) as other:
            other.table("shop.orders").fold()
        look_at_changes()

    with monkeypatch.context() as patch:
        patch.setattr(base, "is_newest", look_early)
        patch.setattr(changes, "refresh", look_late)

        assert handles.snapshot().watermark == 1
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": "a"}]


def test_both_logs_are_asked_at_once(table: Table, proxy: FaultProxy) -> None:
    """The look at base comes back while that at changes is under way."""
    handles = internals(table).handles
    asked, look_at_base, look_at_changes = threading.Event(), handles.base.log.is_newest, handles.changes.log.refresh

    def look() -> bool:
        found = look_at_base()
        asked.set()
        return found

    def wait_for_base() -> None:
        assert asked.wait(60)
        look_at_changes()

    with pytest.MonkeyPatch.context() as patch, proxy.counted() as requests:
        patch.setattr(handles.base.log, "is_newest", look)
        patch.setattr(handles.changes.log, "refresh", wait_for_base)
        handles.snapshot()

    assert requests == {"GET": 2}


def test_a_fresh_read_asks_both_logs(table: Table, proxy: FaultProxy) -> None:
    table.upsert([{"id": 2, "v": "b"}])

    for _ in range(2):
        with proxy.counted() as requests:
            assert table.get(2) == {"id": 2, "v": "b"}

        assert requests == {"GET": 2}


def test_rare_work(proxy: FaultProxy, address: str) -> None:
    budget = {"create": 25, "first fold": 30, "second fold": 21, "add a column": 6, "vacuum": 43, "drop": 30}
    counts: dict[str, int] = {}

    def count(what: str, work: Callable[[], object]) -> None:
        with proxy.counted() as requests:
            work()
        counts[what] = requests.total()

    with Lake(address, create=True) as lake:
        schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
        count("create", lambda: lake.create_table("shop.orders", schema, key="id"))
        table = lake.table("shop.orders")
        table.upsert([{"id": 1, "v": "a"}])
        count("first fold", table.fold)
        table.upsert([{"id": 1, "v": "b"}])
        count("second fold", table.fold)
        count("add a column", lambda: table.add_column(pa.field("more", pa.float64())))
        count("vacuum", lambda: table.vacuum(dry_run=False))
        count("drop", lambda: lake.drop_table("shop.orders"))

    assert counts.keys() == budget.keys()
    assert {what: (number, budget[what]) for what, number in counts.items() if number > budget[what]} == {}


def test_a_cycle_with_nothing_to_do(table: Table, address: str, proxy: FaultProxy) -> None:
    with Lake(address) as lake:
        for name in ("shop.more", "shop.most"):
            lake.create_table(name, pa.schema([("id", pa.int64())]), key="id").upsert([{"id": 1}])
        lake.maintain()
        for _ in range(2):
            with proxy.counted() as requests:
                assert lake.maintain().jobs == ()

            assert requests.total() <= 15 + 3 * 4


def test_the_past_is_asked_for_once(table: Table, proxy: FaultProxy) -> None:
    table.upsert([{"id": 2, "v": "b"}])
    table.tag("then", as_of=1)
    first = [table.to_arrow(as_of=as_of).to_pylist() for as_of in (1, "then")]
    commits = len(table.history())

    for as_of, budget in ((1, 2), ("then", 5)):
        with proxy.counted() as requests:
            assert table.to_arrow(as_of=as_of).to_pylist() == first[0] == first[1] == [{"id": 1, "v": "a"}]
        assert requests.total() <= budget

    with proxy.counted() as requests:
        assert len(table.history()) == commits
    assert requests.total() <= 4


def test_a_table_that_another_process_dropped_is_seen_to_be_gone(table: Table, address: str) -> None:
    with Lake(address) as lake:
        assert lake.tables() == ["shop.orders"]
        with Lake(address) as other:
            other.drop_table("shop.orders")

        assert lake.tables() == []


def test_a_vacuum_reads_each_commit_once(table: Table, proxy: FaultProxy) -> None:
    table.vacuum()
    with proxy.counted() as before:
        table.vacuum()
    for number in range(10):
        table.upsert([{"id": number, "v": "b"}])
    with proxy.counted() as after:
        table.vacuum()

    assert after - before == {"GET": 10}
