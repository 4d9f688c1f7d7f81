"""Which task of a data source reads what: a read plan cut into partitions that need nothing but their own files.

Small files are packed together and large ones are cut into shares of their row groups, so that every task has about as
much to read. Which row groups a share means is found out where the file is read: `groups[k * len // n : ...]` needs
no footer here, and is the same whoever computes it.

The overlay goes along. What is small travels inside the partitions; the rest is laid down in the table's `index`
folder, named by its snapshot, so that every read of that snapshot finds it there. The process that plans is gone before
the tasks run, so nobody can remove it at the end: what nobody asked for in `UNUSED_HOURS_MAX` goes with the next one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from lithify.core.expiry import Cutoff
from lithify.core.read_plan import ReadPlan, Source
from lithify.errors import LimitExceeded
from lithify.files.addresses import path_of
from lithify.files.local_files import use
from lithify.files.mapped import mapped
from lithify.files.staging import discard, stage_arrow, stage_parquet, sweep

PARTITION_BYTES_MAX = 64 * 2**20
PARTITION_BYTES_MIN = 8 * 2**20
PARTITIONS_WANTED = 32
OPEN_BYTES = 2**20  # what opening a file costs, in bytes that could be read meanwhile
INLINE_BYTES_MAX = 2**20
INLINE_ALL_BYTES_MAX = 16 * 2**20
STAGED_GROUP_ROWS = 32_768


@dataclass(frozen=True)
class Piece:
    """A share (number, of how many) of the row groups of a file. `touched`: some of its rows may be hidden."""

    path: str
    file_bytes: int
    groups: tuple[int, ...] | None = None
    share: tuple[int, int] = (0, 1)
    constants: tuple[tuple[str, Any], ...] = ()
    touched: bool = False


@dataclass(frozen=True)
class Rows:
    """Rows of a small Arrow table, or the path of a file with them."""

    inside: bytes | None = None
    path: str | None = None

    def read(self) -> pa.Table:
        if self.inside is not None:
            with pa.ipc.open_stream(self.inside) as reader:
                return reader.read_all()
        assert self.path is not None
        with pa.ipc.open_file(use(self.path, None, lambda local: mapped(PurePath(local))[1])) as reader:
            return reader.read_all()


@dataclass(frozen=True)
class ScanPartition(InputPartition):
    """What one task reads: `pieces`, without what `hidden` names by the columns `by`, and `rows`; of all of them those
    that have not expired by `cutoff`.
    """

    pieces: tuple[Piece, ...] = ()
    hidden: Rows | None = None
    by: tuple[str, ...] = ()
    rows: Rows | None = None
    cutoff: Cutoff | None = None


def partitions_of(plan: ReadPlan, index: PurePath) -> list[ScanPartition]:
    """`index`: a folder of the table where executors can read what is laid down there."""
    overlay = plan.overlay
    if overlay is None:
        raise LimitExceeded(
            f"table {plan.snapshot.table} has {plan.snapshot.pending_rows:,} pending rows, more than one process "
            "merges: fold it, or read it with table.to_spark(), which merges them on the cluster",
            limit="resolve_rows_max",
        )
    staged = Stage(index, f"scan-{plan.snapshot.changes_version}-{plan.snapshot.base_version}")
    pieces = [*_pieces(plan.clean, touched=False), *_pieces(plan.touched, touched=True)]
    rows: list[ScanPartition] = []
    if overlay.rows.nbytes <= INLINE_BYTES_MAX:
        rows += [ScanPartition(rows=Rows(inside=_ipc(overlay.rows)))] if overlay.rows.num_rows else []
    else:
        piece = staged.parquet("rows", lambda: overlay.rows)
        pieces.append((piece, piece.file_bytes))
    packed = _packed(pieces)
    hidden = None
    if overlay.hidden.num_rows and (touching := sum(any(p.touched for p in part) for part in packed)):
        keys = overlay.hidden.select(list(plan.by))
        small = keys.nbytes <= INLINE_BYTES_MAX and keys.nbytes * touching <= INLINE_ALL_BYTES_MAX
        hidden = Rows(inside=_ipc(keys)) if small else Rows(path=staged.arrow("hidden", keys))
    parts = [
        ScanPartition(tuple(part), hidden if any(piece.touched for piece in part) else None, plan.by) for part in packed
    ] + rows
    cutoff = plan.snapshot.cutoff
    return parts if cutoff is None else [replace(part, cutoff=cutoff) for part in parts]


def partitions_of_rows(tables: Iterator[pa.Table], index: PurePath) -> list[ScanPartition]:
    """Rows that exist in no file yet, table after table: one partition if they are small, else a file for each table
    and a partition for each file. A task reads its own in order; between partitions there is none.
    """
    first, second = next(tables, None), next(tables, None)
    if first is None:
        return []
    if second is None and first.nbytes <= INLINE_BYTES_MAX:
        return [ScanPartition(rows=Rows(inside=_ipc(first)))] if first.num_rows else []
    staged = Stage(index, f"feed-{uuid4().hex}")
    found = []
    for number, table in enumerate(_chain(first, second, tables)):
        piece = staged.parquet(f"{number:06d}", lambda table=table: table)  # type: ignore[misc]
        found.append(ScanPartition((piece,)))
    return found


def forget(partitions: Iterable[ScanPartition]) -> None:
    """Remove what `partitions_of_rows` has laid down for them: no task reads it any more."""
    for folder in {path_of(piece.path).parent for part in partitions for piece in part.pieces}:
        if folder.name.startswith("feed-"):
            discard(folder)


def _chain(first: pa.Table, second: pa.Table | None, rest: Iterable[pa.Table]) -> Iterator[pa.Table]:
    yield first
    if second is not None:
        yield second
    yield from rest


def packed_files(
    files: Sequence[tuple[str, int, tuple[int, ...] | None, tuple[tuple[str, Any], ...]]],
) -> list[ScanPartition]:
    """The path, the size, the row groups (None: all) and the constants of each file."""
    pieces = [
        (Piece(path, size_bytes, groups, constants=constants), size_bytes)
        for path, size_bytes, groups, constants in files
    ]
    return [ScanPartition(tuple(part)) for part in _packed(pieces)]


def _pieces(sources: Sequence[Source], *, touched: bool) -> list[tuple[Piece, int]]:
    """With the bytes that a task has to read of each."""
    found = []
    for source in sources:
        wanted = source.size_bytes if source.raw_bytes is None else min(source.size_bytes, source.raw_bytes)
        piece = Piece(source.path, source.size_bytes, source.groups, (0, 1), source.constants, touched)
        found.append((piece, wanted))
    return found


def _packed(pieces: Sequence[tuple[Piece, int]]) -> list[list[Piece]]:
    """Neighbours go together until they have enough to read."""
    total = sum(size + OPEN_BYTES for _, size in pieces)
    target = min(PARTITION_BYTES_MAX, max(PARTITION_BYTES_MIN, total // PARTITIONS_WANTED))
    parts: list[list[Piece]] = []
    filled = target
    for piece, size in pieces:
        shares = math.ceil(size / target)
        if piece.groups is not None:
            shares = min(shares, len(piece.groups))
        for number in range(max(shares, 1)):
            part_bytes = size // max(shares, 1) + OPEN_BYTES
            if filled + part_bytes > target:
                parts.append([])
                filled = 0
            parts[-1].append(replace(piece, share=(number, max(shares, 1))))
            filled += part_bytes
    return parts


def groups_of(piece: Piece, groups_total: int) -> Sequence[int]:
    """The row groups of a piece, in a file that has so many."""
    groups = range(groups_total) if piece.groups is None else piece.groups
    number, shares = piece.share
    return groups[len(groups) * number // shares : len(groups) * (number + 1) // shares]


class Stage:
    """A folder below `index` whose files appear whole or not at all. What is there already is what would be written."""

    def __init__(self, index: PurePath, name: str) -> None:
        self._folder = index / name

    def parquet(self, name: str, table: Callable[[], pa.Table]) -> Piece:
        path = self._folder / f"{name}.parquet"
        return Piece(str(path), stage_parquet(path, table, STAGED_GROUP_ROWS, self._sweep))

    def arrow(self, name: str, table: pa.Table) -> str:
        path = self._folder / f"{name}.arrow"
        stage_arrow(path, table, self._sweep)
        return str(path)

    def _sweep(self) -> None:
        """A DataFrame that was planned so long ago is read anew."""
        sweep(self._folder.parent, ("scan-", "feed-"))


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
