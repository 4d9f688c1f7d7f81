"""What stops a query, and that it really stops."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Lake
from lithify.errors import Cancelled, Conflict, Forbidden, InvalidRequest, LimitExceeded, NotFound
from lithify.lake.internals import internals
from lithify.lake.queries import run_query
from lithify.sql.limits import Answer

# It reads no table and never ends.
ENDLESS_SCAN = "select count(*) from range(1000000000000) where value % 7 = 3"
# 3 million rows of two kinds have 4.5 * 10^12 pairs; the engine does not look up from them.
LONG_JOIN = (
    "with many as (select side, id from range(100), shop.orders) "
    "select sum(a.id * b.id % 7) from many a join many b on a.side = b.side"
)
# Not even `sql` plans it in this process.
REPEATED = "select repeat(name, 2) as twice from shop.orders where id = 7"
WAIT_S = 60.0
# Work that is not stopped goes on for longer.
IDLE_WITHIN_S = 5.0
ROWS = 30_000


def wait_for(condition: Callable[[], bool], wait_s: float = WAIT_S) -> None:
    pause = threading.Event()
    for _ in range(int(wait_s / 0.05)):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError("it never came to that")


def used_s(pids: Sequence[int]) -> float:
    """Processor time of these processes, as far as they live."""
    fields = [stat_of(pid) for pid in pids]
    return sum(int(found[11]) + int(found[12]) for found in fields if found) / os.sysconf("SC_CLK_TCK")


def stat_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def is_idle(lake: Lake) -> bool:
    pids = lake._serving.processes.pids()
    before = time.process_time() + used_s(pids)
    threading.Event().wait(0.2)
    return time.process_time() + used_s(pids) - before < 0.1


class TestRows:
    def test_the_rest_is_cut_and_the_answer_says_so(self, lake: Lake) -> None:
        answer = lake.query("select id from shop.orders order by id desc", rows_max=3)
        assert answer.rows.column("id").to_pylist() == [ROWS - 1, ROWS - 2, ROWS - 3]
        assert answer.cut

    @pytest.mark.parametrize("query", ["select id from shop.orders where id < 3", "select count(*) from shop.orders"])
    def test_what_fits_is_not_cut(self, lake: Lake, query: str) -> None:
        assert not lake.query(query, rows_max=3).cut

    def test_the_setting_is_the_default(self, lake: Lake) -> None:
        answer = lake.query("select id from shop.orders")
        assert (answer.rows.num_rows, answer.cut) == (10_000, True)

    def test_sql_has_no_limit(self, lake: Lake) -> None:
        assert lake.sql("select id from shop.orders").num_rows == ROWS


@pytest.mark.parametrize("limit", [{"timeout_s": 0}, {"rows_max": -1}, {"memory_bytes_max": 0}])
def test_a_limit_is_a_positive_number(lake: Lake, limit: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(limit))):
        lake.query("select 1", **limit)


class TestTime:
    @pytest.mark.parametrize("query", [ENDLESS_SCAN, LONG_JOIN])
    def test_a_query_is_stopped_and_its_work_ends(self, lake: Lake, query: str) -> None:
        with pytest.raises(LimitExceeded, match=r"0\.3 s .*query_timeout_s") as caught:
            lake.query(query, timeout_s=0.3)
        assert caught.value.details["limit"] == "time"
        assert lake.queries() == []
        wait_for(lambda: is_idle(lake), IDLE_WITHIN_S)

    def test_a_stopped_process_is_gone_and_another_takes_its_place(self, lake: Lake) -> None:
        lake.query(REPEATED)
        before = lake._serving.processes.pids()
        with pytest.raises(LimitExceeded):
            lake.query(LONG_JOIN, timeout_s=0.3)
        wait_for(lambda: not all(Path(f"/proc/{pid}").exists() for pid in before))
        assert lake.query(REPEATED).rows.to_pylist() == [{"twice": "name 7name 7"}]


class TestMemory:
    def test_a_query_that_cannot_do_with_it_is_stopped(self, lake: Lake) -> None:
        query = "select count(*) from (select distinct id, name, concat(name, name) from shop.orders)"
        with pytest.raises(LimitExceeded, match="query_memory_bytes_max") as caught:
            lake.query(query, memory_bytes_max=2**16)
        assert caught.value.details["limit"] == "memory"

    def test_a_sort_spills(self, lake: Lake) -> None:
        shuffled = "select row_number() over (order by value * 7919 % 1000003, value) n from range(1000000)"
        assert lake.query(f"select max(n) from ({shuffled})", memory_bytes_max=16 * 2**20).rows.column(
            0
        ).to_pylist() == [1_000_000]

    def test_a_value_that_does_not_fit_is_refused(self, lake: Lake) -> None:
        with pytest.raises(LimitExceeded) as caught:
            lake.query("select repeat('x', 2000000000)", memory_bytes_max=2**28)
        assert caught.value.details["limit"] == "memory"

    def test_sql_is_limited_too(self, lake: Lake) -> None:
        with pytest.raises(LimitExceeded) as caught:
            lake.sql("select length(repeat(name, 10000000)) from shop.orders")
        assert caught.value.details["limit"] == "memory"


class TestCancel:
    @pytest.mark.parametrize("query", [ENDLESS_SCAN, LONG_JOIN])
    def test_a_query_ends_and_so_does_its_work(self, lake: Lake, query: str) -> None:
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(lake.query, query, id="mine")
            wait_for(lambda: [running.id for running in lake.queries()] == ["mine"])
            assert lake.cancel("mine")
            with pytest.raises(Cancelled, match="query mine was cancelled"):
                future.result(WAIT_S)
        wait_for(lambda: is_idle(lake), IDLE_WITHIN_S)

    def test_nothing_to_cancel(self, lake: Lake) -> None:
        assert not lake.cancel("nobody")

    def test_a_running_query_is_listed(self, lake: Lake) -> None:
        with ThreadPoolExecutor(1) as pool:
            future: Future[Answer] = pool.submit(lake.query, ENDLESS_SCAN, id="mine")
            wait_for(lambda: [running.state for running in lake.queries()] == ["running"])
            (running,) = lake.queries()
            assert (running.id, running.sql) == ("mine", ENDLESS_SCAN)
            with pytest.raises(Conflict):
                lake.query("select 1", id="mine")
            lake.cancel("mine")
            with pytest.raises(Cancelled):
                future.result(WAIT_S)


class TestTables:
    @pytest.mark.parametrize("query", ["select count(*) from shop.orders", REPEATED])
    def test_a_table_that_may_not_be_read_is_not_opened(self, lake: Lake, query: str) -> None:
        with pytest.raises(Forbidden, match=r"shop\.orders"):
            run_query(internals(lake), query, may_read=lambda name: name != "shop.orders")

    @pytest.mark.parametrize("query", ["select * from shop.nothing", "select repeat(name, 2) from shop.nothing"])
    def test_a_table_that_does_not_exist(self, lake: Lake, query: str) -> None:
        with pytest.raises(NotFound, match=r"shop\.nothing"):
            lake.query(query)

    @pytest.mark.parametrize("name", ["shop.orders", "lake.shop.orders", '"lake"."shop"."orders"'])
    def test_names_have_two_or_three_parts(self, lake: Lake, name: str) -> None:
        assert lake.query(f"select id from {name} where id = 7").rows.to_pylist() == [{"id": 7}]

    @pytest.mark.parametrize("query", ["select id from shop.orders where id = 7", REPEATED])
    def test_the_answer_tells_its_snapshots(self, lake: Lake, query: str) -> None:
        assert lake.query(query).snapshots == {"shop.orders": lake.table("shop.orders").snapshot().seq}

    def test_another_process_sees_the_same_snapshot(self, lake: Lake) -> None:
        table = lake.create_table("shop.fresh", pa.schema([("id", pa.int64()), ("name", pa.string())]), key="id")
        first = table.append([{"id": 1, "name": "a"}])
        table.upsert([{"id": 1, "name": "b"}, {"id": 2, "name": "c"}])
        query = "select repeat(name, 3) as n from shop.fresh order by id"
        assert lake.query(query).rows.column("n").to_pylist() == ["bbb", "ccc"]
        assert lake.query(query, as_of=first.seq).rows.column("n").to_pylist() == ["aaa"]


@pytest.mark.slow
def test_nothing_is_left_of_queries_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    # It sorts on disk when it is stopped.
    spilling = (
        "select max(n), max(r) from (select repeat('x', 9) r, row_number() over (order by value % 1000003) n from "
    )
    with Lake(folder / "lake") as lake:
        with pytest.raises(LimitExceeded):
            lake.query(f"{spilling} range(300000000))", timeout_s=2, memory_bytes_max=2**26)
        lake.query("select repeat('x', 9)")
        assert [path for path in folder.iterdir() if path.name.startswith("lithify-query-")]
    assert [path.name for path in folder.iterdir()] == ["lake"]


class TestConditions:
    @pytest.mark.parametrize(
        "where",
        [
            "exists (select 1 from main.t a, main.t b where a.id + b.id < 0)",
            "length(repeat(name, 1000000)) > 1",
            " and ".join(f"id <> {n}" for n in range(1_000)),
        ],
    )
    def test_what_cannot_be_stopped_is_no_condition(self, lake: Lake, where: str) -> None:
        with pytest.raises(InvalidRequest, match="condition is not accepted"):
            lake.table("shop.orders").to_arrow(where=where)

    def test_a_long_list_is_one(self, lake: Lake) -> None:
        where = f"id in ({', '.join(map(str, range(5_000)))})"
        assert lake.table("shop.orders").to_arrow(where=where).num_rows == 5_000
