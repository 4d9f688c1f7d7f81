"""A lake in a bucket that is opened with nothing at hand: in how many rounds of requests, and what it sees."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from lithify import Lake, Settings
from lithify.lake.internals import internals
from support.fault_proxy import FaultProxy

pytestmark = pytest.mark.bucket

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
QUERY = "select v, count(*) as n from shop.orders group by v order by v"


@pytest.fixture
def lake(proxy: FaultProxy, address: str) -> Iterator[Lake]:
    """With a table that has been folded once, and written to since."""
    with Lake(address, create=True) as lake:
        table = lake.create_table("shop.orders", SCHEMA, key="id")
        table.upsert([{"id": 1, "v": "a"}, {"id": 2, "v": "a"}])
        table.fold()
        table.upsert([{"id": 2, "v": "b"}])
        yield lake


def rows(lake: Lake) -> list[dict[str, object]]:
    """Of a table that this call opens."""
    return lake.sql("select id, v from shop.orders order by id").to_pylist()


def test_opening_asks_for_each_thing_once(lake: Lake, proxy: FaultProxy) -> None:
    handles = internals(lake.table("shop.orders")).handles
    commits = sum(len(log.versions()) for log in (handles.changes.log, handles.base.log))
    with proxy.counted() as opened:
        again = Lake(lake.path)
    with again, proxy.counted() as asked:
        again.table("shop.orders")

    assert opened == Counter(GET=1)
    # Of both logs the list, the hint of the newest checkpoint, the commits, and the one that is not there yet.
    assert asked == Counter(LIST=2, GET=commits + 4)


def test_a_query_that_opens_its_table_does_not_look_again(
    lake: Lake, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Lake(lake.path) as again, proxy.counted() as opened:
        again.table("shop.orders")
    nothing_here = Settings(cache_folder=tmp_path_factory.mktemp("cold"))
    with Lake(lake.path, settings=nothing_here) as cold, proxy.counted() as asked:
        assert cold.sql(QUERY).to_pylist() == [{"v": "a", "n": 1}, {"v": "b", "n": 1}]

    assert asked - opened == Counter(GET=2), "the file of the change, and that of base"


def test_who_has_it_open_looks(lake: Lake, address: str) -> None:
    with Lake(address) as other:
        before = other.sql(QUERY).to_pylist()
        table = other.table("shop.orders")
        lake.table("shop.orders").upsert([{"id": 3, "v": "c"}])

        assert table.get(3) == {"id": 3, "v": "c"}
        assert other.sql(QUERY).to_pylist() == [*before, {"v": "c", "n": 1}]


def test_a_fold_while_it_is_opened_takes_no_rows_away(lake: Lake, proxy: FaultProxy, address: str) -> None:
    """Base was listed before the fold, changes after it."""
    begun = len(proxy.requests)

    def fold() -> None:
        until_s = time.monotonic() + 60
        while not any("base%2F_delta_log" in r.target and r.kind == "LIST" for r in proxy.requests[begun:]):
            assert time.monotonic() < until_s
        lake.table("shop.orders").fold()

    with Lake(address) as other:
        begun = len(proxy.requests)
        rule = proxy.fail("503", on="LIST", at=r"changes%2F_delta_log", meanwhile=fold)

        assert rows(other) == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
        assert rule.hits == 1
        assert internals(other.table("shop.orders")).handles.base.watermark == 2


def test_a_commit_that_a_list_does_not_show_is_found(lake: Lake, proxy: FaultProxy, address: str) -> None:
    with Lake(address) as first:
        seen = rows(first)
    for number in (3, 4):
        lake.table("shop.orders").upsert([{"id": number, "v": "c"}])
    lake.table("shop.orders").fold()
    rule = proxy.fail("stale", on="LIST", at=r"_delta_log", times=None)

    with Lake(address) as other:
        found = rows(other)

    assert rule.hits >= 2
    assert found == [*seen, {"id": 3, "v": "c"}, {"id": 4, "v": "c"}]
