"""The sidecar: point queries and gets over many files, pruning, updates, builds, and what it takes on disk.

Everything is compared with alternatives over the very same files. Where a process is warm, the alternatives are too:
the view, the dataset and the table provider are made once. A cold get is cold for the data files only, on both sides:
they are dropped from the page cache before each one, and DuckDB may not keep their blocks in a cache of its own.
"""

from __future__ import annotations

import gc
import itertools
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import datafusion
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from benchmarks import sidecar_blocks
from benchmarks.many_files import OrderFile, key_of, linked_table, write_files
from benchmarks.page_cache import disk_bytes_read, drop_from_cache
from benchmarks.report import Report, best_of, median, rounds, shown_bytes, shown_time, timed
from lithify import Lake
from lithify.files.open_parquet import read_footer
from lithify.files.parquet import Written
from lithify.index.footer_reader import FOOTER_THREADS
from lithify.index.reader import Sidecar
from lithify.index.table_index import TableIndex

FILES_BUILT, FILES_QUERIED, ROWS_PER_FILE = 10_000, 5_000, 1_000
FILES_LARGE, ROWS_PER_LARGE_FILE = 20, 500_000
GETS, GETS_WARM = 200, 10
QUERY_ROUNDS, BUILD_ROUNDS = 3, 3
COMMITS = 1_000


def run(lake: Lake, report: Report, scale: float) -> None:
    folder = lake.path.parent / "sidecar"
    files = write_files(folder / "small", max(100, int(FILES_BUILT * scale)), ROWS_PER_FILE)
    report.say(f"sidecar: {len(files):,} files × {ROWS_PER_FILE:,} rows")
    try:
        _point_queries(lake, report, folder, files[: max(50, int(FILES_QUERIED * scale))], scale)
        _large_files(lake, report, folder, scale)
        _build(lake, report, folder, files, rounds(BUILD_ROUNDS, scale))
        _grow(lake, report, files[:COMMITS])
        sidecar_blocks.run(lake, report, folder, scale)
    finally:
        shutil.rmtree(folder)


