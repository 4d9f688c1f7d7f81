"""A lake in a bucket whose server takes 20 ms for each request, against the time of a request and against a folder.

The server is one of the tests', behind their proxy, which runs in a process of its own and waits before it passes a
request on.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import obstore
import pyarrow as pa
from obstore.store import S3Store

from benchmarks.report import Report, best_of, median, rounds, timed
from lithify import Lake, Settings
from lithify.files.addresses import path_of
from lithify.files.open_storage import storage_of

TESTS = Path(__file__).parents[1] / "tests"
DELAY_S = 0.02
ROWS = 10_000_000
BATCH_ROWS, UPSERTS = 1_000, 60
WRITERS, WRITES = 8, 60
SCHEMA = pa.schema([("id", pa.int64()), ("device", pa.string()), ("value", pa.float64())])
QUERY = "select device, count(*) as n, sum(value) as v from bench.t group by device"
ARRIVING, ARRIVING_PER_S = 240, 30
CONTENDED_S = 20.0
_CONTENDER = """
import json, sys, time
import pyarrow as pa
from lithify import Lake, Settings
address, copies, writer, s = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
schema = pa.schema([("id", pa.int64()), ("device", pa.string()), ("value", pa.float64())])
took = []
with Lake(address, settings=Settings(cache_bytes_max=0, cache_folder=copies)) as lake:
    table = lake.table("bench.c")
    def write():
        first = writer * 1_000_000 + 10 * len(took)
        ids = list(range(first, first + 10))
        table.upsert(pa.table({"id": ids, "device": ["d"] * 10, "value": [0.5] * 10}, schema=schema))
    write()
    print("ready", flush=True)
    sys.stdin.readline()
    until = time.monotonic() + s
    while time.monotonic() < until:
        started = time.perf_counter()
        write()
        took.append(time.perf_counter() - started)
print(json.dumps(took), flush=True)
"""
_PROXY = """
import sys, time
from support.fault_proxy import FaultProxy
from support.s3_servers import S3Server
with FaultProxy(S3Server("measured", sys.argv[1])) as proxy:
    proxy.delay_s = float(sys.argv[2])
    print(proxy.server.url, flush=True)
    sys.stdin.read()
