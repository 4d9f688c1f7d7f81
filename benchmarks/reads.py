"""Fresh reads with 100 × 1,000 pending changes, against the same table folded, on both engines."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.data import changes, load, random_keys
from benchmarks.report import Report, best_of, median, rounds, timed
from lithify import Lake, Table

BATCHES, BATCH_ROWS = 100, 1000
FURTHER = 10
QUERIES = {
    "two columns": "SELECT country, sum(amount) AS x FROM {t} GROUP BY country",
    "all columns": (
        "SELECT country, status, sum(amount) AS x, max(placed) AS y, sum(length(note)) AS z, sum(customer) AS c, "
        "sum({id}) AS i FROM {t} GROUP BY country, status"
    ),
}


def run(lake: Lake, report: Report, scale: float) -> None:
    rows = int(10_000_000 * scale)
    for text, limit in ((False, 1.5), (True, 2.0)):
        kind = "string key" if text else "integer key"
        name = "bench.text" if text else "bench.numbers"
        report.say(f"reads, {kind}: {rows:,} rows, {BATCHES} × {BATCH_ROWS:,} changes")
        folded_name = f"{name}_folded"
        fresh, folded = (load(lake, each, rows, text=text) for each in (name, folded_name))
        per_batch = max(1, min(BATCH_ROWS, rows // (BATCHES * 10)))
        for seed in range(BATCHES):
            batch = changes(random_keys(rows, per_batch, 1000 + seed), text, seed)
            fresh.upsert(batch)
            folded.upsert(batch)
        folded.fold()
        _check_equal(lake, name, folded_name)
        for label, template in QUERIES.items():
            query = template.replace("{id}", "length(id)" if text else "id % 10")
            _spark(lake, report, fresh, folded, f"Spark, {kind}, {label}", query, limit)
            _serving(lake, report, name, folded_name, f"serving, {kind}, {label}", query)
        _after_each(lake, report, fresh, folded, kind, rows, per_batch, text, rounds(FURTHER, scale))
        lake.drop_table(folded_name)
        lake.drop_table(name)


def _after_each(
    lake: Lake,
    report: Report,
    fresh: Table,
    folded: Table,
    kind: str,
    rows: int,
    batch_rows: int,
    text: bool,
    times: int,
) -> None:
    """Each read is of a snapshot that nobody has read before."""

    def read(table: Table) -> None:
        lake.spark.sql(QUERIES["two columns"], t=table.to_spark(lake.spark)).collect()

    found = []
    for seed in range(times):
        fresh.upsert(changes(random_keys(rows, batch_rows, 5000 + seed), text, seed))
        found.append((timed(lambda: read(fresh)), timed(lambda: read(folded))))
    ours, theirs = (median([pair[side] for pair in found]) for side in (0, 1))
    report.at_most(f"aggregate after each further change, Spark, {kind}", ours, "the same folded", theirs, 1.5)


def _check_equal(lake: Lake, first: str, second: str) -> None:
    query = "SELECT count(*), sum(customer), round(sum(amount), 2) FROM {t}"
    one, two = (lake.sql(query.format(t=name)).to_pylist()[0].values() for name in (first, second))
    assert list(one) == list(two), "a fresh read and the folded table must agree"


def _spark(lake: Lake, report: Report, fresh: Table, folded: Table, what: str, query: str, limit: float) -> None:
    def run_on(table: Table) -> Callable[[], object]:
        return lambda: lake.spark.sql(query.format(t="{t}"), t=table.to_spark(lake.spark)).collect()

    first = timed(run_on(fresh))
    best_of(2, run_on(fresh), run_on(folded))
    ours, theirs = best_of(7, run_on(fresh), run_on(folded))
    report.say(f"  {what}: first read after the changes {first:.2f} s")
    report.at_most(f"fresh aggregate, {what}", ours, "the same folded", theirs, limit)


def _serving(lake: Lake, report: Report, fresh: str, folded: str, what: str, query: str) -> None:
    """Cold: nothing of the table is kept in memory but the resolved changes; every byte of base comes from Parquet."""
    ours, theirs = best_of(7, lambda: lake.sql(query.format(t=fresh)), lambda: lake.sql(query.format(t=folded)))
    report.at_most(f"fresh aggregate, {what}", ours, "the same folded", theirs, 1.6)
