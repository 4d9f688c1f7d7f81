"""Pruning and updating a sidecar of very many row groups. No such table is written: its footers are made up.

Pruning runs in a process of its own, which first prunes a small sidecar so that everything it needs is loaded; what is
then resident more is the price of the large one. What it may cost is what it has to look at: the mapped arrays of the
columns that the predicates name. Linux maps whole folios of the page cache, which are as large as 2 MB in a file just
written and small in one that was read from the disk piece by piece, so both are measured.
"""

from __future__ import annotations

import gc
import io
import json
import re
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.page_cache import drop_from_cache
from benchmarks.report import Report, median, rounds, shown_bytes, shown_time, timed
from lithify import Lake
from lithify.core.predicates import Compare, both
from lithify.files.local import LocalStorage
from lithify.files.open_parquet import footer_in, footer_of
from lithify.files.parquet import Written
from lithify.index.block import parse
from lithify.index.block_builder import ColumnDraft, Draft, assemble
from lithify.index.footers import entry_of
from lithify.index.format import Array
from lithify.index.prune import may_match
from lithify.index.reader import Sidecar
from lithify.index.stats import HAS_MAX, HAS_MIN, MAX_EXACT, MIN_EXACT, NULLS_KNOWN
from lithify.index.table_index import TableIndex
from lithify.index.writer import create

GROUPS_PRUNED, GROUPS_SMALL, GROUPS_UPDATED = 1_000_000, 1_000, 100_000
GROUPS_PER_FILE, GROUP_ROWS = 10, 100_000
PRUNINGS, UPDATES = 20, 200
TABLE_ID = "00000000-0000-0000-0000-000000000000"
START = datetime(2026, 1, 1, tzinfo=UTC)
EVERYTHING_KNOWN = HAS_MIN | HAS_MAX | MIN_EXACT | MAX_EXACT | NULLS_KNOWN
SCHEMA = pa.schema(
    [
        *((f"number{i}", pa.int64()) for i in range(10)),
        *((f"time{i}", pa.timestamp("us", "UTC")) for i in range(4)),
        *((f"text{i}", pa.string()) for i in range(6)),
    ]
)
PREDICATE = both([Compare("number3", "=", 77 * 2**40), Compare("time1", ">=", START + timedelta(days=180))])


def run(lake: Lake, report: Report, folder: Path, scale: float) -> None:
    _prune(report, folder, max(10_000, int(GROUPS_PRUNED * scale)))
    _update(lake, report, folder, max(10_000, int(GROUPS_UPDATED * scale)), rounds(UPDATES, scale, 2))


def _prune(report: Report, folder: Path, groups: int) -> None:
    for name, count in (("small", GROUPS_SMALL), ("pruned", groups)):
        create(LocalStorage(), folder / f"{name}.pm", TABLE_ID, 0, [_block(count)])
    size = (folder / "pruned.pm").stat().st_size
    report.say(
        f"pruning {groups:,} row groups × {len(SCHEMA)} columns by {PREDICATE}: a sidecar of {shown_bytes(size)}"
    )
    what = f"prune {groups:,} row groups × {len(SCHEMA)} columns by two predicates"
    as_written = _pruned_by_another_process(folder)
    drop_from_cache([folder / "pruned.pm"])
    from_disk = _pruned_by_another_process(folder)
    seconds = max(median(found["seconds"]) for found in (as_written, from_disk))
    report.number(what, shown_time(seconds), "< 25 ms", seconds < 0.025)
    for state, found in (("just written", as_written), ("opened from the disk", from_disk)):
        report.say(
            f"  {state}: {found['left']:,} row groups are kept; with opening {shown_time(found['first_s'])}; at its "
            f"peak {found['peak'] / found['touched']:.2f}× of the arrays touched"
        )
        against = "mapped arrays touched"
        report.at_most(f"resident memory of it, {state}", found["grown"], against, found["touched"], 1.2, shown_bytes)
    (folder / "pruned.pm").unlink()


