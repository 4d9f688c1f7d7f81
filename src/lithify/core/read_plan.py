"""What a read will do, decided before any engine is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

from lithify.core.disk_files import ADOPTED
from lithify.core.html import Shown
from lithify.core.names import is_job_folder
from lithify.core.ops import Op, Overlay
from lithify.core.schema import TableSchema
from lithify.core.snapshot import DataFile, Snapshot

if TYPE_CHECKING:
    from lithify.core.predicates import Predicate

# Of a file whose row groups are not known: how much larger it is uncompressed, about.
RAW_SHARE = 3


class GroupEntry(NamedTuple):
    """Where a row group's entry lies in the footer of its file, and how many rows it has."""

    begin: int
    length: int
    rows: int


class FooterPart(NamedTuple):
    """Where the index saw the entries of some row groups, of `groups_all`, which lie in the footer from `first` to
    `end`. `tag`: of the file that it saw (`whole.tag_of`).
    """

    footer_bytes: int
    tag: int
    groups_all: int
    first: int
    end: int
    groups: tuple[GroupEntry, ...]


@dataclass(frozen=True)
class Source:
    """A Parquet file to scan. `constants`: partition columns that stand in the log and not in the file.

    `groups` are the row groups that can hold a wanted row (None: any of them), and `raw_bytes` their size uncompressed
    (None: not known). `foreign`: another writer's, whose statistics may be in an order of their own. `part`: where the
    footer describes these row groups, if that is worth knowing.
    """

    path: str
    rows: int
    size_bytes: int
    constants: tuple[tuple[str, Any], ...] = ()
    seq: int = 0
    op: Op = Op.UPSERT
    groups: tuple[int, ...] | None = None
    raw_bytes: int | None = None
    foreign: bool = False
    part: FooterPart | None = None

    @property
    def about_raw_bytes(self) -> int:
        """A guess where the row groups are not known."""
        return self.size_bytes * RAW_SHARE if self.raw_bytes is None else self.raw_bytes


@dataclass(frozen=True)
class PruningReport:
    """What a predicate spares a read, of the files that are scanned (base, and changes that stand beside it).

    Row groups and bytes are those of files that the index knows; of a file that it does not, all of it is read, and
    it counts as one row group. `reasons` has each condition and how many row groups it alone rules out.
    """

    files_total: int
    files_read: int
    groups_total: int
    groups_read: int
    bytes_total: int
    bytes_read: int
    files_unknown: int = 0
    reasons: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True)
class ReadPlan(Shown):
    """Scan `clean` as it is, `touched` without the overlay's hidden keys, and show the overlay's rows.

    Where the changes are too large for one machine's memory, `overlay` is None and the engine merges `changes` itself.
    """

    snapshot: Snapshot
    clean: tuple[Source, ...]
    touched: tuple[Source, ...]
    overlay: Overlay | None
    changes: tuple[Source, ...] = ()
    pruning: PruningReport | None = None
    # Beside `changes`: keys and order values of deletes that keep some of them out.
    remembered: pa.Table | None = None
    # Its files are named by local copies of what lies in a bucket.
    copied: bool = False

    @property
    def schema(self) -> TableSchema:
        return self.snapshot.schema

    def _html_facts(self) -> Mapping[str, Any]:
        overlay, pruning = self.overlay, self.pruning
        return {
            "table": self.snapshot.table,
            "seq": self.snapshot.seq,
            "files read as they are": len(self.clean),
            "files merged with changes": len(self.touched),
            "rows hidden": None if overlay is None else overlay.hidden.num_rows,
            "rows shown instead": None if overlay is None else overlay.rows.num_rows,
            "change files merged while reading": len(self.changes),
            "files ruled out": None if pruning is None else pruning.files_total - pruning.files_read,
        }

    @property
    def columns(self) -> list[str]:
        """Those that it tells: where changes give some columns alone, others are looked up for who asks for them."""
        return self.schema.names if self.overlay is None else self.overlay.rows.column_names

    @property
    def rows_max(self) -> int:
        """No more rows than this are in the table, or match the predicate that the plan was made for."""
        shown = self.overlay.rows.num_rows if self.overlay is not None else 0
        return shown + sum(source.rows for source in (*self.clean, *self.touched, *self.changes))

    @property
    def by(self) -> tuple[str, ...]:
        """The columns that tell a hidden row: the key, or the pending row key."""
        return self.schema.key or self.snapshot.row_key


class Summary(Protocol):
    """What the index alone tells of all rows of a table that has no pending changes."""

    @property
    def rows(self) -> int: ...

    def bounds(self, column: str) -> tuple[Any, Any] | None:
        """The exact lowest and highest value; (None, None) where every row is null, None where it is not known."""

    def nulls(self, column: str) -> int | None: ...


class RowsInMemory(Protocol):
    """Hot rows as a query reads them, in the process that holds them or in another."""

    @property
    def columns(self) -> pa.Schema: ...

    @property
    def rows(self) -> int: ...

    @property
    def is_encoded(self) -> bool:
        """Whether some strings are kept in another way than as strings."""

    @property
    def has_dead(self) -> bool:
        """Whether a column `ALIVE` says which rows count."""

    def batches(self) -> list[pa.RecordBatch]: ...


class PlannedTable(Protocol):
    """One snapshot of a table, ready to be asked for the files that a predicate leaves."""

    @property
    def snapshot(self) -> Snapshot: ...

    @property
    def schema(self) -> TableSchema:
        return self.snapshot.schema

    @property
    def folders(self) -> tuple[str, ...]:
        """Where all files of its plans lie."""

    def fetch(self) -> None:
        """All of its files are about to be read: what has to be brought from afar is, beside what comes before that."""

    def plan(self, predicate: Predicate | None = None, columns: Sequence[str] | None = None) -> ReadPlan:
        """Without a predicate: everything. `columns`: those that it has to tell (None: all)."""

    def hot(self, columns: Sequence[str] | None) -> RowsInMemory | None:
        """All rows, at least of these columns (None: of all), where they are in memory."""

    def want_hot(self, columns: Sequence[str] | None) -> None:
        """Most of the table has just been read from files."""

    def summary(self) -> Summary | None:
        """None where changes are pending, or where the index does not know every file."""


def source_of(file: DataFile, folder: str, schema: TableSchema) -> Source:
    constants, foreign = constants_of(file, schema), file.is_foreign
    return Source(f"{folder}/{file.path}", file.rows, file.size_bytes, constants, file.seq, file.op, foreign=foreign)


def constants_of(file: DataFile, schema: TableSchema) -> tuple[tuple[str, Any], ...]:
    """Files that Lithify writes hold their partition columns; adopted ones leave them to the log."""
    top = file.path.partition("/")[0]
    if (
        not schema.partition_by
        or (is_job_folder(top) and not top.startswith(ADOPTED))
        or ("/" not in file.path and file.seq)
    ):
        return ()
    return tuple((name, file.partition[name]) for name in schema.partition_by if name in file.partition)


def by_constants(sources: Iterable[Source]) -> Mapping[tuple[tuple[str, Any], ...], list[Source]]:
    groups: dict[tuple[tuple[str, Any], ...], list[Source]] = {}
    for source in sources:
        groups.setdefault(source.constants, []).append(source)
    return groups
