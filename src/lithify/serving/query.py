"""The serving engine: SELECT only, over one snapshot of every table a query names.

Tables are looked up while a query is planned, so only those it names are opened; each is opened once per query. SQL
cannot read files: there is no function for it, and DDL, DML and SET are refused before anything runs.
"""

from __future__ import annotations

import atexit
import contextlib
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datafusion import DataFrame, RuntimeEnvBuilder, SessionConfig, SessionContext, SQLOptions
from datafusion.catalog import CatalogProvider, SchemaProvider, Table

from lithify.errors import ComputeFailed, Corruption, InvalidRequest, LithifyError, NotFound
from lithify.model.names import quoted
from lithify.model.plans import ReadPlan, Source
from lithify.serving.relation import LinkFolder, _memory, relation, scan
from lithify.store.local import translated

_READ_ONLY = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)

Planner = Callable[[str, str], ReadPlan | None]


class ServingEngine:
    def __init__(self, memory_bytes_max: int, threads: int | None = None) -> None:
        self._memory_bytes_max = memory_bytes_max
        self._threads = threads
        self._root: Path | None = None
        self._lock = threading.Lock()

    def sql(self, query: str, plan_of: Planner, names: Callable[[], Mapping[str, set[str]]]) -> pa.Table:
        """Run one SELECT. `plan_of(namespace, table)` answers None for a table that does not exist."""
        with self._session() as (ctx, links):
            # Relations are built in a context of their own, so that a query sees the lake's tables and nothing else.
            outer = self._context("lake", "main")
            opened: dict[tuple[str, str], ReadPlan] = {}
            catalog = _Catalog(ctx, links, plan_of, names, opened)
            outer.register_catalog_provider("lake", catalog)
            with _errors(catalog, opened):
                return _result(outer.sql_with_options(query, _READ_ONLY))

    def read(self, plan: ReadPlan, columns: Sequence[str] | None = None, where: str | None = None) -> pa.Table:
        """Rows of one table, in the table's own types."""
        schema = plan.schema
        wanted = list(columns) if columns is not None else schema.names
        for name in wanted:
            if name not in schema.names:
                raise InvalidRequest(
                    f"column {name!r} is not in table {plan.snapshot.table}: it has {', '.join(schema.names)}"
                )
        target = schema.select(wanted)
        with self._session() as (ctx, links), _errors(None, {("", plan.snapshot.table): plan}):
            view = relation(ctx, plan, links)
            ctx.register_view("t", view)
            query = f"SELECT {', '.join(map(quoted, wanted))} FROM datafusion.public.t"
            if where is not None:
                query += f" WHERE ({where}\n)"
            result = _result(ctx.sql_with_options(query, _READ_ONLY))
            return result.cast(pa.schema([f.with_nullable(True) for f in target])).cast(target)

    def columns_of(self, schema: pa.Schema, where: str) -> list[str]:
        """The columns a condition reads: those without which it cannot be planned."""
        with self._session() as (ctx, _), _errors(None, {}):
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
        with self._session() as (ctx, links), _errors(None, {}, base):
            ctx.register_view("b", scan(ctx, base, columns, links))
            ctx.register_view("c", _memory(ctx, contested))
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
        with self._session() as (ctx, links), _errors(None, {}, base):
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
    def _session(self) -> Iterator[tuple[SessionContext, LinkFolder]]:
        links = LinkFolder(self._folder())
        try:
            yield self._context("datafusion", "public"), links
        finally:
            links.remove()

    def _context(self, catalog: str, schema: str) -> SessionContext:
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
        if self._threads:
            config = config.with_target_partitions(self._threads)
        return SessionContext(
            config, RuntimeEnvBuilder().with_disk_manager_os().with_fair_spill_pool(self._memory_bytes_max)
        )

    def _folder(self) -> Path:
        with self._lock:
            if self._root is None:
                with translated(tempfile.gettempdir()):
                    self._root = Path(tempfile.mkdtemp(prefix="lithify-serving-"))
                atexit.register(shutil.rmtree, self._root, ignore_errors=True)
            return self._root


