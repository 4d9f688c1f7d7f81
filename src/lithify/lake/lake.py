"""The lake: a folder with tables in it, and the one place where the pieces are put together."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from lithify.compute.compute import Compute
from lithify.compute.wire import spark_choice
from lithify.compute.worker import WorkerCompute
from lithify.core.arguments import check_text
from lithify.core.html import ROWS_MAX, Listed, table_html
from lithify.core.names import CONTROL_FOLDER, TableName, is_table_name, parse_table_name
from lithify.core.optional import need
from lithify.core.read_plan import PlannedTable
from lithify.core.results import TableExplanation, TableStats
from lithify.core.schema import define
from lithify.errors import CommitUnknown, Forbidden, InvalidRequest, LithifyError, NotFound
from lithify.files.clock import LakeClock
from lithify.files.local import LocalStorage
from lithify.files.storage import Storage
from lithify.files.text_input import check_encoding
from lithify.files.user_files import find_files, user_path
from lithify.lake.allowed_places import remember, remembered
from lithify.lake.cache import Cache
from lithify.lake.catalog import Catalog, open_lake
from lithify.lake.open_tables import Listener, OpenTables, TableInside
from lithify.lake.table import AsOf, Table
from lithify.options.policy import policy_of
from lithify.options.tiers import TierNames
from lithify.read.reader import Reader
from lithify.settings import Settings, load_settings
from lithify.sql.engine import ServingEngine
from lithify.sql.explain import explanation_of
from lithify.sql.isolated.cage import TABLES_KNOWN_MAX, MayRead
from lithify.sql.isolated.pool import ProcessLimits
from lithify.sql.limits import Answer, Limits, RunningQuery
from lithify.sql.query_queue import RunningQueries
from lithify.sql.query_run import QueryRun
from lithify.tables.inside import inside
from lithify.tables.runtime import Runtime
from lithify.write.ingest import IngestReport, Progress, format_of, ingest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lithify.lake.maintenance import Maintenance
    from lithify.maintenance.reports import CycleReport, RunningJob
    from lithify.maintenance.scheduler import Scheduler
    from lithify.pipelines.pipeline import Pipeline

DATA = ("changes", "base")
# However many queries may run at once, no more processes wait for the next ones.
QUERY_PROCESSES_KEPT_MAX = 16


class Lake:
    """Open a lake, or create one in an empty or new folder.

    Pass `spark` to share a running session; otherwise one is started when bulk work first needs it, and given
    back by `close`.
    """

    def __init__(
        self,
        path: str | Path,
        spark: SparkSession | None = None,
        *,
        create: bool = True,
        settings: Settings | None = None,
        store: Storage | None = None,
    ) -> None:
        self.path = _local_path(path)
        self._settings = settings or load_settings(of_lake=self.path)
        LithifyError.all_frames |= self._settings.all_frames
        policy_of(self._settings)  # tiers that cannot be, said now and not in the middle of the night
        self._store = store or LocalStorage()
        if self._settings.file_mode is not None:
            self._store.give_modes(self.path, self._settings.file_mode)
        self._trust()
        open_lake(self.path, self._store, create=create)
        self._shared_spark = spark
        self._own_spark: SparkSession | None = None
        self._lock = threading.RLock()
        self._serving = ServingEngine(
            self._settings.query_memory_bytes_max,
            cache_bytes_max=self._settings.cache_bytes,
            limits=ProcessLimits(
                self._settings.query_memory_bytes_max,
                self._settings.query_spill_bytes_max,
                self._settings.token_memory_bytes,
                self._settings.token_spill_bytes,
            ),
            processes_max=min(self._settings.queries_max, QUERY_PROCESSES_KEPT_MAX),
        )
        # A session of the user's does all the work it is given for; otherwise heavy tasks get a process of their own.
        compute = self._on_session() if spark else WorkerCompute.from_settings(self._settings, self.path)
        self._runtime = Runtime(
            self.path,
            self._settings,
            self._store,
            self._serving,
            self._spark,
            compute,
            LakeClock(self._store, self.path / CONTROL_FOLDER).now_ms,
            reopen=reopened_table,
        )
        self._queries = RunningQueries(
            self._settings.queries_max, self._settings.query_wait_s_max, self._settings.token_queries
        )
        self._catalog = Catalog(self._runtime)
        self._loaded = OpenTables(self._runtime, self._catalog.open)
        self._tables: dict[TableName, Table] = {}
        self._upkeep: Maintenance | None = None
        self._scheduler: Scheduler | None = None
        self._closed = False
        self._inside = LakeInside(self)

    def _trust(self) -> None:
        """What this opener named: the lake, and what its own settings say; whatever the lake names is only data."""
        places, settings = self._store.places, self._settings
        for named in (self.path, settings.index_folder):
            if named is not None:
                places.trust(named)
        for allowed in (*settings.allowed_paths, *remembered(self.path)):
            places.allow(allowed)

    def __enter__(self) -> Lake:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Lake({str(self.path)!r})"

    def _on_session(self) -> Compute:
        from lithify.spark.tasks import SessionCompute  # whoever brings no session does not wait for PySpark

        return SessionCompute(self._spark)

    def _repr_html_(self) -> str:
        names = self.tables()
        stats = [self.table(name).stats() for name in names[:ROWS_MAX]]
        rows = [(s.table, s.base_rows, s.pending_rows, s.base_files + s.pending_files, s.seq) for s in stats]
        columns = ("table", "rows in base", "pending changes", "files", "seq")
        left_out = f"and {len(names) - len(rows):,} more tables" if len(names) > len(rows) else None
        return table_html(columns, rows, f"Lake {self.path}", left_out)

    def close(self) -> None:
        """Commit and answer the writes that wait, then give back temporary files, and Spark if this lake started it.

        Nothing acknowledged depends on it.
        """
        if self._scheduler is not None:
            self._scheduler.stop()
        elif self._upkeep is not None:
            self._upkeep.stop()
        self._queries.cancel_all()
        self._runtime.hot.close()
        self._loaded.close()
        with self._lock:
            self._closed = True
            self._tables.clear()
            self._serving.close()
            self._runtime.compute.close()
            if self._own_spark is not None:
                from lithify.spark.session import release

                release(self._own_spark)
                self._own_spark = None

    # -- tables

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
        """Create a table. `schema` is a pyarrow schema, or a Spark one; `options` are listed in docs/settings.md.

        `sort_by`, short for the option of that name: columns that compactions sort the rows by.
        """
        if sort_by is not None:
            options = {**(options or {}), "sort_by": sort_by}
        parsed = parse_table_name(name)
        definition = define(_arrow_schema(schema), key, order_by, time, partition_by)
        if self._catalog.create(parsed, definition, if_not_exists=if_not_exists, options=options):
            self._loaded.forget(parsed)  # one whose folder was lost may still be open
            return self._created(name)
        return self.table(name)

    def _created(self, name: str) -> Table:
        try:
            return self.table(name)
        except NotFound:
            raise
        except Exception as error:
            raise CommitUnknown(
                f"table {name} was created, but cannot be opened now ({error}): open it later"
            ) from error

    def table(self, name: str) -> Table:
        """Open a table. The same object is answered while the table lives."""
        parsed = parse_table_name(name)
        incarnation = self._loaded.current(parsed).handles.incarnation
        with self._lock:
            table = self._tables.get(parsed)
            if table is None or inside(table).incarnation != incarnation:
                table = self._tables[parsed] = Table(TableInside(self._loaded, parsed, incarnation))
            return table

    def tables(self) -> list[str]:
        """Names of all tables."""
        return [str(name) for name in self._catalog.tables()]

    def stats(self) -> list[TableStats]:
        """Size and pending changes of every table, told by the logs."""
        found = Listed[TableStats]()
        for name in self.tables():
            with contextlib.suppress(NotFound):  # dropped meanwhile
                found.append(self.table(name).stats())
        return found

    def drop_table(self, name: str) -> None:
        """Drop a table and delete its files. An adopted base is left where it is."""
        parsed = parse_table_name(name)
        self._check_open()
        self._catalog.drop(parsed)
        self._runtime.hot.evict(str(parsed))
        self._loaded.forget(parsed)
        with self._lock:
            self._tables.pop(parsed, None)

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(name, snapshot)` when an open table has changed, wherever that was committed.

        It is noticed at once when background work of this lake completes, everything else (own writes too) within
        `refresh_s`. Call the answer to stop.
        """
        return self._loaded.listen(listener)

    def adopt(
        self,
        name: str,
        path: str | Path,
        key: str | Iterable[str] | None = None,
        order_by: str | None = None,
        verify: bool = True,
    ) -> Table:
        """Take an existing Delta table, or a folder of Parquet files, as a table's base without copying its data."""
        from lithify.lake.adopt import adopt

        parsed = parse_table_name(name)
        allowed = partial(remember, self.path)
        adopt(self._runtime, self._catalog, parsed, _local_path(path), key, order_by, verify=verify, allowed=allowed)
        return self._created(name)

    def ingest(
        self,
        name: str,
        paths: str | Sequence[str],
        *,
        format: str | None = None,
        mode: str | None = None,
        key: str | Iterable[str] | None = None,
        order_by: str | None = None,
        time: str | None = None,
        partition_by: str | Iterable[str] = (),
        schema: Any = None,
        create: bool = False,
        on_bad_record: str = "fail",
        batch_id: str | None = None,
        encoding: str | None = None,
        progress: Progress | None = None,
    ) -> IngestReport:
        """Load CSV, JSON lines or Parquet files through Spark, as one commit.

        `create=True` creates the table first if it is missing, with `schema` or the columns found in the files.
        Records that do not fit fail the load with their place, or are set aside in a folder
        (`on_bad_record="quarantine"`). Text is UTF-8, or what a byte order mark or `encoding` says; files packed with
        gzip, zstd or bzip2 are recognised.
        """
        need("spark")
        encoding = check_encoding(encoding)
        parsed = parse_table_name(name)
        files = find_files(paths)
        kind = format_of(files, format)
        tell = progress or (lambda stage, fraction: None)
        at_seq = None
        created = create and not self._catalog.exists(parsed)
        if created:
            from lithify.spark.ingest import infer

            tell("looking at the columns", None)
            columns = _arrow_schema(schema) if schema is not None else infer(self._spark(), files, kind, encoding)
            table = self.create_table(name, columns, key, order_by, time, partition_by)
            at_seq = inside(table).handles.changes.created_at_seq
        try:
            return ingest(inside(self.table(name)).handles, files, kind, mode, on_bad_record, batch_id, tell, encoding)
        except LithifyError as error:
            if created and not isinstance(error, CommitUnknown):
                # Unless somebody wrote to it meanwhile: then it is theirs too.
                with contextlib.suppress(LithifyError):
                    self._catalog.drop(parsed, only_at_seq=at_seq)
            raise

    # -- upkeep

    def upkeep(self, tier: TierNames = None, tables: Sequence[str] | None = None) -> CycleReport:
        """One cycle of background work, now: settle what died, then fold, merge and compact whatever is due.

        `tier`: only that tier's work, or that of several. Raises `Conflict` with the running cycle's id, if one runs.
        """
        return self.maintenance.cycle.run(tier, tables)

    def trigger_upkeep(self, tier: TierNames = None, tables: Sequence[str] | None = None) -> str:
        """As `upkeep`, but in the background: answers the cycle's id as soon as it has begun. `close` ends it."""
        return self.maintenance.trigger(tier, tables)

    def start_upkeep(self, every_s: float | None = None) -> None:
        """Keep the lake in shape in the background from now on, until `close`, as `lithify run` does."""
        with self._lock:
            self._check_open()
            if self._scheduler is not None:
                raise InvalidRequest("upkeep of this lake has been started already; it ends with close")
            scheduler = self.maintenance.scheduler(every_s=every_s)
            scheduler.start()
            self._scheduler = scheduler

    def jobs(self) -> list[RunningJob]:
        """Background jobs under way, in whichever process."""
        from lithify.lake.maintenance import unfinished_jobs

        return Listed(unfinished_jobs(self))

    def ended_jobs(self, limit: int | None = None, table: str | None = None) -> list[dict[str, Any]]:
        """Jobs that ended, newest first."""
        from lithify.lake.maintenance import ended_jobs

        return ended_jobs(self, limit, table)

    def running_cycle(self) -> dict[str, Any] | None:
        """Who runs a cycle of background work on this lake now, if anybody."""
        from lithify.lake.maintenance import running_cycle

        return running_cycle(self)

    def past_cycles(self, limit: int | None = None) -> list[dict[str, Any]]:
        """What earlier cycles did, newest first."""
        from lithify.lake.maintenance import past_cycles

        return past_cycles(self, limit)

    def table_upkeep(self, name: str) -> dict[str, Any]:
        """A table's numbers, what is due on it, its last job, and what failed and waits to be tried again."""
        from lithify.lake.maintenance import table_upkeep

        return table_upkeep(self, name)

    @property
    def maintenance(self) -> Maintenance:
        """Background work of this lake in this process: its cycle, what is due, and what was asked for."""
        from lithify.lake.maintenance import Maintenance

        with self._lock:
            self._check_open()
            if self._upkeep is None:
                self._upkeep = Maintenance(self)
            return self._upkeep

    # -- pipelines

    def pipeline(self, name: str, declaration: Mapping[str, Any] | None = None) -> Pipeline:
        """A pipeline of lithify.toml, or one that is declared here: `{"steps": [{…}]}`."""
        from lithify.pipelines.pipeline import pipeline_of

        return pipeline_of(self, name, declaration)

    def pipelines(self) -> list[str]:
        """Names of the pipelines of lithify.toml."""
        from lithify.pipelines.pipeline import declared

        return list(declared(self))

    # -- SQL

    def sql(self, query: str, as_of: AsOf = None) -> pa.Table:
        """Run a SELECT on the serving engine. Every table is read fresh, each from one snapshot."""
        self._check_open()
        check_text("a query", query)
        return self._serving.sql(query, self._planned(as_of), self._names)

    def query(
        self,
        query: str,
        as_of: AsOf = None,
        *,
        id: str | None = None,
        timeout_s: float | None = None,
        rows_max: int | None = None,
        memory_bytes_max: int | None = None,
        may_read: MayRead | None = None,
        only: str | None = None,
        owner: str | None = None,
    ) -> Answer:
        """Run a SELECT in a process of its own, within limits, which are the settings' where none are given. What
        stopped it stands in the error's `details["limit"]`.

        At most `queries_max` run at once, `token_queries_max` of them for one `owner`; the others wait for
        `query_wait_s_max`. `id` names the query for `cancel`; `may_read(name)` is asked before a table is opened, and
        of other tables the files cannot be read there. `only`: the one table that this query may name.
        """
        with self._inside.limited(
            query,
            id=id,
            timeout_s=timeout_s,
            rows_max=rows_max,
            memory_bytes_max=memory_bytes_max,
            may_read=may_read,
            owner=owner,
        ) as within:
            outcome = self._serving.run(query, self._planned(as_of, may_read, only), self._names, within)
            seconds = time.monotonic() - within.started_at
            self._runtime.activity.answered(outcome.source, outcome.rows.num_rows, seconds, cut=outcome.cut)
            return Answer(within.id, outcome.rows, outcome.cut, seconds, outcome.source, outcome.snapshots)

    def cancel(self, id: str) -> bool:
        """Stop a query, or take it out of the line. True if there was one."""
        check_text("the id of a query", id)
        return self._queries.cancel(id)

    def queries(self) -> list[RunningQuery]:
        """Queries of `query` that run or wait now, the oldest first."""
        return Listed(self._queries.list())

    def explain(
        self, query: str, as_of: AsOf = None, *, may_read: MayRead | None = None, within: QueryRun | None = None
    ) -> list[TableExplanation]:
        """What `sql` would read of each table that the query names, and why. Nothing is run. `within`: it is planned
        in a process of its own (`limited`).
        """
        self._check_open()
        check_text("a query", query)
        planned = self._planned(as_of, may_read)
        resolved: dict[tuple[str, int, int], bool] = {}

        def table_of(namespace: str, name: str) -> PlannedTable | None:
            found = planned(namespace, name)
            if found is not None:
                open_table = self._loaded.get(TableName(namespace, name))
                resolved[found.snapshot.identity] = open_table.reader.keeps(found.snapshot)
            return found

        uses = self._serving.explain(query, table_of, self._names, within)
        return Listed(explanation_of(use, resolved=resolved[use.plan.snapshot.identity]) for use in uses)

    def _planned(
        self, as_of: AsOf, may_read: MayRead | None = None, only: str | None = None
    ) -> Callable[[str, str], PlannedTable | None]:
        def table_of(namespace: str, table: str) -> PlannedTable | None:
            name = f"{namespace}.{table}"
            if (may_read is not None and not may_read(name)) or only not in (None, name):
                raise Forbidden(f"this token may not read table {name}: use one that may", table=name)
            if not is_table_name(name):
                return None  # quoted, it may be anything, a path too: nothing on disk is asked about it
            try:
                return self._loaded.read(TableName(namespace, table), lambda found: found.planned(as_of))
            except (InvalidRequest, NotFound):
                if self._catalog.exists(TableName(namespace, table)):
                    raise
                return None

        return table_of

    def _names(self) -> dict[str, set[str]]:
        names: dict[str, set[str]] = {}
        for name in self._catalog.tables():
            names.setdefault(name.namespace, set()).add(name.table)
        return names

    @property
    def cache(self) -> Cache:
        """Tables and answers that are kept in memory."""
        return Cache(self._runtime, self._serving, self._reader_of)

    def _reader_of(self, name: str) -> Reader:
        return inside(self.table(name)).reader

    @property
    def spark(self) -> SparkSession:
        """The Spark session of this lake; starts one if none was given."""
        return self._spark()

    def _spark(self) -> SparkSession:
        need("spark")
        from lithify.spark.executors import prepare

        session = self._session()
        prepare(session, self.path, self._settings.spark_wait_s_max)
        return session

    def _session(self) -> SparkSession:
        with self._lock:
            self._check_open()
            if self._shared_spark is not None:
                return self._shared_spark
            from lithify.spark.session import SparkOptions, is_alive, local_session

            if self._own_spark is None or not is_alive(self._own_spark):
                chosen = spark_choice(self._settings, "spark_")
                self._own_spark = local_session(SparkOptions(**chosen, extra_conf=self._settings.spark_conf))
            return self._own_spark

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequest("this lake is closed: open it again with Lake(path)")


