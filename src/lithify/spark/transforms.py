"""A step of a pipeline on Spark: its query over named inputs, its expectations, how its answer differs from a table.

The inputs stand before the query as common table expressions, so that nothing is registered in anybody's session. What
Spark refuses is told in one sentence, with the position in the query as it was declared.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import PurePath
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import AnalysisException, PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import MapType

from lithify.core.expectation import Expectation
from lithify.core.names import GIVEN
from lithify.core.query_text import with_relations
from lithify.errors import InvalidRequest
from lithify.spark.ingest import FILE, MODIFIED
from lithify.spark.json_lines import write_json
from lithify.spark.parquet import no_rows
from lithify.spark.schemas import arrow_schema, column_named, spark_schema
from lithify.spark.tasks import SPARK_ERRORS, compute_failed

FAILED, OPERATION = "_lithify_failed", "_lithify_operation"
UPSERT, DELETE = "upsert", "delete"
_LINE_AND_POSITION = re.compile(r"\(?\bline (\d+),? pos(?:ition)? (\d+)\)?")
_CONDITION = re.compile(r"^\[[A-Z_0-9.]+\]\s*")
_STATE = re.compile(r"\s*SQLSTATE: \w+")
# The query stands in parentheses of ours: that the closing one comes too late tells its author nothing.
_OUR_PARENTHESIS = ": missing ')'"
_SAID_CHARACTERS_MAX = 300


def answer(spark: SparkSession, what: str, sql: str, source: DataFrame, tables: Mapping[str, DataFrame]) -> DataFrame:
    """The query's rows. `what` begins the message if Spark refuses it."""
    frames: dict[str, Any] = {f"table_{number}": frame for number, frame in enumerate(tables.values())}
    text = with_relations(sql, dict(zip(tables, frames, strict=True)))
    with refusals(what, lines_before=1):
        return spark.sql(text, None, source=source, **frames)


def columns_of(frame: DataFrame, what: str) -> pa.Schema:
    with refusals(what, lines_before=1):
        columns = arrow_schema(frame.schema)
    twice = next((name for name in columns.names if columns.names.count(name) > 1), None)
    if twice is not None:
        raise InvalidRequest(f"{what}: the column {twice!r} comes out twice: name one of them otherwise")
    return pa.schema([f.with_nullable(True) for f in columns])


def empty_frame(spark: SparkSession, columns: pa.Schema) -> DataFrame:
    return no_rows(spark, spark_schema(columns))


def declared_columns(spark: SparkSession, what: str, text: str) -> pa.Schema:
    """Columns of a text like `id BIGINT, name STRING`."""
    with refusals(f"{what}: schema", lines_before=0):
        return arrow_schema(spark.createDataFrame([], text).schema)


def has_rows(frame: DataFrame) -> bool:
    try:
        return not frame.isEmpty()
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error


# -- expectations


def judged(frame: DataFrame, expectations: Sequence[Expectation], what: str) -> DataFrame:
    """The rows with the names of the expectations that do not hold for them, in `FAILED`."""
    verdicts: list[Column] = []
    for each in expectations:
        with refusals(f"{what}: expectation {each.name!r}", lines_before=0):
            holds = F.coalesce(F.expr(each.that).cast("boolean"), F.lit(False))
            _ = frame.where(holds).schema
        verdicts.append(F.when(~holds, F.lit(each.name)))
    failed = F.array_compact(F.array(*verdicts)) if verdicts else F.array().cast("array<string>")
    return frame.withColumn(FAILED, failed)


def failures(frame: DataFrame) -> tuple[int, dict[str, int]]:
    """How many judged rows there are, and for how many each expectation does not hold."""
    try:
        rows = frame.count()
        found = frame.select(F.explode(FAILED).alias("name")).groupBy("name").count().collect()
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error
    return rows, {row["name"]: row["count"] for row in found}


def examples_of(frame: DataFrame, name: str, rows_max: int) -> list[dict[str, Any]]:
    """Some of the judged rows that an expectation does not hold for."""
    try:
        bad = frame.where(F.array_contains(FAILED, name)).drop(FAILED).limit(rows_max).toArrow()
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error
    return list(bad.to_pylist())


def split(frame: DataFrame, quarantining: Sequence[str]) -> tuple[DataFrame, DataFrame]:
    """(rows to keep, judged rows to set aside)."""
    if not quarantining:
        return frame.drop(FAILED), frame.where(F.lit(False))
    bad = F.arrays_overlap(FAILED, F.array(*[F.lit(name) for name in quarantining]))
    return frame.where(~bad).drop(FAILED), frame.where(bad)


def write_set_aside(frame: DataFrame, folder: PurePath) -> list[PurePath]:
    """Judged rows as JSON lines (why, record) in place of what the folder held."""
    names = [name for name in frame.columns if name not in (FAILED, GIVEN)]
    record = F.to_json(F.struct(*[column_named(name) for name in names]))
    why = F.concat(F.lit("does not hold: "), F.concat_ws(", ", FAILED))
    return write_json(frame.select(why.alias("why"), record.alias("record")), folder)


