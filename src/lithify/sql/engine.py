"""The serving engine: SELECT only, over one snapshot of every table a query names.

A query is looked at before it runs: planned over empty tables of the right types, it shows which columns and rows it
asks of each table (`pushdown`). Each table's own plan then leaves only the files and row groups that can matter; what
is small is read into memory (`scan_memory`), the rest is scanned where it lies (`scan_files`), and the query runs over
that. Both times it sees the same snapshots.

Tables are looked up while a query is planned, so only those it names are opened; each is opened once per query. SQL
cannot read files: there is no function for it, and DDL, DML and SET are refused before anything runs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from datafusion import DataFrame, SessionContext
from datafusion.catalog import Schema, Table

from lithify.cache.memory_account import MemoryAccount
from lithify.cache.results import ResultCache
from lithify.core.names import TableRef, quoted
from lithify.core.predicates import UNKNOWN, Predicate
from lithify.core.read_plan import PlannedTable, ReadPlan, RowsInMemory, Summary
from lithify.core.snapshot import Snapshot
from lithify.core.sql_text import tables_named
from lithify.errors import InvalidRequest, LithifyError
from lithify.files.read_proof import look_again
from lithify.sql.analysis import READ_ONLY, AnalysisCache, Care, QueryAnalysis, analyse, planned_alike
from lithify.sql.cheap_to_plan import check_cheap_condition, check_explained, is_cheap_to_plan
from lithify.sql.contexts import Contexts, Session
from lithify.sql.empty_catalog import CATALOG, NAMESPACE, EmptyCatalog, EmptyTables, Names, TableOf
from lithify.sql.errors import is_exhausted, translated_errors
from lithify.sql.guard import check_condition, check_text, normalised
from lithify.sql.hot_views import ONE_THREAD_ROWS_MAX, HotViews
from lithify.sql.isolated.messages import Columns, Explain, Parse, Read, Select, Task
from lithify.sql.isolated.pool import Isolated, ProcessLimits, QueryProcesses
from lithify.sql.key_queries import KeyQueries
from lithify.sql.key_rows import KeyRows
from lithify.sql.limits import Limits
from lithify.sql.limits import Source as AnswerSource
from lithify.sql.nested_loops import check_nested_loops, is_of_nested_loop
from lithify.sql.pushdown import NOT_READ, ScanRequest
from lithify.sql.query_run import QueryRun, collect, cut
from lithify.sql.scan_files import memory_table, must_doubt, relation
from lithify.sql.scan_memory import GroupReader, TooLarge, fits_memory, rows_in_memory
from lithify.sql.statements.model import Statement

ENGINE_FAULT = "Internal error"
SPILL_BYTES_MAX = 8 * 2**30
# Longer texts are not looked at here: they have no kept answers.
CACHED_TEXT_MAX = 16 * 2**10


@dataclass(frozen=True)
class TableUse:
    """What a query would read of one table: nothing, if the index alone answers it (`from_summary`) or its rows are in
    memory (`hot`).
    """

    ref: TableRef
    planned: PlannedTable
    plan: ReadPlan
    predicate: Predicate
    note: str | None
    from_summary: bool
    hot: bool


@dataclass(frozen=True)
class Outcome:
    """`source`: a kept answer, hot tables, or files. `snapshots`: the sequence number of each table's snapshot, by its
    name.
    """

    rows: pa.Table
    cut: bool
    source: AnswerSource
    snapshots: Mapping[str, int]


@dataclass(frozen=True)
class Found:
    """Rows that were found here. `repeatable`: the same query over the same snapshots finds them again."""

    rows: pa.Table
    cut: bool
    hot: bool
    repeatable: bool


class ServingEngine:
    """`limits` are those of queries in processes of their own, of which `processes_max` are kept while nobody asks."""

    def __init__(
        self,
        memory_bytes_max: int,
        threads: int | None = None,
        cache_bytes_max: int = 0,
        limits: ProcessLimits | None = None,
        processes_max: int = 4,
    ) -> None:
        self._limits = limits or ProcessLimits(memory_bytes_max, SPILL_BYTES_MAX, memory_bytes_max, SPILL_BYTES_MAX)
        self._contexts = Contexts(memory_bytes_max, threads)
        self.cache = MemoryAccount(cache_bytes_max)
        self.answers = ResultCache(self.cache)
        self._groups = GroupReader(threads)
        self.footers = self._groups.footers
        self.key_queries = KeyQueries(self._contexts, KeyRows(self.footers, threads or os.cpu_count() or 1))
        self._empty = EmptyTables()
        self._analyses = AnalysisCache()
        # Where rows become tables that queries are given; it keeps none itself.
        self._scratch = SessionContext()
        self._hot = HotViews(self._scratch, threads or os.cpu_count() or 1)
        self.processes = QueryProcesses(self.cache.memory, processes_max)

    def sql(self, query: str, table_of: TableOf, names: Names) -> pa.Table:
        """Run one SELECT in this process, unless its text alone shows what it could do to it. `table_of(namespace,
        table)` answers None for a table that does not exist; it must not run a query itself, which waits until the
        table is asked for its plan.
        """
        return self._run(query, table_of, names, QueryRun(), here=is_cheap_to_plan(check_text(query))).rows

    def run(self, query: str, table_of: TableOf, names: Names, within: QueryRun) -> Outcome:
        """Run one SELECT in a process of its own."""
        return self._run(query, table_of, names, within, here=False)

    def rows_of(
        self, query: str, table_of: TableOf, names: Names, course: QueryRun, *, isolated: bool
    ) -> tuple[pa.Table, bool]:
        """Rows of one SELECT that was made of a statement, and whether there would be more, over exactly the tables
        that `table_of` gives: nothing is kept of it, and files that vanish are the caller's to look for again.
        """
        if not isolated and is_cheap_to_plan(check_text(query, made=True)):
            found = self._run_checked(query, table_of, names, course.limits)
            return found.rows, found.cut
        answer = self._isolated(Select(query, course.limits.rows_max, made=True), table_of, names, course)
        assert answer.rows is not None
        return answer.rows, bool(answer.answer[0])

    def parsed(self, text: str, within: QueryRun | None = None) -> Statement:
        """What a statement that writes says. `within`: it is parsed in a process of its own."""
        if within is None:
            return parsed_here(text)
        statement: Statement = self._isolated(Parse(text), lambda namespace, name: None, dict, within).answer
        return statement

    def _run(self, query: str, table_of: TableOf, names: Names, course: QueryRun, *, here: bool) -> Outcome:
        """Files that vanish under it mean new snapshots."""
        return look_again(lambda: self._outcome(query, table_of, names, course, here=here))

    def _outcome(self, query: str, table_of: TableOf, names: Names, course: QueryRun, *, here: bool) -> Outcome:
        opened: dict[TableRef, PlannedTable] = {}

        def noted(namespace: str, name: str) -> PlannedTable | None:
            ref = namespace, name
            if ref not in opened and (found := table_of(namespace, name)) is not None:
                opened[ref] = found
            return opened.get(ref)

        key = None if len(query) > CACHED_TEXT_MAX else (normalised(query), course.limits.rows_max)
        if key is not None:
            cached = self.answers.find(key, lambda ref: _identity(noted(*ref)))
            if cached is not None:
                return Outcome(cached.rows, cached.cut, "answer", cached.seqs)
        if here:
            found = self._run_checked(query, noted, names, course.limits)
        else:
            likely = () if key is None else tables_named(query)
            isolated = self._isolated(Select(query, course.limits.rows_max), noted, names, course, likely)
            assert isolated.rows is not None
            found = Found(isolated.rows, *isolated.answer)
            opened = {ref: opened[ref] for ref in isolated.used}
        snapshots = {f"{namespace}.{name}": planned.snapshot.seq for (namespace, name), planned in opened.items()}
        # What is in an answer today may have expired tomorrow.
        lasting = all(planned.snapshot.cutoff is None for planned in opened.values())
        if found.repeatable and lasting and key is not None:
            identities = {ref: planned.snapshot.identity for ref, planned in opened.items()}
            self.answers.keep(key, found.rows, found.cut, identities, snapshots)
        return Outcome(found.rows, found.cut, "hot" if found.hot else "files", snapshots)

    def _isolated(
        self, task: Task, table_of: TableOf, names: Names, course: QueryRun, likely: Sequence[TableRef] = ()
    ) -> Isolated:
        memory_max = course.limits.memory_bytes_max or self._limits.memory_bytes_max
        limits = replace(self._limits, memory_bytes_max=memory_max)
        return self.processes.run(task, table_of, names, course, limits, likely)

    def run_here(self, query: str, table_of: TableOf, names: Names, limits: Limits, *, made: bool = False) -> Found:
        """Run one SELECT in this process, whatever it does to it."""
        check_text(query, made=made)
        return self._run_checked(query, table_of, names, limits)

    def _run_checked(self, query: str, table_of: TableOf, names: Names, limits: Limits) -> Found:
        course = QueryRun(limits)
        catalog = self._catalog(table_of, names)
        with translated_errors(catalog):
            analysis = self._analysed(query, catalog)
            analysis.memory_bytes_max = limits.memory_bytes_max
            answer = analysis.shortcut()
            rows = self._collected(analysis, course) if answer is None else cut(answer, course)
            return Found(rows, course.cut, analysis.uses_hot, analysis.repeatable)

    def explain(self, query: str, table_of: TableOf, names: Names, within: QueryRun | None = None) -> list[TableUse]:
        """What `sql` would read of each table, in the order in which the query names them. Nothing is run. `within`: it
        is planned in a process of its own.
        """
        return look_again(lambda: self._explained(query, table_of, names, within))

    def _explained(self, query: str, table_of: TableOf, names: Names, within: QueryRun | None) -> list[TableUse]:
        opened: dict[TableRef, PlannedTable] = {}

        def noted(namespace: str, name: str) -> PlannedTable | None:
            if (found := table_of(namespace, name)) is not None:
                opened[namespace, name] = found
            return found

        if within is None:
            check_explained(query)
            asked = self.look_for(query, noted, names)
        else:
            asked = self._isolated(Explain(query), noted, names, within).answer
        return [
            TableUse(
                ref,
                planned := opened[ref],
                planned.plan(None if request.predicate == UNKNOWN else request.predicate, request.needed),
                request.predicate,
                request.note,
                from_summary,
                request.note != NOT_READ and planned.hot(request.columns) is not None,
            )
            for ref, request, from_summary in asked
        ]

    def look_for(self, query: str, table_of: TableOf, names: Names) -> list[tuple[TableRef, ScanRequest, bool]]:
        """What a query asks of each table, and whether the index alone answers it."""
        check_text(query)
        catalog = self._catalog(table_of, names)
        with translated_errors(catalog):
            analysis = self._analysed(query, catalog)
            from_summary = analysis.shortcut() is not None
            return [(ref, analysis.requests[ref], from_summary) for ref in catalog.opened]

    def columns_of(self, schema: pa.Schema, where: str, within: QueryRun | None = None) -> list[str]:
        """The columns a condition reads. `within`: in a process of its own."""
        if within is None:
            return self.key_queries.columns_of(schema, where)
        answer = self._isolated(Columns(schema, where), lambda namespace, name: None, dict, within).answer
        return [str(name) for name in answer]

    def read_where(
        self, table: PlannedTable, columns: Sequence[str], where: str, within: QueryRun | None = None
    ) -> pa.Table:
        """Rows of one table that a condition holds for. `within`: in a process of its own."""
        if within is None:
            return self.read(table, columns, where)
        ref = NAMESPACE, "t"
        found = self._isolated(
            Read(ref, tuple(columns), where),
            lambda namespace, name: table if (namespace, name) == ref else None,
            lambda: {NAMESPACE: {"t"}},
            within,
        )
        assert found.rows is not None
        return found.rows

    def warm(self) -> None:
        """Start what a first query would wait for."""
        self._contexts.context(CATALOG, NAMESPACE).sql_with_options("SELECT 1", READ_ONLY).to_arrow_table()

    def read(
        self,
        table: PlannedTable | ReadPlan,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        limit: int | None = None,
        tame: bool = True,
    ) -> pa.Table:
        """Rows of one table, in its own types, at most `limit` of them. `tame`: refuse conditions that could take this
        process down.
        """
        planned = _Fixed(table) if isinstance(table, ReadPlan) else table
        schema = planned.schema
        wanted = list(columns) if columns is not None else schema.names
        for name in wanted:
            if name not in schema.names:
                raise InvalidRequest(
                    f"column {name!r} is not in table {planned.snapshot.table}: it has {', '.join(schema.names)}"
                )
        target = schema.select(wanted)
        query = f"SELECT {', '.join(map(quoted, wanted))} FROM {NAMESPACE}.t" + _where(where, tame=tame)
        result = self._read_one(planned, query if limit is None else f"{query} LIMIT {limit}")
        return result.cast(pa.schema([f.with_nullable(True) for f in target])).cast(target)

    def count(self, table: PlannedTable, where: str | None = None) -> int:
        """How many rows of one table a condition holds for; of all of them the index may tell."""
        query = f"SELECT count(*) FROM {NAMESPACE}.t" + _where(where, tame=True)
        return int(self._read_one(table, query).column(0)[0].as_py())

    def _read_one(self, planned: PlannedTable, query: str) -> pa.Table:
        catalog = self._catalog(
            lambda namespace, name: planned if (namespace, name) == (NAMESPACE, "t") else None,
            lambda: {NAMESPACE: {"t"}},
        )
        with translated_errors(catalog):
            analysis = self._analysed(query, catalog)
            answer = analysis.shortcut()
            return self._collected(analysis, QueryRun()) if answer is None else answer

    def _catalog(self, table_of: TableOf, names: Names) -> EmptyCatalog:
        return EmptyCatalog(table_of, names, self._empty)

    def _analysed(self, query: str, catalog: EmptyCatalog) -> QueryAnalysis:
        if (analysis := self._analyses.again(query, catalog)) is None:
            analysis = analyse(query, self._contexts.context(CATALOG, NAMESPACE), catalog)
            self._analyses.keep(query, analysis)
        catalog.plan_text = analysis.text
        return analysis

    def _collected(self, analysis: QueryAnalysis, course: QueryRun) -> pa.Table:
        try:
            return self._collected_once(analysis, course)
        except LithifyError:
            raise
        except _Doubted:
            analysis.care = Care.NO_STATISTICS
            return self._collected(analysis, course)
        except Exception as error:
            if is_exhausted(error):
                if analysis.may_spill or is_of_nested_loop(error):
                    raise
                analysis.may_spill = True
                return self._collected(analysis, course)
            if analysis.simplify():
                # What the engine cannot do with dictionaries or views it can do with strings.
                return self._collected(analysis, course)
            if analysis.care is Care.NO_STATISTICS or ENGINE_FAULT not in str(error):
                raise
            # What the engine makes of statistics fails for some conditions; it needs none of them for an answer.
            analysis.care = Care.NO_STATISTICS
            return self._collected_once(analysis, course)

    def _collected_once(self, analysis: QueryAnalysis, course: QueryRun) -> pa.Table:
        with self._contexts.session(analysis.care) as session:
            frame = self._frame(analysis, session, narrow=True)
            if frame is None and analysis.simplify():
                frame = self._frame(analysis, session, narrow=True)
            if frame is None:
                frame = self._frame(analysis, session, narrow=False)
            assert frame is not None
            in_doubt = analysis.nested_loops and analysis.may_spill
            rows = collect(frame, course, check_nested_loops if in_doubt else None)
            return _as_planned(rows, analysis.shape)

    def _frame(self, analysis: QueryAnalysis, session: Session, *, narrow: bool) -> DataFrame | None:
        """The query over the rows that it needs. Narrow: where they are in memory, also of only the columns that it
        needs, or with strings as they are kept; None if it then means something else.
        """
        tables: dict[TableRef, Table] = {}
        narrowed, small = False, True
        for ref, request in analysis.requests.items():
            if narrow and (hot := analysis.hot_rows(ref)) is not None:
                cutoff = analysis.cutoff(ref)
                tables[ref] = self._hot.table(hot, plain=analysis.plain, cutoff=cutoff)
                narrowed |= len(hot.columns) < len(analysis.schema(ref)) or hot.is_encoded
                small &= hot.rows <= ONE_THREAD_ROWS_MAX
                continue
            rows = self._rows(analysis, ref, narrow=narrow)
            if rows is not None:
                tables[ref] = memory_table(self._scratch, rows)
                narrowed |= narrow and request.columns is not None
                small &= rows.num_rows <= ONE_THREAD_ROWS_MAX
            else:
                plan = analysis.plan(ref, narrow=narrow)
                if not session.careful and must_doubt((*plan.clean, *plan.touched)):
                    raise _Doubted
                view = relation(session.ctx, plan, session.links, careful=session.careful)
                tables[ref] = Table(view.into_view())
                narrowed |= len(plan.columns) < len(plan.schema.names)
                small = False
        # Relations are built in a context of their own, so that a query sees the lake's tables and nothing else.
        outer = self._contexts.context(
            CATALOG,
            NAMESPACE,
            analysis.care,
            one_thread=small,
            hash_joins=analysis.hash_joins,
            memory_bytes_max=analysis.memory_bytes_max,
            may_spill=analysis.may_spill,
        )
        catalog = outer.catalog(CATALOG)
        namespaces = {namespace: Schema.memory_schema(outer) for namespace, _ in tables}
        for namespace, schema in namespaces.items():
            catalog.register_schema(namespace, schema)
        for (namespace, name), table in tables.items():
            namespaces[namespace].register_table(name, table)
        if not narrowed:
            return outer.sql_with_options(analysis.query, READ_ONLY)
        return planned_alike(outer, analysis.query, analysis.shape.types, analysis.names)

    def _rows(self, analysis: QueryAnalysis, ref: TableRef, *, narrow: bool) -> pa.Table | None:
        """What a query needs of a table, in memory, if it is little."""
        plan, request = analysis.plan(ref, narrow=narrow), analysis.requests[ref]
        if request.note == NOT_READ or not fits_memory(plan):
            return None
        columns = plan.columns
        if narrow and request.columns is not None:
            # Rows have to be counted even where no column is asked for.
            columns = list(request.columns) or columns[:1]
        try:
            return rows_in_memory(self._groups, plan, columns, request.predicate)
        except TooLarge:
            return None

    def let_go(self) -> None:
        """Of what queries leave for the next ones: answers, texts, footers, and processes that have read files."""
        self.answers.clear()
        self._analyses.forget()
        self.footers.forget()
        self.key_queries.forget()
        self.processes.let_go()

    def close(self) -> None:
        self.processes.close()
        self.answers.clear()
        self.footers.forget()
        self.key_queries.forget()
        self._contexts.close()


def parsed_here(text: str) -> Statement:
    from lithify.sql.statements.grammar import parse  # whoever only reads does not wait for it

    return parse(text)


class _Doubted(Exception):
    """Files of the plan have statistics that the engine must not see."""


def _as_planned(rows: pa.Table, shape: pa.Schema) -> pa.Table:
    """Under the planned names and types: what the optimiser makes of a query may have wider decimals."""
    rows = rows.rename_columns(shape.names)
    # Of a UNION whose first part is NULL the plan tells no type.
    kinds = [f.type if pa.types.is_null(kind) else kind for f, kind in zip(rows.schema, shape.types, strict=True)]
    if rows.schema.types == kinds:
        return rows
    try:
        return rows.cast(pa.schema([f.with_type(kind) for f, kind in zip(rows.schema, kinds, strict=True)]))
    except pa.ArrowInvalid:  # one of them is needed
        return rows


def _where(condition: str | None, *, tame: bool) -> str:
    if condition is None:
        return ""
    (check_cheap_condition if tame else check_condition)(condition)
    return f" WHERE ({condition}\n)"  # a comment at its end must not swallow the bracket


def _identity(planned: PlannedTable | None) -> tuple[str, int, int] | None:
    return planned.snapshot.identity if planned is not None else None


@dataclass(frozen=True)
class _Fixed(PlannedTable):
    """A plan that is there already, whatever is asked."""

    made: ReadPlan

    @property
    def snapshot(self) -> Snapshot:
        return self.made.snapshot

    def fetch(self) -> None:
        """It is planned already."""

    def plan(self, predicate: Predicate | None = None, columns: Sequence[str] | None = None) -> ReadPlan:
        return self.made

    @property
    def folders(self) -> tuple[str, ...]:
        return ()

    def hot(self, columns: Sequence[str] | None) -> RowsInMemory | None:
        return None

    def want_hot(self, columns: Sequence[str] | None) -> None:
        """There is nobody to tell."""

    def summary(self) -> Summary | None:
        return None
