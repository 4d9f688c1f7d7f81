"""A lake as its users see it: a folder with tables in it. `lake/internals.py` puts its pieces together."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

import pyarrow as pa

from lithify.core.arguments import check_text
from lithify.core.html import ROWS_MAX, Listed, table_html
from lithify.core.lake_methods import LakeMethods, Wish, counts
from lithify.core.names import TableName, parse_table_name
from lithify.core.optional import need
from lithify.core.results import ErasurePlan, Executed, TableExplanation
from lithify.core.schema import TableSchema
from lithify.errors import CommitUnknown, InvalidRequest, LithifyError, NotFound
from lithify.files.storage import Storage
from lithify.files.text_input import check_encoding
from lithify.files.user_files import find_files, named_place
from lithify.lake.allowed_folders import remember
from lithify.lake.cache import Cache
from lithify.lake.catalog_queries import catalog_answer
from lithify.lake.internals import LakeInternals, internals
from lithify.lake.open_tables import AsOf, Listener
from lithify.lake.queries import explain_query, run_query
from lithify.lake.statements import execute
from lithify.lake.table import Table
from lithify.options.table_options import MissingColumns
from lithify.options.tiers import TierNames
from lithify.settings import Settings
from lithify.sql.limits import Answer, RunningQuery
from lithify.sql.parameters import Parameters, bound
from lithify.sql.statements.first_word import is_statement
from lithify.write.ingest import IngestReport, Progress, format_of, ingest
from lithify.write.ingest_here import columns_in, reads_here

if TYPE_CHECKING:
    from pathlib import PurePath

    from pyspark.sql import DataFrame, SparkSession

    from lithify.erasure.erasure import Erasure
    from lithify.lake.maintenance import Maintenance
    from lithify.lake.pipeline_runner import PipelineRunner
    from lithify.maintenance.reports import CycleReport, RunningJob
    from lithify.pipelines.pipeline import Pipeline
    from lithify.pipelines.reports import PipelinePlan
    from lithify.pipelines.status import PipelineStatus


class Lake(LakeMethods[Table]):
    """Open a lake, or create one in an empty or new folder, or at `s3://bucket/prefix`.

    A new one is told of in a line, and its parent folder has to be there: a path that is misspelt does not become a
    lake. `create=True`: nothing is said, and folders are made as needed. `create=False`: it has to be there.

    Pass `spark` to share a running session; otherwise one is started when bulk work first needs it, and given
    back by `close`.
    """

    def __init__(
        self,
        path: str | PurePath,
        spark: SparkSession | None = None,
        *,
        create: bool | None = None,
        settings: Settings | None = None,
        store: Storage | None = None,
    ) -> None:
        self.path = named_place(path)
        self._internals = LakeInternals(self.path, spark, create=create, settings=settings, store=store)
        self._runtime, self._loaded = self._internals.runtime, self._internals.open_tables
        self._catalog, self._serving = self._internals.catalog, self._runtime.serving
        self._lock = threading.RLock()
        # No cache: that a table is always the same object is seen by those who hold it.
        self._tables: WeakValueDictionary[tuple[TableName, str], Table] = WeakValueDictionary()

    def __repr__(self) -> str:
        return f"Lake({str(self.path)!r})"

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
        if self._internals.scheduler is not None:
            self._internals.scheduler.stop()
        elif self._internals.maintenance is not None:
            self._internals.maintenance.stop()
        runner = self._internals.pipeline_runner
        if runner is not None:
            runner.stop()
        self._internals.close()
        if runner is not None:
            runner.join()

    # -- tables

    def _create(
        self, name: TableName, definition: TableSchema, if_not_exists: bool, options: Mapping[str, Any] | None
    ) -> Table:
        if self._catalog.create(name, definition, if_not_exists=if_not_exists, options=options):
            self._loaded.forget(name)  # one whose folder was lost may still be open
            return self._created(str(name))
        return self.table(str(name))

    def _arrow_schema(self, schema: Any, kinds: str = "pyarrow or Spark") -> pa.Schema:
        if type(schema).__module__.startswith("pyspark."):
            from lithify.spark.schemas import arrow_schema

            return arrow_schema(schema)
        return super()._arrow_schema(schema, kinds)

    def _columns_of(self, files: Sequence[str], kind: str, encoding: str | None) -> pa.Schema:
        if reads_here(files, self._runtime.settings):
            return columns_in(files, kind, encoding)
        need("spark")
        from lithify.spark.ingest import infer

        return infer(self.spark, files, kind, encoding)

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
        """Open a table. The same object is answered while it is held and the table lives."""
        found = self._internals.table(name)
        with self._lock:
            return self._tables.setdefault((found.name, found.incarnation), Table(found))

    def tables(self) -> list[str]:
        return [str(name) for name in self._catalog.tables()]

    def drop_table(self, name: str) -> None:
        parsed = parse_table_name(name)
        self._loaded.check_open()
        self._internals.drop(parsed)

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(name, snapshot)` when an open table has changed, wherever that was committed.

        It is noticed at once when maintenance of this lake completes, everything else (own writes too) within
        `refresh_s`. Call the answer to stop.
        """
        return self._loaded.listen(listener)

    def adopt(
        self,
        name: str,
        path: str | PurePath,
        key: str | Iterable[str] | None = None,
        order_by: str | Iterable[str] | None = None,
        verify: bool = True,
    ) -> Table:
        """Take an existing Delta table, or a folder of Parquet files, as a table's base without copying its data."""
        from lithify.lake.adopt import adopt

        parsed = parse_table_name(name)
        allowed = partial(remember, self.path)
        adopt(self._runtime, self._catalog, parsed, named_place(path), key, order_by, verify=verify, allowed=allowed)
        return self._created(name)

    def ingest(
        self,
        name: str,
        paths: str | Sequence[str],
        *,
        format: str | None = None,
        mode: str | None = None,
        key: str | Iterable[str] | None = None,
        order_by: str | Iterable[str] | None = None,
        time: str | None = None,
        partition_by: str | Iterable[str] = (),
        schema: Any = None,
        create: bool = False,
        on_bad_record: str = "fail",
        batch_id: str | None = None,
        encoding: str | None = None,
        missing: MissingColumns | None = None,
        progress: Progress | None = None,
    ) -> IngestReport:
        """Load CSV, JSON lines or Parquet files, as one commit. Spark is started for very many of them alone (the
        setting `local_ingest_bytes_max`).

        `create=True` creates the table first if it is missing, with `schema` or the columns found in the files.
        Records that do not fit fail the load with their place, or are set aside in a folder
        (`on_bad_record="quarantine"`). Text is UTF-8, or what a byte order mark or `encoding` says; files packed with
        gzip, zstd or bzip2 are recognised. `missing`: what becomes of columns that records lack, as for
        `upsert`; in a table that is created now they are null.
        """
        encoding = check_encoding(encoding)
        parsed = parse_table_name(name)
        files = find_files(paths)
        kind = format_of(files, format)
        tell = progress or (lambda stage, fraction: None)
        at_seq = None
        created = create and not self._catalog.exists(parsed)
        if created:
            tell("looking at the columns", None)
            columns = self._columns_of(files, kind, encoding) if schema is None else self._arrow_schema(schema)
            table = self.create_table(name, columns, key, order_by, time, partition_by)
            at_seq = internals(table).handles.changes.created_at_seq
            missing = missing or "null"  # nothing is there to be lost
        try:
            return ingest(
                self._internals.table(name).handles, files, kind, mode, on_bad_record, batch_id, tell, encoding, missing
            )
        except LithifyError as error:
            if created and not isinstance(error, CommitUnknown):
                # Unless somebody wrote to it meanwhile: then it is theirs too.
                with contextlib.suppress(LithifyError):
                    self._catalog.drop(parsed, only_at_seq=at_seq)
            raise

    # -- maintenance

    def _maintenance(self) -> Maintenance:
        from lithify.lake.maintenance import maintenance_of

        return maintenance_of(self)

    def maintain(self, tier: TierNames = None, tables: Sequence[str] | None = None) -> CycleReport:
        """One cycle of maintenance, now: recover what died, then fold, merge and compact whatever is due.

        `tier`: only that tier's work, or that of several. Raises `Conflict` with the running cycle's id, if one runs.
        """
        return self._maintenance().cycle.run(tier, tables)

    def trigger_maintenance(self, tier: TierNames = None, tables: Sequence[str] | None = None) -> str:
        """As `maintain`, but in the background: answers the cycle's id as soon as it has begun. `close` ends it."""
        return self._maintenance().trigger(tier, tables)

    def start_maintenance(self, every_s: float | None = None) -> None:
        """Keep the lake in shape in the background from now on, until `close`, as `lithify run` does."""
        with self._internals.making:
            self._loaded.check_open()
            if self._internals.scheduler is not None:
                raise InvalidRequest("maintenance of this lake has been started already; it ends with close")
            scheduler = self._maintenance().scheduler(every_s=every_s)
            scheduler.start()
            self._internals.scheduler = scheduler

    def jobs(self) -> list[RunningJob]:
        """Background jobs under way, in whichever process, and how far each has come."""
        from lithify.lake.running_jobs import running_jobs

        return Listed(running_jobs(self))

    def cancel_job(self, id: str) -> bool:
        """End a job that is under way, in whichever process, or the cycle that runs: what it staged goes, what is
        committed stays. It ends at its next step, in another process within seconds. False: nothing of this id is under
        way. Raises `Conflict` where it is too late.
        """
        from lithify.lake.running_jobs import cancel_job

        return cancel_job(self, id, f"by {self._runtime.settings.actor}")

    def ended_jobs(self, limit: int | None = None, table: str | None = None) -> list[dict[str, Any]]:
        """Jobs that ended, newest first."""
        from lithify.lake.maintenance import ended_jobs

        return ended_jobs(self, limit, table)

    def running_cycle(self) -> dict[str, Any] | None:
        """Who runs a cycle of maintenance on this lake now, if anybody."""
        from lithify.lake.maintenance import running_cycle

        return running_cycle(self)

    def past_cycles(self, limit: int | None = None) -> list[dict[str, Any]]:
        """What earlier cycles did, newest first."""
        from lithify.lake.maintenance import past_cycles

        return past_cycles(self, limit)

    def table_maintenance(self, name: str) -> dict[str, Any]:
        """A table's numbers, what is due on it, its last job, and what failed and waits to be tried again."""
        from lithify.lake.maintenance import table_maintenance

        return table_maintenance(self, name)

    # Names that they had before, and still have.
    upkeep, trigger_upkeep, start_upkeep, table_upkeep = (
        maintain,
        trigger_maintenance,
        start_maintenance,
        table_maintenance,
    )

    # -- erasure

    def erase(
        self,
        name: str,
        keys: Any = None,
        *,
        where: str | None = None,
        history: Literal["rewrite", "cut"] = "rewrite",
        reason: str | None = None,
        actor: str | None = None,
        rows_max: int = 1000,
        break_pins: bool = False,
        dry_run: bool = False,
    ) -> Erasure | ErasurePlan:
        """Erase rows from a table, its past and its files (docs/erasure.md). When it returns they are hidden: no read
        of the table shows them. `wait` does the rest, or maintenance does, and then there is a receipt.

        `keys` as for `delete`, or `where`: the rows that a condition holds for now. Every version stays readable, as if
        the rows had never been there; with `history="cut"` nothing older than the erasure can be read afterwards, by
        anybody. `reason` and `actor` stand on the receipt. More than `rows_max` rows are refused. Pinned versions with
        the rows hold it up, unless `break_pins`; before a cut all pins and tags do. `dry_run`: only tell what would
        go. Not on a lake in a bucket, on a table without a key, or an adopted one.
        """
        self._loaded.check_open()
        need("erase")
        from lithify.erasure.erasure import erase

        return erase(
            self._internals.erasures,
            name,
            keys,
            where,
            history=history,
            reason=reason,
            actor=actor,
            rows_max=rows_max,
            break_pins=break_pins,
            dry_run=dry_run,
        )

    def erasures(self) -> list[Erasure]:
        """All erasures of this lake, oldest first."""
        self._loaded.check_open()
        need("erase")
        from lithify.erasure.erasure import erasures

        return Listed(erasures(self._internals.erasures))

    def erasure(self, id: str) -> Erasure:
        """One erasure by its id: to wait for it, cancel it, or read its receipt."""
        self._loaded.check_open()
        need("erase")
        from lithify.erasure.erasure import erasure

        return erasure(self._internals.erasures, id)

    # -- pipelines

    def pipeline(self, name: str, declaration: Mapping[str, Any] | None = None) -> Pipeline:
        """A pipeline of lithify.toml, or one that is declared here: `{"steps": [{…}]}`."""
        from lithify.pipelines.pipeline import pipeline_of

        return pipeline_of(self._internals.pipelines, name, declaration)

    def pipelines(self) -> list[str]:
        """Names of the pipelines of lithify.toml."""
        from lithify.pipelines.declaration import parse_pipelines

        return list(parse_pipelines(self._runtime.settings.pipelines))

    def start_pipelines(self) -> None:
        """Run declared pipelines and streams by their schedules from now on, until `close`, as `lithify run` does."""
        self.pipeline_runner.start()

    def pipeline_status(self, name: str | None = None) -> list[PipelineStatus]:
        """How declared pipelines and streams are, or one of them: what runs, what ran, how far behind each step is."""
        runner = self.pipeline_runner
        return Listed(runner.status(each) for each in (runner.entries if name is None else [name]))

    def pipeline_runs(self, name: str, limit: int | None = None) -> list[dict[str, Any]]:
        """What earlier runs of a declared pipeline or stream did, newest first. Those that found nothing to do are not
        among them.
        """
        from lithify.pipelines.pipeline import history

        return history(self._runtime, self.pipeline_runner.entry(name).name, limit)

    def plan_pipeline(self, name: str, *, full: bool = False, step: str | None = None) -> PipelinePlan:
        """What a run of a declared pipeline or stream would do now. Nothing is written."""
        return self.pipeline_runner.plan(name, full=full, step=step)

    def trigger_pipeline(self, name: str, *, full: bool = False, step: str | None = None) -> str:
        """Run a declared pipeline or stream now, in the background; answers the run's id. Raises `Conflict` while it
        runs, wherever that is.
        """
        return self.pipeline_runner.trigger(name, full=full, step=step)

    @property
    def pipeline_runner(self) -> PipelineRunner:
        """What is declared in the settings of this lake, as this process knows it."""
        from lithify.lake.pipeline_runner import PipelineRunner

        with self._internals.making:
            self._loaded.check_open()
            if self._internals.pipeline_runner is None:
                self._internals.pipeline_runner = PipelineRunner(self)
            return self._internals.pipeline_runner

    # -- SQL

    def sql(self, query: str, as_of: AsOf = None, *, parameters: Parameters = None) -> pa.Table:
        """Run a SELECT on the serving engine. Every table is read fresh, each from one snapshot. Of a statement that
        writes (`execute`) the answer is one row of counts. `parameters`: values for $1, $2, … or :name.
        """
        self._loaded.check_open()
        check_text("a query", query)
        if is_statement(query):
            if as_of is not None:
                raise InvalidRequest("as_of is for reading: a statement that writes goes by the newest rows")
            return counts(self.execute(query, parameters))
        if (answer := catalog_answer(self._internals, query)) is not None:
            return answer
        query, table_of = self._internals.planned_in(bound(query, parameters), as_of)
        return self._serving.sql(query, table_of, self._internals.names)

    def _execute(self, statement: str, parameters: Parameters, wish: Wish) -> Executed:
        self._loaded.check_open()
        return execute(self._internals, statement, parameters, wish)

    def spark_sql(
        self,
        text: str,
        parameters: Parameters = None,
        *,
        dry_run: bool = False,
        batch_id: str | None = None,
        actor: str | None = None,
        reason: str | None = None,
        **frames: DataFrame,
    ) -> DataFrame | Executed:
        """SQL on Spark: a SELECT, which is answered with a DataFrame, or a statement that writes, as `execute` takes
        it. Tables of the lake go by their full names, DataFrames by those that they are given here (`df=frame`), and
        views and tables of the session by theirs. A statement is one commit, whatever its size.
        """
        from lithify.lake.spark_sql import spark_sql

        self._loaded.check_open()
        return spark_sql(self._internals, text, parameters, frames, Wish(dry_run, batch_id, actor, reason))

    def query(
        self,
        query: str,
        as_of: AsOf = None,
        *,
        id: str | None = None,
        timeout_s: float | None = None,
        rows_max: int | None = None,
        memory_bytes_max: int | None = None,
    ) -> Answer:
        """Run a SELECT in a process of its own, within limits, which are the settings' where none are given. What
        stopped it stands in the error's `details["limit"]`.

        At most `queries_max` run at once; the others wait for `query_wait_s_max`. `id` names the query for `cancel`.
        """
        return run_query(
            self._internals,
            query,
            as_of,
            id=id,
            timeout_s=timeout_s,
            rows_max=rows_max,
            memory_bytes_max=memory_bytes_max,
        )

    def cancel(self, id: str) -> bool:
        """Stop a query, or take it out of the line. True if there was one."""
        check_text("the id of a query", id)
        return self._internals.queries.cancel(id)

    def queries(self) -> list[RunningQuery]:
        """Queries of `query` that run or wait now, the oldest first."""
        return Listed(self._internals.queries.list())

    def explain(self, query: str, as_of: AsOf = None) -> list[TableExplanation]:
        """What `sql` would read of each table that the query names, and why. Nothing is run."""
        return explain_query(self._internals, query, as_of)

    @property
    def cache(self) -> Cache:
        """Tables and answers that are kept in memory."""
        return Cache(self._runtime, self._serving, lambda name: self._internals.table(name).reader)

    @property
    def spark(self) -> SparkSession:
        """The Spark session of this lake; starts one if none was given."""
        return self._internals.spark()