class _Catalog(CatalogProvider):
    def __init__(
        self,
        ctx: SessionContext,
        links: LinkFolder,
        plan_of: Planner,
        names: Callable[[], Mapping[str, set[str]]],
        opened: dict[tuple[str, str], ReadPlan],
    ) -> None:
        self.ctx, self.links, self.plan_of, self.names, self.opened = ctx, links, plan_of, names, opened
        self.failure: LithifyError | None = None

    def schema_names(self) -> set[str]:
        return set(self.names())

    def schema(self, name: str) -> Any:
        return _Namespace(self, name)


class _Namespace(SchemaProvider):
    def __init__(self, catalog: _Catalog, name: str) -> None:
        self._catalog, self._name = catalog, name
        self._tables: OrderedDict[str, Table] = OrderedDict()

    def table_names(self) -> set[str]:
        return self._catalog.names().get(self._name, set())

    def table_exist(self, name: str) -> bool:
        return self.table(name) is not None

    def table(self, name: str) -> Table | None:
        # DataFusion asks from inside its own runtime, where nothing may block on it: build in another thread.
        if name not in self._tables:
            with ThreadPoolExecutor(1) as pool:
                table = pool.submit(self._build, name).result()
            if table is None:
                return None
            self._tables[name] = table
        return self._tables[name]

    def _build(self, name: str) -> Table | None:
        catalog = self._catalog
        place = (self._name, name)
        try:
            if place not in catalog.opened:
                plan = catalog.plan_of(self._name, name)
                if plan is None:
                    return None
                catalog.opened[place] = plan
            return relation(catalog.ctx, catalog.opened[place], catalog.links).into_view()
        except LithifyError as error:
            catalog.failure = error
            return None


def _result(frame: DataFrame) -> pa.Table:
    """Collect, with string views as plain strings: the spelling that every Arrow consumer reads."""
    table = frame.to_arrow_table()
    fields = [pa.field(f.name, _plain(f.type), f.nullable) for f in table.schema]
    return table.cast(pa.schema(fields))


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


@contextlib.contextmanager
def _errors(
    catalog: _Catalog | None, plans: Mapping[tuple[str, str], ReadPlan], sources: Sequence[Source] = ()
) -> Iterator[None]:
    try:
        yield
    except LithifyError:
        raise
    except BaseException as error:
        if catalog is not None and catalog.failure is not None:
            raise catalog.failure from error
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        files = [
            *sources,
            *(s for plan in plans.values() for s in (*plan.clean, *plan.touched, *plan.changes)),
        ]
        raise _translated(error, files) from error


def _translated(error: BaseException, files: Sequence[Source]) -> LithifyError:
    text = str(error).replace("DataFusion error: ", "").strip()
    first = text.splitlines()[0] if text else type(error).__name__
    if "not found" in first and "table '" in first:
        return NotFound(
            f"{first.removeprefix('Error during planning: ')}: `lithify tables` lists the tables of this lake"
        )
    reading = ("Parquet", "External error", "Object at location", "Object Store")
    if any(sign in first for sign in reading) and (broken := first_broken(files)) is not None:
        return Corruption(f"{broken} cannot be read as Parquet: restore this file from a copy ({first})")
    planning = (
        "SQL error",
        "Error during planning",
        "Schema error",
        "This feature is not implemented",
        "type_coercion",
        "Execution error: Unknown",
    )
    if any(sign in first for sign in planning):
        return InvalidRequest(f"the query is not accepted: {first}")
    return ComputeFailed(f"the query failed: {first}")


def first_broken(files: Sequence[Source]) -> str | None:
    for source in files:
        try:
            file = pq.ParquetFile(source.path, page_checksum_verification=True)
            for group in range(file.num_row_groups):
                file.read_row_group(group)
        except (pa.ArrowException, OSError, ValueError):
            return source.path
    return None
