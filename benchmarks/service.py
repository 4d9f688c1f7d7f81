"""The HTTP service, measured from outside: a server in a process of its own, clients on loopback beside it.

Clients use the library's own client, as processes for ingest and threads of this process otherwise; on two cores they
take time from the server that they would not take in life. What is written is durable when it is acknowledged.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.report import Report, rounds, shown_time
from lithify import Lake, Settings, connect
from lithify.client.lake import RemoteLake

BASE_ROWS = 1_000_000
VISIBLE_ROUNDS, FOLD_EVERY = 3, 100
INGEST_CLIENTS, INGEST_BATCHES, INGEST_ROWS = 4, 100, 1_000
MIXED_S, MIXED_S_MIN, READERS, WRITERS = 60.0, 2.0, 8, 4
COLUMNS = pa.schema([("id", pa.int64()), ("customer", pa.int64()), ("amount", pa.float64()), ("status", pa.string())])


def run(lake: Lake, report: Report, scale: float) -> None:
    folder = lake.path.parent / "service"
    _prepare(folder, int(BASE_ROWS * scale), report)
    with served(folder, report) as server:
        _visible(server, report, rounds(FOLD_EVERY, scale, 5))
        _ingest(server, folder, report, rounds(INGEST_BATCHES, scale, 5))
        _mixed(server, report, max(MIXED_S * min(scale, 1.0), MIXED_S_MIN))


@dataclass(frozen=True)
class Server:
    url: str
    token: str
    pid: int

    def client(self) -> RemoteLake:
        return connect(self.url, token=self.token)

    @property
    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def rows(first: int, count: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    statuses = np.array(["new", "paid", "shipped", "returned"])
    return pa.table(
        [
            np.arange(first, first + count),
            random.integers(0, 100_000, count),
            np.round(random.gamma(2.0, 40.0, count), 2),
            statuses[random.integers(0, 4, count)],
        ],
        schema=COLUMNS,
    )


def _prepare(folder: Path, count: int, report: Report) -> None:
    with Lake(folder) as lake:
        orders = lake.create_table("shop.orders", COLUMNS, key="id")
        orders.upsert(rows(0, count))
        orders.fold()
        # Forty files, large enough that Spark packs them.
        pieces = lake.create_table("shop.pieces", COLUMNS, key="id")
        size = max(count // 4, 1_000)
        for number in range(40):
            pieces.upsert(rows(number * size, size, number))
            pieces.fold()
    report.say(f"service: {count:,} orders; a second table of 40 files to compact, {40 * size:,} rows")


@contextmanager
def served(folder: Path, report: Report) -> Iterator[Server]:
    environment = {**os.environ, "LITHIFY_POLICY_INTERVAL_S": "5", "LITHIFY_LOG_FORMAT": "json"}
    command = [sys.executable, "-m", "lithify.cli.main", "--json", "serve", "--lake", str(folder), "--port", "0"]
    started = time.perf_counter()
    with (folder.parent / "service.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--no-maintenance"], stdout=subprocess.PIPE, stderr=log, env=environment, text=True
        )
        try:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            report.number(
                "ready after the start of the process",
                shown_time(ready := time.perf_counter() - started),
                "< 2 s",
                ready < 2,
            )
            yield Server(said["url"], said["token"], process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            process.stdout.close()


# -- a write becomes visible


def _visible(server: Server, report: Report, writes: int) -> None:
    with server.client() as client:
        client.cache.pin("shop.orders")
        quiet = []
        for _ in range(VISIBLE_ROUNDS):
            quiet += _write_and_see(client, writes)
            client.table("shop.orders").fold()  # as maintenance does at 100 change files
        report.number(
            "10 rows written, durable and seen by SQL, p50",
            shown_time(statistics.median(quiet)),
            "< 25 ms",
            statistics.median(quiet) < 0.025,
        )
        with _compacting(server, report) as running:
            busy = []
            while running() and len(busy) < 20_000:
                busy += _write_and_see(client, 20)
        if busy:
            p99 = float(np.quantile(busy, 0.99))
            report.say(f"  beside a compaction: {len(busy)} writes, p50 {shown_time(statistics.median(busy))}")
            report.number("the same while a compaction runs, p99", shown_time(p99), "< 100 ms", p99 < 0.1)


_fresh_ids = itertools.count(10_000_000)


def _write_and_see(client: RemoteLake, count: int) -> list[float]:
    table, times = client.table("shop.orders"), []
    for _ in range(count):
        first = next(_fresh_ids) * 10
        batch = rows(first, 10)
        start = time.perf_counter()
        table.upsert(batch)
        seen = client.sql(f"SELECT count(*) AS n FROM shop.orders WHERE id >= {first} AND id < {first + 10}")
        times.append(time.perf_counter() - start)
        assert seen.column("n")[0].as_py() == 10, "acknowledged rows must be there"
    return times


@contextmanager
def _compacting(server: Server, report: Report) -> Iterator[Callable[[], bool]]:
    started = time.perf_counter()

    def work() -> None:
        with server.client() as client:
            client.table("shop.pieces").compact()

    worker = threading.Thread(target=work)
    worker.start()
    yield worker.is_alive
    worker.join()
    report.say(f"  that compaction took {time.perf_counter() - started:.1f} s")


# -- ingest


def _ingest(server: Server, folder: Path, report: Report, batches: int) -> None:
    total = INGEST_CLIENTS * batches * INGEST_ROWS
    parts = [_batches(client, batches) for client in range(INGEST_CLIENTS)]
    with Lake(folder.parent / "direct", settings=Settings(cache_bytes_max=0)) as lake:
        table = lake.create_table("shop.direct", COLUMNS, key="id")
        threads = [threading.Thread(target=_write_all, args=(table.upsert, part)) for part in parts]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        direct = time.perf_counter() - started
    with server.client() as admin:
        admin.create_table("shop.taken", COLUMNS, key="id")
        served = _from_processes(server, batches)
        assert admin.sql("SELECT count(*) AS n FROM shop.taken").column("n")[0].as_py() == total
    share = direct / served
    report.say(f"  ingest: {total / served:,.0f} rows/s over HTTP, {total / direct:,.0f} rows/s through the Python API")
    report.number(
        f"HTTP ingest, {INGEST_CLIENTS} clients, of the Python API's rows per second",
        f"{share:.0%}",
        "≥ 60%",
        share >= 0.6,
    )


def _from_processes(server: Server, batches: int) -> float:
    """Seconds that as many processes as there are clients take, from when all of them are ready."""
    spawned = multiprocessing.get_context("spawn")
    ready = spawned.Barrier(INGEST_CLIENTS + 1)
    clients = [
        spawned.Process(target=_send, args=(server.url, server.token, number, batches, ready))
        for number in range(INGEST_CLIENTS)
    ]
    for client in clients:
        client.start()
    ready.wait(60)
    started = time.perf_counter()
    ready.wait(600)
    seconds = time.perf_counter() - started
    for client in clients:
        client.join()
    return seconds


def _send(url: str, token: str, number: int, count: int, ready: Barrier) -> None:
    batches = _batches(number, count)
    with connect(url, token=token) as client:
        table = client.table("shop.taken")
        ready.wait(60)
        _write_all(table.upsert, batches)
        ready.wait(600)


def _batches(client: int, count: int) -> list[pa.Table]:
    first = client * count
    return [rows((first + number) * INGEST_ROWS, INGEST_ROWS, number) for number in range(count)]


def _write_all(write: Callable[[pa.Table], object], batches: list[pa.Table]) -> None:
    for batch in batches:
        write(batch)


# -- mixed load


def _mixed(server: Server, report: Report, seconds: float) -> None:
    stop, errors = threading.Event(), []
    reads: list[float] = []
    writes: list[float] = []
    queries = itertools.cycle(
        [
            "SELECT status, count(*), sum(amount) FROM shop.orders GROUP BY status",
            "SELECT * FROM shop.orders WHERE id = 4711",
            "SELECT customer, sum(amount) AS s FROM shop.orders GROUP BY customer ORDER BY s DESC LIMIT 10",
            "SELECT count(*) FROM shop.taken WHERE amount > 100",
        ]
    )

    def read() -> None:
        with server.client() as client:
            while not stop.is_set():
                _noted(reads, errors, lambda: client.sql(next(queries)))

    def write(number: int) -> None:
        with server.client() as client:
            table = client.table("shop.orders" if number % 2 else "shop.taken")
            for turn in itertools.count():
                if stop.is_set():
                    return
                batch = rows((turn * WRITERS + number) % 5_000 * 100, 100, turn)
                _noted(writes, errors, lambda batch=batch: table.upsert(batch))

    def maintain() -> None:
        with server.client() as client:
            while not stop.wait(5):
                try:
                    client.table("shop.orders").fold()
                    client.table("shop.taken").fold()
                    client.table("shop.taken").compact()
                except Exception as error:
                    errors.append(repr(error))

    threads = [threading.Thread(target=read) for _ in range(READERS)]
    threads += [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    threads.append(threading.Thread(target=maintain))
    for thread in threads:
        thread.start()
    memory = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(min(5, seconds / 4))
        memory.append(server.resident_bytes)
    stop.set()
    for thread in threads:
        thread.join()
    shown = " ".join(f"{size / 2**20:.0f}" for size in memory)
    report.say(
        f"  mixed load, {seconds:.0f} s: {len(reads):,} reads, {len(writes):,} writes; server memory in MB: {shown}"
    )
    for what, times in (("read", reads), ("write", writes)):
        p50, p99 = np.quantile(times, [0.5, 0.99])
        report.say(f"  mixed load, {what}: p50 {shown_time(p50)}, p99 {shown_time(p99)}")
    report.number("mixed load, errors", str(len(errors)), "0", not errors)
    for error in errors[:5]:
        report.say(f"  {error}")
    half = len(memory) // 2
    growth = max(memory[half:]) / max(memory[:half])
    report.number("mixed load, memory of the second half against the first", f"{growth:.2f}×", "≤ 1.5×", growth <= 1.5)


def _noted(times: list[float], errors: list[str], work: Callable[[], object]) -> None:
    start = time.perf_counter()
    try:
        work()
    except Exception as error:
        errors.append(repr(error))
        return
    times.append(time.perf_counter() - start)
