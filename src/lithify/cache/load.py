"""Reads a plan into memory as `HotRows`, block by block, never beyond the budget.

Before each block is decoded, room for it is taken; where there is none, everything read so far is let go of and the
load is refused. Page checksums are verified. Short strings are kept as views, long ones whose values repeat as
dictionaries (`strings`), which a look at the first block decides; a wrong guess costs memory, never an answer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lithify.cache.hot_rows import BLOCK_ROWS_MAX, Block, HotRows, Segment, conformed, join
from lithify.cache.memory_account import MemoryAccount, Reservation
from lithify.cache.strings import DICTIONARY, INLINE_BYTES_MAX, VIEW
from lithify.core.read_plan import ReadPlan, Source
from lithify.errors import Unavailable
from lithify.files.examine import check_foreign
from lithify.files.local_files import bring
from lithify.files.open_parquet import corrupt, open_file
from lithify.files.parquet import completed
from lithify.merge.apply import standing

# What a dictionary must save, of the column's bytes and in all, to be worth its indirection: joins and groups of some
# thousand distinct strings are slower with one.
SAVED_SHARE_MIN, SAVED_BYTES_MIN = 0.25, 4 * 2**20
SAMPLE_ROWS_MIN = 1_000
# More files than this are worth a second thread.
FILES_PER_THREAD = 2

Check = Callable[[], None]


def expected_bytes(plan: ReadPlan, names: Sequence[str]) -> int:
    """About what the columns of a plan take in memory."""
    share = sum(_width(plan.schema.columns.field(name).type) for name in names) / max(
        sum(_width(column.type) for column in plan.schema.columns), 1
    )
    standing = sum(source.about_raw_bytes for source in (*plan.clean, *plan.touched))
    shown = plan.overlay.rows.nbytes if plan.overlay is not None else 0
    return int((standing + shown) * share)


def _width(kind: pa.DataType) -> int:
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return 16


def load(plan: ReadPlan, names: Sequence[str], budget: MemoryAccount, check: Check = lambda: None) -> HotRows:
    """All rows of these columns. `check` is called between blocks and may raise to end it."""
    overlay = plan.overlay
    if overlay is None:
        raise Unavailable(
            f"table {plan.snapshot.table} has more pending changes than are merged in memory: fold it first"
        )
    by = [name for name in plan.by if overlay.hidden.num_rows]
    reading = _Reading(plan, names, by, budget, check)
    sources = [*((source, False) for source in plan.clean), *((source, True) for source in plan.touched)]
    files = [(source.path, source.size_bytes) for source, _ in sources]
    bring(files)
    check_foreign(files)
    threads = min(os.cpu_count() or 1, len(sources) // FILES_PER_THREAD)
    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            segments = _gathered(pool.map(lambda entry: reading.segments_of(*entry), sources), reading)
    else:
        segments = _gathered((reading.segments_of(*entry) for entry in sources), reading)
    return HotRows(reading.columns, tuple(segments), budget).applied(overlay, ())


class _Reading:
    """One load: what every file of it is read for."""

    def __init__(
        self, plan: ReadPlan, names: Sequence[str], by: Sequence[str], budget: MemoryAccount, check: Check
    ) -> None:
        self.plan, self.budget, self.check, self._by = plan, budget, check, by
        plain = pa.schema([f.with_nullable(True).remove_metadata() for f in plan.schema.select(names)])
        self._wanted = pa.schema(
            [*plain, *(plan.schema.columns.field(n).with_nullable(True) for n in by if n not in names)]
        )
        kinds = self._kinds(plain)
        # What repeats is decoded once that way, whatever it becomes.
        self._dictionaries = list(kinds)
        self.columns = pa.schema([f.with_type(kinds.get(f.name, f.type)) for f in plain])

    def _kinds(self, columns: pa.Schema) -> dict[str, pa.DataType]:
        """How strings are kept that are not kept as strings."""
        candidates = [f.name for f in columns if pa.types.is_string(f.type) and f.name not in self.plan.schema.key]
        source = next(iter((*self.plan.clean, *self.plan.touched)), None)
        if not candidates or source is None or source.rows < SAMPLE_ROWS_MIN:
            return {}
        wanted = pa.schema([columns.field(name) for name in candidates])
        # As dictionaries, because a value that repeats takes no room in the file and would take much here.
        with closing(self._batches(source, wanted, candidates)) as batches:
            sample = next(batches, None)
            if sample is None:
                return {}
            total = sum(standing.rows for standing in (*self.plan.clean, *self.plan.touched))
            found = ((name, _kind(sample[0].column(name), total)) for name in candidates)
            return {name: kind for name, kind in found if kind is not None}

    def segments_of(self, source: Source, touched: bool) -> list[Segment]:
        found: list[Segment] = []
        for rows, room in self._batches(source, self._wanted, self._dictionaries):
            if touched and self._by:
                assert self.plan.overlay is not None
                rows = standing(rows, self.plan.overlay.hidden, self._by)
            if rows.num_rows:
                found.append(Segment(Block(conformed(rows, self.columns), room)))
        return found

    def _batches(
        self, source: Source, columns: pa.Schema, dictionaries: Sequence[str]
    ) -> Generator[tuple[pa.Table, Reservation]]:
        constants = dict(source.constants)
        try:
            with open_file(source.path, source.size_bytes) as file:
                metadata, names = file.metadata, set(file.schema_arrow.names)
            # A column that was added later, or is the same in the whole file, is not in it.
            inside = [name for name in dictionaries if name in names]
            with open_file(source.path, source.size_bytes, metadata=metadata, dictionaries=inside) as file:
                wanted = [name for name in columns.names if name in names and name not in constants]
                # Rows have to be counted even where no column of the file is asked for.
                wanted = wanted or file.schema_arrow.names[:1]
                size_bytes = _block_bytes(file, wanted)
                batches = file.iter_batches(BLOCK_ROWS_MAX, columns=wanted, use_threads=False)
                while True:
                    self.check()
                    with self.budget.room(size_bytes) as room:
                        batch = next(batches, None)
                        if batch is None:
                            return
                        rows = pa.Table.from_batches([batch])
                        yield completed(rows, _as_read(columns, rows.schema), constants), room
        except (pa.ArrowException, OSError, ValueError) as error:
            raise corrupt(source.path, error) from error


def _as_read(columns: pa.Schema, read: pa.Schema) -> pa.Schema:
    """Columns that were read as dictionaries stay so."""
    found = {f.name: f.type for f in read if pa.types.is_dictionary(f.type)}
    return pa.schema([f.with_type(found[f.name]) if f.name in found else f for f in columns])


def _gathered(parts: Iterable[list[Segment]], reading: _Reading) -> list[Segment]:
    """Small blocks of neighbouring files become one."""
    segments: list[Segment] = []
    waiting: list[Segment] = []

    def flush() -> None:
        segments.extend([join(waiting, reading.columns, reading.budget)] if len(waiting) > 1 else waiting)
        waiting.clear()

    for part in parts:
        while part:
            found = part.pop(0)
            if sum(segment.rows for segment in waiting) + found.rows > BLOCK_ROWS_MAX:
                flush()
            waiting.append(found)
    flush()
    return segments


def _kind(values: pa.ChunkedArray, rows: int) -> pa.DataType | None:
    """How such strings are kept, if not as strings. `rows`: of the whole table."""
    if len(values) < SAMPLE_ROWS_MIN:
        return None
    encoded = values.combine_chunks()
    encoded = encoded if pa.types.is_dictionary(encoded.type) else encoded.dictionary_encode()
    lengths = pc.binary_length(encoded.dictionary).take(encoded.indices)
    if (pc.max(lengths).as_py() or 0) <= INLINE_BYTES_MAX:
        return VIEW
    plain_bytes = (pc.sum(lengths).as_py() or 0) + 4 * len(values)
    saved = plain_bytes - int(encoded.dictionary.nbytes) - 4 * len(values)
    pays = saved > plain_bytes * SAVED_SHARE_MIN and saved / len(values) * rows > SAVED_BYTES_MIN
    return DICTIONARY if pays else None


def _block_bytes(file: pq.ParquetFile, names: Sequence[str]) -> int:
    """About what one step of reading takes: the compressed columns of a row group, and twice a decoded block."""
    if not file.metadata.num_row_groups:
        return 0
    group = file.metadata.row_group(0)
    wanted = set(names)
    chunks = [group.column(number) for number in range(group.num_columns)]
    chunks = [chunk for chunk in chunks if chunk.path_in_schema.partition(".")[0] in wanted]
    raw = sum(int(chunk.total_uncompressed_size) for chunk in chunks)
    packed = sum(int(chunk.total_compressed_size) for chunk in chunks)
    share: float = min(BLOCK_ROWS_MAX / max(group.num_rows, 1), 1)
    return packed + int(2 * raw * share)
