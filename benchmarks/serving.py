"""Interactive SQL over hot tables: a join of 1M orders with 100K customers, and a filter of the 100K.

Hot is compared with DataFusion on the same rows as bare Arrow tables, in the same process. Cold is the same lake with
no cache; its files are in the page cache of the machine, so it is decoding that is saved, not a disk. Answers are not
kept in these runs, except where that is what is measured.
"""

from __future__ import annotations

import gc
import statistics
import time

import numpy as np
import pyarrow as pa
from datafusion import SessionContext

from benchmarks.report import Report, best_of, rounds, shown_bytes, timed
from lithify import Lake, Settings

ORDERS, CUSTOMERS, CHANGED = 1_000_000, 100_000, 1_000
JOIN = (
    "SELECT c.city, count(*) AS orders, sum(o.amount) AS amount FROM shop.orders o JOIN shop.customers c "
    "ON o.customer = c.id GROUP BY c.city ORDER BY amount DESC LIMIT 10"
)
FILTER = "SELECT id, name, city FROM shop.customers WHERE tier = 3 AND city LIKE 'city 01%'"
ROUNDS = 25
MEMORY_BYTES_MAX = 150_000_000


def run(lake: Lake, report: Report, scale: float) -> None:
    """On lakes of its own: the others of this run have no cache."""
    orders, customers = _orders(int(ORDERS * scale)), _customers(int(CUSTOMERS * scale))
    report.say(f"serving: {orders.num_rows:,} orders join {customers.num_rows:,} customers, filter of customers")
    folder = lake.path.parent / "serving"
    with Lake(folder, settings=Settings(cache_bytes_max=0)) as cold:
        for name, rows in (("shop.orders", orders), ("shop.customers", customers)):
            table = cold.create_table(name, rows.schema, key="id")
            table.upsert(rows)
            table.fold()
    bare = SessionContext()
    for name, rows in (("orders", orders), ("customers", customers)):
        bare.register_record_batches(name, [rows.to_batches(max_chunksize=65_536)])
    with Lake(folder, settings=Settings(cache_bytes_max=0)) as cold, Lake(folder) as hot:
        _memory(hot, report)
        times = rounds(ROUNDS, scale)
        _hot(cold, hot, bare, report, times)
        _answers(hot, report, times)
        _fresh(hot, report, orders, customers, times)


def _orders(count: int) -> pa.Table:
    random = np.random.default_rng(1)
    statuses = np.array(["new", "paid", "packed", "shipped", "delivered", "returned"])
    return pa.table(
        {
            "id": np.arange(count),
            "customer": random.integers(0, max(count // 10, 1), count),
            "amount": np.round(random.gamma(2.0, 40.0, count), 2),
            "status": statuses[random.integers(0, len(statuses), count)],
            "placed": pa.array(random.integers(1_700_000_000, 1_780_000_000, count) * 1_000_000).cast(
                pa.timestamp("us", tz="UTC")
            ),
            "note": [f"order {number}" for number in random.integers(0, count, count)],
        }
    )


def _customers(count: int) -> pa.Table:
    random = np.random.default_rng(2)
    return pa.table(
        {
            "id": np.arange(count),
            "name": [f"customer {number}" for number in range(count)],
            "city": [f"city {number:04d}" for number in random.integers(0, 500, count)],
            "tier": random.integers(0, 5, count),
        }
    )


def _memory(hot: Lake, report: Report) -> None:
    gc.collect()
    before = pa.total_allocated_bytes()
    started = time.perf_counter()
    rows = sum(hot.cache.pin(name).rows for name in ("shop.orders", "shop.customers"))
    loaded_s = time.perf_counter() - started
    gc.collect()
    real = pa.total_allocated_bytes() - before
    said = hot.cache.stats().bytes
    report.say(
        f"  {rows:,} rows in memory: {shown_bytes(real)} allocated, {shown_bytes(said)} by the cache's own count, "
    )
    report.say(f"  loaded in {loaded_s:.2f} s")
    size = max(real, said)
    report.number(f"memory of {rows:,} hot rows", shown_bytes(size), "≤ 150 MB", size <= MEMORY_BYTES_MAX)


def _hot(cold: Lake, hot: Lake, bare: SessionContext, report: Report, times: int) -> None:
    for what, query, limit in (("join", JOIN, 1.15), ("filter", FILTER, None)):
        _check_equal(cold, hot, query)
        plain = query.replace("shop.", "")
        ours, theirs, files = best_of(
            times,
            lambda query=query: _unkept(hot, query),
            lambda plain=plain: bare.sql(plain).to_arrow_table(),
            lambda query=query: cold.sql(query),
        )
        if limit is not None:
            report.at_most(f"{what}, hot, through lake.sql", ours, "DataFusion on bare Arrow", theirs, limit)
        else:
            report.beside(f"{what}, hot, through lake.sql", ours, "DataFusion on bare Arrow", theirs)
        report.beside(f"{what}, hot", ours, "cold (page cache)", files)


def _answers(hot: Lake, report: Report, times: int) -> None:
    first = min(timed(lambda: _unkept(hot, JOIN)) for _ in range(5))
    hot.sql(JOIN)
    again = statistics.median(timed(lambda: hot.sql(JOIN)) for _ in range(times))
    report.faster("the join again, tables unchanged", again, "the first time, hot", first, 20)


def _fresh(hot: Lake, report: Report, orders: pa.Table, customers: pa.Table, times: int) -> None:
    random = np.random.default_rng(3)
    before = {query: best_of(times, lambda query=query: _unkept(hot, query))[0] for query in (JOIN, FILTER)}
    for name, rows in (("shop.orders", orders), ("shop.customers", customers)):
        chosen = random.choice(rows.num_rows, min(CHANGED, rows.num_rows), replace=False)
        hot.table(name).upsert(rows.take(pa.array(chosen)))
    first = timed(lambda: _unkept(hot, JOIN))
    report.say(f"  {CHANGED:,} changes to each table: the first join after them took {first * 1000:.1f} ms")
    for what, query in (("join", JOIN), ("filter", FILTER)):
        after = best_of(times, lambda query=query: _unkept(hot, query))[0]
        report.at_most(f"{what}, hot, after {CHANGED:,} changes", after, "no changes", before[query], 1.3)
    assert hot.cache.stats().loads == 2, "changes must be applied in place, without a reload"


def _unkept(lake: Lake, query: str) -> object:
    """As a query that was not asked before."""
    lake._serving.answers.clear()
    return lake.sql(query)


def _check_equal(cold: Lake, hot: Lake, query: str) -> None:
    one, two = (lake.sql(query).to_pylist() for lake in (cold, hot))
    floats_rounded = [
        sorted(repr([round(v, 3) if isinstance(v, float) else v for v in row.values()]) for row in rows)
        for rows in (one, two)
    ]
    assert floats_rounded[0] == floats_rounded[1], "hot and cold must agree"
