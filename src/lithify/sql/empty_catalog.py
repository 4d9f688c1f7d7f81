"""The lake's tables as DataFusion sees them while a query is planned: of the right types, and empty.

Whatever a query names is opened then, once, and stays in `opened` for the time when it runs. DataFusion asks within
its own runtime, where nothing may block on it: opening a table must not run a query, and empty tables are made in
another thread, once per schema.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from datafusion import SessionContext
from datafusion.catalog import CatalogProvider, SchemaProvider, Table

from lithify.core.names import CATALOG, TableRef
from lithify.core.read_plan import PlannedTable, ReadPlan
from lithify.errors import LithifyError
from lithify.sql.scan_files import memory_table

NAMESPACE = "main"
EMPTY_TABLES_CACHED_MAX = 256
__all__ = ["CATALOG", "NAMESPACE", "EmptyCatalog", "EmptyTables", "Names", "TableOf"]

TableOf = Callable[[str, str], PlannedTable | None]
Names = Callable[[], Mapping[str, set[str]]]


class EmptyTables:
    """Empty tables by their columns, which are the same in query after query."""

    def __init__(self) -> None:
        self._tables: OrderedDict[pa.Schema, Table] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, columns: pa.Schema) -> Table:
        with self._lock:
            if (table := self._tables.get(columns)) is not None:
                self._tables.move_to_end(columns)
                return table
        with ThreadPoolExecutor(1) as pool:
            table = pool.submit(_empty_table, columns).result()
        with self._lock:
            self._tables[columns] = table
            while len(self._tables) > EMPTY_TABLES_CACHED_MAX:
                self._tables.popitem(last=False)
        return table


def _empty_table(columns: pa.Schema) -> Table:
    return memory_table(SessionContext(), pa.schema([f.with_nullable(True) for f in columns]).empty_table())


class EmptyCatalog(CatalogProvider):
    """`plans` are those that were made of the opened tables so far; `failure` is why one could not be opened;
    `plan_text`: what the query was planned to do.
    """

    def __init__(self, table_of: TableOf, names: Names, empty: EmptyTables) -> None:
        self.table_of, self.names, self.empty = table_of, names, empty
        self.opened: dict[TableRef, PlannedTable] = {}
        self.plans: dict[TableRef, ReadPlan] = {}
        self.failure: LithifyError | None = None
        self.plan_text = ""

    def schema_names(self) -> set[str]:
        return set(self.names())

    def schema(self, name: str) -> Any:
        return _EmptyNamespace(self, name)

    def open(self, ref: TableRef) -> PlannedTable | None:
        """Once per query."""
        if ref not in self.opened and (planned := self.table_of(*ref)) is not None:
            self.opened[ref] = planned
        return self.opened.get(ref)


class _EmptyNamespace(SchemaProvider):
    def __init__(self, catalog: EmptyCatalog, name: str) -> None:
        self._catalog, self._name = catalog, name

    def table_names(self) -> set[str]:
        return self._catalog.names().get(self._name, set())

    def table_exist(self, name: str) -> bool:
        return self.table(name) is not None

    def table(self, name: str) -> Table | None:
        try:
            planned = self._catalog.open((self._name, name))
        except LithifyError as error:
            self._catalog.failure = error
            return None
        return self._catalog.empty.of(planned.schema.columns) if planned is not None else None
