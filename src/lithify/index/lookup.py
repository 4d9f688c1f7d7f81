"""What an index says of the files of one snapshot: a join by path, size and rows, made once, then asked many times.

An entry counts only where all three agree with what the log says of the file; files without one are `unknown`, and
are never ruled out by statistics. Everything is a few passes over arrays with one item per row group; Python looks
only at the files that are left.

Partition columns that stand in the log alone (`Source.constants`) hide a column of that name in the file, so its
statistics are not looked at there, and the log's values are asked instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.column_types import Family, type_of
from lithify.core.predicates import UNKNOWN, In, Predicate, both, columns_of
from lithify.core.read_plan import FooterPart, GroupEntry, PruningReport, Source
from lithify.core.schema import TableSchema
from lithify.core.snapshot import DataFile
from lithify.errors import Corruption
from lithify.index.block import Block
from lithify.index.bloom import Blooms
from lithify.index.dense import DenseRanges
from lithify.index.format import OF_NO_COLUMN, Array
from lithify.index.prune import equalities, may_hold_keys, may_match, may_match_constants, may_match_each
from lithify.index.reader import View
from lithify.index.stats import ABSENT, NULLS_KNOWN, ColumnStats, Kind

# So many bytes may be read into memory at once: then it is worth knowing the size of every file that is left.
SIZED_BYTES_MAX = 256 * 2**20
SIZED_FILES_MAX = 10_000
BLOOM_KEYS_MAX = 16

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Files:
    """Files of a snapshot as arrays, in the order of their sources."""

    def __init__(self, entries: Sequence[tuple[DataFile, Source]]) -> None:
        self.entries = entries
        self.paths = pa.array([file.path for file, _ in entries], pa.string())
        self.sizes = np.array([file.size_bytes for file, _ in entries], np.int64)
        self.rows = np.array([file.rows for file, _ in entries], np.int64)

    def __len__(self) -> int:
        return len(self.entries)

    def others_in(self, view: View) -> list[str]:
        """Paths of live entries that are none of these files."""
        found: list[str] = []
        for entry in view.blocks:
            inside = pc.is_in(entry.block.paths, self.paths).to_numpy(zero_copy_only=False)
            found += entry.block.paths.filter(pa.array(entry.live & ~inside)).to_pylist()
        return found

    @cached_property
    def constants(self) -> tuple[list[dict[str, Any]], Indices]:
        """Distinct constants, and the number of each file's."""
        numbers: dict[tuple[tuple[str, Any], ...], int] = {}
        of_file = [numbers.setdefault(source.constants, len(numbers)) for _, source in self.entries]
        return [dict(constants) for constants in numbers], np.array(of_file, np.int64)

    @cached_property
    def constant_names(self) -> frozenset[str]:
        return frozenset(name for constants in self.constants[0] for name in constants)


@dataclass(frozen=True)
class Selection:
    """Files that can hold a wanted row, by their position, in order."""

    positions: list[int]
    sources: list[Source]
    report: PruningReport


