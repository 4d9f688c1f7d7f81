"""A query as it is seen before it runs: planned over empty tables of the right types.

The optimised plan shows what the query asks of each table (`pushdown`), which columns it answers with, and whether
statistics of files may be used for it. Tables are asked for their plans or their hot rows only through it, each once.
"""

from __future__ import annotations

import datetime as dt
import enum
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from datafusion import DataFrame, SessionContext, SQLOptions
from datafusion.plan import LogicalPlan

from lithify.core.expiry import Cutoff
from lithify.core.names import TableRef
from lithify.core.predicates import UNKNOWN
from lithify.core.read_plan import ReadPlan, RowsInMemory
from lithify.sql.empty_catalog import CATALOG, NAMESPACE, EmptyCatalog
from lithify.sql.far_times import check_bins, is_to_be_written, reaching
from lithify.sql.guard import check_plan, is_repeatable
from lithify.sql.hot_views import SCANNED_ROWS_MAX, reads_little, reads_most
from lithify.sql.in_subqueries import check_in_subqueries
from lithify.sql.index_answers import answer_of
from lithify.sql.literals import Constants
from lithify.sql.nested_loops import has_nested_loops
from lithify.sql.pin_clock import asks_the_clock, at
from lithify.sql.pushdown import NOT_READ, ScanRequest, orders_floats, reads_floats, requests

READ_ONLY = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
ANALYSES_CACHED_MAX, CACHED_TEXT_MAX = 256, 4_096
ASKS_FOR_TYPES = "arrow_"
_UTC = ("+00", "+00:00", "Z")  # as the engine calls it here and there
CLOCK = "asks for the current time in a way that is not understood"


class Care(enum.Enum):
    """Which statistics of Parquet files the engine must not see, because NaN does not count in them: a column of one
    number and NaN would be taken for that number alone.
    """

    NONE = "none"
    NO_FILE_STATISTICS = "floats are read"
    NO_STATISTICS = "floats are compared or ordered"


class QueryAnalysis:
    """A query as it was planned over empty tables, which gives columns of these `names`. What the user asked for has
    those of `shape`: constants that were put in, or are written in another way, show in a name.
    """

    def __init__(
        self,
        query: str,
        shape: pa.Schema,
        names: Sequence[str],
        optimised: LogicalPlan,
        requests: Mapping[TableRef, ScanRequest],
        catalog: EmptyCatalog,
        care: Care,
    ) -> None:
        self.query, self.shape, self.names, self.requests, self.care = query, shape, names, requests, care
        self._optimised, self._catalog = optimised, catalog
        self.text = optimised.display_indent()
        self._hot: dict[TableRef, RowsInMemory | None] = {}
        self.repeatable = False
        # Some functions tell how Arrow keeps a value, and are to tell of the table's own types.
        self.plain = ASKS_FOR_TYPES in query.lower()
        self.hash_joins = not _filters_a_right_join(self.text)
        self.nested_loops = has_nested_loops(self.text)
        self.may_spill = not self.nested_loops
        # Set by whoever runs it: the memory that it may take.
        self.memory_bytes_max: int | None = None

    def elsewhere(self) -> Callable[[EmptyCatalog], QueryAnalysis]:
        """The same look over other snapshots of tables with the same columns."""
        query, shape, names, plan, asked, care = (
            self.query,
            self.shape,
            self.names,
            self._optimised,
            self.requests,
            self.care,
        )

        def over(catalog: EmptyCatalog) -> QueryAnalysis:
            analysis = QueryAnalysis(query, shape, names, plan, asked, catalog, care)
            analysis.repeatable = True
            return analysis

        return over

    def columns(self) -> dict[TableRef, pa.Schema]:
        return {ref: planned.schema.columns for ref, planned in self._catalog.opened.items()}

    def schema(self, ref: TableRef) -> pa.Schema:
        return self._catalog.opened[ref].schema.columns

    def hot_rows(self, ref: TableRef) -> RowsInMemory | None:
        """Rows in memory, unless files are faster. If they are not there, they may be the next time."""
        if ref not in self._hot:
            self._hot[ref] = self._find_hot(ref)
        return self._hot[ref]

    def _find_hot(self, ref: TableRef) -> RowsInMemory | None:
        planned, request = self._catalog.opened[ref], self.requests[ref]
        if request.note == NOT_READ:
            return None
        columns = self._told_by(ref)
        hot = planned.hot(columns)
        if hot is None:
            if reads_most(self.plan(ref)):
                planned.want_hot(columns)
            return None
        selective = hot.rows > SCANNED_ROWS_MAX and request.predicate != UNKNOWN
        return None if selective and reads_little(self.plan(ref)) else hot

    def _told_by(self, ref: TableRef) -> tuple[str, ...] | None:
        """The columns that are asked for, and the one that tells which rows have expired."""
        columns, cutoff = self.requests[ref].columns, self.cutoff(ref)
        return columns if columns is None or cutoff is None else tuple(dict.fromkeys((*columns, cutoff.column)))

    def cutoff(self, ref: TableRef) -> Cutoff | None:
        return self._catalog.opened[ref].snapshot.cutoff

    @property
    def uses_hot(self) -> bool:
        return any(rows is not None for rows in self._hot.values())

    def simplify(self) -> bool:
        """Take hot strings as strings from now on. False: they were already."""
        encoded = any(rows is not None and rows.is_encoded for rows in self._hot.values())
        changed, self.plain = encoded and not self.plain, True
        return changed

    def plan(self, ref: TableRef, *, narrow: bool = True) -> ReadPlan:
        """`narrow`: it need not tell columns that the query does not ask for."""
        plans = self._catalog.plans
        if ref not in plans or not (narrow or set(self.schema(ref).names) <= set(plans[ref].columns)):
            planned, request = self._catalog.opened[ref], self.requests[ref]
            if request.predicate == UNKNOWN and request.note != NOT_READ:
                planned.fetch()
            predicate = None if request.predicate == UNKNOWN else request.predicate
            plans[ref] = planned.plan(predicate, request.needed if narrow else None)
        return plans[ref]

    def shortcut(self) -> pa.Table | None:
        opened = list(self._catalog.opened.values())
        return answer_of(self._optimised, self.shape, opened[0]) if len(opened) == 1 else None


