"""Which joins may run in this process: those whose pairs are few, or found by a key."""

from __future__ import annotations

import pyarrow as pa
import pytest
from datafusion import SessionContext

from lithify.serving.filters import Place
from lithify.serving.work import FILTERED_PAIRS_HERE_MAX, PAIRS_HERE_MAX, Scanned, Work, work_of

MANY = 1_000_000
KEYS = {"orders": ("id",), "items": ("id", "item"), "people": ("id",), "log": ()}


def work(query: str, rows: int = MANY) -> Work:
    context = SessionContext()
    for name in KEYS:
        columns = {column: pa.array([], pa.int64()) for column in ("id", "item", "person", "v")}
        context.register_record_batches(name, [[pa.RecordBatch.from_pydict(columns)]])

    def table_of(place: Place) -> Scanned | None:
        return Scanned(rows, KEYS[place[1]]) if place[1] in KEYS else None

    plan = context.sql(query).optimized_logical_plan()
    return work_of(plan, plan.display_indent(), table_of, "public")


@pytest.mark.parametrize(
    "query",
    [
        "select sum(v) from log group by id order by 1 limit 10",
        "select * from orders o join people p on o.person = p.id",
        "select * from orders o left join people p on o.person = p.id and p.v > o.v",
        "select * from items i join orders o on i.id = o.id join people p on o.person = p.id",
        "select * from log l join (select id, sum(v) s from log group by id) g on l.id = g.id",
        "select * from log l join items i on l.id = i.id and l.item = i.item",
        "select * from orders where id in (select distinct person from orders)",
        "select * from log, (values (1), (2)) as v(n)",
        "select * from (select * from log limit 5) a, (select * from log order by v limit 7) b",
        "select id from log union all select id from orders",
    ],
)
def test_one_row_at_most_per_row(query: str) -> None:
    assert work(query) == Work(can_be_stopped=True, is_bounded=True)


@pytest.mark.parametrize(
    "query",
    [
        "select sum(a.v + b.v) from log a, log b",
        "select * from log a join log b on a.id = b.id",
        "select * from orders a join orders b on a.id < b.id",
        "select * from items i join orders o on i.id = o.person",
        "select * from items i join items j on i.id = j.id",
        "select * from orders a join people p on a.person = p.id + 1",
        "select * from log a where exists (select 1 from log b where a.v + b.v < 0)",
        "select * from log where v > (select sum(a.v + b.v) from log a join log b on a.id = b.id)",
        "select * from orders o join (select id * 0 as id from orders) p on o.person = p.id",
        "select * from log l join (select id, item, sum(v) s from log group by id, item) g on l.id = g.id",
        "with recursive r(n) as (select 1 union all select n + 1 from r) select * from r join log on log.id = r.n",
        "select * from range(1000) r join log l on l.id = r.value",
    ],
)
def test_anything_may_meet_anything(query: str) -> None:
    assert not work(query).can_be_stopped


def test_a_subquery_inside_an_expression_is_not_looked_into() -> None:
    assert work("select * from log where v > (select avg(v) from log)") == Work(can_be_stopped=True, is_bounded=False)


def test_few_pairs_are_through_soon() -> None:
    plain, filtered = "select * from log a join log b on a.id = b.id", "select * from log a join log b on a.id < b.id"
    for query, pairs in [(plain, PAIRS_HERE_MAX), (filtered, FILTERED_PAIRS_HERE_MAX)]:
        assert work(query, int(pairs**0.5)).can_be_stopped
        assert not work(query, int(pairs**0.5) + 1).can_be_stopped


def test_rows_out_of_nowhere_may_never_end() -> None:
    assert work("select count(*) from range(1000000000000)") == Work(can_be_stopped=True, is_bounded=False)
