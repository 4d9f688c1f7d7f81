"""What a lake does in the same words here and behind a service. Each method is declared and explained once; what is
done is `_create`, `table` and others of the two kinds of lake.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from lithify.core.arguments import who
from lithify.core.html import Listed
from lithify.core.names import TableName, parse_table_name
from lithify.core.results import Executed, TableStats
from lithify.core.schema import TableSchema, define
from lithify.core.table_methods import TableMethods
from lithify.errors import InvalidRequest, NotFound

Table = TypeVar("Table", bound=TableMethods[Any])


@dataclass(frozen=True)
class Wish:
    """How a statement is to be run besides what it says."""

    dry_run: bool = False
    batch_id: str | None = None
    actor: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        who(self.actor, self.reason)  # refused here, if they are no texts

    @property
    def info(self) -> dict[str, str]:
        """What its commit says besides."""
        return who(self.actor, self.reason)


class LakeMethods(ABC, Generic[Table]):
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...

    def create_table(
        self,
        name: str,
        schema: Any,
        key: str | Iterable[str] | None = None,
        order_by: str | Iterable[str] | None = None,
        time: str | None = None,
        partition_by: str | Iterable[str] = (),
        if_not_exists: bool = False,
        options: Mapping[str, Any] | None = None,
        sort_by: str | Iterable[str] | None = None,
        expires: str | None = None,
        merge_rules: Mapping[str, str] | None = None,
        order_groups: Mapping[str, str | Iterable[str]] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> Table:
        """Create a table. `schema` is a pyarrow schema, or without a service also a Spark one; `options` are listed in
        docs/settings.md.

        `order_by`: of two rows with one key the one with the higher value of this column is the newer one; several
        columns compare in their order (docs/how-to/late-events.md).

        `sort_by`, short for the option of that name: columns that compactions sort the rows by. `expires`, likewise:
        when a row is no longer there, as in "placed + interval '90 days'". `merge_rules`: what becomes of a column when
        its row is written again, e.g. {"total": "sum"} (docs/how-to/merge-rules.md).

        `order_groups`: columns that come from the line that is newest by a column of their own, e.g.
        {"price_ts": ["price", "currency"]} (docs/how-to/order-groups.md).

        `defaults`: what columns get in rows that are written without them, e.g. {"status": "new"}
        (docs/how-to/change-columns.md).
        """
        if sort_by is not None:
            several = isinstance(sort_by, Iterable) and not isinstance(sort_by, str)
            options = {**(options or {}), "sort_by": list(sort_by) if several else sort_by}
        if expires is not None:
            options = {**(options or {}), "expires": expires}
        parsed = parse_table_name(name)
        columns = self._arrow_schema(schema)
        definition = define(columns, key, order_by, time, partition_by, merge_rules, order_groups, defaults)
        return self._create(parsed, definition, if_not_exists, options)

    @abstractmethod
    def _create(
        self, name: TableName, definition: TableSchema, if_not_exists: bool, options: Mapping[str, Any] | None
    ) -> Table: ...

    def _arrow_schema(self, schema: Any, kinds: str = "pyarrow") -> pa.Schema:
        if isinstance(schema, pa.Schema):
            return schema
        problem = None
        if hasattr(schema, "__arrow_c_schema__"):
            try:
                return pa.schema(schema)
            except (pa.ArrowException, TypeError, ValueError) as error:
                problem = error
        raise InvalidRequest(f"schema is a {kinds} schema, not {type(schema).__name__}") from problem

    @abstractmethod
    def table(self, name: str) -> Table: ...

    @abstractmethod
    def tables(self) -> list[str]:
        """Names of all tables."""

    def stats(self) -> list[TableStats]:
        """Size and pending changes of every table, told by the logs."""
        found = Listed[TableStats]()
        for name in self.tables():
            with contextlib.suppress(NotFound):  # dropped meanwhile
                found.append(self.table(name).stats())
        return found

    def execute(
        self,
        statement: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
        batch_id: str | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> Executed:
        """Run INSERT, UPDATE, DELETE or MERGE (docs/sql-statements.md) as one commit, decided on one snapshot of each
        table and again if the table was written to meanwhile; also CREATE, ALTER, DROP and TRUNCATE TABLE.
        `parameters`: values for $1, $2, … or :name. `dry_run`: only count.
        """
        return self._execute(statement, parameters, Wish(dry_run, batch_id, actor, reason))

    @abstractmethod
    def _execute(
        self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] | None, wish: Wish
    ) -> Executed: ...

    @abstractmethod
    def drop_table(self, name: str) -> None:
        """Drop a table and delete its files. An adopted base is left where it is."""


def counts(done: Executed) -> pa.Table:
    """What a statement did as an answer to a query: one row."""
    names = ("statement", "table", "inserted", "updated", "deleted", "seq")
    return pa.table({name: [getattr(done, name)] for name in names})
