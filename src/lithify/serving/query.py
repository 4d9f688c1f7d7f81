"""The serving engine: SELECT only, over one snapshot of every table a query names.

A query is looked at before it runs: planned over empty tables of the right types, it shows which columns and rows it
asks of each table (`filters`). Each table's own plan then leaves only the files and row groups that can matter; what is
small is read into memory (`groups`), the rest is scanned where it lies (`relation`), and the query runs over that. Both
times it sees the same snapshots.

Tables are looked up while a query is planned, so only those it names are opened; each is opened once per query. SQL
cannot read files: there is no function for it, and DDL, DML and SET are refused before anything runs.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime as dt
import enum
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from datafusion import DataFrame, RuntimeEnvBuilder, SessionConfig, SessionContext, SQLOptions
from datafusion.catalog import Schema, Table
from datafusion.plan import LogicalPlan

from lithify.errors import InvalidRequest
from lithify.model.names import quoted
from lithify.model.plans import PlannedTable, ReadPlan, Source, Summary
from lithify.model.predicates import UNKNOWN, Predicate
from lithify.model.schema import TableSchema
from lithify.model.snapshot import Snapshot
from lithify.serving.catalog import CATALOG, NAMESPACE, EmptyCatalog, EmptyTables, Names, TableOf
from lithify.serving.failures import translated_errors
from lithify.serving.filters import NOT_READ, Place, Request, orders_floats, reads_floats, requests
from lithify.serving.groups import GroupReader, TooLarge, fits_memory, rows_in_memory
from lithify.serving.moment import asks_the_clock, at
from lithify.serving.relation import LinkFolder, in_memory, memory_table, relation, scan
from lithify.serving.shortcuts import answer_of
from lithify.store.local import translated

_READ_ONLY = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
# So few rows are not worth waking other threads for.
ONE_THREAD_ROWS_MAX = 65_536
ENGINE_FAULT = "Internal error"
CLOCK = "asks for the current time in a way that is not understood"


class Care(enum.Enum):
    """Which statistics of Parquet files the engine must not see, because NaN does not count in them: a column of one
    number and NaN would be taken for that number alone.
    """

    NONE = "none"
    NO_FILE_STATISTICS = "floats are read"
    NO_STATISTICS = "floats are compared or ordered"


@dataclass(frozen=True)
class TableUse:
    """What a query would read of one table. `from_summary`: nothing, because the index alone answers it."""

    place: Place
    planned: PlannedTable
    plan: ReadPlan
    predicate: Predicate
    note: str | None
    from_summary: bool


class ServingEngine:
    def __init__(self, memory_bytes_max: int, threads: int | None = None) -> None:
        self._threads = threads
        self._root: Path | None = None
        self._lock = threading.Lock()
        self._groups = GroupReader(threads)
        self._empty = EmptyTables()
        # Where rows become tables that queries are given; it keeps none itself.
        self._scratch = SessionContext()
        self._runtime = RuntimeEnvBuilder().with_disk_manager_os().with_fair_spill_pool(memory_bytes_max)
        self._configs: dict[tuple[str, str, Care, bool], SessionConfig] = {}

    def sql(self, query: str, table_of: TableOf, names: Names) -> pa.Table:
        """Run one SELECT. `table_of(namespace, table)` answers None for a table that does not exist; it must not run a
        query itself, which waits until the table is asked for its plan.
        """
        catalog = self._catalog(table_of, names)
        with translated_errors(catalog):
            look = self._look(query, catalog)
            if (answer := look.shortcut()) is not None:
                return answer
            return self._run(look)

    def explain(self, query: str, table_of: TableOf, names: Names) -> list[TableUse]:
        """What `sql` would read of each table, in the order in which the query names them. Nothing is run."""
        catalog = self._catalog(table_of, names)
        with translated_errors(catalog):
            look = self._look(query, catalog)
            from_summary = look.shortcut() is not None
            return [
                TableUse(place, planned, look.plan(place), request.predicate, request.note, from_summary)
                for place, planned in catalog.opened.items()
                for request in [look.requests[place]]
            ]

    def read(
        self, table: PlannedTable | ReadPlan, columns: Sequence[str] | None = None, where: str | None = None
    ) -> pa.Table:
        """Rows of one table, in the table's own types."""
        planned = _Fixed(table) if isinstance(table, ReadPlan) else table
        schema = planned.schema
        wanted = list(columns) if columns is not None else schema.names
        for name in wanted:
            if name not in schema.names:
                raise InvalidRequest(
                    f"column {name!r} is not in table {planned.snapshot.table}: it has {', '.join(schema.names)}"
                )
        target = schema.select(wanted)
        query = f"SELECT {', '.join(map(quoted, wanted))} FROM {NAMESPACE}.t"
        if where is not None:
            query += f" WHERE ({where}\n)"
        catalog = self._catalog(
            lambda namespace, name: planned if (namespace, name) == (NAMESPACE, "t") else None,
            lambda: {NAMESPACE: {"t"}},
        )
        with translated_errors(catalog):
            result = self._run(self._look(query, catalog))
        return result.cast(pa.schema([f.with_nullable(True) for f in target])).cast(target)

    def _catalog(self, table_of: TableOf, names: Names) -> EmptyCatalog:
        return EmptyCatalog(table_of, names, self._empty)

    def _look(self, query: str, catalog: EmptyCatalog) -> _Look:
        asked_for = query
        ctx = self._context(CATALOG, NAMESPACE)
        ctx.register_catalog_provider(CATALOG, catalog)
        frame = ctx.sql_with_options(query, _READ_ONLY)
        shape = _plain_schema(frame.schema())
        note = None
        if asks_the_clock(query):
            fixed = at(query, dt.datetime.now(dt.UTC))
            still = _planned_alike(ctx, fixed, shape.types) if fixed is not None else None
            if fixed is not None and still is not None:
                query, frame = fixed, still
            else:
                note = CLOCK
        plan = frame.optimized_logical_plan()
        schemas = {place: planned.schema.columns for place, planned in catalog.opened.items()}
        asked = requests(plan, schemas, NAMESPACE)
        if note is not None:
            asked = {place: Request(request.columns, UNKNOWN, note) for place, request in asked.items()}
        names = shape.names if query == asked_for else frame.schema().names
        care = Care.NONE
        if any(reads_floats(request, schemas[place]) for place, request in asked.items()):
            care = Care.NO_STATISTICS if orders_floats(plan, schemas) else Care.NO_FILE_STATISTICS
        return _Look(query, shape, names, plan, asked, catalog, care)

    def _run(self, look: _Look) -> pa.Table:
        try:
            return self._run_once(look)
        except Exception as error:
            if look.care is Care.NO_STATISTICS or ENGINE_FAULT not in str(error):
                raise
            # What the engine makes of statistics fails for some conditions; it needs none of them for an answer.
            look.care = Care.NO_STATISTICS
            return self._run_once(look)

    def _run_once(self, look: _Look) -> pa.Table:
        with self._session(look.care) as session:
            frame = self._frame(look, session, narrow=True)
            if frame is None:
                frame = self._frame(look, session, narrow=False)
            assert frame is not None
            return _result(frame).rename_columns(look.shape.names)

    def _frame(self, look: _Look, session: _Session, *, narrow: bool) -> DataFrame | None:
        """The query over the rows that it needs. Narrow: where they are in memory, also of only the columns that it
        needs; None if it then means something else.
        """
        tables: dict[Place, Table] = {}
        narrowed, small = False, True
        for place, request in look.requests.items():
            rows = self._rows(look, place, narrow=narrow)
            if rows is not None:
                tables[place] = memory_table(self._scratch, rows)
                narrowed |= narrow and request.columns is not None
                small &= rows.num_rows <= ONE_THREAD_ROWS_MAX
            else:
                careful = look.care is Care.NO_STATISTICS
                view = relation(session.ctx, look.plan(place), session.links, careful=careful)
                tables[place] = Table(view.into_view())
                small = False
        # Relations are built in a context of their own, so that a query sees the lake's tables and nothing else.
        outer = self._context(CATALOG, NAMESPACE, look.care, one_thread=small)
        catalog = outer.catalog(CATALOG)
        namespaces = {namespace: Schema.memory_schema(outer) for namespace, _ in tables}
        for namespace, schema in namespaces.items():
            catalog.register_schema(namespace, schema)
        for (namespace, name), table in tables.items():
            namespaces[namespace].register_table(name, table)
        if not narrowed:
            return outer.sql_with_options(look.query, _READ_ONLY)
        return _planned_alike(outer, look.query, look.shape.types, look.names)

    def _rows(self, look: _Look, place: Place, *, narrow: bool) -> pa.Table | None:
        """What a query needs of a table, in memory, if it is little."""
        plan, request = look.plan(place), look.requests[place]
        if request.note == NOT_READ or not fits_memory(plan):
            return None
        columns = plan.schema.names
        if narrow and request.columns is not None:
            # Rows have to be counted even where no column is asked for.
            columns = list(request.columns) or columns[:1]
        try:
            return rows_in_memory(self._groups, plan, columns, request.predicate)
        except TooLarge:
            return None

    def columns_of(self, schema: pa.Schema, where: str) -> list[str]:
        """The columns a condition reads: those without which it cannot be planned."""
        with self._session() as session, translated_errors():
            ctx = session.ctx
            ctx.register_record_batches("t", [[pa.RecordBatch.from_pylist([], schema=schema)]])
            ctx.sql_with_options(f"SELECT 1 FROM datafusion.public.t WHERE ({where}\n)", _READ_ONLY)
            used: list[str] = []
            for name in schema.names:
                rest = pa.schema([f for f in schema if f.name != name] or [pa.field("lithify_none", pa.int8())])
                alias = f"without_{len(used)}_{schema.get_field_index(name)}"
                ctx.register_record_batches(alias, [[pa.RecordBatch.from_pylist([], schema=rest)]])
                try:
                    ctx.sql_with_options(f"SELECT 1 FROM datafusion.public.{alias} t WHERE ({where}\n)", _READ_ONLY)
                except Exception:
                    used.append(name)
            return used

    def losers(self, base: Sequence[Source], contested: pa.Table, key: Sequence[str], order_by: str) -> pa.Table:
        """Keys of `contested` whose base row has a higher order_by (nulls lowest)."""
        columns = contested.schema
        if not base or not contested.num_rows:
            return contested.select(list(key)).slice(0, 0)
        with self._session() as session, translated_errors(sources=base):
            ctx, links = session.ctx, session.links
            ctx.register_view("b", scan(ctx, base, columns, links))
            ctx.register_view("c", in_memory(ctx, contested))
            keys = ", ".join(f"c.{quoted(name)}" for name in key)
            same = " AND ".join(f"b.{quoted(name)} = c.{quoted(name)}" for name in key)
            order = quoted(order_by)
            frame = ctx.sql(
                f"SELECT {keys} FROM datafusion.public.c c JOIN datafusion.public.b b ON {same} "
                f"WHERE b.{order} IS NOT NULL AND (c.{order} IS NULL OR b.{order} > c.{order})"
            )
            target = contested.select(list(key)).schema
            return _result(frame).cast(pa.schema([f.with_nullable(True) for f in target])).cast(target)

    def duplicate_keys(self, base: Sequence[Source], columns: pa.Schema, limit: int = 5) -> pa.Table:
        """Keys that stand more than once, or are null, in files that were not written by us."""
        with self._session() as session, translated_errors(sources=base):
            ctx, links = session.ctx, session.links
            ctx.register_view("b", scan(ctx, base, columns, links))
            keys = ", ".join(quoted(name) for name in columns.names)
            null = " OR ".join(f"{quoted(name)} IS NULL" for name in columns.names)
            return _result(
                ctx.sql(
                    f"SELECT {keys}, count(*) AS rows FROM datafusion.public.b GROUP BY {keys} HAVING count(*) > "
                    f"1 OR {null} LIMIT {limit}"
                )
            )

    def close(self) -> None:
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None

    @contextlib.contextmanager
    def _session(self, care: Care = Care.NONE) -> Iterator[_Session]:
        links = LinkFolder(self._folder())
        try:
            yield _Session(lambda: self._context("datafusion", "public", care), links)
        finally:
            links.remove()

    def _context(
        self, catalog: str, schema: str, care: Care = Care.NONE, *, one_thread: bool = False
    ) -> SessionContext:
        place = catalog, schema, care, one_thread
        if place not in self._configs:
            config = self._config(catalog, schema, care)
            threads = 1 if one_thread else self._threads
            self._configs[place] = config.with_target_partitions(threads) if threads else config
        return SessionContext(self._configs[place], self._runtime)

    def _config(self, catalog: str, schema: str, care: Care) -> SessionConfig:
        config = (
            SessionConfig()
            .with_default_catalog_and_schema(catalog, schema)
            .set("datafusion.execution.parquet.coerce_int96", "us")
            .set("datafusion.execution.time_zone", "UTC")
            # Changed keys that are integers and lie this close are looked up in an array instead of a hash table.
            .set("datafusion.execution.perfect_hash_join_min_key_density", "0.001")
            .set("datafusion.execution.perfect_hash_join_small_build_threshold", "1000000")
            # Hidden keys are few beside base: share them with every scan instead of shuffling base to meet them.
            .set("datafusion.optimizer.hash_join_single_partition_threshold", str(64 * 2**20))
            .set("datafusion.optimizer.hash_join_single_partition_threshold_rows", "4000000")
        )
        if care is not Care.NONE:
            config = config.set("datafusion.execution.collect_statistics", "false")
        if care is Care.NO_STATISTICS:
            config = (
                config.set("datafusion.execution.parquet.pruning", "false")
                .set("datafusion.execution.parquet.enable_page_index", "false")
                .set("datafusion.optimizer.enable_dynamic_filter_pushdown", "false")
            )
        return config

    def _folder(self) -> Path:
        with self._lock:
            if self._root is None:
                with translated(tempfile.gettempdir()):
                    self._root = Path(tempfile.mkdtemp(prefix="lithify-serving-"))
                atexit.register(shutil.rmtree, self._root, ignore_errors=True)
            return self._root