class Coverage:
    def __init__(
        self,
        files: Files,
        schema: TableSchema,
        blocks: Sequence[tuple[Block, Flags | None]] = (),
        check: Callable[[], object] = lambda: None,
    ) -> None:
        """`blocks`: with the files of each that are live (None: all). `check` is called before their arrays are used,
        and raises Corruption if they must not be.
        """
        self.files, self._check = files, check
        self.token: tuple[int, ...] = ()
        self._dense: dict[str, DenseRanges] = {}
        self._parts = [
            _Part(block, positions, files, schema)
            for (block, _), positions in zip(blocks, _join(files, blocks), strict=True)
            if len(positions) and bool((positions >= 0).any())
        ]
        known = np.zeros(len(files), np.bool_)
        for part in self._parts:
            known[part.positions[part.positions >= 0]] = True
        self.known = known
        self.unknown: list[int] = np.flatnonzero(~known).tolist()

    @property
    def complete(self) -> bool:
        return not self.unknown

    def tagged(self) -> Iterator[tuple[Block, int]]:
        """Entries that it goes by and that have a tag, by block and position. They do not keep it alive."""
        return _tagged([(part.block, part.positions) for part in self._parts])

    @cached_property
    def totals(self) -> tuple[int, int, int]:
        """Row groups, their bytes, and their bytes uncompressed; a file that is not known counts as one row group."""
        groups, size, raw = len(self.unknown), int(self.files.sizes[self.unknown].sum()), 0
        for part in self._parts:
            inside = part.inside
            groups += int(inside.sum())
            size += int(part.block.group_bytes[inside].sum())
            raw += int(part.block.group_raw_bytes[inside].sum())
        return groups, size, raw

    # -- by a predicate

    def select(self, predicate: Predicate | None) -> Selection:
        self._check()
        if predicate is None or predicate == UNKNOWN:
            return self._everything
        allowed = self._allowed_constants(predicate)
        asked = equalities(predicate)
        left: list[_Left] = []
        for part in self._parts:
            groups = np.flatnonzero(may_match(predicate, part.block.groups, part.stats_of))
            part_left = _Left.of(part, groups, allowed)
            left.append(part_left if asked == UNKNOWN else part_left.asked_blooms(asked, self.files))
        groups_total, bytes_total, _ = self.totals
        unknown = [position for position in self.unknown if allowed is None or allowed[position]]
        groups_read = sum(len(some.groups) for some in left) + len(unknown)
        if groups_read == groups_total:
            everything = self._everything
            reasons = Reasons(lambda: self._reasons(predicate))
            return replace(everything, report=replace(everything.report, reasons=reasons))
        sized = sum(some.raw_bytes for some in left) <= SIZED_BYTES_MAX
        found = [entry for some in left for entry in some.sources(self.files, sized=sized)]
        found += [(position, self.files.entries[position][1]) for position in unknown]
        found.sort(key=lambda entry: entry[0])
        report = PruningReport(
            len(self.files),
            len(found),
            groups_total,
            groups_read,
            bytes_total,
            sum(some.bytes for some in left) + int(self.files.sizes[unknown].sum()),
            len(self.unknown),
            Reasons(lambda: self._reasons(predicate)),
        )
        return Selection([position for position, _ in found], [source for _, source in found], report)

    @cached_property
    def _everything(self) -> Selection:
        groups, size, raw = self.totals
        report = PruningReport(len(self.files), len(self.files), groups, groups, size, size, len(self.unknown))
        sources = [source for _, source in self.files.entries]
        if self.complete and raw <= SIZED_BYTES_MAX and len(sources) <= SIZED_FILES_MAX:
            for part in self._parts:
                for position, bytes_ in part.raw_bytes_of_files():
                    sources[position] = replace(sources[position], raw_bytes=bytes_)
        return Selection(list(range(len(sources))), sources, report)

    def _allowed_constants(self, predicate: Predicate) -> Flags | None:
        """Per file; None: all."""
        if not columns_of(predicate) & self.files.constant_names:
            return None
        distinct, of_file = self.files.constants
        return np.array([may_match_constants(predicate, values) for values in distinct], np.bool_)[of_file]

    def _reasons(self, predicate: Predicate) -> tuple[tuple[str, int], ...]:
        ruled_out: dict[str, int] = {}
        self._check()
        for part in self._parts:
            # Entries of files that are not in the snapshot count for nothing: look at the others as one.
            for text, count in may_match_each(predicate, part.groups_inside, part.stats_inside):
                ruled_out[text] = ruled_out.get(text, 0) + count
        return tuple(ruled_out.items())

    # -- by keys

    def may_hold(self, keys: pa.Table) -> Flags:
        """Per file: whether it can hold one of the keys, by the ranges of its row groups. Unknown ones can."""
        self._check()
        found = ~self.known
        for part in self._parts:
            found_at = part.positions[part.files_of(part.groups_with(keys))]
            found[found_at[found_at >= 0]] = True
        return found

    def holding(self, keys: pa.Table) -> dict[str, Source]:
        """Of the files that are known and can hold one of the keys, by path: with the row groups that can. Of few keys
        bloom filters are asked as well.
        """
        self._check()
        left = [_Left.of(part, part.groups_with(keys), None) for part in self._parts]
        if keys.num_rows <= BLOOM_KEYS_MAX:
            left = [some.asked_blooms(_named(keys), self.files) for some in left]
        return {source.path: source for some in left for _, source in some.sources(self.files, sized=True)}

    def holds(self, keys: pa.ChunkedArray, column: str) -> Flags:
        """Per key of a unique column that is counted: whether it is there for sure."""
        self._check()
        if column not in self._dense:
            self._dense[column] = DenseRanges(self.stats_parts(column))
        plain = pa.int32() if keys.type.bit_width == 32 else pa.int64()
        numbers = keys if pa.types.is_integer(keys.type) else keys.cast(plain)
        return self._dense[column].hold(numbers.to_numpy().astype(np.int64, copy=False))

    def tells(self, columns: Sequence[str]) -> bool:
        """Whether it has ranges of these columns, wherever it has entries."""
        self._check()
        return all(part.stats_of(name) is not None for part in self._parts for name in columns)

    # -- in all

    def rows(self) -> int:
        """Of the files that are known."""
        self._check()
        return sum(int(part.block.group_rows[part.inside].sum()) for part in self._parts)

    def stats_parts(self, column: str) -> list[tuple[Flags, ColumnStats | None]]:
        """Of each block: the row groups that are in the snapshot, and what is known of a column in all of them."""
        self._check()
        return [(part.inside, part.stats_of(column)) for part in self._parts]


