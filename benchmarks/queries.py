"""SQL over HTTP on hot tables: what it costs that queries run in processes of their own.

A server in a process of its own, clients on loopback beside it that speak HTTP and nothing else. Bare DataFusion, for
comparison, holds the same rows in this process.
"""

from __future__ import annotations

import http.client
import json
import statistics
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
from datafusion import SessionContext

from benchmarks.report import Report, rounds, shown_time
from benchmarks.service import COLUMNS, Server, rows, served
from lithify import Lake

ROWS = 1_000_000
CUSTOMERS = 100_000
POINTS, JOINS, CLIENTS, BUSY_S = 400, 15, 8, 10
PEOPLE = pa.schema([("customer", pa.int64()), ("region", pa.string())])
POINT = "select id, customer, amount, status from shop.orders where id = {id}"
JOIN = (
    "select p.region, count(*) as n, sum(o.amount) as amount from shop.orders o "
    "join shop.people p on o.customer = p.customer where o.amount > {least} group by p.region order by p.region"
)


def run(lake: Lake, report: Report, scale: float) -> None:
    folder = lake.path.parent / "queries"
    count = int(ROWS * scale)
    orders, people = rows(0, count), _people()
    with Lake(folder) as made:
        for name, columns, key, data in (
            ("shop.orders", COLUMNS, "id", orders),
            ("shop.people", PEOPLE, "customer", people),
        ):
            table = made.create_table(name, columns, key=key)
            table.upsert(data)
            table.fold()
    with served(folder, report) as server:
        with server.client() as client:
            client.cache.pin("shop.orders")
            client.cache.pin("shop.people")
        asker = Asker(server)
        _points(asker, count, report, rounds(POINTS, scale))
        _joins(asker, orders, people, report, rounds(JOINS, scale))
        _clients(server, report, rounds(BUSY_S, scale))


class Asker:
    """One connection that is kept open."""

    def __init__(self, server: Server) -> None:
        address = urlsplit(server.url)
        self._connection = http.client.HTTPConnection(str(address.hostname), address.port)
        self._headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}

    def ask(self, sql: str) -> float:
        """Seconds until the answer was read."""
        started = time.perf_counter()
        self._connection.request("POST", "/v1/query/sql", json.dumps({"sql": sql}), self._headers)
        answer = self._connection.getresponse()
        body = answer.read()
        seconds = time.perf_counter() - started
        assert answer.status == 200, body
        return seconds


def _people() -> pa.Table:
    regions = np.array(["north", "south", "east", "west"])
    chosen = regions[np.random.default_rng(7).integers(0, 4, CUSTOMERS)]
    return pa.table([np.arange(CUSTOMERS), chosen], schema=PEOPLE)


def _points(asker: Asker, count: int, report: Report, points: int) -> None:
    """Each asks for another row, so that no kept answer helps."""
    ids = np.random.default_rng(3).permutation(count)[: points + 50]
    times = [asker.ask(POINT.format(id=id)) for id in ids][50:]
    p50, p99 = np.quantile(times, [0.5, 0.99])
    report.say(f"  hot point query over HTTP: p50 {shown_time(p50)}, p99 {shown_time(p99)}")


def _joins(asker: Asker, orders: pa.Table, people: pa.Table, report: Report, joins: int) -> None:
    context = SessionContext()
    for name, data in (("orders", orders), ("people", people)):
        context.register_record_batches(name, [data.to_batches(max_chunksize=65_536)])
    bare_text = JOIN.replace("shop.", "")

    def bare(least: float) -> float:
        started = time.perf_counter()
        context.sql(bare_text.format(least=least)).to_arrow_table()
        return time.perf_counter() - started

    pairs = [(asker.ask(JOIN.format(least=turn / 100)), bare(turn / 100)) for turn in range(joins + 3)][3:]
    ours, theirs = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
    report.say(f"  hot join: {shown_time(ours)} over HTTP, {shown_time(theirs)} in bare DataFusion")
    report.number(
        "1M hot join over HTTP, of bare DataFusion", f"{ours / theirs:.2f}×", "≤ 1.15×", ours <= 1.15 * theirs
    )


def _clients(server: Server, report: Report, seconds: int) -> None:
    stop, asked = threading.Event(), [0] * CLIENTS

    def work(number: int) -> None:
        asker = Asker(server)
        while not stop.is_set():
            asker.ask(JOIN.format(least=(CLIENTS * asked[number] + number) / 1_000))
            asked[number] += 1

    used = _cpu_seconds(server.pid)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    cores = (_cpu_seconds(server.pid) - used) / (time.perf_counter() - started)
    stop.set()
    for thread in threads:
        thread.join()
    report.say(f"  {CLIENTS} clients: {sum(asked) / seconds:.0f} joins a second")
    report.number(f"{CLIENTS} clients, cores in use", f"{cores:.2f}", "≥ 1.7 of 2", cores >= 1.7)


def _cpu_seconds(pid: int) -> float:
    """Of a process and all that it started, which are of its session or were started by one that is."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = (int(fields[11]) + int(fields[12])) / 100

    def belongs(one: int) -> bool:
        while one > 1:
            if one == pid:
                return True
            one = parents.get(one, 0)
        return False

    return sum(seconds for one, seconds in used.items() if belongs(one))