class _Session:
    """Where relations are built, if there are any to build."""

    def __init__(self, make: Callable[[], SessionContext], links: LinkFolder) -> None:
        self._make, self.links = make, links

    @cached_property
    def ctx(self) -> SessionContext:
        return self._make()


@dataclass(frozen=True)
class _Fixed:
    """A plan that is there already, whatever is asked."""

    made: ReadPlan

    @property
    def snapshot(self) -> Snapshot:
        return self.made.snapshot

    @property
    def schema(self) -> TableSchema:
        return self.made.schema

    def plan(self, predicate: Predicate | None = None) -> ReadPlan:
        return self.made

    def summary(self) -> Summary | None:
        return None


class _Look:
    """A query as it was planned over empty tables, which gives columns of these `names`. What the user asked for has
    those of `shape`: constants that were put in show in a name.
    """

    def __init__(
        self,
        query: str,
        shape: pa.Schema,
        names: Sequence[str],
        optimised: LogicalPlan,
        requests: Mapping[Place, Request],
        catalog: EmptyCatalog,
        care: Care,
    ) -> None:
        self.query, self.shape, self.names, self.requests, self.care = query, shape, names, requests, care
        self._optimised, self._catalog = optimised, catalog

    def plan(self, place: Place) -> ReadPlan:
        plans = self._catalog.plans
        if place not in plans:
            predicate = self.requests[place].predicate
            plans[place] = self._catalog.opened[place].plan(None if predicate == UNKNOWN else predicate)
        return plans[place]

    def shortcut(self) -> pa.Table | None:
        opened = list(self._catalog.opened.values())
        return answer_of(self._optimised, self.shape, opened[0]) if len(opened) == 1 else None


def _planned_alike(
    ctx: SessionContext, query: str, types: Sequence[pa.DataType], names: Sequence[str] | None = None
) -> DataFrame | None:
    """The query, if it can be planned here and gives columns of these types, and names if any are given."""
    try:
        frame = ctx.sql_with_options(query, _READ_ONLY)
    except Exception:  # whoever asks has another way, which tells what is wrong
        return None
    shape = _plain_schema(frame.schema())
    return frame if shape.types == types and (names is None or shape.names == names) else None


def _result(frame: DataFrame) -> pa.Table:
    """Collect, with string views as plain strings: the spelling that every Arrow consumer reads. Without empty batches
    too: PySpark takes one in the middle for the end.
    """
    table = frame.to_arrow_table()
    filled = pa.Table.from_batches([batch for batch in table.to_batches() if batch.num_rows], table.schema)
    return filled.cast(_plain_schema(table.schema))


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, _plain(f.type), f.nullable) for f in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_plain(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), kind.item_field.with_type(_plain(kind.item_type)))
    return kind