def _named(keys: pa.Table) -> Predicate:
    """What a row must have of them. No filter knows of nulls."""
    if any(column.null_count for column in keys.columns):
        return UNKNOWN
    try:
        return equalities(both(In(name, tuple(keys.column(name).to_pylist())) for name in keys.column_names))
    except (ValueError, OverflowError):  # a moment beyond Python's calendar
        return UNKNOWN


def _join(files: Files, blocks: Sequence[tuple[Block, Flags | None]]) -> list[Indices]:
    """Per file of each block its position in the snapshot, or -1. Of several entries of one file, the first counts."""
    if not blocks:
        return []
    paths = pa.chunked_array([block.paths for block, _ in blocks], pa.string())
    positions = pc.index_in(paths, files.paths).fill_null(-1).to_numpy().astype(np.int64)
    if len(files):
        sizes = np.concatenate([block.sizes.astype(np.int64) for block, _ in blocks])
        rows = np.concatenate([block.rows.astype(np.int64) for block, _ in blocks])
        positions[
            (files.sizes[positions] != sizes) | ((files.rows[positions] != rows) & (files.rows[positions] >= 0))
        ] = -1
    live = [np.ones(block.files, np.bool_) if mask is None else mask for block, mask in blocks]
    positions[~np.concatenate(live)] = -1
    there = np.flatnonzero(positions >= 0)
    _, first = np.unique(positions[there], return_index=True)
    once = np.full(len(positions), -1, np.int64)
    once[there[first]] = positions[there[first]]
    return np.split(once, np.cumsum([block.files for block, _ in blocks])[:-1])


def _tagged(parts: Sequence[tuple[Block, Indices]]) -> Iterator[tuple[Block, int]]:
    for block, positions in parts:
        for file in np.flatnonzero((positions >= 0) & (block.tags != 0)).tolist():
            yield block, file


