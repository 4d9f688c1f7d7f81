"""A table that is written to without end: 20 minutes' worth of upserts, with policies and without.

Each round writes 50,000 random keys in ten commits and then times a fresh aggregate. With policies, a maintenance cycle
runs after each round, as `lithify run` does every minute: it folds, merges change files and compacts when that is due.
Time stands still for the cron tiers, so the curve shows what the policies alone hold.
"""

from __future__ import annotations

import itertools

import pyarrow as pa

from benchmarks.data import changes, load, random_keys
from benchmarks.report import Report, shown_time, timed
from lithify import Lake, Table
from lithify.maintenance.table_maintenance import TableMaintenance

ROUNDS = 20
COMMITS = 10
READS = 5
QUERY = "SELECT country, sum(amount) AS x FROM {table} GROUP BY country"


def run(lake: Lake, report: Report, scale: float) -> None:
    rows, count = int(10_000_000 * scale), max(1_000, int(50_000 * scale))
    curves = {}
    for policies in (True, False):
        name = f"bench.steady_{'on' if policies else 'off'}"
        report.say(f"{ROUNDS} rounds × {count:,} upserts into {rows:,} rows, policies {'on' if policies else 'off'}")
        table = load(lake, name, rows)
        curves[policies] = _rounds(lake, table, report, rows, count, policies)
        lake.drop_table(name)
    on, off = curves[True], curves[False]
    report.at_most(f"fresh aggregate in round {ROUNDS}, policies on", on[-1], "in round 1", on[0], 1.5)
    report.at_most(f"the slowest of {ROUNDS} rounds, policies on", max(on), "in round 1", on[0], 1.5)
    report.beside(f"fresh aggregate in round {ROUNDS}", on[-1], "policies off", off[-1])


def _rounds(lake: Lake, table: Table, report: Report, rows: int, count: int, policies: bool) -> list[float]:
    times, written, maintenance_s = [], 0, 0.0
    size = 0
    for number in range(ROUNDS):
        before = table.snapshot().seq
        batch = changes(random_keys(rows, count, number), False, number)
        for part in itertools.islice(batch.to_batches(max_chunksize=-(-count // COMMITS)), COMMITS):
            table.upsert(pa.Table.from_batches([part]))
        size += sum(file.size_bytes for file in table.snapshot().changes if file.seq > before)
        if policies:
            bytes_out, seconds = _maintain(table)
            written, maintenance_s = written + bytes_out, maintenance_s + seconds
        lake.sql(QUERY.format(table=table.name))
        times.append(min(timed(lambda: lake.sql(QUERY.format(table=table.name))) for _ in range(READS)))
    stats = table.snapshot()
    report.say(f"  read times by round: {' '.join(shown_time(s) for s in times)}")
    report.say(
        f"  at the end {len(stats.base)} base files, {len(stats.changes)} change files; maintenance took "
        f"{maintenance_s:.1f} s and wrote {written / 2**20:.0f} MB, "
        f"{written / max(1, size):.1f}× of the changes' own {size / 2**20:.0f} MB"
    )
    return times


def _maintain(table: Table) -> tuple[int, float]:
    written = 0

    def work() -> None:
        nonlocal written
        with table._internals.maintaining() as (handles, reader):
            maintenance = TableMaintenance(handles, reader)
            for plan in maintenance.plans(handles.runtime.now_ms()):
                written += maintenance.run(plan).bytes_written

    seconds = timed(work)
    return written, seconds