def _point_queries(lake: Lake, report: Report, folder: Path, files: Sequence[OrderFile], scale: float) -> None:
    base = linked_table(folder / "queried", files)
    table = lake.adopt("bench.queried", base, key="id", verify=False)
    table.build_index()
    paths = [str(base / file.path.name) for file in files]
    keys = _keys(len(files) * ROWS_PER_FILE)
    delta, dataset = DeltaTable(base), ds.dataset(paths, format="parquet")
    context = datafusion.SessionContext()
    context.register_table("orders", delta)
    builder = QueryBuilder().register("orders", delta)

    def alternative(rows_of: Callable[[int], int]) -> Callable[[], None]:
        def work() -> None:
            assert rows_of(next(keys)) == 1, "every key is in the table once"

        return work

    where = "SELECT * FROM {} WHERE id = {}".format
    with _duckdb(paths) as connection:
        works = {
            "Lithify": alternative(lambda key: lake.sql(where("bench.queried", key)).num_rows),
            "DuckDB": alternative(lambda key: len(connection.execute(where("orders", key)).fetchall())),
            "deltalake's DataFusion provider": alternative(
                lambda key: context.sql(where("orders", key)).to_arrow_table().num_rows
            ),
            "pyarrow dataset": alternative(lambda key: dataset.to_table(filter=ds.field("id") == key).num_rows),
            "deltalake QueryBuilder, statistics of the log": alternative(
                lambda key: pa.table(builder.execute(where("orders", key)).read_all()).num_rows
            ),
        }
        best_of(1, *works.values())
        ours, *theirs = best_of(rounds(QUERY_ROUNDS, scale), *works.values())
        report.say(f"  median of 50: {shown_time(median([timed(works['Lithify']) for _ in range(50)]))}")
    what = f"point query over {len(files):,} files, warm"
    for against, seconds, at_least in zip(itertools.islice(works, 1, None), theirs, (40, 200, 80, None), strict=True):
        if at_least is None:
            report.beside(what, ours, against, seconds)
        else:
            report.faster(what, ours, against, seconds, at_least)
    _gets(lake, report, "bench.queried", files, paths, len(files) * ROWS_PER_FILE, rounds(GETS // 10, scale))
    lake.drop_table("bench.queried")


def _large_files(lake: Lake, report: Report, folder: Path, scale: float) -> None:
    files = write_files(folder / "large", FILES_LARGE, int(ROWS_PER_LARGE_FILE * scale))
    base = linked_table(folder / "looked_up", files)
    lake.adopt("bench.looked_up", base, key="id", verify=False).build_index()
    paths = [str(base / file.path.name) for file in files]
    _gets(
        lake,
        report,
        "bench.looked_up",
        files,
        paths,
        FILES_LARGE * int(ROWS_PER_LARGE_FILE * scale),
        rounds(GETS, scale),
        at_least=10,
    )
    lake.drop_table("bench.looked_up")


def _gets(
    lake: Lake,
    report: Report,
    name: str,
    files: Sequence[OrderFile],
    paths: Sequence[str],
    rows: int,
    gets: int,
    at_least: float | None = None,
) -> None:
    """In turns, by the same keys. Without a target, the figures are only shown."""
    table, keys = lake.table(name), _keys(rows)
    originals = [file.path for file in files]
    with _duckdb(paths) as connection:
        connection.execute("SET enable_external_file_cache = false")

        def get(key: int) -> None:
            assert table.get(key) is not None, "every key is in the table"

        def query(key: int) -> None:
            assert connection.execute(f"SELECT * FROM orders WHERE id = {key}").fetchall(), "every key is in the files"

        times: dict[Callable[[int], None], list[float]] = {get: [], query: []}
        from_disk = dict.fromkeys(times, 0)
        for number in range(GETS_WARM + gets):
            key = next(keys)
            for work, found in times.items():
                drop_from_cache(originals)
                before = disk_bytes_read()
                seconds = timed(partial(work, key))
                if number >= GETS_WARM:
                    found.append(seconds)
                    from_disk[work] += disk_bytes_read() - before
        connection.execute("SET parquet_metadata_cache = true")
        remembered = []
        for _ in range(max(10, gets // 4)):
            drop_from_cache(originals)
            remembered.append(timed(partial(query, next(keys))))
    ours, theirs = (median(found) for found in times.values())
    p99, theirs_p99 = (float(np.percentile(found, 99)) for found in times.values())
    what = f"get(key) in {rows:,} rows, {len(files):,} files, data cold"
    per_get = [shown_bytes(count / gets) for count in from_disk.values()]
    report.say("  read from the disk per get: {}, by DuckDB {}".format(*per_get))
    if not all(from_disk.values()):
        report.say("  a side that reads nothing from the disk was not cold: shown, not judged")
    if at_least is None or not all(from_disk.values()):
        report.beside(f"{what}, p50", ours, "DuckDB", theirs)
    else:
        report.faster(f"{what}, p50", ours, "DuckDB", theirs, at_least)
        report.beside(f"{what}, p50", ours, "DuckDB, footers in its cache", median(remembered))
        report.beside(f"{what}, p99", p99, "DuckDB", theirs_p99)
        report.at_most(f"{what}, p99", p99, "its p50", ours, 5)


def _build(lake: Lake, report: Report, folder: Path, files: Sequence[OrderFile], builds: int) -> None:
    """Each time from nothing, with the table's log already read and its footers in the page cache."""
    table = lake.adopt("bench.built", linked_table(folder / "built", files), key="id", verify=False)
    table.build_index()
    (path,) = (lake.path / "bench" / "built").rglob("base.pm")

    def footers() -> list[pq.FileMetaData]:
        with ThreadPoolExecutor(FOOTER_THREADS) as pool:
            return list(pool.map(pq.read_metadata, [file.path for file in files]))

    def build() -> float:
        path.unlink()
        gc.collect()
        start = time.perf_counter()
        added = table.build_index().added
        seconds = time.perf_counter() - start
        assert added == len(files), f"only {added} of {len(files)} files were built: the rest was there already"
        return seconds

    times = [(build(), timed(footers)) for _ in range(builds)]
    ours, theirs = (min(found) for found in zip(*times, strict=True))
    against = f"reading footers alone, {FOOTER_THREADS} threads"
    report.at_most(f"build for {len(files):,} files", ours, against, theirs, 1.5)
    covered = sum(metadata.serialized_size for metadata in footers())
    report.at_most("sidecar, as built", path.stat().st_size, "its footers", covered, 1, shown_bytes)
    lake.drop_table("bench.built")


def _grow(lake: Lake, report: Report, files: Sequence[OrderFile]) -> None:
    """A sidecar that got one file with each commit, rewritten when the engine finds it worth it."""
    index = TableIndex(
        lake._runtime, "bench.grown", str(uuid.UUID(int=0)), lake.path / "grown.pm", files[0].path.parent
    )
    covered, worst = 0, 0.0
    for version, file in enumerate(files):
        footer = read_footer(file.path)
        index.after_commit(version, [Written(file.path.name, file.size_bytes, ROWS_PER_FILE, file.stats, footer)], [])
        covered += len(footer)
        if version >= len(files) // 10:
            worst = max(worst, index.path.stat().st_size / covered)
    sidecar = Sidecar.open(index.path, str(uuid.UUID(int=0)))
    assert sidecar.view().files == len(files), "a commit that is not in the sidecar would make it small"
    report.say(f"  after any of the last {len(files) * 9 // 10:,} commits at most {worst:.2f}×")
    what = f"sidecar, grown by {len(files):,} commits of one file"
    report.at_most(what, index.path.stat().st_size, "its footers", covered, 1, shown_bytes)
    index.forget()


def _duckdb(paths: Sequence[str]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(f"CREATE VIEW orders AS SELECT * FROM read_parquet({list(paths)!r})")
    return connection


def _keys(rows: int) -> Iterator[int]:
    rng = np.random.default_rng(3)
    return (int(key_of(rng.integers(rows, size=1))[0]) for _ in itertools.count())
