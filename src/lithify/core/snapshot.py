"""A pinned, immutable view of a table: one version of changes, one version of base."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from lithify.core.disk_files import ADOPTED
from lithify.core.expiry import Cutoff
from lithify.core.html import Shown
from lithify.core.names import is_job_folder
from lithify.core.ops import Op
from lithify.core.schema import TableSchema


class Bounds(NamedTuple):
    """What the log says of one column of one file. `low` is None where nothing is known."""

    low: Any
    high: Any
    nulls: int | None

    @property
    def known(self) -> bool:
        return self.low is not None and self.high is not None


UNKNOWN = Bounds(None, None, None)
FOREIGN = "foreign"


@dataclass(frozen=True)
class DataFile:
    """One live file of a log. `log_path` is the log's own spelling, `path` the one on disk, both relative; `time_ms` is
    when it was committed.
    """

    log_path: str
    path: str
    size_bytes: int
    rows: int
    bounds: Mapping[str, Bounds] = field(default_factory=dict, compare=False, hash=False)
    partition: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)
    seq: int = 0
    op: Op = Op.UPSERT
    columns: tuple[str, ...] = ()
    time_ms: int = 0

    @property
    def origin(self) -> str:
        """What wrote it: fold, bulk, hourly, daily, pack, cluster, … from its folder; `write` for a small write."""
        folder, slash, _ = self.path.partition("/")
        return folder.partition("-")[0] if slash and is_job_folder(folder) else ("write" if self.seq else FOREIGN)

    @property
    def is_foreign(self) -> bool:
        """Whether somebody else wrote it, into an adopted base or before it was adopted."""
        return self.origin in (FOREIGN, ADOPTED)

    def bound(self, column: str) -> Bounds:
        return self.bounds.get(column, UNKNOWN)


def bytes_of(files: Iterable[DataFile]) -> int:
    return sum(file.size_bytes for file in files)


@dataclass(frozen=True)
class Snapshot(Shown):
    table: str
    schema: TableSchema
    changes_version: int
    base_version: int
    seq: int
    watermark: int
    changes: tuple[DataFile, ...]
    base: tuple[DataFile, ...]
    table_id: str = ""
    # Folded already, but kept: deletes with an order value, which keep out late events, and barriers behind them.
    remembered: tuple[DataFile, ...] = ()
    # Rows that have expired by then are hidden. None: none are, as whoever maintains the table needs it.
    moment_ms: int | None = field(default=None, compare=False)

    @cached_property
    def cutoff(self) -> Cutoff | None:
        """What tells the rows that are hidden because they have expired, if there can be any."""
        if self.moment_ms is None or self.schema.expiry is None:
            return None
        return self.schema.expiry.at(self.moment_ms)

    @property
    def unhidden(self) -> Snapshot:
        """The same with the rows that have expired."""
        return self if self.moment_ms is None else replace(self, moment_ms=None)

    def _html_facts(self) -> Mapping[str, Any]:
        return {
            "table": self.table,
            "seq": self.seq,
            "watermark": self.watermark,
            "base version": self.base_version,
            "base files": self.base_files,
            "base rows": self.base_rows,
            "base bytes": self.base_bytes,
            "pending files": self.pending_files,
            "pending rows": self.pending_rows,
            "pending bytes": self.pending_bytes,
        }

    @property
    def identity(self) -> tuple[str, int, int]:
        """The same for the same rows, and for no others: a table that is created anew has another id."""
        return (self.table_id or self.table, self.changes_version, self.base_version)

    @property
    def base_files(self) -> int:
        return len(self.base)

    @property
    def pending_files(self) -> int:
        return len(self.changes)

    @cached_property
    def pending_rows(self) -> int:
        return sum(file.rows for file in self.changes)

    @cached_property
    def pending_bytes(self) -> int:
        return bytes_of(self.changes)

    @cached_property
    def base_rows(self) -> int:
        return sum(file.rows for file in self.base)

    @cached_property
    def base_bytes(self) -> int:
        return bytes_of(self.base)

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that pending tombstones go by, on a table with no key."""
        return next((file.columns for file in self.changes if file.op is Op.DELETE), ())