@contextlib.contextmanager
def persisting(frame: DataFrame) -> Iterator[DataFrame]:
    """Computed once while the block lasts."""
    persisted = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield persisted
    finally:
        with contextlib.suppress(PySparkException):
            persisted.unpersist()


def keys_twice(frame: DataFrame, key: Sequence[str]) -> dict[str, object] | None:
    """A key that more than one row has, if there is one."""
    names = [column_named(name) for name in key]
    try:
        found = frame.groupBy(*names).count().where(F.col("count") > 1).limit(1).collect()
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error
    return {name: found[0][name] for name in key} if found else None


# -- files


def counted(frame: DataFrame) -> int:
    try:
        return frame.count()
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error


def source_rows(frame: DataFrame, columns: pa.Schema, *, ordered: bool) -> DataFrame:
    """Records that fit, with exactly these columns; `ordered`: those of younger files after those of older ones."""
    if ordered:
        frame = frame.orderBy(MODIFIED, FILE, F.monotonically_increasing_id())
    fields = spark_schema(columns).fields
    present = set(frame.columns)
    return frame.select(
        *[
            (column_named(f.name).cast(f.dataType) if f.name in present else F.lit(None).cast(f.dataType)).alias(f.name)
            for f in fields
        ]
    )


# -- from frames to operations


def restricted(frame: DataFrame, wanted: DataFrame) -> DataFrame:
    """Rows that are equal to one of `wanted` in all of its columns; nulls compare equal."""
    names = {name: f"_lithify_wanted_{number}" for number, name in enumerate(wanted.columns)}
    other = wanted.select(*[column_named(name).alias(alias) for name, alias in names.items()])
    same = [column_named(name).eqNullSafe(F.col(alias)) for name, alias in names.items()]
    return frame.join(F.broadcast(other), reduce(lambda a, b: a & b, same), "left_semi")


def upserts_and_deletes(rows: DataFrame, gone: DataFrame | None) -> DataFrame:
    """Rows to write and keys to delete as one frame with `OPERATION`."""
    written = rows.withColumn(OPERATION, F.lit(UPSERT))
    if gone is None:
        return written
    return written.unionByName(gone.withColumn(OPERATION, F.lit(DELETE)), allowMissingColumns=True)


def differences(rows: DataFrame, present: DataFrame, key: Sequence[str]) -> DataFrame:
    """What makes `present` equal to `rows`: rows that are new or differ, and keys that are gone, with `OPERATION`.

    Maps cannot be compared: rows with one count as different.
    """
    there, here = "_lithify_there", "_lithify_here"
    old = present.select(*[column_named(n).alias(f"_lithify_old_{n}") for n in rows.columns if n in present.columns])
    old = old.withColumn(there, F.lit(True))
    new = rows.withColumn(here, F.lit(True))
    on = [column_named(name) == column_named(f"_lithify_old_{name}") for name in key]
    joined = new.join(old, reduce(lambda a, b: a & b, on), "full_outer")
    same = F.lit(True)
    for field in rows.schema.fields:
        if field.name not in key:
            if isinstance(field.dataType, MapType) or field.name not in present.columns:
                same = F.lit(False)
                break
            before = column_named(f"_lithify_old_{field.name}").try_cast(field.dataType)
            same = same & column_named(field.name).eqNullSafe(before)
    operation = F.when(F.col(here).isNull(), DELETE).when(F.col(there).isNull() | ~same, UPSERT)
    columns = [
        F.coalesce(column_named(name), column_named(f"_lithify_old_{name}")).alias(name)
        if name in key
        else column_named(name)
        for name in rows.columns
    ]
    return joined.select(*columns, operation.alias(OPERATION)).where(F.col(OPERATION).isNotNull())


# -- what Spark refuses


@contextlib.contextmanager
def told_once() -> Iterator[None]:
    """PySpark logs errors of a query, with their Java traces, before it raises them: here the raised one is enough."""
    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    for logger in loggers:
        logger.addFilter(_nothing)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_nothing)


def _nothing(record: logging.LogRecord) -> bool:
    return False


@contextlib.contextmanager
def refusals(what: str, *, lines_before: int) -> Iterator[None]:
    """What Spark refuses in the block is a mistake in the declaration."""
    try:
        with told_once():
            yield
    except AnalysisException as error:
        raise InvalidRequest(f"{what}: {said(str(error), lines_before)}") from error
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error


def said(text: str, lines_before: int) -> str:
    """The sentence of an error of Spark, with its position counted from the first line that the user wrote."""
    found = _LINE_AND_POSITION.search(text)
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    line = _LINE_AND_POSITION.sub("", _STATE.sub("", _CONDITION.sub("", line))).strip(" ;")
    if lines_before:
        line = line.rstrip(".").removesuffix(_OUR_PARENTHESIS)
    line = line if len(line) <= _SAID_CHARACTERS_MAX else line[: _SAID_CHARACTERS_MAX - 1] + "…"
    if found is None or int(found[1]) <= lines_before:
        return line
    return f"{line.rstrip('.')} (line {int(found[1]) - lines_before}, column {int(found[2]) + 1})"
