"""Opening and writing to a table that has seen many commits, against one that has seen few; both with as many files."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import time
import tracemalloc
from functools import partial
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from benchmarks.report import Report, cpu_of, median, rounds, timed
from lithify import Lake, Settings
from lithify.core.ops import Op
from lithify.delta.actions import LogChange
from lithify.delta.changes import ChangesLog
from lithify.delta.commit_outcome import Intent
from lithify.files.parquet import Layout, Written, encode

COMMITS_FEW, COMMITS_MANY = 10, 10_000
PENDING = 10
FILES_MANY, FILES_A_COMMIT = 100_000, 5_000
FOLD_EVERY = 50
ROUNDS, ROUNDS_FIRST, ROUNDS_WRITING = 15, 5, 30
MEMORY = "/dev/shm"
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


def run(lake: Lake, report: Report, scale: float) -> None:
    many = max(int(COMMITS_MANY * scale), 10 * COMMITS_FEW)
    # The history is built in memory where possible: what is measured is reading it, and building it takes as many
    # fsyncs as there are commits.
    folder = Path(tempfile.mkdtemp(prefix="lithify-bench-", dir=MEMORY if os.access(MEMORY, os.W_OK) else lake.path))
    try:
        with Lake(folder / "lake", settings=Settings(actor="bench")) as built:
            for name, commits in (("bench.few", COMMITS_FEW), ("bench.many", many)):
                report.say(f"building {name}: {commits:,} commits")
                _write(built, name, commits)
        times: dict[str, list[float]] = {"bench.few": [], "bench.many": []}
        first: dict[str, list[float]] = {"bench.few": [], "bench.many": []}
        for writing in [False] * rounds(ROUNDS, scale) + [True] * rounds(ROUNDS_FIRST, scale):
            for name in times:
                seconds, lake = _open(folder / "lake", name)
                if writing:
                    first[name].append(timed(partial(lake.table(name).upsert, [{"id": 1, "v": "new"}])))
                else:
                    times[name].append(seconds)
                lake.close()
        upserts = _upserts(folder / "lake", list(times), rounds(ROUNDS_WRITING, scale))
        log = folder / "lake" / "bench" / "many" / "changes"
        entries, archived = (len(list((log / name).glob("*"))) for name in ("_delta_log", "_log_archive"))
        report.say(f"  {entries:,} files in the log of bench.many, {archived:,} in its archive")
        report.at_most(
            f"open a table with {many:,} commits, and take a snapshot",
            median(times["bench.many"]),
            f"with {COMMITS_FEW} commits",
            median(times["bench.few"]),
            3,
        )
        report.beside(
            f"first upsert after opening it ({many:,} commits)",
            median(first["bench.many"]),
            f"with {COMMITS_FEW} commits",
            median(first["bench.few"]),
        )
        report.at_most(
            f"upsert of one row after {many:,} commits",
            median(upserts["bench.many"]),
            f"after {COMMITS_FEW}",
            median(upserts["bench.few"]),
            1.5,
        )
        _many_files(folder, report, max(int(FILES_MANY * scale), 1_000))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _many_files(folder: Path, report: Report, count: int) -> None:
    report.say(f"building bench.wide: {count:,} live files")
    path = folder / "lake"
    with Lake(path, settings=Settings(actor="bench")) as lake:
        handles = lake.create_table("bench.wide", SCHEMA, key="id")._internals.handles
        changes = handles.changes
        _, stats = encode(pa.table({"id": [1], "v": ["old"]}, schema=SCHEMA), Layout.of(changes.schema))
        for first in range(0, count, FILES_A_COMMIT):
            files = [
                (Written(f"write-{number:032x}.parquet", 1_000, 1, stats), Op.UPSERT)
                for number in range(first, min(first + FILES_A_COMMIT, count))
            ]
            changes.log.try_commit(changes.added(files, {}, {"operation": "upsert"}), Intent(handles.runtime.new_id()))
        changes.log.make_durable()
        changes.log.checkpoint(trim=False)
        log = Path(changes.log.path)

    def ours() -> None:
        with Lake(path, settings=Settings(actor="bench")) as lake:
            assert len(lake.table("bench.wide")._internals.handles.changes.files()) == count

    def theirs() -> None:
        assert DeltaTable(log).get_add_actions().num_rows == count

    # What a process touches for the first time takes the machine as long as it likes: the clock says little here.
    lithify, alone = cpu_of(5, ours, theirs)
    report.at_most(
        f"open a log of {count:,} live files, and list them, processor time", lithify, "deltalake alone", alone, 1.2
    )
    with Lake(path, settings=Settings(actor="bench")) as lake:
        handles = lake.table("bench.wide")._internals.handles
        gc.collect()
        tracemalloc.start()
        try:
            found = handles.changes.files()
            per_file = tracemalloc.get_traced_memory()[0] / len(found)
        finally:
            tracemalloc.stop()
    report.number("memory of a log's head, per live file", f"{per_file:.0f} bytes", "≤ 1 KB", per_file <= 1_024)


def _open(path: Path, name: str) -> tuple[float, Lake]:
    """Everything that a new process would do, but for its imports."""
    gc.collect()
    start = time.perf_counter()
    lake = Lake(path, settings=Settings(actor="bench"))
    lake.table(name).snapshot()
    return time.perf_counter() - start, lake


def _upserts(path: Path, names: list[str], writes: int) -> dict[str, list[float]]:
    """Through one open lake, in turns."""
    times: dict[str, list[float]] = {name: [] for name in names}
    with Lake(path, settings=Settings(actor="bench")) as lake:
        for number in range(writes):
            for name in names:
                times[name].append(timed(partial(lake.table(name).upsert, [{"id": 1, "v": str(number)}])))
    return times


def _remove_folded(changes: ChangesLog, watermark: int, write_id: str) -> None:
    folded = [file for file in changes.files() if file.seq <= watermark]
    info = {"operation": "remove folded", "seq": changes.seq, "watermark": watermark}
    changes.log.try_commit(LogChange(info, removes=folded), Intent(write_id))


def _write(lake: Lake, name: str, commits: int) -> None:
    """Commits as upserts make them, and as folds remove them again, all naming one real file."""
    handles = lake.create_table(name, SCHEMA, key="id")._internals.handles
    changes, runtime = handles.changes, handles.runtime
    data, stats = encode(pa.table({"id": [1], "v": ["old"]}, schema=SCHEMA), Layout.of(changes.schema))
    for number in range(1, commits + 1):
        path = f"write-{number:032x}.parquet"
        if number > commits - PENDING:
            (changes.log.path / path).write_bytes(data)
        files = [(Written(path, len(data), 1, stats), Op.UPSERT)]
        info = {"operation": "upsert", "rows": 1, "actor": "bench"}
        changes.log.try_commit(changes.added(files, {}, info), Intent(runtime.new_id()))
        changes.log.checkpoint_if_due()
        if number % FOLD_EVERY == 0 and number <= commits - PENDING:
            _remove_folded(changes, changes.seq, runtime.new_id())
            changes.log.checkpoint_if_due()
    _remove_folded(changes, changes.seq - PENDING, runtime.new_id())
    changes.log.make_durable()