def analyse(query: str, ctx: SessionContext, catalog: EmptyCatalog) -> QueryAnalysis:
    """Plan a query over empty tables; `catalog` opens those that it names."""
    ctx.register_catalog_provider(CATALOG, catalog)
    constants = Constants(query)
    first = constants.spelled()
    frame = _planned(ctx, first, query)
    check_plan(frame.logical_plan())
    check_in_subqueries(frame.logical_plan(), query, _schemas(catalog))
    asked_for = plain_schema(frame.schema())
    names = asked_for.names if first == query else _names(ctx, query) or asked_for.names
    note, still = None, query
    if asks_the_clock(query):
        fixed = at(query, dt.datetime.now(dt.UTC))
        if fixed is not None and planned_alike(ctx, Constants(fixed).spelled(), asked_for.types) is not None:
            still = fixed
        else:
            note = CLOCK
    text = (constants if still == query else Constants(still)).meant(
        lambda some: frame if some == first else ctx.sql_with_options(some, READ_ONLY),
        lambda: (planned.schema.columns for planned in catalog.opened.values()),
    )
    if text != first:
        frame = _planned(ctx, text, query)
    plan = _optimised(frame)
    if plan is None or is_to_be_written(text, plan.display_indent()):
        text = reaching(text, lambda some: _really(ctx, _planned(ctx, some, query)), _days(catalog))
        frame = _planned(ctx, text, query)
        plan = frame.optimized_logical_plan()
    check_bins(plan.display_indent())
    schemas = _schemas(catalog)
    asked = requests(plan, schemas, NAMESPACE)
    if note is not None:
        asked = {ref: ScanRequest(request.columns, UNKNOWN, note) for ref, request in asked.items()}
    found = plain_schema(frame.schema())
    shape = pa.schema([f.with_name(name) for f, name in zip(found, names, strict=True)])
    care = Care.NONE
    if any(reads_floats(request, schemas[ref]) for ref, request in asked.items()):
        care = Care.NO_STATISTICS if orders_floats(plan, schemas) else Care.NO_FILE_STATISTICS
    analysis = QueryAnalysis(text, shape, found.names, plan, asked, catalog, care)
    analysis.repeatable = is_repeatable(analysis.text, query)
    return analysis


