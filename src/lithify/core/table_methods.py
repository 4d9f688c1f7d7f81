"""What a table does in the same words here and behind a service: how it is written, asked for rows, and kept in shape.

Each method is declared and explained once; what is done is `_put`, `_fold`, … of the two kinds of table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import pyarrow as pa

from lithify.core.column_changes import ColumnChange
from lithify.core.column_defaults import default_of
from lithify.core.evolve import evolved
from lithify.core.missing_columns import refuses_missing
from lithify.core.optional import missing
from lithify.core.partial_rows import check_insertable, partial_rows_of
from lithify.core.results import Commit, CompactReport, FoldPlan, FoldReport, RestorePlan, TableStats
from lithify.core.rows import keys_of, rows_of
from lithify.core.schema import TableSchema, check_key_type, normalise
from lithify.core.type_text import parse_type, type_name
from lithify.errors import Conflict, InvalidRequest
from lithify.options.table_options import MissingColumns
from lithify.options.tiers import TierNames

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

OnReport = Callable[[CompactReport], None]
Planned = TypeVar("Planned")
Columns = str | Sequence[str] | None
OnMissing = Literal["insert", "skip", "refuse"]
Fit = Callable[[Any, TableSchema], object]


def quietly(report: CompactReport) -> None:
    pass


def check_keyed(table: str, schema: TableSchema, operation: str) -> None:
    if schema.keyed or operation == "append":
        return
    why = "upsert by: use append, or create it with a key" if operation == "upsert" else f"{operation}: use append"
    raise InvalidRequest(f"table {table} has no key, so there is nothing to {why}")


def is_spark_frame(data: Any) -> bool:
    """Told without importing pyspark."""
    return any(cls.__module__.startswith("pyspark.sql") and cls.__name__ == "DataFrame" for cls in type(data).__mro__)


def keys_to_delete(keys: Any, schema: TableSchema) -> pa.Table:
    rows = keys_of(keys, schema)
    for column in rows.schema if not schema.keyed else ():
        check_key_type(column, "delete")
    return rows


def _named(column: Any) -> str:
    if not isinstance(column, str) or not column:
        raise InvalidRequest(f"a column is told by its name, not by {column!r}")
    return column


def _whole(missing: MissingColumns | None) -> Fit:
    return lambda data, schema: rows_of(data, schema, complete=refuses_missing(schema, missing))


def _lines(missing: OnMissing) -> Fit:
    def fit(data: Any, schema: TableSchema) -> None:
        lines = partial_rows_of(data, schema)
        if missing == "insert":
            check_insertable(lines, schema)

    return fit


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
        return dict(self.definition.options)

    # -- writing

    def append(
        self,
        data: Any,
        batch_id: str | None = None,
        *,
        actor: str | None = None,
        schema_fingerprint: str | None = None,
        evolve: bool = False,
        missing: MissingColumns | None = None,
    ) -> Commit:
        """Add rows. On a table with a key this is the same as `upsert`: a key never stands twice.

        `schema_fingerprint` (of `definition.fingerprint`) refuses the write if columns or key are others by now.
        `evolve`: as for `upsert`.
        `missing`: as for `upsert`; on a table without a key, columns that rows lack are null.
        """
        as_is = self._evolve("append", data, evolve, schema_fingerprint, _whole(missing))
        return self._put("append", data, batch_id, actor, as_is, missing=missing)

    def upsert(
        self,
        data: Any,
        batch_id: str | None = None,
        *,
        actor: str | None = None,
        schema_fingerprint: str | None = None,
        if_changed: bool = False,
        evolve: bool = False,
        missing: MissingColumns | None = None,
    ) -> Commit:
        """Insert rows, or replace those with the same key as a whole. The last row of a key in the batch wins. On a
        table with merge rules every row counts, column by column.

        `missing`, for rows that lack a column: `refuse` them, or write `null` there, whatever stood there before. By
        default as the table's option `missing_columns` says, which is to refuse. `update` leaves what is there.

        `if_changed`: rows that are there already, value for value, are not written and give no change; the answer says
        how many (`skipped`). `evolve`: columns that the table does not have are added first, if the rows fit.
        """
        as_is = self._evolve("upsert", data, evolve, schema_fingerprint, _whole(missing))
        return self._put("upsert", data, batch_id, actor, as_is, if_changed, missing)

    def replace(
        self,
        data: Any,
        batch_id: str | None = None,
        *,
        actor: str | None = None,
        schema_fingerprint: str | None = None,
        missing: MissingColumns | None = None,
    ) -> Commit:
        """Delete, then write: these rows win whatever their order_by or merge rules say. `missing`: as for `upsert`."""
        return self._put("replace", data, batch_id, actor, schema_fingerprint, missing=missing)

    def update(
        self,
        data: Any,
        batch_id: str | None = None,
        *,
        missing: OnMissing = "insert",
        actor: str | None = None,
        schema_fingerprint: str | None = None,
        if_changed: bool = False,
        evolve: bool = False,
    ) -> Commit:
        """Set the columns that the rows give, and leave the others as they are. A dict gives the columns that it names;
        of a frame every row gives every column. Null is a value.

        `missing`, for keys that are not there: `insert` them with nulls in the other columns, `skip` them, or `refuse`
        the batch. To insert costs nothing; the others look first. `if_changed`: rows that change nothing of what is
        there are not written. `evolve`: columns that the table does not have are added first, if the rows fit.
        """
        as_is = self._evolve("update", data, evolve, schema_fingerprint, _lines(missing))
        return self._update(data, missing, batch_id, actor, as_is, if_changed)

    def retract(
        self, data: Any, batch_id: str | None = None, *, actor: str | None = None, schema_fingerprint: str | None = None
    ) -> Commit:
        """Take back what earlier rows said to columns with the merge rules sum and count: the values that a row gives
        are subtracted, and it counts minus one. Other columns are left out of it, and stay as they are.
        """
        return self._retract(data, batch_id, actor, schema_fingerprint)

    def delete(
        self,
        keys: Any,
        batch_id: str | None = None,
        *,
        at: Any = None,
        actor: str | None = None,
        reason: str | None = None,
        schema_fingerprint: str | None = None,
    ) -> Commit:
        """Delete by key. On a table with no key: every row that is there now and matches the given columns. `at`: when,
        as a value of the column `order_by`, one for all keys or a list with one for each; where several columns order
        the table, each is a tuple or dict with a value for every one of them. Then it deletes no row that is newer, and
        a row that is older and comes later stays deleted. Without, it deletes what is there now, whatever its order.
        """
        return self._delete(keys, at, batch_id, actor, reason, schema_fingerprint)

    @overload
    def restore(
        self,
        to: Any,
        batch_id: str | None = None,
        *,
        actor: str | None = None,
        reason: str | None = None,
        dry_run: Literal[False] = False,
    ) -> Commit: ...
    @overload
    def restore(self, to: Any, *, dry_run: Literal[True]) -> RestorePlan: ...
    def restore(
        self,
        to: Any,
        batch_id: str | None = None,
        *,
        actor: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> Commit | RestorePlan:
        """Make the rows of an earlier version (a seq, a time or a tag) the newest ones: one commit that undoes what
        changed since. Nothing is lost: the versions in between can be read and restored too. `dry_run` counts.
        """
        if not isinstance(dry_run, bool):
            raise InvalidRequest(f"dry_run is True or False, not {dry_run!r}")
        return self._restore(to, batch_id, actor, reason, dry_run)

    # -- columns

    def rename_column(self, column: str, to: str) -> int:
        """Call a column by another name, from the seq on that is answered. Base is written anew for it, and other
        readers see the new name from then on. Not of columns that rows are told apart or laid out by.
        """
        return self._change_column(ColumnChange("rename", _named(column), _named(to)))

    def drop_column(self, column: str) -> int:
        """Take a column out of the table, from the seq on that is answered; versions before still show it. No file is
        written for it.
        """
        return self._change_column(ColumnChange("drop", _named(column)))

    def alter_column(
        self,
        column: str,
        *,
        type: pa.DataType | str | None = None,
        nullable: bool | None = None,
        after: str | None = None,
        first: bool = False,
        default: Any = ...,
    ) -> int:
        """Change one thing of a column, from the seq on that is answered: its `type`, to one that holds all values of
        the old one (base is written anew for it); whether it is `nullable` (`False` only if no row is null in it);
        where it stands, `after` another one or `first`; or its `default` (None: it has none), for rows that are written
        without it from now on.
        """
        wishes = [type is not None, nullable is not None, after is not None, bool(first), default is not ...]
        if sum(wishes) != 1:
            raise InvalidRequest(
                f"column {column!r} is changed in one way at a time: give type, nullable, after, first or default"
            )
        name = _named(column)
        if default is not ...:
            if default is not None and name in (columns := self.definition.columns).names:
                default = default_of(default, columns.field(name))
            return self._change_column(ColumnChange("default", name, default=default))
        if type is not None:
            wanted = parse_type(type) if isinstance(type, str) else type
            if not isinstance(wanted, pa.DataType):
                raise InvalidRequest(f"a type is one of pyarrow's, or a text like 'int64', not {wanted!r}")
            return self._change_column(ColumnChange("widen", name, type_name(normalise(wanted, name))))
        if nullable is not None:
            if not isinstance(nullable, bool):
                raise InvalidRequest(f"nullable is True or False, not {nullable!r}")
            return self._change_column(ColumnChange("relax" if nullable else "require", name))
        return self._change_column(ColumnChange("move", name, "" if after is None else _named(after)))

    def _evolve(self, operation: str, data: Any, evolve: bool, schema_fingerprint: str | None, fit: Fit) -> str | None:
        """Add the columns that rows bring, if they fit then. Answers with the fingerprint to write with."""
        if not isinstance(evolve, bool):
            raise InvalidRequest(f"evolve is True or False, not {evolve!r}")
        if not evolve:
            return schema_fingerprint
        schema = self.definition
        check_keyed(self.name, schema, operation)
        columns, then = evolved(data, schema, fit)
        if not columns:
            return schema_fingerprint
        schema.check_fingerprint(schema_fingerprint, self.name)
        for column in columns:
            try:
                self.add_column(column)
            except Conflict:
                if column.name not in self.definition.names:  # else another writer was first
                    raise
        return None if schema_fingerprint is None else then.fingerprint

    def add_column(self, column: pa.Field, default: Any = None) -> None:
        """Add a nullable column; rows that are there already read null in it. `default`: what it gets in rows that are
        written without it.
        """
        if not isinstance(column, pa.Field):
            raise InvalidRequest(f"a new column is a pyarrow field like pa.field('note', pa.string()), not {column!r}")
        if not column.nullable:
            raise InvalidRequest(
                f"new column {column.name!r} must be nullable: rows that are there already have no value for it"
            )
        column = pa.field(column.name, normalise(column.type, column.name))
        self._add_column(column, default_of(default, column))

    @abstractmethod
    def _add_column(self, column: pa.Field, default: Any) -> None: ...

    @abstractmethod
    def _change_column(self, change: ColumnChange) -> int: ...
    @abstractmethod
    def _restore(
        self, to: Any, batch_id: str | None, actor: str | None, reason: str | None, dry_run: bool
    ) -> Commit | RestorePlan: ...
    @abstractmethod
    def _put(
        self,
        operation: str,
        data: Any,
        batch_id: str | None,
        actor: str | None,
        schema_fingerprint: str | None,
        if_changed: bool = False,
        missing: MissingColumns | None = None,
    ) -> Commit: ...
    @abstractmethod
    def _update(
        self,
        data: Any,
        missing: OnMissing,
        batch_id: str | None,
        actor: str | None,
        schema_fingerprint: str | None,
        if_changed: bool,
    ) -> Commit: ...
    @abstractmethod
    def _retract(
        self, data: Any, batch_id: str | None, actor: str | None, schema_fingerprint: str | None
    ) -> Commit: ...
    @abstractmethod
    def _delete(
        self,
        keys: Any,
        at: Any,
        batch_id: str | None,
        actor: str | None,
        reason: str | None,
        schema_fingerprint: str | None,
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