class _Part:
    """One block and where its files stand in the snapshot."""

    def __init__(self, block: Block, positions: Indices, files: Files, schema: TableSchema) -> None:
        self.block, self.positions = block, positions
        self._files, self._schema = files, schema
        self._first = block.first_group.astype(np.int64)
        self._stats: dict[str, ColumnStats | None] = {}

    def files_of(self, groups: Indices) -> Indices:
        return np.searchsorted(self._first, groups, side="right") - 1

    def in_file(self, groups: Indices, files: Indices) -> Indices:
        return groups - self._first[files]

    def groups_in(self, files: Indices) -> Indices:
        return self._first[files + 1] - self._first[files]

    def groups_of(self, file: int) -> tuple[int, int]:
        """The first and the last row group of a file."""
        return int(self._first[file]), int(self._first[file + 1]) - 1

    @cached_property
    def inside(self) -> Flags:
        """Per row group: whether its file is in the snapshot."""
        return np.repeat(self.positions >= 0, np.diff(self._first))

    def raw_bytes_of_files(self) -> Iterator[tuple[int, int]]:
        sums = np.concatenate([[0], np.cumsum(self.block.group_raw_bytes, dtype=np.int64)])
        raw = sums[self._first[1:]] - sums[self._first[:-1]]
        for file in np.flatnonzero(self.positions >= 0).tolist():
            yield int(self.positions[file]), int(raw[file])

    def groups_with(self, keys: pa.Table) -> Indices:
        """The row groups that can hold one of the keys."""
        match = np.ones(self.block.groups, np.bool_)
        for name in keys.column_names:
            stats = self.stats_of(name)
            if stats is not None:
                match &= may_hold_keys(stats, keys.column(name))
        return np.flatnonzero(match)

    def stats_of(self, column: str) -> ColumnStats | None:
        if column not in self._stats:
            self._stats[column] = self._usable_stats(column)
        return self._stats[column]

    def _usable_stats(self, column: str) -> ColumnStats | None:
        """Only where the files hold what the table says: a value that is cast when it is read has other bounds."""
        column_index = self._schema.columns.get_field_index(column)
        kind = self._schema.columns.field(column_index).type if column_index >= 0 else None
        if kind is None or pa.types.is_nested(kind):
            return None
        stats = self.block.stats(column)
        if stats is None:
            stats = self._nulls_of(column)
        elif not _fits(stats, kind):
            return None
        elif bool((stats.flags & ABSENT).any()):
            lacks = self._lacks(column)
            flags = np.where(lacks, np.uint8(NULLS_KNOWN), stats.flags).astype(np.uint8)
            stats = replace(stats, flags=flags, nulls=np.where(lacks, stats.rows, stats.nulls))
        if stats is None:
            return None
        if column not in self._files.constant_names:
            return stats
        distinct, of_file = self._files.constants
        hidden = np.array([column in constants for constants in distinct], np.bool_)[of_file]
        hidden_groups = np.repeat(hidden[self.positions], np.diff(self._first))
        return replace(stats, flags=np.where(hidden_groups, np.uint8(ABSENT), stats.flags).astype(np.uint8))

    def _nulls_of(self, column: str) -> ColumnStats | None:
        """Of a column that came after all files of the block."""
        lacks = self._lacks(column)
        if not bool(lacks.any()):
            return None
        rows, none = self.block.group_rows, np.zeros(self.block.groups, np.int64)
        flags = np.where(lacks, np.uint8(NULLS_KNOWN), np.uint8(ABSENT)).astype(np.uint8)
        return ColumnStats(Kind.OTHER, 0, rows, rows, flags, none, none, lambda _: b"", lambda _: b"")

    def _lacks(self, column: str) -> Flags:
        """Per row group: whether its file has no column of this name, in whatever letter case, so that readers find
        nulls. Of two columns of one name the index keeps none; such a row group has bytes that belong to no column.
        """
        found: Flags = self._bytes_known.copy()
        name = column.casefold()
        for number, info in enumerate(self.block.columns):
            leaf = info.name.casefold()
            if leaf == name or leaf.startswith(f"{name}."):
                found &= (self.block.chunk_array(number, Array.FLAGS) & ABSENT) != 0
        return found

    @cached_property
    def _bytes_known(self) -> Flags:
        total = np.zeros(self.block.groups, np.uint64)
        for number in range(len(self.block.columns)):
            total += self.block.chunk_array(number, Array.BYTES).astype(np.uint64)
        known: Flags = total == self.block.group_bytes
        return known

    # -- as if the block had no other files

    @cached_property
    def _inside_groups(self) -> Indices:
        return np.flatnonzero(self.inside)

    @property
    def groups_inside(self) -> int:
        return len(self._inside_groups)

    def stats_inside(self, column: str) -> ColumnStats | None:
        stats, chosen = self.stats_of(column), self._inside_groups
        if stats is None or len(chosen) == self.block.groups:
            return stats
        low, high = stats.full_low, stats.full_high
        return replace(
            stats,
            rows=stats.rows[chosen],
            nulls=stats.nulls[chosen],
            flags=stats.flags[chosen],
            low=stats.low[chosen],
            high=stats.high[chosen],
            full_low=lambda group: low(int(chosen[group])),
            full_high=lambda group: high(int(chosen[group])),
        )