"""


def run(lake: Lake, report: Report, scale: float) -> None:
    folder = Path(tempfile.mkdtemp(prefix="lithify-bench-", dir=Path(lake.path).parent))
    try:
        with _slow_server(folder) as address:
            settings = Settings(cache_bytes_max=0, cache_folder=folder / "copies")
            with Lake(address, settings=settings) as remote:
                _writes(remote, report, scale)
                _arriving(remote, report, scale)
                _contended(remote, settings, report, scale)
                _reads(lake, remote, settings, report, scale)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _slow_server(folder: Path) -> Iterator[str]:
    """A new address there; the environment leads to it."""
    sys.path.insert(0, str(TESTS))
    from support.s3_servers import versitygw

    with versitygw(folder / "server") as running, contextlib.ExitStack() as stack:
        command = [sys.executable, "-c", _PROXY, running.server.url, str(DELAY_S)]
        proxy = subprocess.Popen(command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.callback(proxy.wait)
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        stack.callback(proxy.stdin.close)
        environment = running.server.behind(proxy.stdout.readline().strip()).environment()
        before = {name: os.environ.get(name) for name in environment}
        os.environ.update(environment)
        try:
            yield running.server.address()
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def _writes(remote: Lake, report: Report, scale: float) -> None:
    probe = path_of(str(remote.path)) / "probe"
    store = storage_of(probe)
    store.put(probe, b"x")
    request = median([timed(lambda: store.put(probe, b"x")) for _ in range(20)])
    table = remote.create_table("bench.w", SCHEMA, key="id")
    table.upsert(_rows(0, BATCH_ROWS))
    rng, seconds = np.random.default_rng(7), []
    for _ in range(rounds(UPSERTS, scale, 5)):
        rows = _rows(int(rng.integers(1_000_000)), BATCH_ROWS)
        seconds.append(timed(lambda rows=rows: table.upsert(rows)))  # type: ignore[misc]
    report.at_most(
        f"bucket, {DELAY_S * 1000:.0f} ms a request: upsert of {BATCH_ROWS:,} rows, p50",
        median(seconds),
        "one put",
        request,
        2.5,
    )
    writes = rounds(WRITES, scale, 5)

    def write(writer: int) -> None:
        for number in range(writes):
            table.upsert(_rows(10_000_000 + writer * 1_000_000 + number * 10, 10))

    with ThreadPoolExecutor(WRITERS) as pool:
        started = time.perf_counter()
        list(pool.map(write, range(WRITERS)))
        each = (time.perf_counter() - started) / (WRITERS * writes)
    per_second = 1 / each
    report.number(
        f"bucket, {DELAY_S * 1000:.0f} ms a request: {WRITERS} threads, batches of 10 rows, acknowledged per second",
        f"{per_second:.0f}",
        "≥ 300",
        per_second >= 300,
    )


def _arriving(remote: Lake, report: Report, scale: float) -> None:
    """Callers of one process that come at any time, as those of a service do, and not when the last have left."""
    table = remote.create_table("bench.a", SCHEMA, key="id")
    table.upsert(_rows(0, 10))
    alone = median([timed(lambda: table.upsert(_rows(0, 10))) for _ in range(rounds(20, scale, 5))])
    count = rounds(ARRIVING, scale, 10)
    comes_s = np.cumsum(np.random.default_rng(7).exponential(1 / ARRIVING_PER_S, count))
    began = time.perf_counter() + 0.1

    def write(number: int) -> float:
        time.sleep(max(0.0, began + comes_s[number] - time.perf_counter()))
        table.upsert(_rows(10 * number, 10))
        return float(time.perf_counter() - began - comes_s[number])

    with ThreadPoolExecutor(64) as pool:
        took = list(pool.map(write, range(count)))
    what = f"bucket, {DELAY_S * 1000:.0f} ms a request: {ARRIVING_PER_S} callers a second, batches of 10 rows, p50"
    report.at_most(what, median(took), "a caller alone", alone, 1.5)


def _contended(remote: Lake, settings: Settings, report: Report, scale: float) -> None:
    """Processes that write one table as fast as they can, against one that does so alone."""
    remote.create_table("bench.c", SCHEMA, key="id")
    seconds = max(1.0, CONTENDED_S * min(1.0, 10 * scale))
    (alone,) = _written_by(1, remote, settings, seconds / 4)
    writers = rounds(WRITERS, scale, 2)
    shares = _written_by(writers, remote, settings, seconds)
    took = np.concatenate(shares)
    p50, p99 = (float(np.percentile(took, percent)) for percent in (50, 99))
    what = f"bucket, {DELAY_S * 1000:.0f} ms a request: {writers} processes on one table"
    report.at_most(f"{what}, p99 of a batch of 10 rows", p99, "p50", p50, 10)
    counts = sorted(len(share) for share in shares)
    report.number(
        f"{what}, the one with fewest writes, of {len(took)}",
        str(counts[0]),
        "≥ half its share",
        counts[0] >= len(took) / writers / 2,
    )
    each, single = seconds / len(took), seconds / 4 / len(alone)
    report.at_most(f"{what}, from one commit to the next", each, "one process alone", single, 1.25)


def _written_by(count: int, remote: Lake, settings: Settings, seconds: float) -> list[list[float]]:
    """How long each write of each process took."""
    common = [sys.executable, "-c", _CONTENDER, str(remote.path), str(settings.cache_folder)]
    running = [
        subprocess.Popen([*common, str(number), str(seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(count)
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    found = [json.loads(process.communicate()[0]) for process in running]
    assert all(process.returncode == 0 for process in running)
    return found


def _reads(lake: Lake, remote: Lake, settings: Settings, report: Report, scale: float) -> None:
    count = max(20_000, int(ROWS * scale))
    rows = _rows(0, count)
    for each in (lake, remote):
        table = each.create_table("bench.t", SCHEMA, key="id")
        table.upsert(rows)
        table.fold()
        table.upsert(_rows(5, 1_000))

    def fresh(each: Lake) -> None:
        assert each.sql(QUERY).num_rows == 100

    fresh(remote)
    ours, local = best_of(rounds(5, scale, 2), lambda: fresh(remote), lambda: fresh(lake))
    report.at_most(
        f"bucket: fresh aggregate over {count:,} rows, copies here", ours, "the same in a folder", local, 1.3
    )
    snapshot = remote.table("bench.t").snapshot()
    root = path_of(str(remote.path)) / "bench/t"
    keys = [(root / "base" / file.path).key for file in snapshot.base]  # type: ignore[attr-defined]
    bucket = S3Store(path_of(str(remote.path)).bucket, client_options={"allow_http": True})  # type: ignore[attr-defined]

    def read_bytes() -> None:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda key: len(obstore.get(bucket, key).bytes()), keys))

    def cold() -> None:
        shutil.rmtree(settings.copies_folder, ignore_errors=True)
        with Lake(remote.path, settings=settings) as again:
            fresh(again)

    ours, theirs = best_of(rounds(3, scale), cold, read_bytes)
    report.at_most(
        f"bucket: the same with nothing here, lake opened, {len(keys)} files", ours, "reading their bytes", theirs, 1.5
    )
    lake.drop_table("bench.t")


def _rows(first: int, count: int) -> pa.Table:
    ids = np.arange(first, first + count)
    devices = pa.array([f"device {number}" for number in range(100)]).take(pa.array(ids % 100))
    return pa.table({"id": ids, "device": devices, "value": ids * 0.37}, schema=SCHEMA)
