"""Bulk loads in this process against DuckDB writing the same Parquet; and frames of Spark that are small.

Both write ZSTD, and rows in no order are sorted by both. Lithify's answer is checked against the rows after each.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from benchmarks.data import changes, columns, frame
from benchmarks.report import Report, best_of, rounds
from lithify import Lake

BATCH_ROWS = 65_536


def run(lake: Lake, report: Report, scale: float) -> None:
    folder = Path(tempfile.mkdtemp(prefix="load-", dir=Path(lake.path).parent))
    try:
        _loads(lake, report, int(10_000_000 * scale), rounds(3, scale), folder)
        _files(lake, report, int(3_000_000 * scale), folder)
        _small_frames(lake, report)
    finally:
        shutil.rmtree(folder)


def _loads(lake: Lake, report: Report, count: int, times: int, folder: Path) -> None:
    report.say(f"loads of {count:,} rows of Arrow in this process")
    ordered = changes(np.arange(count), False)
    shuffled = ordered.take(pa.array(np.random.default_rng(1).permutation(count)))
    for what, rows, sort in (("sorted by key", ordered, ""), ("in no order", shuffled, "order by id")):
        ours, theirs = _cpu_of(
            times,
            lambda rows=rows: _loaded(lake, rows),  # type: ignore[misc]
            lambda rows=rows, sort=sort: _duckdb(rows, sort, folder),  # type: ignore[misc]
        )
        name = f"upsert of {count:,} rows of Arrow {what}, durable"
        report.at_most(name, ours[0], "DuckDB writes the same Parquet", theirs[0], 1.5)
        report.at_most("the same, processor time", ours[1], "DuckDB", theirs[1], 1.5)
    ours, theirs = _cpu_of(
        1,
        lambda: _loaded(lake, pa.RecordBatchReader.from_batches(shuffled.schema, shuffled.to_batches(BATCH_ROWS))),
        lambda: _duckdb(shuffled, "order by id", folder),
    )
    report.beside("the same rows in no order as a stream, sorted on disk", ours[0], "DuckDB", theirs[0])


def _files(lake: Lake, report: Report, count: int, folder: Path) -> None:
    rows = changes(np.random.default_rng(2).permutation(count), False)
    pq.write_table(rows, folder / "rows.parquet")
    pacsv.write_csv(rows, folder / "rows.csv")
    for kind, limit in (("parquet", 1.5), ("csv", None)):
        source = str(folder / f"rows.{kind}")
        ours, theirs = best_of(
            2,
            lambda source=source: _loaded(lake, source, rows),  # type: ignore[misc]
            lambda source=source: _duckdb(source, "order by id", folder),  # type: ignore[misc]
        )
        name = f"ingest of {count:,} rows in no order from {kind}, durable, no JVM"
        if limit is None:
            report.beside(name, ours, "DuckDB sorts and writes them as Parquet", theirs)
        else:
            report.at_most(name, ours, "DuckDB sorts and writes them as Parquet", theirs, limit)


def _small_frames(lake: Lake, report: Report) -> None:
    table = lake.create_table("bench.small_frames", columns(pa.int64()), key="id")
    small = frame(lake.spark, 1_000, False)
    table.upsert(small)
    ours, theirs = best_of(10, lambda: table.upsert(small), lambda: table.upsert(small.toArrow()))
    if table.count() != 1_000:
        raise AssertionError("rows are missing")
    report.at_most("upsert of a Spark DataFrame of 1,000 rows", ours, "toArrow and upsert", theirs, 1.5)
    lake.drop_table("bench.small_frames")


def _loaded(lake: Lake, data: object, rows: pa.Table | None = None) -> None:
    table = lake.create_table("bench.loaded", columns(pa.int64()), key="id")
    if isinstance(data, str):
        lake.ingest("bench.loaded", data)
    else:
        table.upsert(data)
    wanted = rows if rows is not None else data
    found = lake.sql("select count(*) n, sum(id) s from bench.loaded").to_pylist()[0]
    if isinstance(wanted, pa.Table) and found != {"n": wanted.num_rows, "s": pc.sum(wanted.column("id")).as_py()}:
        raise AssertionError(f"other rows were loaded: {found}")
    lake.drop_table("bench.loaded")


def _duckdb(rows: pa.Table | str, sort: str, folder: Path) -> None:
    source = f"'{rows}'" if isinstance(rows, str) else "rows"
    with duckdb.connect() as connection:
        connection.execute(
            f"copy (select * from {source} {sort}) to '{folder / 'out.parquet'}' (format parquet, compression zstd)"
        )


def _cpu_of(times: int, *works: Callable[[], object]) -> list[tuple[float, float]]:
    """The best wall time and the best processor time of each, in turns."""
    found: list[list[tuple[float, float]]] = [[] for _ in works]
    for _ in range(times):
        for number, work in enumerate(works):
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            found[number].append((time.perf_counter() - wall, time.process_time() - cpu))
    return [(min(each)[0], min(cpu for _, cpu in each)) for each in found]