class LakeInside:
    """What a lake is made of, and what it does for those who run it."""

    def __init__(self, lake: Lake) -> None:
        self._lake, self.shared_spark = lake, lake._shared_spark
        self.runtime, self.catalog, self.open_tables = lake._runtime, lake._catalog, lake._loaded

    @property
    def maintenance(self) -> Maintenance:
        return self._lake.maintenance

    @property
    def scheduler(self) -> Scheduler | None:
        """What `start_upkeep` has started, if it has."""
        return self._lake._scheduler

    @contextlib.contextmanager
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
        """A place among the queries that run, and the limits for whatever is asked there: what `explain` and a table's
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
        with self.runtime.activity.asked(), self._lake._queries.running(text, id, owner) as run:
            yield QueryRun(limits, run, may_read)

    def warm(self) -> None:
        """Start what queries within limits run in, so that the first need not wait for it."""
        self.runtime.serving.processes.warm(min(self.runtime.settings.queries_max, os.cpu_count() or 1), self._folders)

    def _folders(self) -> dict[str, tuple[str, ...]]:
        """Where the files of tables lie, as far as that can be told without opening them."""
        names, root = self.catalog.tables()[:TABLES_KNOWN_MAX], self.runtime.root
        return {str(name): tuple(f"{root}/{name.namespace}/{name.table}/{part}" for part in DATA) for name in names}


def reopened_table(path: PurePath, name: str, spark: SparkSession) -> Table:
    """A table in the process that its writer was sent to, on a lake of its own that lasts as long as the process."""
    return Lake(str(path), spark, create=False).table(name)


def _arrow_schema(schema: Any) -> pa.Schema:
    if isinstance(schema, pa.Schema):
        return schema
    if type(schema).__module__.startswith("pyspark."):
        from lithify.spark.types import arrow_schema

        return arrow_schema(schema)
    if hasattr(schema, "__arrow_c_schema__"):
        try:
            return pa.schema(schema)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidRequest(f"schema is a pyarrow or Spark schema, not {type(schema).__name__}") from error
    raise InvalidRequest(f"schema is a pyarrow or Spark schema, not {type(schema).__name__}")


def _local_path(path: str | Path) -> Path:
    text = str(path)
    if "://" in text:
        parts = urlsplit(text)
        if parts.scheme in ("http", "https"):
            raise InvalidRequest(
                f"{text} is an address, not a folder: for a service use lithify.connect, or --server in place of --lake"
            )
        if parts.scheme != "file":
            raise InvalidRequest(
                f"{text}: only local folders (and file:// addresses) can be lakes so far, not {parts.scheme}://"
            )
        text = unquote(parts.path)
    return user_path(text)
