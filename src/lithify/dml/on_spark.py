"""Statements whose reading half is Spark's: the same grammar, texts, checks and commit, over DataFrames.

What `decide.py` decides on rows in memory is decided here on one DataFrame, the statement's effect
(`spark/statements.py`), which Spark computes once and keeps while it is looked at: a count by key tells rows that would
be written twice, a join with the table's keys those that are there already. An effect of few rows is fetched and takes
the way of every small write; a large one is written by the executors. Either way the commit is validated against the
snapshot that was read, and the statement is decided again if it was overtaken.

Sources are DataFrames that are given by name, views and tables of the session, and tables of the lake, each of which is
looked at once per try. A table of the lake hides one of the session with the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lithify.core.column_types import Family, type_of
from lithify.core.lake_methods import Wish
from lithify.core.names import TableRef
from lithify.core.ops import Op
from lithify.core.predicates import And, Compare, In, Predicate
from lithify.core.query_text import lookups
from lithify.core.read_plan import PlannedTable
from lithify.core.results import Executed
from lithify.core.schema import TableSchema
from lithify.core.snapshot import Snapshot
from lithify.core.spark_text import spark_text
from lithify.dml import checks, texts
from lithify.dml.assign import assigned, keys_assigned
from lithify.dml.decide import Effect, written
from lithify.dml.keyless import delete_rows, update_rows
from lithify.dml.run import run_by
from lithify.errors import Conflict, LimitExceeded
from lithify.sql.statements.model import EXCLUDED, Delete, Insert, Merge, Update, Writing, defaulted
from lithify.write.bulk import Files
from lithify.write.conditions import SeqMoved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lithify.spark.statements import Range, Weight
    from lithify.write.access import TableAccess

# So many keys are looked for by name, where bloom filters can tell; more of them by their range.
KEYS_NAMED_MAX = 1_000

FrameOf = Callable[[PlannedTable, "Predicate | None"], "DataFrame"]


@dataclass(frozen=True)
class SparkReading:
    """How a statement reads: `is_table` of a name in lower case, `frame` of such a table, `frame_of` of a plan."""

    spark: SparkSession
    frames: Mapping[str, DataFrame]
    is_table: Callable[[str], bool]
    frame: Callable[[str], DataFrame]
    frame_of: FrameOf
    rows_max: int
    small_rows_max: int


def run_on_spark(statement: Writing, table: TableAccess, reading: SparkReading, wish: Wish) -> Executed:
    with ExitStack() as stack:

        def decide_on(snapshot: Snapshot) -> Effect:
            stack.close()  # what an earlier try has kept
            return SparkAttempt(reading, table, snapshot, stack).decide(statement)

        return run_by(statement, table, wish, decide_on)


class SparkAttempt:
    """One try at a statement: every table that it names is looked at once."""

    def __init__(self, reading: SparkReading, target: TableAccess, snapshot: Snapshot, stack: ExitStack) -> None:
        self._reading, self.snapshot, self._stack = reading, snapshot, stack
        self._target: PlannedTable = target.reader.planned(snapshot)
        self.name = str(target.name)
        self._ref: TableRef = target.name.namespace, target.name.table
        self._opened: dict[str, DataFrame] = {}
        self.reads_target = False

    @property
    def schema(self) -> TableSchema:
        return self.snapshot.schema

    def decide(self, statement: Writing) -> Effect:
        match statement:
            case Insert():
                return self._insert(statement)
            case Update():
                return self._update(statement)
            case Delete():
                return self._delete(statement)
            case Merge():
                return self._merge(statement)

    # -- reading

    def frame(self, query: str, **given: DataFrame) -> DataFrame:
        """A query in the user's words. `given` are tables that it may name besides."""
        from lithify.spark.statements import asked

        text = spark_text(query)
        inside = {f"{texts.GIVEN_NAMESPACE}.{name}": frame for name, frame in given.items()}
        named = lookups(text, lambda name: name in inside or self._reading.is_table(name))
        tables = {name: inside[name] if name in inside else self._table(name) for name in named}
        what = f"the statement on {self.name}"
        return asked(self._reading.spark, what, text, tables, self._reading.frames, own_words=False)

    def ask(self, query: str) -> pa.Table:
        """Rows of a query here, where they have to be looked at one by one (`keyless.py`)."""
        from lithify.spark.statements import positional, rows_within

        found = rows_within(positional(self.frame(query)), self._reading.rows_max)
        if found is None:
            raise LimitExceeded(
                f"the statement on {self.name} takes more than {self._reading.rows_max:,} rows (statement_rows_max) of "
                "a table with no key, and nothing was written: take them in parts by a WHERE, or raise the limit",
                limit="rows",
            )
        return found

    def _table(self, name: str) -> DataFrame:
        if name == ".".join(self._ref):
            self.reads_target = True
            return self._there(None)
        if name not in self._opened:
            self._opened[name] = self._reading.frame(name)
        return self._opened[name]

    def _there(self, predicate: Predicate | None) -> DataFrame:
        """Rows of the target, of all parts of it that can hold one that matters."""
        return self._reading.frame_of(self._target, predicate)

    def _kept(self, frame: DataFrame) -> DataFrame:
        from lithify.spark.transforms import persisting

        return self._stack.enter_context(persisting(frame))

    # -- statements

    def _insert(self, statement: Insert) -> Effect:
        from lithify.spark.statements import INSERT, UPDATE, among, effect_of, first_of_each, renamed, together, without

        schema, name, key = self.schema, self.name, self.schema.key
        columns, conflict = checks.columns_to_insert(statement, schema, name), statement.on_conflict
        found = self.frame(statement.source)
        checks.check_width(len(found.columns) - statement.marked, columns, name)
        fit = partial(assigned, columns=columns, schema=schema, marked=statement.marked)
        given = self._kept(effect_of(found, INSERT, schema, fit))
        if conflict is not None and conflict.assignments is None:
            given = self._kept(first_of_each(given, key))
        weight = self._weighed(given)
        if weight.inserted_twice is not None and schema.keyed:
            raise checks.given_twice(name, weight.inserted_twice)
        if not schema.keyed:
            return self._effect(given, weight, at_seq=self.reads_target)
        if conflict is None:
            self._check_new(given, weight, checks.there_already)
            return self._effect(given, weight)
        there = self._there(_between(key[0], weight))
        new = without(given, there, key)
        if conflict.assignments is None:
            return self._weighed_effect(new)
        excluded = renamed(given, schema.names, EXCLUDED)
        equal = [EXCLUDED + column for column in key]
        query = texts.conflicts(statement.target, schema, schema.names, conflict.assignments, conflict.where, equal)
        changed = self.frame(query, given=excluded, found=among(there, given, key))
        whole = partial(assigned, columns=schema.names, schema=schema, defaults=defaulted(conflict.assignments))
        return self._weighed_effect(together([new, effect_of(changed, UPDATE, schema, whole)]))

    def _update(self, statement: Update) -> Effect:
        from lithify.spark.statements import UPDATE, effect_of

        schema = self.schema
        checks.check_assignments(statement.assignments, schema, self.name)
        if not schema.keyed:
            gone, come, count = update_rows(self, statement)
            return Effect(_some({Op.DELETE: gone, Op.UPSERT: come}), updated=count)
        rows = self.frame(texts.update(statement, schema))
        whole = partial(assigned, columns=schema.names, schema=schema, defaults=defaulted(statement.assignments))
        return self._weighed_effect(effect_of(rows, UPDATE, schema, whole))

    def _delete(self, statement: Delete) -> Effect:
        from lithify.spark.statements import DELETE, effect_of

        schema = self.schema
        if not schema.keyed:
            gone, count = delete_rows(self, statement)
            return Effect(_some({Op.DELETE: gone}), deleted=count)
        rows = self.frame(texts.delete(statement, schema.key))
        keys = partial(keys_assigned, columns=schema.key, schema=schema)
        return self._weighed_effect(effect_of(rows, DELETE, schema, keys))

    def _merge(self, statement: Merge) -> Effect:
        from lithify.spark.statements import DELETE, INSERT, effect_of, ranges_of, together
        from lithify.spark.transforms import columns_of

        schema, name = self.schema, self.name
        checks.check_mergeable(schema, name)
        found = self.frame(texts.source(statement))
        checks.check_source(found.columns)
        source = self._kept(found)
        whens = [checks.spelled(when, statement, found.columns, schema) for when in statement.whens]
        for when in whens:
            checks.check_when(when, schema, name)
        given = {texts.GIVEN: source}
        kinds = columns_of(source, f"the source of the MERGE into {name}")
        by = {column: other for column, other in statement.equal if _compared_alike(column, other, schema, kinds)}
        picked = bool(by) and not any(when.side == "not matched by source" for when in whens)
        if picked:
            self.reads_target = True
            ranges = ranges_of(source, list(dict.fromkeys(by.values())), KEYS_NAMED_MAX)
            given[texts.FOUND] = self._there(_both([_within(column, ranges[other]) for column, other in by.items()]))
        select = texts.MergeTexts(statement, schema, found=picked)
        effects = []
        for number, when in enumerate(whens):
            if when.action == "nothing":
                continue
            rows = self.frame(select.rows(when, whens[:number]), **given)
            if when.action == DELETE:
                assign = partial(keys_assigned, columns=schema.key, schema=schema)
            else:
                columns = when.columns if when.action == INSERT and when.columns is not None else schema.names
                checks.check_width(len(rows.columns), list(columns), name)
                assign = partial(assigned, columns=columns, schema=schema, defaults=checks.defaulted_of(when, schema))
            effects.append(effect_of(rows, when.action, schema, assign))
        if not effects:
            return Effect({})
        effect = self._kept(together(effects))
        weight = self._weighed(effect)
        if weight.changed_twice is not None:
            raise checks.changed_twice(name, weight.changed_twice)
        if weight.inserted_twice is not None:
            raise checks.inserted_twice(name, weight.inserted_twice)
        self._check_new(effect, weight, checks.not_matched)
        return self._effect(effect, weight)

    # -- what comes of it

    def _weighed(self, effect: DataFrame) -> Weight:
        from lithify.spark.statements import weigh

        return weigh(effect, self.schema.key)

    def _weighed_effect(self, effect: DataFrame) -> Effect:
        kept = self._kept(effect)
        weight = self._weighed(kept)
        if weight.changed_twice is not None:
            raise checks.changed_twice(self.name, weight.changed_twice)
        return self._effect(kept, weight)

    def _check_new(self, effect: DataFrame, weight: Weight, refused: Callable[[str, pa.Table], Conflict]) -> None:
        """What is inserted must not be there."""
        from lithify.spark.statements import keys_there

        if weight.inserted:
            key = self.schema.key
            there = keys_there(effect, self._there(_between(key[0], weight)), key)
            if there is not None:
                raise refused(self.name, there)

    def _effect(self, effect: DataFrame, weight: Weight, *, at_seq: bool = True) -> Effect:
        from lithify.spark.statements import DELETE, INSERT, UPDATE, rows_of_effect

        decided = Effect({}, weight.inserted, weight.updated, weight.deleted, at_seq)
        if weight.rows > self._reading.small_rows_max:
            return replace(decided, produce=partial(self._files, effect, weight))
        if not weight.rows:
            return decided
        rows = rows_of_effect(effect, self.schema)
        come = [rows[action] for action in (INSERT, UPDATE) if action in rows]
        return replace(decided, parts=written(self.schema, come, rows.get(DELETE)))

    def _files(self, effect: DataFrame, weight: Weight, schema: TableSchema, root: str, folder: str) -> Files:
        from lithify.spark.statements import write_effect

        if schema.columns != self.schema.columns:
            raise SeqMoved  # they were changed since: the statement may mean something else now
        files = write_effect(effect, schema, root, folder)
        rows = sum(file.rows for file, op in files if op is not Op.DELETE)
        if rows != weight.inserted + weight.updated:
            raise Conflict(
                f"the source of the statement on {self.name} had other rows when it was read again, and nothing was "
                "written: write it into a table first (its rows must not depend on chance or on the time)"
            )
        return files