def _schemas(catalog: EmptyCatalog) -> dict[TableRef, pa.Schema]:
    return {ref: planned.schema.columns for ref, planned in catalog.opened.items()}


def _planned(ctx: SessionContext, text: str, query: str) -> DataFrame:
    """What was written in the place of a query; if that cannot be planned, the query itself says why."""
    try:
        return ctx.sql_with_options(text, READ_ONLY)
    except Exception:
        if text != query:
            ctx.sql_with_options(query, READ_ONLY)
        raise


def _days(catalog: EmptyCatalog) -> set[str]:
    return {f.name for schema in _schemas(catalog).values() for f in schema if pa.types.is_date(f.type)}


def _optimised(frame: DataFrame) -> LogicalPlan | None:
    """None: a constant in it is out of reach, as it is written."""
    try:
        return frame.optimized_logical_plan()
    except Exception:  # it is planned once more, and then says why
        return None


def _really(ctx: SessionContext, frame: DataFrame) -> tuple[str, tuple[pa.DataType, ...]]:
    """The optimised plan, and the types that it gives: before, those of a UNION or a CASE are of its first part."""
    plan = frame.optimized_logical_plan()
    shape = plain_schema(ctx.create_dataframe_from_logical_plan(plan).schema())
    return plan.display_indent(), tuple(map(_coarse, shape.types))


def _names(ctx: SessionContext, query: str) -> list[str] | None:
    try:
        return list(ctx.sql_with_options(query, READ_ONLY).schema().names)
    except Exception:  # then those of what was written in its place
        return None


class AnalysisCache:
    """Looks at queries that come again. What a query shows depends on its text and on the columns of the tables that it
    names, and on nothing else, unless it asks for the time or for chance.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[str, tuple[Callable[[EmptyCatalog], QueryAnalysis], Mapping[TableRef, pa.Schema]]] = (
            OrderedDict()
        )
        self._lock = threading.Lock()

    def again(self, query: str, catalog: EmptyCatalog) -> QueryAnalysis | None:
        with self._lock:
            if query not in self._seen:
                return None
            self._seen.move_to_end(query)
            look_over, columns = self._seen[query]
        for ref, known in columns.items():
            planned = catalog.open(ref)
            if planned is None or planned.schema.columns != known:
                return None
        return look_over(catalog)

    def forget(self) -> None:
        with self._lock:
            self._seen.clear()

    def keep(self, query: str, analysis: QueryAnalysis) -> None:
        if not analysis.repeatable or len(query) > CACHED_TEXT_MAX:
            return
        with self._lock:
            self._seen[query] = analysis.elsewhere(), analysis.columns()
            while len(self._seen) > ANALYSES_CACHED_MAX:
                self._seen.popitem(last=False)


def _filters_a_right_join(plan_text: str) -> bool:
    """Whether a condition stands above a right join. The engine's hash join mistakes a column of the optional side
    for one of the same name of the other side, and checks the condition there.
    """
    filtered = False
    for line in map(str.strip, plan_text.splitlines()):
        if filtered and line.startswith("Right Join:"):
            return True
        filtered = line.startswith("Filter:") or (filtered and line.startswith(("Projection:", "SubqueryAlias:")))
    return False


def planned_alike(
    ctx: SessionContext, query: str, types: Sequence[pa.DataType], names: Sequence[str] | None = None
) -> DataFrame | None:
    """The query, if it can be planned here and gives columns of these types, whatever the unit of their times, and
    names if any are given.
    """
    try:
        frame = ctx.sql_with_options(query, READ_ONLY)
    except Exception:  # whoever asks has another way, which tells what is wrong
        return None
    shape = plain_schema(frame.schema())
    return frame if _alike(frame.schema(), types) and (names is None or shape.names == names) else None


def _alike(schema: pa.Schema, types: Sequence[pa.DataType]) -> bool:
    return list(map(_coarse, plain_schema(schema).types)) == list(map(_coarse, types))


def _coarse(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz in _UTC else kind.tz)
    return kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, _plain(f.type), f.nullable) for f in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_plain(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), kind.item_field.with_type(_plain(kind.item_type)))
    return kind
