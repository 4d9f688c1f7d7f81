"""A table as the data source uses it, whoever opens it.

`spark` does not know the engine: what the data source needs of it is asked through `TableAccess`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import PurePath
from typing import Protocol

import pyarrow as pa

from lithify.core.read_plan import PlannedTable
from lithify.core.schema import TableSchema
from lithify.files.parquet import Written
from lithify.spark.datasource.options import Mode, SourceOptions

FEED_PAGE_ROWS = 200_000


@dataclass(frozen=True)
class SpoolTarget:
    """Where the tasks of one write lay their rows down: `root`/`folder`, the folder of the job `job`.

    `ordered`: the rows come with their order columns, so that of several rows of a key one can win; `complete`: they
    give all columns of the table.
    """

    schema: TableSchema
    root: str
    folder: str
    job: str
    ordered: bool = False
    complete: bool = False


@dataclass(frozen=True)
class Spooled:
    """Rows of one task, below the job's folder."""

    path: str
    rows: int
    size_bytes: int
    raw_bytes: int


class TableAccess(Protocol):
    """A table as the data source uses it. `index`: its folder for derived data, which executors can read."""

    @property
    def definition(self) -> TableSchema: ...

    @property
    def index(self) -> PurePath: ...

    def planned(self, as_of: str | None) -> PlannedTable: ...

    def seq_of(self, position: str) -> int:
        """The seq of a position, which must be one of this table; 'earliest' and 'latest' are positions too."""

    def position_of(self, seq: int) -> str: ...

    def feed(self, since: int, until: int, *, before: bool) -> pa.Table: ...

    def feed_until(self, since: int, rows_max: int) -> int: ...

    def begin_write(self) -> SpoolTarget: ...

    def commit_write(
        self,
        target: SpoolTarget,
        spooled: Sequence[Spooled],
        written: Sequence[Written],
        mode: Mode | None,
        batch_id: str | None,
    ) -> None: ...

    def abort_write(self, target: SpoolTarget) -> None: ...

    def apply_batch(self, options: SourceOptions, query: str | None, rows: pa.Table, epoch: int) -> None:
        """Commit a micro-batch exactly once. `query`: the id of the streaming query, where its tasks could tell."""


class Source(Protocol):
    """What names a table, and opens it wherever it is asked."""

    @property
    def parsed(self) -> SourceOptions: ...

    def opened(self) -> AbstractContextManager[TableAccess]: ...


def pages(table: TableAccess, since: int, until: int, *, before: bool) -> Iterator[pa.Table]:
    """Changes in (since, until], some commits at a time; updates with the row `before` them."""
    while since < until:
        upto = min(table.feed_until(since, FEED_PAGE_ROWS), until)
        page = table.feed(since, upto, before=before)
        if page.num_rows:
            yield page
        since = upto
