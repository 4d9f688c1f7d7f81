"""One try at a statement: every table that it names is looked at once, and all its queries see that.

The target's snapshot is what the commit is validated against: if it was overtaken, the next try looks anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.column_types import type_of
from lithify.core.names import TableRef, quoted
from lithify.core.read_plan import PlannedTable
from lithify.core.schema import TableSchema, nullable
from lithify.core.snapshot import Snapshot
from lithify.dml import texts
from lithify.dml.given import GivenRows
from lithify.errors import Forbidden, LimitExceeded
from lithify.sql.engine import ServingEngine
from lithify.sql.isolated.cage import MayRead
from lithify.sql.limits import Limits
from lithify.sql.query_run import QueryRun
from lithify.sql.statements.constant_rows import without_constant_rows
from lithify.write.decided import rows_with_keys

if TYPE_CHECKING:
    from lithify.sql.empty_catalog import Names, TableOf
    from lithify.write.access import TableAccess

# So many keys are looked for by name, where bloom filters can tell; more of them by their range.
KEYS_NAMED_MAX = 1_000


@dataclass(frozen=True)
class Reading:
    """How a statement reads: `table_of` has the rights of who sent it. `within`: in processes of their own."""

    serving: ServingEngine
    table_of: TableOf
    names: Names
    rows_max: int
    may_read: MayRead | None = None
    within: QueryRun | None = None


class Attempt:
    def __init__(self, reading: Reading, target: TableAccess, snapshot: Snapshot) -> None:
        self._reading, self.snapshot = reading, snapshot
        self._reader = target.reader
        self.target: PlannedTable = target.reader.planned(snapshot)
        self.name = str(target.name)
        self._ref: TableRef = target.name.namespace, target.name.table
        self._opened: dict[TableRef, PlannedTable | None] = {}
        self.reads_target = False

    @property
    def schema(self) -> TableSchema:
        return self.snapshot.schema

    def ask(self, query: str, **rows: pa.Table) -> pa.Table:
        """A query in the user's words, with the user's rights. `rows` are tables that it may name besides."""
        query, constants = without_constant_rows(query, texts.named(texts.CONSTANTS))
        if constants is not None:
            rows[texts.CONSTANTS] = constants
        given = {name: GivenRows(table, self.target) for name, table in rows.items()}
        return self._bounded(query, lambda ref: self._table(ref, given), isolated=self._reading.within is not None)

    def found(self, given: pa.Table, by: Mapping[str, str], columns: Sequence[str]) -> pa.Table:
        """Rows of the target that equal a given one in some columns: column → the given one's. Nothing of this is in
        the user's words, and it is read whoever asks.
        """
        if (keys := _keys_of(given, by, self.schema)) is not None:
            cutoff = self.snapshot.cutoff
            wanted = columns if cutoff is None else list(dict.fromkeys([*columns, cutoff.column]))
            rows = rows_with_keys(self._reader, self.snapshot, keys, wanted)
            shown = rows if cutoff is None else cutoff.standing(rows).select(list(columns))
            return shown.cast(self.schema.select(columns))
        namespace, table = self._ref
        pruned = " AND ".join(_range_of(given.column(other), f"t.{quoted(name)}") for name, other in by.items())
        query = texts.found(f"{quoted(namespace)}.{quoted(table)}", columns, by, pruned)
        tables = {self._ref: self.target, (texts.GIVEN_NAMESPACE, texts.GIVEN): GivenRows(given, self.target)}
        rows = self._bounded(query, tables.get, isolated=False)
        return rows.rename_columns(list(columns)).cast(self.schema.select(columns))

    def _table(self, ref: TableRef, given: Mapping[str, PlannedTable]) -> PlannedTable | None:
        namespace, table = ref
        if namespace == texts.GIVEN_NAMESPACE:
            return given.get(table)
        if ref == self._ref:
            self.check_read()
            self.reads_target = True
            return self.target
        if ref not in self._opened:
            self._opened[ref] = self._reading.table_of(*ref)
        return self._opened[ref]

    def check_read(self) -> None:
        may_read = self._reading.may_read
        if may_read is not None and not may_read(self.name):
            raise Forbidden(f"this token may not read table {self.name}: use one that may", table=self.name)

    def _bounded(self, query: str, table_of: Callable[[TableRef], PlannedTable | None], *, isolated: bool) -> pa.Table:
        return bounded(self._reading, query, table_of, self.name, isolated=isolated)


def bounded(
    reading: Reading,
    query: str,
    table_of: Callable[[TableRef], PlannedTable | None],
    name: str,
    *,
    isolated: bool | None = None,
) -> pa.Table:
    """All rows of a query, on behalf of a statement on table `name`; too many of them are refused."""
    rows_max, within = reading.rows_max, reading.within
    limits = within.limits if within is not None else Limits()
    course = QueryRun(replace(limits, rows_max=rows_max))
    if within is not None:
        course.run, course.may_read, course.started_at = within.run, within.may_read, within.started_at
        course.check()
    outside = within is not None if isolated is None else isolated
    rows, cut = reading.serving.rows_of(query, lambda *ref: table_of(ref), reading.names, course, isolated=outside)
    if cut:
        raise LimitExceeded(
            f"the statement on {name} takes more than {rows_max:,} rows (statement_rows_max), and nothing was written: "
            "take them in parts by a WHERE, raise the limit, or write with Spark",
            limit="rows",
        )
    return rows


def _keys_of(given: pa.Table, by: Mapping[str, str], schema: TableSchema) -> pa.Table | None:
    """The distinct keys that are looked for, if whole keys are, of types in which equal means the same."""
    if set(by) != set(schema.key):
        return None
    columns = schema.select(schema.key)
    found = pa.table([given.column(by[name]) for name in schema.key], names=list(schema.key))
    for here, there in zip(found.schema, columns, strict=True):
        fits = here.type == there.type or (pa.types.is_integer(here.type) and pa.types.is_integer(there.type))
        if not fits or pa.types.is_floating(there.type):
            return None
    try:
        found = found.drop_null().cast(nullable(columns))
    except pa.ArrowInvalid:  # beyond what a key can be
        return None
    return found.group_by(found.column_names).aggregate([]).select(found.column_names).cast(columns)


def _range_of(values: pa.ChunkedArray, column: str) -> str:
    """A condition that holds for all of these values, in which the index finds them."""
    distinct = pc.unique(values.drop_null())
    kind = type_of(distinct.type)
    if not len(distinct):
        return "FALSE"
    if len(distinct) <= KEYS_NAMED_MAX:
        return f"{column} IN ({', '.join(kind.literal(value) for value in distinct)})"
    bounds = pc.min_max(distinct)
    return f"{column} BETWEEN {kind.literal(bounds['min'])} AND {kind.literal(bounds['max'])}"