def _pruned_by_another_process(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.sidecar_blocks", str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _update(lake: Lake, report: Report, folder: Path, groups: int, updates: int) -> None:
    """From the footer just written to a durable sidecar, in turns in a large and in a small one."""
    footer = footer_in(_parquet_file())
    indexes = {}
    for count in (groups, GROUPS_SMALL):
        path = lake.path / f"updated{count}.pm"
        create(LocalStorage(), path, TABLE_ID, 0, [_block(count)])
        indexes[count] = TableIndex(lake._runtime, "bench.updated", TABLE_ID, path, folder)

    times: dict[int, list[float]] = {count: [] for count in indexes}
    for version in range(1, updates + 1):
        path = folder / f"part-new-{version:06d}.parquet"
        path.touch()  # the index asks when it was written
        written = Written(path.name, 2**28, GROUPS_PER_FILE * GROUP_ROWS, "{}", footer)
        for count, index in indexes.items():
            times[count].append(timed(partial(index.after_commit, version, [written], [])))
    for count, index in indexes.items():
        files = Sidecar.open(index.path, TABLE_ID).view().files
        assert files == count // GROUPS_PER_FILE + updates, "a failed update must not pass for a fast one"
        index.forget()
    large, small = (median(found) for found in times.values())
    every = np.array(times[groups])
    report.say(
        f"  {updates} updates of a file of {GROUPS_PER_FILE} row groups: mean {shown_time(every.mean())}, p90 "
        f"{shown_time(np.percentile(every, 90))}, slowest {shown_time(every.max())}, "
        f"{(every >= 0.005).mean():.0%} take 5 ms or more"
    )
    what = f"update after a commit of one file, {groups:,} row groups"
    report.number(f"{what}, median", shown_time(large), "< 5 ms", large < 0.005)
    report.at_most(f"{what}, median", large, f"{GROUPS_SMALL:,} row groups", small, 1.5)


def _parquet_file() -> bytes:
    """A small file with as many row groups and the columns of a made-up one."""
    rng = np.random.default_rng(5)
    rows = 2 * GROUPS_PER_FILE

    def values(kind: pa.DataType) -> pa.Array:
        if pa.types.is_string(kind):
            return pa.array([f"text {n:020d}" for n in rng.integers(0, 2**60, rows)])
        top = 2**50 if pa.types.is_timestamp(kind) else 2**60
        return pa.array(rng.integers(0, top, rows)).cast(kind)

    sink = io.BytesIO()
    pq.write_table(pa.table([values(field.type) for field in SCHEMA], schema=SCHEMA), sink, row_group_size=2)
    return sink.getvalue()


def _block(groups: int) -> bytes:
    """Described as the real file is, with as many row groups as wanted, each with bounds of its own."""
    rng = np.random.default_rng(groups)
    path = "template.parquet"
    template = parse(entry_of(footer_of(footer_in(_parquet_file()), path), path, 2**28))
    files = -(-groups // GROUPS_PER_FILE)
    offsets = np.tile(np.arange(GROUPS_PER_FILE, dtype=np.uint64) << np.uint64(24), files)[:groups]
    start_us = int(START.timestamp()) * 1_000_000
    columns = {}
    for number, info in enumerate(template.columns):
        if info.name.startswith("time"):
            low = np.uint64(start_us) + np.arange(groups, dtype=np.uint64) * np.uint64(365 * 86_400_000_000 // groups)
            width = np.uint64(3_600_000_000)
        else:
            low = rng.integers(0, 2**60, groups, dtype=np.uint64)
            width = np.uint64(2**55)
        arrays = {
            Array.FLAGS: np.broadcast_to(np.uint64(EVERYTHING_KNOWN), groups),
            Array.LOW: low,
            Array.HIGH: low + width,
            Array.NULLS: rng.integers(0, 1_000, groups, dtype=np.uint64),
            Array.OFFSET: offsets + np.uint64(number * 400_000),
            Array.BYTES: rng.integers(200_000, 400_000, groups, dtype=np.uint64),
            Array.RAW_BYTES: rng.integers(400_000, 800_000, groups, dtype=np.uint64),
        }
        columns[info] = ColumnDraft(arrays)
    constant = partial(np.broadcast_to, shape=groups)
    return assemble(
        Draft(
            [f"part-{number:08d}.parquet" for number in range(files)],
            np.full(files, 2**28, np.uint64),
            np.full(files, 30_000, np.uint64),
            np.minimum(np.arange(1, files + 1, dtype=np.uint64) * np.uint64(GROUPS_PER_FILE), np.uint64(groups)),
            constant(np.uint64(GROUP_ROWS)),
            rng.integers(4_000_000, 8_000_000, groups, dtype=np.uint64),
            rng.integers(8_000_000, 16_000_000, groups, dtype=np.uint64),
            columns,
        )
    )


def _prune_alone(folder: Path) -> None:
    """Keeps all it has looked at, as a query does until it is planned."""
    _pruned(Sidecar.open(folder / "small.pm", TABLE_ID))
    gc.collect()
    before = _resident_now()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    start = time.perf_counter()
    sidecar = Sidecar.open(folder / "pruned.pm", TABLE_ID)
    left = _pruned(sidecar)
    first_s = time.perf_counter() - start
    seconds = [timed(partial(_pruned, sidecar)) for _ in range(PRUNINGS)]
    found = {
        "left": left,
        "first_s": first_s,
        "seconds": seconds,
        "grown": _resident_now() - before,
        "peak": _resident_peak() - before,
        "touched": _touched_bytes(sidecar),
    }
    print(json.dumps(found))


def _pruned(sidecar: Sidecar) -> int:
    """How many row groups may match."""
    return sum(int(may_match(PREDICATE, live.block.groups, live.block.stats).sum()) for live in sidecar.view().blocks)


def _touched_bytes(sidecar: Sidecar) -> int:
    """Of the arrays with which the two columns are described; one that is the same everywhere is not mapped."""
    total = 0
    for live in sidecar.view().blocks:
        for column in ("number3", "time1"):
            stats = live.block.stats(column)
            assert stats is not None
            total += sum(a.nbytes for a in (stats.nulls, stats.flags, stats.low, stats.high) if a.strides != (0,))
    return total


def _resident_now() -> int:
    return _kilobytes("/proc/self/smaps_rollup", "Rss") * 1024


def _resident_peak() -> int:
    return _kilobytes("/proc/self/status", "VmHWM") * 1024


def _kilobytes(path: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(path).read_text(), re.MULTILINE)
    assert found is not None, f"{path} says nothing of {name}"
    return int(found[1])


if __name__ == "__main__":
    _prune_alone(Path(sys.argv[1]))
