"""Many small durable writes to one table: writers that share commits, processes that take turns, and what the disk
itself takes (the fsync floor).
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from benchmarks.floor import floor_s
from benchmarks.report import Report, median, rounds
from lithify import Lake

WRITERS = 8
BATCH_ROWS = 10
BATCHES = 150
ROUNDS = 5
SCHEMA = pa.schema([("id", pa.int64()), ("device", pa.string()), ("value", pa.float64())])
PROCESS = """
import sys
from lithify import Lake
from benchmarks.commits import write_batches
with Lake(sys.argv[1]) as lake:
    table = lake.table("bench.commits")
    table.upsert([{"id": -2}], missing="null")
    print("ready", flush=True)
    sys.stdin.readline()
    print(*write_batches(table, int(sys.argv[2]), int(sys.argv[3])), flush=True)
"""


def run(lake: Lake, report: Report, scale: float) -> None:
    batches = max(20, int(BATCHES * min(scale, 1.0)))
    one: list[float] = []
    many: list[float] = []
    shared: list[float] = []
    apart: list[float] = []
    waits: list[float] = []
    floor: list[float] = []
    for _ in range(rounds(ROUNDS, scale)):
        # In turns, on the same disk, each time into a new table.
        floor.append(floor_s(Path(lake.path).parent))
        one.append(_seconds_per_write(lake, 1, batches)[0])
        seconds, writes_per_commit = _seconds_per_write(lake, WRITERS, batches)
        many.append(seconds)
        shared.append(writes_per_commit)
        seconds, told = _in_processes(lake, WRITERS, batches // 3)
        apart.append(seconds)
        waits += told
    waits.sort()
    report.say(
        f"  {WRITERS} writers: {1 / median(many):.0f} commits acknowledged per second, {median(shared):.1f} to a "
        f"commit; one writer: {1 / median(one):.0f}; {WRITERS} processes: {1 / median(apart):.0f}"
    )
    report.faster(
        f"{WRITERS} writers, batches of {BATCH_ROWS} rows, one table, durable: per acknowledged commit",
        median(many),
        "one writer without group commit",
        median(one),
        5,
    )
    name = "writing and syncing two files and two folders (the fsync floor)"
    report.at_most(f"one writer, batches of {BATCH_ROWS} rows, durable", median(one), name, median(floor), 3)
    for what, seconds, least in (
        ("one writer", median(one), 300),
        (f"{WRITERS} threads", median(many), 2_000),
        (f"{WRITERS} processes", median(apart), 400),
    ):
        per_second = 1 / seconds
        text = f"{per_second:.0f} a second, {per_second * median(floor):.2f} in a floor's time"
        report.number(f"acknowledged writes of {what}, one table", text, f"≥ {least:,}", per_second >= least)
    report.at_most(
        f"{WRITERS} processes on one table: p99 of a write",
        waits[int(len(waits) * 0.99)],
        "its p50",
        median(waits),
        10,
    )


def write_batches(table: object, writer: int, batches: int) -> list[float]:
    """Seconds that each took."""
    times = []
    for batch in range(batches):
        first = (writer * batches + batch) * BATCH_ROWS
        rows = [{"id": first + n, "device": f"device {writer}", "value": n / 7} for n in range(BATCH_ROWS)]
        started = time.perf_counter()
        table.upsert(rows)  # type: ignore[attr-defined]
        times.append(time.perf_counter() - started)
    return times


def _seconds_per_write(lake: Lake, writers: int, batches: int) -> tuple[float, float]:
    """Seconds per acknowledged write, and how many writes shared a commit."""
    table = lake.create_table("bench.commits", SCHEMA, key="id")
    before = table.upsert([{"id": -1}], missing="null").seq
    together = threading.Barrier(writers + 1)

    def write(writer: int) -> None:
        together.wait()
        write_batches(table, writer, batches)

    with ThreadPoolExecutor(writers) as pool:
        writing = [pool.submit(write, writer) for writer in range(writers)]
        together.wait()
        started = time.perf_counter()
        for future in writing:
            future.result()
        seconds = time.perf_counter() - started
    commits = table.snapshot().seq - before
    rows = table.to_arrow(["id"]).num_rows
    assert rows == 1 + writers * batches * BATCH_ROWS, f"{rows} rows"
    lake.drop_table("bench.commits")
    return seconds / (writers * batches), writers * batches / commits


def _in_processes(lake: Lake, writers: int, batches: int) -> tuple[float, list[float]]:
    """Seconds per acknowledged write of processes that write at once, and what each write took."""
    table = lake.create_table("bench.commits", SCHEMA, key="id")
    command = [sys.executable, "-c", PROCESS, str(lake.path)]
    running = [
        subprocess.Popen(
            [*command, str(writer), str(batches)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for writer in range(writers)
    ]
    try:
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        started = time.perf_counter()
        for process in running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        # Until the last write: what a process takes to end is not part of it.
        told = [process.stdout.readline() for process in running if process.stdout]
        seconds = time.perf_counter() - started
        for process in running:
            process.communicate()
    finally:
        for process in running:
            process.kill()
            process.wait()
    rows = table.to_arrow(["id"]).num_rows
    assert rows == 1 + writers * batches * BATCH_ROWS, f"{rows} rows"
    lake.drop_table("bench.commits")
    return seconds / (writers * batches), [float(line) for text in told for line in text.split()]
