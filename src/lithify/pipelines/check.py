"""A pipeline is looked at as a whole before anything is read or written.

Each query is given to Spark over inputs without rows: what comes out are the columns of its answer, or what is wrong
with it. A table that an earlier step has yet to create goes by the columns that this step will give it. Of a step that
reads files without declared columns nothing is known before there are files; it, and what depends on it, is looked at
later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lithify.core.missing_columns import check_frame, refuses_missing
from lithify.core.names import is_table_name
from lithify.core.query_text import lookups, not_row_by_row
from lithify.core.rows import check_convertible
from lithify.core.schema import TableSchema, define, normalise
from lithify.errors import InvalidRequest, NotFound
from lithify.pipelines.checkpoint import Ledgers, state_of
from lithify.pipelines.context import Moment
from lithify.pipelines.declaration import Graph, Step
from lithify.pipelines.pending import listed
from lithify.streams.messages import VALUE
from lithify.text.debezium import envelope_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class CheckedStep:
    """A step that can run. `target` is its table as it is, or as it will be created; `source`: the columns of its
    files, if it reads files; `computed`: the target is a function of the source, and not just what arrived.
    """

    step: Step
    lookups: tuple[str, ...]
    target: TableSchema
    exists: bool
    computed: bool
    source: pa.Schema | None = None


def graph_of(now: Moment, steps: Sequence[Step]) -> Graph:
    """Steps with the tables that they read. A table that nobody has or will create is refused."""
    targets = {step.target for step in steps}

    def is_table(name: str) -> bool:
        return name in targets or (is_table_name(name) and now.exists(name))

    reads = {}
    for step in steps:
        reads[step.label] = frozenset(lookups(step.sql, is_table))
        if step.table is not None and not is_table(step.table):
            raise NotFound(f"{step.label} reads table {step.table}, which there is not, and no step keeps it")
    return Graph(tuple(steps), reads)


class Check:
    """The columns of every table that the steps know of, as they go."""

    def __init__(self, now: Moment, graph: Graph, spark: SparkSession, anew: Collection[str]) -> None:
        """`anew`: labels of steps that have not run as they are declared now."""
        self._now, self._graph, self._spark, self._anew = now, graph, spark, anew
        self._tables: dict[str, TableSchema] = {}

    def steps(self, steps: Sequence[Step]) -> dict[str, CheckedStep]:
        """Those that can be judged now, by label. `steps` in order."""
        found = {}
        for step in steps:
            checked = self._step(step)
            if checked is not None:
                found[step.label] = checked
                self._tables[step.target] = checked.target
        return found

    def _table(self, name: str) -> TableSchema | None:
        """None: a step will create it, and with which columns is not known yet."""
        if name in self._tables:
            return self._tables[name]
        present = self._now.find(name)
        return None if present is None else present.schema

    def _step(self, step: Step) -> CheckedStep | None:
        from lithify.spark.transforms import answer, columns_of, empty_frame, judged

        spark, what = self._spark, f"step {step.label}"
        if step.envelope is not None:
            return self._messages(step, what)
        source, files = None, None
        if step.table is None:
            files = self._columns_of_files(step, what)
            columns = files
        else:
            source = self._table(step.table)
            columns = None if source is None else source.columns
        named = self._graph.reads.get(step.label, frozenset())
        tables = {name: self._table(name) for name in sorted(named)}
        if columns is None or None in tables.values():
            return None
        frames = {name: empty_frame(spark, table.columns) for name, table in tables.items() if table is not None}
        frame = answer(spark, what, step.sql, empty_frame(spark, columns), frames)
        found = columns_of(frame, what)
        judged(frame, step.expect, what)
        existing = self._now.find(step.target)
        target = _target(step, what, found, None if existing is None else existing.schema)
        computed = source is not None and (source.keyed or step.kind != "rows")
        if computed and step.updates:
            raise InvalidRequest(
                f"{what}: mode update takes what arrives, from files, messages or a table without a key; {step.table} "
                "has one, so that its rows change and go: leave mode out"
            )
        if source is not None:
            _check_kind(step, what, source, target, found)
        if step.kind == "rows" and step.label in self._anew:
            _check_nothing_from_nothing(what, frame)
        return CheckedStep(step, tuple(tables), target, existing is not None, computed, files)

    def _messages(self, step: Step, what: str) -> CheckedStep | None:
        """Of a step that opens messages: its columns are those of the target, or declared."""
        from lithify.spark.transforms import declared_columns

        existing = self._now.find(step.target)
        if step.schema is not None:
            columns = declared_columns(self._spark, what, step.schema)
        elif existing is not None:
            columns = existing.schema.columns
        else:
            raise InvalidRequest(
                f"{what}: {step.target} is not there, and messages do not tell its columns: say "
                'schema = "id BIGINT, …", or create the table'
            )
        target = _target(step, what, columns, None if existing is None else existing.schema)
        try:
            envelope_of(step.envelope, target.columns, target.key, target.order_columns)
        except InvalidRequest as error:
            raise InvalidRequest(f"{what}, target {step.target}: {error}") from error
        if step.table is not None:
            source = self._table(step.table)
            if source is None:
                return None
            _check_messages(step, what, source, target)
        return CheckedStep(step, (), target, existing is not None, computed=False, source=target.columns)

    def _columns_of_files(self, step: Step, what: str) -> pa.Schema | None:
        from lithify.spark.transforms import declared_columns

        if step.schema is not None:
            return declared_columns(self._spark, what, step.schema)
        return file_columns(self._now, step, self._spark)


def _check_messages(step: Step, what: str, source: TableSchema, target: TableSchema) -> None:
    if source.keyed:
        raise InvalidRequest(
            f"{what}: {step.table} has a key, so its rows are kept and not messages that arrive: append messages to a "
            "table without one"
        )
    if VALUE not in source.names:
        raise InvalidRequest(
            f"{what}: {step.table} has no column {VALUE!r}, which holds each message as JSON: it has "
            f"{', '.join(source.names)}"
        )
    if target.order_by is None:
        raise InvalidRequest(
            f"{what}: rows of a table are in no order, and {step.target} has none to tell which message is newer: give "
            'it one, order_by = "lsn" for example, which is filled from the position of the message'
        )


def _check_nothing_from_nothing(what: str, over_nothing: DataFrame) -> None:
    from lithify.spark.transforms import has_rows

    if has_rows(over_nothing):
        raise InvalidRequest(
            f"{what} goes row by row, but its query answers with rows where the source has none, as sums over all "
            "of it and joins that keep all of another table do: say by = […], or full = true"
        )


def file_columns(now: Moment, step: Step, spark: SparkSession) -> pa.Schema | None:
    """Those that are remembered, else those that Spark finds in the files; None: there are none yet."""
    from lithify.spark.ingest import infer
    from lithify.spark.schemas import columns_from_json
    from lithify.write.ingest import format_of

    ledger = Ledgers(now.context.runtime, step).read(state_of(now.find(step.target), step.feed).ledger)
    if ledger.columns is not None:
        return columns_from_json(ledger.columns)
    found = [file.path for file in listed(step)]
    return infer(spark, found, format_of(found, step.format), step.encoding) if found else None


def _target(step: Step, what: str, found: pa.Schema, present: TableSchema | None) -> TableSchema:
    try:
        if present is None:
            return define(found, step.key, step.order_by, step.time, step.partition_by or ())
        check_convertible(found, present.columns, present.column_defaults)
        if not present.keyed and step.updates:
            raise InvalidRequest("mode update needs a key, and the table has none: use mode append")
        if not step.updates and refuses_missing(present, step.missing):
            check_frame(found.names, present)
    except InvalidRequest as error:
        raise InvalidRequest(f"{what}, target {step.target}: {error}") from error
    asked: Mapping[str, object] = {
        "key": step.key,
        "order_by": step.order_by,
        "time": step.time,
        "partition_by": step.partition_by,
    }
    for name, wanted in asked.items():
        if wanted is not None and wanted != getattr(present, name):
            raise InvalidRequest(
                f"{what}: table {step.target} exists with another {name}: it has {_shown(getattr(present, name))}, the "
                f"step says {_shown(wanted)}; correct the step, or keep another table"
            )
    return present


def _check_kind(step: Step, what: str, source: TableSchema, target: TableSchema, found: pa.Schema) -> None:
    for name in step.by:
        if name not in source.names:
            raise InvalidRequest(
                f"{what}: by names {name!r}, which is no column of {step.table}: it has {', '.join(source.names)}"
            )
        if name not in found.names:
            raise InvalidRequest(
                f"{what}: by names {name!r}, which does not come out of the query: select it, so that rows of a group "
                "are found again"
            )
        _check_type(step, what, source, found, name)
    if step.kind == "rows" and not source.keyed:
        return
    if not target.keyed:
        raise InvalidRequest(
            f"{what}: rows of {step.table} change and go, so {step.target} needs a key to find them by: key = […]"
        )
    if target.order_by is not None:
        raise InvalidRequest(
            f"{what}: target {step.target} has order_by {_shown(target.order_by)}, by which rows of this step could "
            "lose against older ones: keep a table without it"
        )
    if target.rules:
        raise InvalidRequest(
            f"{what}: target {step.target} has {target.rules_name}, by which rows of this step would be merged with "
            "older ones: keep a table without them"
        )
    if step.kind != "rows":
        return
    if (why := not_row_by_row(step.sql)) is not None:
        raise InvalidRequest(
            f"{what}: its query has {why}, so it does not go row by row: name the columns whose groups it keeps apart "
            "(by = […]), or say full = true"
        )
    if set(target.key) != set(source.key):
        raise InvalidRequest(
            f"{what} goes row by row, so {step.target} has the key of {step.table} ({', '.join(source.key)}), not "
            f"{', '.join(target.key)}: pass that key through, or say by = […]"
        )

    for name in source.key:
        _check_type(step, what, source, found, name)


def _check_type(step: Step, what: str, source: TableSchema, found: pa.Schema, name: str) -> None:
    before, after = source.columns.field(name).type, normalise(found.field(name).type, name)
    if before != after:
        raise InvalidRequest(
            f"{what}: {name!r} is {before} in {step.table} and comes out as {after}: pass it through as it is"
        )


def _shown(value: object) -> str:
    return ", ".join(value) or "none" if isinstance(value, tuple) else str(value or "none")
