"""What a lake and a table are made of.

`Lake` and `Table` show what is meant for users and nothing else. Here their pieces are put together: `LakeInternals`
holds the catalog, the open tables, the engines and Spark of one lake, `TableInternals` leads to the open table of one
name. Rooms below know neither: a table comes to them as an argument, as the `TableAccess` of `write/access.py`, and
what else they need is said in protocols of their own (`pipelines/opened.py`, `cache/table_reader.py`,
`index/indexed.py`). Rooms above, which run a lake or translate for it, ask `internals`; no other module reaches into a
private member of another.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, overload

from lithify.compute.wire import spark_choice
from lithify.compute.worker import WorkerCompute
from lithify.core.arguments import check_text
from lithify.core.names import CONTROL_FOLDER, TableName, is_table_name, parse_table_name
from lithify.core.optional import need
from lithify.core.read_plan import PlannedTable
from lithify.core.results import Commit
from lithify.core.schema import TableSchema
from lithify.erasure.lake_access import LakeAccess
from lithify.errors import Forbidden, InvalidRequest, LithifyError, NotFound
from lithify.files.addresses import is_remote
from lithify.files.clock import LakeClock
from lithify.files.local_files import keep_copies_in
from lithify.files.open_storage import storage_of
from lithify.files.storage import Storage
from lithify.files.user_files import named_place
from lithify.lake.allowed_folders import remembered
from lithify.lake.catalog import Catalog, open_lake
from lithify.lake.open_tables import AsOf, OpenTable, OpenTables
from lithify.options.policy import policy_of
from lithify.pipelines.context import Context
from lithify.read.change_feed import Feed
from lithify.read.reader import Reader
from lithify.settings import Settings, load_settings
from lithify.sql.engine import ServingEngine
from lithify.sql.isolated.cage import TABLES_KNOWN_MAX, MayRead
from lithify.sql.isolated.pool import ProcessLimits
from lithify.sql.limits import Limits
from lithify.sql.query_queue import RunningQueries
from lithify.sql.query_run import QueryRun
from lithify.sql.statements.travel import traveled
from lithify.tables.handles import Handles, dropped
from lithify.tables.runtime import Runtime
from lithify.write.batch_ids import conditions_of
from lithify.write.conditions import Write
from lithify.write.group_commit import QueueClosed
from lithify.write.small_writes import Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lithify.compute.compute import Compute
    from lithify.lake.lake import Lake
    from lithify.lake.maintenance import Maintenance
    from lithify.lake.pipeline_runner import PipelineRunner
    from lithify.lake.table import Table
    from lithify.maintenance.scheduler import Scheduler

DATA = ("changes", "base")
# However many queries may run at once, no more processes wait for the next ones.
QUERY_PROCESSES_MAX = 16


@overload
def internals(owner: Table) -> TableInternals: ...
@overload
def internals(owner: Lake) -> LakeInternals: ...
def internals(owner: Any) -> Any:
    return owner._internals


class LakeInternals:
    """One lake in this process, from its folder to its open tables."""

    def __init__(
        self,
        path: PurePath,
        spark: SparkSession | None = None,
        *,
        create: bool | None = False,
        settings: Settings | None = None,
        store: Storage | None = None,
    ) -> None:
        settings = settings or load_settings(of_lake=None if is_remote(path) else path)
        store = store or storage_of(path)
        LithifyError.all_frames |= settings.all_frames
        policy_of(settings)  # tiers that cannot be, said now and not in the middle of the night
        if settings.file_mode is not None:
            store.give_modes(path, settings.file_mode)
        if store.remote:
            keep_copies_in(settings.copies_folder, settings.copies_bytes_max)
        _trust(path, store, settings)
        open_lake(path, store, create=create)
        self.shared_spark, self._starting = spark, threading.RLock()
        self._own_spark: SparkSession | None = None
        self.making = threading.RLock()  # who makes one of these three when it is first asked for
        self.maintenance: Maintenance | None = None
        self.scheduler: Scheduler | None = None  # what keeps the lake in shape in the background, if it was started
        self.pipeline_runner: PipelineRunner | None = None  # what runs declared pipelines, once somebody asked for it
        serving = ServingEngine(
            settings.query_memory_bytes_max,
            cache_bytes_max=settings.cache_bytes,
            limits=ProcessLimits(
                settings.query_memory_bytes_max,
                settings.query_spill_bytes_max,
                settings.token_memory_bytes,
                settings.token_spill_bytes,
            ),
            processes_max=min(settings.queries_max, QUERY_PROCESSES_MAX),
        )
        # A session of the user's does all the work it is given for; otherwise heavy tasks get a process of their own.
        compute = self._on_session() if spark else WorkerCompute.from_settings(settings, path)
        now_ms = LakeClock(store, path / CONTROL_FOLDER).now_ms
        self.runtime = Runtime(path, settings, store, serving, self.spark, compute, now_ms, reopen=reopened_table)
        self.queries = RunningQueries(settings.queries_max, settings.query_wait_s_max, settings.token_queries)
        self.catalog = Catalog(self.runtime)
        self.open_tables = OpenTables(self.runtime)

    def close(self) -> None:
        """Commit and answer the writes that wait, then give everything back."""
        self.queries.cancel_all()
        self.runtime.hot.close()
        self.open_tables.close()
        self.runtime.serving.close()
        self.runtime.compute.close()
        with self._starting:
            if self._own_spark is not None:
                from lithify.spark.session import release

                release(self._own_spark)
                self._own_spark = None

    # -- tables

    def table(self, name: str) -> TableInternals:
        """The table that has this name now."""
        return self.table_of(self.open_tables.current(parse_table_name(name)))

    def drop(self, name: TableName) -> None:
        self.catalog.drop(name)
        self.runtime.hot.evict(str(name))
        self.open_tables.forget(name)

    def table_of(self, opened: OpenTable) -> TableInternals:
        return TableInternals(self.open_tables, opened.handles.name, opened.handles.incarnation)

    def names(self) -> dict[str, set[str]]:
        """Of all tables, by namespace."""
        names: dict[str, set[str]] = {}
        for name in self.catalog.tables():
            names.setdefault(name.namespace, set()).add(name.table)
        return names

    def planned(
        self, as_of: AsOf, may_read: MayRead | None = None, only: str | None = None
    ) -> Callable[[str, str], PlannedTable | None]:
        """How a query comes by the tables that it names."""

        def table_of(namespace: str, table: str) -> PlannedTable | None:
            name = f"{namespace}.{table}"
            if (may_read is not None and not may_read(name)) or only not in (None, name):
                raise Forbidden(f"this token may not read table {name}: use one that may", table=name)
            if not is_table_name(name):
                return None  # quoted, it may be anything, a path too: nothing on disk is asked about it
            try:
                return self.open_tables.read(TableName(namespace, table), lambda found: found.planned(as_of))
            except (InvalidRequest, NotFound):
                if self.catalog.exists(TableName(namespace, table)):
                    raise
                return None

        return table_of

    def planned_in(
        self, query: str, as_of: AsOf, may_read: MayRead | None = None, only: str | None = None
    ) -> tuple[str, Callable[[str, str], PlannedTable | None]]:
        """The same for a query that may name tables as they were (VERSION AS OF), and the query to ask then."""
        found = traveled(query)
        if not found.tables:
            return query, self.planned(as_of, may_read, only)

        def table_of(namespace: str, table: str) -> PlannedTable | None:
            ref, moment = found.tables.get((namespace, table), ((namespace, table), as_of))
            return self.planned(moment, may_read, only)(*ref)

        return found.query, table_of

    @cached_property
    def pipelines(self) -> Context:
        """What pipelines on this lake work with."""
        tables, create = self.open_tables, partial(self.catalog.create, if_not_exists=True)
        table, owned = partial(TableInternals, tables), self.shared_spark is None
        return Context(self.runtime, tables, table, self.catalog.exists, create, self.spark, owned)

    @cached_property
    def erasures(self) -> LakeAccess:
        """What erasures on this lake work with."""
        return LakeAccess(self.runtime, self.table, self.open_tables.let_go, self.open_tables.look_for_erasures)

    # -- queries within limits

    @contextmanager
    def limited(
        self,
        text: str,
        *,
        id: str | None = None,
        timeout_s: float | None = None,
        rows_max: int | None = None,
        memory_bytes_max: int | None = None,
        may_read: MayRead | None = None,
        owner: str | None = None,
    ) -> Iterator[QueryRun]:
        """A slot among the queries that run, and the limits for whatever is asked there: what `explain_query` and
        `delete_where` take as `within`. `may_read(name)`: it runs where the files of no other table can be read.
        """
        self.open_tables.check_open()
        check_text("a query", text)
        if id is not None:
            check_text("the id of a query", id)
        settings = self.runtime.settings
        limits = Limits(
            timeout_s if timeout_s is not None else settings.query_timeout_s,
            rows_max if rows_max is not None else settings.query_rows_max,
            memory_bytes_max if memory_bytes_max is not None else settings.query_memory_bytes_max,
        )
        with self.runtime.activity.asked(), self.queries.running(text, id, owner) as run:
            yield QueryRun(limits, run, may_read)

    def warm(self) -> None:
        """Start what queries within limits run in, so that the first need not wait for it."""
        self.runtime.serving.processes.warm(min(self.runtime.settings.queries_max, os.cpu_count() or 1), self._folders)

    def _folders(self) -> dict[str, tuple[str, ...]]:
        """Where the files of tables lie, as far as that can be told without opening them."""
        if self.runtime.store.remote:
            return {}
        names, root = self.catalog.tables()[:TABLES_KNOWN_MAX], self.runtime.root
        return {str(name): tuple(f"{root}/{name.namespace}/{name.table}/{part}" for part in DATA) for name in names}

    # -- Spark

    def spark(self) -> SparkSession:
        """The session of this lake, whose executors reach it; starts one if none was given."""
        need("spark")
        from lithify.spark.executors import prepare

        session = self._session()
        prepare(session, self.runtime.root, self.runtime.settings.spark_wait_s_max)
        return session

    def _session(self) -> SparkSession:
        with self._starting:
            self.open_tables.check_open()
            if self.shared_spark is not None:
                return self.shared_spark
            from lithify.spark.session import SparkOptions, is_alive, local_session

            if self._own_spark is None or not is_alive(self._own_spark):
                settings = self.runtime.settings
                chosen, conf = spark_choice(settings, "spark_"), settings.spark_conf
                if self.runtime.store.remote and settings.spark_remote is None:
                    from lithify.spark.s3a import launch_conf

                    conf = launch_conf(settings.s3a, conf)
                self._own_spark = local_session(SparkOptions(**chosen, extra_conf=conf))
            return self._own_spark

    def _on_session(self) -> Compute:
        from lithify.spark.tasks import SessionCompute  # whoever brings no session does not wait for PySpark

        return SessionCompute(self.spark)


def _trust(path: PurePath, store: Storage, settings: Settings) -> None:
    """What this opener named: the lake, and what its own settings say; whatever the lake names is only data."""
    for named in (path, settings.index_folder):
        if named is not None:
            store.path_guard.trust(named)
    for allowed in (*map(named_place, settings.allowed_paths), *remembered(path)):
        if is_remote(allowed) == is_remote(path):  # a lake refers to what lies in the same storage
            store.path_guard.allow(allowed)


class TableInternals:
    """One table while it is the same one, however often it is unloaded and opened again meanwhile."""

    def __init__(self, tables: OpenTables, name: TableName, incarnation: str) -> None:
        self._tables, self.name, self.incarnation = tables, name, incarnation
        self.runtime = tables.runtime

    @property
    def opened(self) -> OpenTable:
        try:
            opened = self._tables.get(self.name)
        except NotFound as error:
            raise dropped(self.name) from error
        if opened.handles.incarnation != self.incarnation:
            raise dropped(self.name)
        return opened

    @property
    def handles(self) -> Handles:
        return self.opened.handles

    @property
    def reader(self) -> Reader:
        return self.opened.reader

    @property
    def feed(self) -> Feed:
        return Feed(self.reader)

    @property
    def known_schema(self) -> TableSchema:
        """As it was when this process last looked, told without waiting for a commit under way."""
        return self.handles.changes.schema

    @contextmanager
    def maintaining(self) -> Iterator[tuple[Handles, Reader]]:
        """For maintenance: one at a time, on handles of its own, so that no reader and no writer waits for it."""
        with self._tables.maintaining(self.handles) as (handles, reader):
            yield handles, reader

    def write(self, request: Request, opened: OpenTable | None = None) -> Commit:
        """`opened`: the open table, if it was just looked up."""
        while True:
            try:
                return (opened or self.opened).writes.write(request)
            except QueueClosed:
                opened = None

    def before(self, write: Write) -> Commit | None:
        """The answer of then, if this was written before. Raises where it may not be written."""
        changes = self.handles.changes
        with changes.log.lock:
            return write.before(changes)

    def check_schema(self, batch_id: str | None, fingerprint: str | None) -> None:
        """Before rows are looked at, which may not fit for that very reason. The commit looks again. A batch that was
        written before is answered as then.
        """
        if fingerprint is not None and fingerprint != self.known_schema.fingerprint:
            self.handles.schema()
            self.before(Write("", conditions=conditions_of(batch_id, fingerprint)))


def reopened_table(path: PurePath, name: str, spark: SparkSession) -> TableInternals:
    """A table in the process that its writer was sent to, on a lake of its own that lasts as long as the process."""
    return LakeInternals(named_place(path), spark).table(name)
