"""What a lake does in the same words here and behind a service. Each method is declared and explained once; what is
done is `_create`, `table` and others of the two kinds of lake.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from lithify.core.html import Listed
from lithify.core.names import TableName, parse_table_name
from lithify.core.results import TableStats
from lithify.core.schema import TableSchema, define
from lithify.core.table_methods import TableMethods
from lithify.errors import InvalidRequest, NotFound

Table = TypeVar("Table", bound=TableMethods[Any])


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
        order_by: str | None = None,
        time: str | None = None,
        partition_by: str | Iterable[str] = (),
        if_not_exists: bool = False,
        options: Mapping[str, Any] | None = None,
        sort_by: str | Iterable[str] | None = None,
    ) -> Table:
        """Create a table. `schema` is a pyarrow schema, or without a service also a Spark one; `options` are listed in
        docs/settings.md.

        `sort_by`, short for the option of that name: columns that compactions sort the rows by.
        """
        if sort_by is not None:
            several = isinstance(sort_by, Iterable) and not isinstance(sort_by, str)
            options = {**(options or {}), "sort_by": list(sort_by) if several else sort_by}
        parsed = parse_table_name(name)
        definition = define(self._arrow_schema(schema), key, order_by, time, partition_by)
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

    @abstractmethod
    def drop_table(self, name: str) -> None:
        """Drop a table and delete its files. An adopted base is left where it is."""
