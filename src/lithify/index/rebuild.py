"""Building, checking and describing a table's indexes as a whole.

A build reads the footers of the files that have no entry yet and adds them batch by batch, each durable before the next
begins: one that was interrupted goes on where it stopped. Data is never touched. Many footers are read by Spark tasks,
fewer by threads of this process.

A check reads every footer again and compares what an entry would be now with the one that is there.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lithify.core.read_plan import source_of
from lithify.core.snapshot import DataFile, Snapshot
from lithify.errors import Corruption, LithifyError, NotFound
from lithify.files.examine import examine, read_by_child
from lithify.index.block import Block, parse
from lithify.index.footer_reader import FooterTask, named, read_entries, read_footers
from lithify.index.format import CHUNK_ARRAYS, VERSION, Array
from lithify.index.lookup import Coverage, Files
from lithify.index.reader import Sidecar
from lithify.index.sort_orders import Order, orders_of
from lithify.index.stats import ABSENT
from lithify.index.table_index import TableIndex, solid

if TYPE_CHECKING:
    from lithify.index.indexed import IndexedTable

BATCH_FILES = 512
# More files than that are left to Spark, in waves of so many, each task with a batch.
SPARK_FILES_MIN = 20_000
WAVE_FILES = 16_384
Progress = Callable[[str, float | None], None]


@dataclass(frozen=True)
class IndexBuild:
    """`files` that should have an entry, how many were `added` now, and paths that were `skipped` as unreadable."""

    table: str
    files: int
    added: int
    skipped: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class IndexCheck:
    """Paths of files without an entry, of entries without a file, and of files that are not what their entry says."""

    table: str
    files: int
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    different: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not (self.missing or self.extra or self.different)


@dataclass(frozen=True)
class FileOrder:
    """`columns`: ascending with nulls last, or as they say (`at desc nulls first`); none where no order is known."""

    columns: tuple[str, ...]
    files: int


@dataclass(frozen=True)
class IndexFacts:
    """One index file. `versions` are those of its log that it has a footer for, newest first; `columns` are leaves of
    the Parquet files with their kinds; `orders` what rows are sorted by, in how many files.
    """

    path: str
    format_version: int
    features: int
    versions: tuple[int, ...]
    blocks: int
    files: int
    groups: int
    bytes: int
    dead_bytes: int
    columns: tuple[tuple[str, str], ...]
    orders: tuple[FileOrder, ...] = ()


@dataclass(frozen=True)
class IndexInspection:
    """None: there is no index of that log yet."""

    table: str
    base: IndexFacts | None
    changes: IndexFacts | None


def quiet(doing: str, share: float | None) -> None:
    return None


# -- building


def build(
    handles: IndexedTable,
    *,
    skip_corrupt: bool = False,
    progress: Progress = quiet,
    examined: bool = False,
    anew: bool = False,
) -> IndexBuild:
    """`examined`: files of other writers were looked at in a process of their own before. `anew`: forget all entries
    first.
    """
    started = time.monotonic()
    snapshot = handles.snapshot()
    files = added = 0
    skipped: list[str] = []
    for index, version, wanted in _logs(handles, snapshot):
        files += len(wanted)
        if anew:
            index.forget()
        missing, others = _missing(index, snapshot, wanted, version)
        if others:
            index.add(version, [], others)
        done = 0
        for count, entries, problems in _read(handles, index, missing, examined=examined):
            if entries is not None:
                index.add(version, [entries])
                added += count - len(problems)
            for path, problem in problems.items():
                if isinstance(problem, NotFound) and not _is_live(handles, path):
                    continue
                if not skip_corrupt:
                    raise Corruption(
                        f"the index of {handles.name} was not completed: {problem.message}; what was read before is "
                        "kept. To go on without such files, skip them (--skip-corrupt)",
                        path=str(index.data / path),
                    ) from problem
                skipped.append(str(index.data / path))
            done += count
            progress(f"indexing {handles.name}: {done:,} of {len(missing):,} files", done / len(missing))
            handles.runtime.store.step("index.batch")
        if missing:
            index.gather()
    return IndexBuild(str(handles.name), files, added, tuple(skipped), time.monotonic() - started)


def build_after_adoption(handles: IndexedTable) -> None:
    """As far as it takes no Spark; what is left is built in the background. A failure is told, and nothing more."""
    try:
        if len(handles.snapshot().base) <= SPARK_FILES_MIN:
            build(handles, skip_corrupt=True, examined=True)
    except Exception as error:
        handles.base_index.failed("built", error)


def _logs(handles: IndexedTable, snapshot: Snapshot) -> list[tuple[TableIndex, int, list[DataFile]]]:
    return [
        (handles.base_index, snapshot.base_version, list(snapshot.base)),
        (handles.changes_index, snapshot.changes_version, solid(snapshot.changes)),
    ]


def _missing(
    index: TableIndex, snapshot: Snapshot, wanted: Sequence[DataFile], version: int
) -> tuple[list[DataFile], list[str]]:
    """Files without an entry, and entries without a file. An index that cannot be read has none."""
    files = Files([(file, source_of(file, str(index.data), snapshot.schema)) for file in wanted])
    try:
        view = index.look(lambda sidecar: sidecar.view())
        if view is None:
            return list(wanted), []
        coverage = Coverage(files, snapshot.schema, index.tags.fresh(files, view, math.inf))
        others = files.others_in(view) if version >= view.version else []
        return [wanted[position] for position in coverage.unknown], others
    except Corruption as error:
        index.set_aside(error)
        return list(wanted), []


def _read(
    handles: IndexedTable, index: TableIndex, files: Sequence[DataFile], *, examined: bool
) -> Iterator[tuple[int, bytes | None, dict[str, LithifyError]]]:
    """Batch by batch: how many files, their entries, and what is wrong with some of them, by path."""
    foreign = [] if examined else [file for file in files if file.is_foreign]
    if len(files) <= SPARK_FILES_MIN:
        for some in read_by_child(named(foreign), str(index.data)):
            yield len(some.files), some.entries, some.problems
        for batch in _batches([file for file in files if examined or not file.is_foreign], BATCH_FILES):
            yield len(batch), *read_footers(FooterTask(str(index.data), tuple(batch)))
        return
    if problems := examine(named(foreign), str(index.data)):
        yield len(problems), None, problems
        files = [file for file in files if file.path not in problems]
    for wave in _batches(files, WAVE_FILES):
        tasks = [FooterTask(str(index.data), tuple(batch)) for batch in _batches(wave, BATCH_FILES)]
        for task, (entries, problems) in zip(tasks, handles.runtime.compute.run(read_footers, tasks), strict=True):
            yield len(task.files), entries, problems


def _batches(files: Sequence[DataFile], size: int) -> Iterator[Sequence[DataFile]]:
    for first in range(0, len(files), size):
        yield files[first : first + size]


def _is_live(handles: IndexedTable, path: str) -> bool:
    """A file that a rewrite has replaced meanwhile may be gone."""
    snapshot = handles.snapshot()
    return any(file.path == path for file in (*snapshot.base, *snapshot.changes))


# -- checking


def check(handles: IndexedTable, progress: Progress = quiet) -> IndexCheck:
    """Raises Corruption if an index cannot be read at all."""
    started = time.monotonic()
    snapshot = handles.snapshot()
    files = 0
    missing: list[str] = []
    extra: list[str] = []
    different: list[str] = []
    for index, _, wanted in _logs(handles, snapshot):
        files += len(wanted)
        by_path = {file.path: file for file in wanted}
        view = index.look(lambda sidecar: sidecar.view())
        known: set[str] = set()
        for found in () if view is None else view.blocks:
            paths = found.block.paths.to_pylist()
            live = []
            for number in np.flatnonzero(found.live).tolist():
                if paths[number] in by_path:
                    live.append(number)
                else:
                    extra.append(str(index.data / paths[number]))
            for first in range(0, len(live), BATCH_FILES):
                numbers = live[first : first + BATCH_FILES]
                batch = [by_path[paths[number]] for number in numbers]
                wrong = _different(index.data, found.block, numbers, batch)
                different += [str(index.data / path) for path in wrong]
                known.update(file.path for file in batch)
                progress(f"checking {handles.name}: {len(known):,} of {len(wanted):,} files", len(known) / len(wanted))
        missing += [str(index.data / path) for path in by_path if path not in known]
    return IndexCheck(
        str(handles.name), files, tuple(missing), tuple(extra), tuple(different), time.monotonic() - started
    )


def _different(data: PurePath, block: Block, numbers: Sequence[int], files: Sequence[DataFile]) -> list[str]:
    """Paths of the files whose footers say something else than the block does at these positions."""
    blocks, problems = read_entries(data, files)
    wrong = set(problems)
    at = {file.path: number for file, number in zip(files, numbers, strict=True)}
    for real in map(parse, blocks):
        paths = real.paths.to_pylist()
        differ = _differ(block, np.array([at[path] for path in paths], np.int64), real)
        wrong |= {paths[number] for number in np.flatnonzero(differ).tolist()}
    return [file.path for file in files if file.path in wrong]


def _differ(block: Block, files: npt.NDArray[np.int64], real: Block) -> npt.NDArray[np.bool_]:
    """Per file of `real`: whether the block says something else at the file's position."""
    first, real_first = block.first_group.astype(np.int64), real.first_group.astype(np.int64)
    counts, real_counts = first[files + 1] - first[files], real_first[1:] - real_first[:-1]
    differ: npt.NDArray[np.bool_] = counts != real_counts
    differ |= (block.sizes[files] != real.sizes) | (block.footer_bytes[files] != real.footer_bytes)
    same = np.flatnonzero(~differ)
    if not len(same):
        return differ
    file_of = np.repeat(same, real_counts[same])
    groups = np.concatenate([np.arange(first[files[i]], first[files[i] + 1]) for i in same])
    real_groups = np.concatenate([np.arange(real_first[i], real_first[i + 1]) for i in same])

    def compare(told: npt.NDArray[np.bool_]) -> None:
        differ[file_of[told]] = True

    for mine, theirs in (
        (block.group_rows, real.group_rows),
        (block.group_bytes, real.group_bytes),
        (block.group_raw_bytes, real.group_raw_bytes),
    ):
        compare(mine[groups] != theirs[real_groups])
    for mine, theirs in ((block.entry_offsets, real.entry_offsets), (block.entry_bytes, real.entry_bytes)):
        # An older version did not look for them.
        compare((mine[groups] != theirs[real_groups]) & (mine[groups] != 0))
    numbers = {column: number for number, column in enumerate(block.columns)}
    for real_number, column in enumerate(real.columns):
        number = numbers.pop(column, None)
        if number is None:
            compare((real.chunk_array(real_number, Array.FLAGS)[real_groups] & ABSENT) == 0)
            continue
        for array in CHUNK_ARRAYS:
            mine, theirs = block.chunk_array(number, array)[groups], real.chunk_array(real_number, array)[real_groups]
            # An older version did not ask for the order of rows.
            compare((mine != theirs) & (mine != 0) if array is Array.SORT else mine != theirs)
        bounds, real_bounds = _bounds(block, number, groups), _bounds(real, real_number, real_groups)
        compare(np.array([one != other for one, other in zip(bounds, real_bounds, strict=True)], np.bool_))
    for number in numbers.values():
        compare((block.chunk_array(number, Array.FLAGS)[groups] & ABSENT) == 0)
    return differ