def _some(parts: Mapping[Op, pa.Table]) -> dict[Op, pa.Table]:
    return {op: rows for op, rows in parts.items() if rows.num_rows}


# -- which parts of the target can matter


def _compared_alike(column: str, other: str, schema: TableSchema, source: pa.Schema) -> bool:
    """Whether Spark compares the two without a conversion that could make equal what is not in order."""
    if column not in schema.names or other not in source.names:
        return False
    mine, theirs = schema.columns.field(column).type, source.field(other).type
    whole = type_of(mine).family is Family.INTEGER and type_of(theirs).family is Family.INTEGER
    return whole or (mine == theirs and type_of(mine).family is not Family.FLOAT)


def _between(column: str, weight: Weight) -> Predicate | None:
    if weight.first is None:
        return None
    return And((Compare(column, ">=", weight.first), Compare(column, "<=", weight.last)))


def _within(column: str, range_: Range) -> Predicate | None:
    if range_.values is not None and range_.values:
        return In(column, range_.values)
    if range_.first is None:
        return None
    return And((Compare(column, ">=", range_.first), Compare(column, "<=", range_.last)))


def _both(parts: Sequence[Predicate | None]) -> Predicate | None:
    known = tuple(part for part in parts if part is not None)
    return And(known) if len(known) > 1 else known[0] if known else None