@dataclass(frozen=True)
class _Left:
    """Row groups of one block that are left, with the file of each, both in order."""

    part: _Part
    groups: Indices
    files: Indices

    @classmethod
    def of(cls, part: _Part, groups: Indices, allowed: Flags | None) -> _Left:
        files = part.files_of(groups)
        positions = part.positions[files]
        inside = positions >= 0
        if allowed is not None:
            inside &= allowed[positions]
        return cls(part, groups, files) if bool(inside.all()) else cls(part, groups[inside], files[inside])

    @property
    def bytes(self) -> int:
        return int(self.part.block.group_bytes[self.groups].sum())

    @property
    def raw_bytes(self) -> int:
        return int(self.part.block.group_raw_bytes[self.groups].sum())

    def asked_blooms(self, asked: Predicate, files: Files) -> _Left:
        """Without the row groups whose bloom filters know none of the values that a row must have."""
        part, groups = self.part, self.groups.tolist()

        def path_of(number: int) -> str:
            return files.entries[int(part.positions[int(self.files[number])])][1].path

        keep = Blooms(part.block, part.stats_of, groups, path_of).may_hold(asked, np.ones(len(groups), np.bool_))
        return self if bool(keep.all()) else _Left(self.part, self.groups[keep], self.files[keep])

    def sources(self, files: Files, *, sized: bool) -> Iterator[tuple[int, Source]]:
        """Each file once, with its position and its row groups."""
        if not len(self.groups):
            return
        starts = np.flatnonzero(np.concatenate([[True], self.files[1:] != self.files[:-1]]))
        ends = np.concatenate([starts[1:], [len(self.groups)]])
        chosen = self.files[starts]
        whole = (ends - starts) == self.part.groups_in(chosen)
        numbers = self.part.in_file(self.groups, self.files).tolist()
        raw = np.add.reduceat(self.part.block.group_raw_bytes[self.groups].astype(np.int64), starts).tolist()
        positions = self.part.positions[chosen].tolist()
        located = self.part.block.states(OF_NO_COLUMN, Array.ENTRY_OFFSET)
        for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            source = files.entries[positions[number]][1]
            if whole[number] and not sized:
                yield positions[number], source
                continue
            groups = None if whole[number] else tuple(numbers[start:end])
            yield (
                positions[number],
                Source(
                    source.path,
                    source.rows,
                    source.size_bytes,
                    source.constants,
                    source.seq,
                    source.op,
                    groups,
                    raw[number],
                    source.foreign,
                    self._part(int(chosen[number]), self.groups[start:end]) if located and groups is not None else None,
                ),
            )

    def _part(self, file: int, groups: Indices) -> FooterPart | None:
        """None where the offsets are not known, or are not those of one footer, and where most of it is needed."""
        block = self.part.block
        tag, footer_bytes = int(block.tags[file]), int(block.footer_bytes[file])
        first, last = self.part.groups_of(file)
        begin, end = int(block.entry_offsets[first]), int(block.entry_offsets[last]) + int(block.entry_bytes[last])
        lengths = block.entry_bytes[groups].tolist()
        if not tag or not 0 < begin < end < footer_bytes or sum(lengths) * 2 > footer_bytes:
            return None
        rows = block.group_rows[groups].tolist()
        entries = tuple(map(GroupEntry, block.entry_offsets[groups].tolist(), lengths, rows))
        return FooterPart(footer_bytes, tag, last - first + 1, begin, end, entries)


class Reasons(Sequence[tuple[str, int]]):
    """Looked up when somebody asks why, which a query never does."""

    def __init__(self, find: Callable[[], tuple[tuple[str, int], ...]]) -> None:
        self._find = find

    @cached_property
    def _found(self) -> tuple[tuple[str, int], ...]:
        try:
            return self._find()
        except Corruption:  # since the files were chosen; the next read deals with it
            return ()

    @overload
    def __getitem__(self, index: int) -> tuple[str, int]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[str, int]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, int] | Sequence[tuple[str, int]]:
        return self._found[index]

    def __len__(self) -> int:
        return len(self._found)


_FAMILIES = {
    Kind.SIGNED: Family.INTEGER,
    Kind.FLOAT: Family.FLOAT,
    Kind.BOOLEAN: Family.BOOLEAN,
    Kind.DATE: Family.DATE,
    Kind.TIMESTAMP: Family.TIMESTAMP,
    Kind.TIMESTAMP_UTC: Family.TIMESTAMP,
    Kind.TEXT: Family.TEXT,
    Kind.BINARY: Family.BINARY,
    Kind.DECIMAL: Family.DECIMAL,
    Kind.WIDE_DECIMAL: Family.DECIMAL,
}


def _fits(stats: ColumnStats, kind: pa.DataType) -> bool:
    """Whether values of the files are values of the table's type as they are."""
    family = type_of(kind).family
    if family is not _FAMILIES.get(stats.kind):
        return False
    if family is Family.TIMESTAMP:
        return (kind.tz is None) == (stats.kind is Kind.TIMESTAMP)
    return family is not Family.DECIMAL or kind.scale == stats.scale
