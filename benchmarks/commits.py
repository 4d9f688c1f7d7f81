"""Many small durable writes to one table: writers that share commits, against one writer with a commit for each."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from benchmarks.report import Report, median, rounds
from lithify import Lake

WRITERS = 8
BATCH_ROWS = 10
BATCHES = 150
ROUNDS = 5
SCHEMA = pa.schema([("id", pa.int64()), ("device", pa.string()), ("value", pa.float64())])


def run(lake: Lake, report: Report, scale: float) -> None:
    batches = max(20, int(BATCHES * min(scale, 1.0)))
    one: list[float] = []
    many: list[float] = []
    shared: list[float] = []
    for _ in range(rounds(ROUNDS, scale)):
        # In turns, on the same disk, each time into a new table.
        one.append(_seconds_per_write(lake, 1, batches)[0])
        seconds, writes_per_commit = _seconds_per_write(lake, WRITERS, batches)
        many.append(seconds)
        shared.append(writes_per_commit)
    report.say(
        f"  {WRITERS} writers: {1 / median(many):.0f} commits acknowledged per second, {median(shared):.1f} to a "
        f"commit; one writer: {1 / median(one):.0f}"
    )
    report.faster(
        f"{WRITERS} writers, batches of {BATCH_ROWS} rows, one table, durable: per acknowledged commit",
        median(many),
        "one writer without group commit",
        median(one),
        5,
    )


def _seconds_per_write(lake: Lake, writers: int, batches: int) -> tuple[float, float]:
    """Seconds per acknowledged write, and how many writes shared a commit."""
    table = lake.create_table("bench.commits", SCHEMA, key="id")
    before = table.upsert([{"id": -1}]).seq
    together = threading.Barrier(writers + 1)

    def write(writer: int) -> None:
        together.wait()
        for batch in range(batches):
            first = (writer * batches + batch) * BATCH_ROWS
            table.upsert([{"id": first + n, "device": f"device {writer}", "value": n / 7} for n in range(BATCH_ROWS)])

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