def _bounds(block: Block, number: int, groups: npt.NDArray[np.int64]) -> list[tuple[bytes, bytes]]:
    """Bounds that stand outside of the arrays."""
    lows, highs, heap = block.heap_of(number)
    if not len(heap):
        return [(b"", b"")] * len(groups)
    starts = np.concatenate([[0], highs[:-1].astype(np.int64)])
    return [
        (bytes(heap[int(starts[group]) : int(lows[group])]), bytes(heap[int(lows[group]) : int(highs[group])]))
        for group in groups.tolist()
    ]


# -- describing


def inspect(handles: IndexedTable) -> IndexInspection:
    """Raises Corruption if an index cannot be read."""
    return IndexInspection(str(handles.name), _facts(handles.base_index), _facts(handles.changes_index))


def _facts(index: TableIndex) -> IndexFacts | None:
    return index.look(lambda sidecar: _facts_of(index.path, sidecar))


def _facts_of(path: PurePath, sidecar: Sidecar) -> IndexFacts:
    view = sidecar.view()
    columns = dict.fromkeys((c.name, c.kind.name.lower()) for live in view.blocks for c in live.block.columns)
    orders: Counter[Order] = Counter()
    for live in view.blocks:
        orders += orders_of(live.block, live.live)
    return IndexFacts(
        str(path),
        VERSION,
        sidecar.features,
        tuple(sidecar.versions()),
        len(view.blocks),
        view.files,
        view.groups,
        sidecar.head.end,
        view.dead_bytes,
        tuple(columns),
        tuple(FileOrder(tuple(map(str, order)), files) for order, files in orders.most_common()),
    )
