"""SQL that writes and partial updates: against deltalake's update and merge, and against full upserts."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from benchmarks.data import changes, columns, load, random_keys
from benchmarks.report import Report, best_of, median, rounds, timed
from benchmarks.upserts import merge
from lithify import Lake, Table
from lithify.streams.sink import StreamSink

ROWS = 1_000
PENDING = 100
PORTIONS = 100
QUERY = "SELECT country, sum(amount) AS x FROM {t} GROUP BY country"


def run(lake: Lake, report: Report, scale: float) -> None:
    rows = int(10_000_000 * scale)
    table = lake.table("bench.orders") if "bench.orders" in lake.tables() else load(lake, "bench.orders", rows)
    table.fold()
    _statements(lake, report, table, rows, scale)
    _partial(report, table, rows, scale)
    table.fold()
    _pending(lake, report, rows)
    _debezium(lake, report, rounds(PORTIONS, scale, 4))


# -- statements


def _statements(lake: Lake, report: Report, table: Table, rows: int, scale: float) -> None:
    count = min(ROWS, rows // 10)
    turns = rounds(10, scale, 2)
    keys = [random_keys(rows, count, 500 + turn) for turn in range(turns)]
    updates = [f"UPDATE bench.orders SET status = 'paid' WHERE id IN ({_list(each)})" for each in keys]
    merges = [_merge_text(each, turn) for turn, each in enumerate(keys)]
    report.say(f"UPDATE and MERGE of {count:,} rows by key in {rows:,} rows")
    update = median([timed(partial(lake.execute, text)) for text in updates])
    merged = median([timed(partial(lake.execute, text)) for text in merges])
    copy = lake.path.parent / "statement-copy"
    shutil.copytree(table.base_path, copy)
    try:
        their_update, their_merge = best_of(
            2, partial(_their_update, copy, keys[0]), partial(_their_merge, copy, keys[1])
        )
    finally:
        shutil.rmtree(copy)
    report.faster(
        f"UPDATE of {count:,} rows by key in {rows:,} rows, durable", update, "deltalake update", their_update, 100
    )
    report.faster(f"MERGE of {count:,} rows into {rows:,} rows, durable", merged, "deltalake merge", their_merge, 100)


def _list(keys: np.ndarray) -> str:
    return ", ".join(map(str, keys))


def _merge_text(keys: np.ndarray, turn: int) -> str:
    values = ", ".join(f"({key}, {turn + number / 10})" for number, key in enumerate(keys))
    return (
        f"MERGE INTO bench.orders t USING (SELECT * FROM (VALUES {values}) AS v (id, amount)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET amount = cast(s.amount AS double) "
        "WHEN NOT MATCHED THEN INSERT (id, amount) VALUES (s.id, cast(s.amount AS double))"
    )


def _their_update(path: Path, keys: np.ndarray) -> None:
    DeltaTable(path).update({"status": "'paid'"}, predicate=f"id IN ({_list(keys)})")


def _their_merge(path: Path, keys: np.ndarray) -> None:
    merge(DeltaTable(path), changes(keys, False, 7))


# -- partial updates


def _partial(report: Report, table: Table, rows: int, scale: float) -> None:
    count = min(ROWS, rows // 10)
    whole, part = [], []
    for turn in range(rounds(40, scale, 4)):
        batch = changes(random_keys(rows, count, 700 + turn), False, turn)
        whole.append(timed(partial(table.upsert, batch)))
        part.append(timed(partial(table.update, batch.select(["id", "status"]))))
    report.at_most(
        f"partial update of {count:,} rows, one column, durable", median(part), "a full upsert", median(whole), 1.3
    )


def _pending(lake: Lake, report: Report, rows: int) -> None:
    report.say(f"reads with {PENDING} × {ROWS:,} partial updates pending, beside as many full upserts")
    per_batch = max(1, min(ROWS, rows // (PENDING * 10)))
    whole, part = (load(lake, name, rows) for name in ("bench.whole", "bench.part"))
    for seed in range(PENDING):
        batch = changes(random_keys(rows, per_batch, 900 + seed), False, seed)
        whole.upsert(batch)
        part.update(batch.select(["id", "amount", "country"]))
    first = timed(lambda: lake.sql(QUERY.format(t="bench.part")))
    ours, theirs = best_of(
        7, lambda: lake.sql(QUERY.format(t="bench.part")), lambda: lake.sql(QUERY.format(t="bench.whole"))
    )
    report.say(f"  the first read after the updates {first:.2f} s")
    report.at_most(
        f"fresh aggregate with {PENDING} × {per_batch:,} partial updates pending",
        ours,
        "full upserts pending",
        theirs,
        1.2,
    )
    ours_after, theirs_after = [], []
    for seed in range(PENDING, PENDING + 5):
        batch = changes(random_keys(rows, per_batch, 900 + seed), False, seed)
        whole.upsert(batch)
        part.update(batch.select(["id", "amount", "country"]))
        ours_after.append(timed(lambda: lake.sql(QUERY.format(t="bench.part"))))
        theirs_after.append(timed(lambda: lake.sql(QUERY.format(t="bench.whole"))))
    report.at_most(
        f"the same right after {per_batch:,} more",
        median(ours_after),
        "full upserts",
        median(theirs_after),
        1.2,
    )
    for name in ("bench.whole", "bench.part"):
        lake.drop_table(name)


# -- messages of Debezium


def _debezium(lake: Lake, report: Report, portions: int) -> None:
    """Both as micro-batches of a stream are applied, from Arrow: what Spark takes is the same for both."""
    schema = pa.schema([field for field in columns(pa.int64()) if field.name != "placed"])
    plain = lake.create_table("bench.plain_events", schema, key="id")
    wrapped = lake.create_table("bench.wrapped_events", schema, key="id")
    events = [changes(random_keys(1_000_000, ROWS, 300 + n), False, n).select(schema.names) for n in range(portions)]
    messages = [_messages(each) for each in events]

    opening, passing = (
        StreamSink(table._internals, "upsert", name="bench", envelope=envelope)
        for table, envelope in ((wrapped, "debezium"), (plain, None))
    )
    ours, theirs = [], []
    for number in range(portions):
        ours.append(timed(partial(opening.take, wrapped._internals, messages[number], number, None)))
        theirs.append(timed(partial(passing.take, plain._internals, events[number], number, None)))
    assert lake.sql("SELECT count(*) AS n FROM bench.plain_events") == lake.sql(
        "SELECT count(*) AS n FROM bench.wrapped_events"
    )
    report.at_most(
        f"micro-batch of {ROWS:,} Debezium messages, {portions} of them",
        median(ours),
        "plain rows",
        median(theirs),
        1.2,
    )
    for name in ("bench.plain_events", "bench.wrapped_events"):
        lake.drop_table(name)


def _messages(rows: pa.Table) -> pa.Table:
    texts = [
        json.dumps({"before": None, "after": row, "op": "u", "ts_ms": 1, "source": {"lsn": number}})
        for number, row in enumerate(rows.to_pylist())
    ]
    return pa.table({"value": pa.array(texts)})
