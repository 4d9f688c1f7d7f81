"""What a table does in the same words here and behind a service: how it is written, asked for rows, and kept in shape.

Each method is declared and explained once; what is done is `_put`, `_fold`, … of the two kinds of table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import pyarrow as pa

from lithify.core.optional import missing
from lithify.core.results import Commit, CompactReport, FoldPlan, FoldReport, TableStats
from lithify.core.rows import keys_of
from lithify.core.schema import TableSchema, check_key_type
from lithify.errors import InvalidRequest
from lithify.options.tiers import TierNames

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

OnReport = Callable[[CompactReport], None]
Planned = TypeVar("Planned")
Columns = str | Sequence[str] | None


def quietly(report: CompactReport) -> None:
    pass


def check_keyed(table: str, schema: TableSchema, operation: str) -> None:
    if schema.keyed or operation == "append":
        return
    why = "upsert by: use append, or create it with a key" if operation == "upsert" else "replace: use append"
    raise InvalidRequest(f"table {table} has no key, so there is nothing to {why}")


def is_spark_frame(data: Any) -> bool:
    """Told without importing pyspark."""
    return any(cls.__module__.startswith("pyspark.sql") and cls.__name__ == "DataFrame" for cls in type(data).__mro__)


def keys_to_delete(keys: Any, schema: TableSchema) -> pa.Table:
    rows = keys_of(keys, schema)
    for column in rows.schema if not schema.keyed else ():
        check_key_type(column, "delete")
    return rows


class TableMethods(ABC, Generic[Planned]):
    """`Planned`: what a dry run of a compaction answers with."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def definition(self) -> TableSchema:
        """Columns, key, order_by, time and partition_by, as they are now."""

    @property
    def schema(self) -> pa.Schema:
        """The user's columns."""
        return self.definition.columns

    @property
    def options(self) -> dict[str, Any]:
        """Every table option with the value that holds now: the table's own, or else the lake's."""
        return self.definition.options

    # -- writing

    def append(
        self, data: Any, batch_id: str | None = None, *, actor: str | None = None, schema_fingerprint: str | None = None
    ) -> Commit:
        """Add rows. On a table with a key this is the same as `upsert`: a key never stands twice.

        `schema_fingerprint` (of `definition.fingerprint`) refuses the write if columns or key are others by now.
        """
        return self._put("append", data, batch_id, actor, schema_fingerprint)

    def upsert(
        self, data: Any, batch_id: str | None = None, *, actor: str | None = None, schema_fingerprint: str | None = None
    ) -> Commit:
        """Insert rows, or replace those with the same key as a whole. The last row of a key in the batch wins."""
        return self._put("upsert", data, batch_id, actor, schema_fingerprint)

    def replace(
        self, data: Any, batch_id: str | None = None, *, actor: str | None = None, schema_fingerprint: str | None = None
    ) -> Commit:
        """Delete, then write: these rows win whatever their order_by says."""
        return self._put("replace", data, batch_id, actor, schema_fingerprint)

    def delete(
        self,
        keys: Any,
        batch_id: str | None = None,
        *,
        actor: str | None = None,
        reason: str | None = None,
        schema_fingerprint: str | None = None,
    ) -> Commit:
        """Delete by key. On a table with no key: every row that is there now and matches the given columns."""
        return self._delete(keys, batch_id, actor, reason, schema_fingerprint)

    @abstractmethod
    def _put(
        self, operation: str, data: Any, batch_id: str | None, actor: str | None, schema_fingerprint: str | None
    ) -> Commit: ...
    @abstractmethod
    def _delete(
        self, keys: Any, batch_id: str | None, actor: str | None, reason: str | None, schema_fingerprint: str | None
    ) -> Commit: ...

    # -- reading

    @abstractmethod
    def to_arrow(self, columns: Sequence[str] | None = None, where: str | None = None, as_of: Any = None) -> pa.Table:
        """Fresh rows."""

    def to_pandas(
        self, columns: Sequence[str] | None = None, where: str | None = None, as_of: Any = None
    ) -> pd.DataFrame:
        """Fresh rows as a pandas DataFrame."""
        rows = self.to_arrow(columns, where, as_of)
        try:
            return rows.to_pandas()
        except ModuleNotFoundError as error:
            raise missing("pandas") from error

    def to_polars(
        self, columns: Sequence[str] | None = None, where: str | None = None, as_of: Any = None
    ) -> pl.DataFrame:
        """Fresh rows as a polars DataFrame."""
        try:
            import polars
        except ModuleNotFoundError as error:
            raise missing("polars") from error
        frame = polars.from_arrow(self.to_arrow(columns, where, as_of))
        assert isinstance(frame, polars.DataFrame)
        return frame

    # -- looking at it, and keeping it in shape

    @abstractmethod
    def stats(self) -> TableStats:
        """Size of the table, and how much of it is not folded yet."""

    @overload
    def fold(self, dry_run: Literal[False] = False) -> FoldReport: ...
    @overload
    def fold(self, dry_run: Literal[True]) -> FoldPlan: ...
    def fold(self, dry_run: bool = False) -> FoldReport | FoldPlan:
        """Move pending changes into base. Readers and writers go on meanwhile."""
        return self._fold(dry_run)

    @overload
    def compact(
        self, tier: TierNames = None, dry_run: Literal[False] = False, *, progress: OnReport = ...
    ) -> list[CompactReport]: ...
    @overload
    def compact(self, tier: TierNames = None, *, dry_run: Literal[True]) -> list[Planned]: ...
    def compact(
        self, tier: TierNames = None, dry_run: bool = False, *, progress: OnReport = quietly
    ) -> list[CompactReport] | list[Planned]:
        """Merge small base files into larger ones, as far as the table's tiers (or packing) call for it now;
        `tier`: one of them, or some. `progress` is called with the report of each batch as it is done; through a
        service, with all of them at the end.
        """
        return self._compact(tier, dry_run, progress)

    @overload
    def optimize(
        self, by: Columns = None, dry_run: Literal[False] = False, *, progress: OnReport = ...
    ) -> list[CompactReport]: ...
    @overload
    def optimize(self, by: Columns = None, *, dry_run: Literal[True]) -> list[Planned]: ...
    def optimize(
        self, by: Columns = None, dry_run: bool = False, *, progress: OnReport = quietly
    ) -> list[CompactReport] | list[Planned]:
        """Write base anew in z-order of the given columns (default: key, then time), so that filters on any of them
        read few files. If all rows are still pending, they are folded first.
        """
        return self._optimize(by, dry_run, progress)

    @abstractmethod
    def _fold(self, dry_run: bool) -> FoldReport | FoldPlan: ...
    @abstractmethod
    def _compact(self, tier: TierNames, dry_run: bool, progress: OnReport) -> list[CompactReport] | list[Planned]: ...
    @abstractmethod
    def _optimize(self, by: Columns, dry_run: bool, progress: OnReport) -> list[CompactReport] | list[Planned]: ...
