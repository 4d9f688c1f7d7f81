"""A table's feed as a Spark DataFrame: native scans of the original change files, and one SQL text with windows.

Which commit a row is of stands in the log, not in its file, so each file is told by its name, which holds an id and is
used once. A few commits are scanned one by one with constants; many are one scan with a small broadcast join on the
name. A single commit with nothing before it, the first load of a table, needs neither a window nor a shuffle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import PurePath
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from lithify.core.column_changes import ColumnChange, Reshape, stood_as, stood_at
from lithify.core.names import GIVEN, NTH, OP, SEQ
from lithify.core.ops import DELETES, Op
from lithify.core.partial_rows import PATCH_FIELDS
from lithify.core.schema import TableSchema
from lithify.merge.change_feed import (
    BEFORE,
    BY,
    INSERT,
    KIND,
    ChangeFile,
    event_columns,
    feed_schema,
    feed_sql,
    is_partial,
    row_keys_of,
)
from lithify.merge.late import without_late_sql
from lithify.spark.parquet import no_rows, scan_files
from lithify.spark.read import tombstones_frame
from lithify.spark.schemas import column_named, spark_schema
from lithify.spark.tasks import SPARK_ERRORS, compute_failed

# Beyond so many commits and operations, their union would take longer to plan than a join to run.
UNION_MAX = 4
_FILE = "_lithify_file"
_LABELS = [StructField(SEQ, LongType()), StructField(OP, StringType()), StructField(BY, IntegerType())]


def frame_of_rows(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Few rows that are here already."""
    schema = spark_schema(rows.schema)
    try:
        # In one piece: Spark takes an empty chunk for the end.
        return spark.createDataFrame(rows.combine_chunks(), schema) if rows.num_rows else no_rows(spark, schema)
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error


def feed_frame(
    spark: SparkSession,
    schema: TableSchema,
    files: Sequence[ChangeFile],
    since: int,
    before: DataFrame | None,
    *,
    ordered: bool,
    with_before: bool = False,
    tombstones: pa.Table | None = None,
) -> DataFrame:
    """`before`: all rows as of `since`, None if there are none or none is asked about. `with_before`: each update comes
    with the row before it, one behind the other where it is `ordered`.
    """
    try:
        shown = spark_schema(feed_schema(schema)).names
        one_commit = len({file.seq for file in files}) == 1
        partial = is_partial(files)
        late = tombstones is not None and tombstones.num_rows > 0
        if before is None and one_commit and schema.keyed and not partial and not late:
            written = _scan(spark, schema, [file for file in files if file.op not in DELETES])
            return written.withColumn(KIND, F.lit(INSERT)).select(*map(column_named, shown))
        row_keys = row_keys_of(schema, files)
        changes = events = _scan(spark, schema, files, row_keys)
        if before is not None and row_keys:
            labels = [F.lit(since).cast("long").alias(SEQ), F.lit(BEFORE).alias(OP), F.lit(None).cast("int").alias(BY)]
            if partial:
                labels += [F.lit(None).cast("string").alias(GIVEN), F.lit(0).alias(NTH)]
            deletes = any(file.op in DELETES for file in files)
            for met in _met(schema, before, changes, row_keys, deletes=deletes, whole=with_before or partial):
                events = events.unionAll(_with_columns(met, schema).select("*", *labels))
        source = "{events}"
        more: dict[str, Any] = {}
        if late:
            assert tombstones is not None
            source = f"({without_late_sql(schema, source, '{tombstones}', '`')}) n"
            more = {"tombstones": tombstones_frame(spark, schema, tombstones)}
        text = feed_sql(schema, source, schema.names, row_keys, quote="`", before=with_before, partial=partial)
        found = spark.sql(text, events=events, **more)
        if ordered and with_before and schema.keyed:
            # "update_before" comes behind "update_after" in the alphabet.
            return found.orderBy(SEQ, *map(column_named, schema.key), F.col(KIND).desc())
        return found.orderBy(SEQ) if ordered and not one_commit else found
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error


def as_now(rows: DataFrame, columns: pa.Schema, later: Sequence[ColumnChange], labels: Sequence[str] = ()) -> DataFrame:
    """Rows from before some changes of a table's columns, in its columns of now."""
    there, chosen = set(rows.columns), []
    for column, field in zip(columns, spark_schema(columns).fields, strict=True):
        origin = stood_as(column, later)
        found = F.lit(None) if origin is None or origin.name not in there else column_named(origin.name)
        if column.name == GIVEN:
            for change in (change for change in later if change.kind in ("rename", "drop")):
                given = f",{change.to}," if change.kind == "rename" else ","
                found = F.replace(found, F.lit(f",{change.column},"), F.lit(given))
        elif origin is not None and origin.name in there and any(change.of_field for change in later):
            found = _fields_now(found, column.type, origin.type, (column.name,), later)
        chosen.append(found.cast(field.dataType).alias(column.name))
    return rows.select(*chosen, *labels)


def _fields_now(
    found: Column, kind: pa.DataType, was: pa.DataType, path: tuple[str, ...], later: Sequence[ColumnChange]
) -> Column:
    """A struct of then as one of now, field by field from where each stood (`core/struct_fields.py`)."""
    if not pa.types.is_struct(kind):
        return found
    parts = []
    for field, told in zip(kind, spark_schema(pa.schema(list(kind))).fields, strict=True):
        here = (*path, field.name)
        then = stood_at(here, later)
        at = was.get_field_index(then[-1]) if then is not None else -1
        value = F.lit(None)
        if then is not None and at >= 0:
            value = _fields_now(found.getField(then[-1]), field.type, was.field(at).type, here, later)
        parts.append(value.cast(told.dataType).alias(field.name))
    return F.when(found.isNotNull(), F.struct(*parts))


def _scan(
    spark: SparkSession, schema: TableSchema, files: Sequence[ChangeFile], row_keys: Sequence[Sequence[str]] = ()
) -> DataFrame:
    """Their rows with the seq and operation of their commit. Files from before the columns changed are read by the
    columns that they have.
    """
    partial = is_partial(files)
    columns = pa.schema([*schema.columns, *(PATCH_FIELDS if partial else ())])
    alike: dict[tuple[ColumnChange, ...], list[ChangeFile]] = {}
    for file in files:
        alike.setdefault(file.later, []).append(file)
    parts = []
    for later, group in (alike or {(): []}).items():
        if not later:
            parts.append(_scan_alike(spark, schema, columns, group, row_keys, partial))
            continue
        stored = Reshape.of(columns, later).stored
        found = _scan_alike(spark, schema, stored, group, row_keys, partial)
        parts.append(as_now(found, columns, later, [SEQ, OP, BY]))
    return _nth_known(reduce(DataFrame.unionAll, parts), schema, partial)


def _scan_alike(
    spark: SparkSession,
    schema: TableSchema,
    inside: pa.Schema,
    files: Sequence[ChangeFile],
    row_keys: Sequence[Sequence[str]],
    partial: bool,
) -> DataFrame:
    columns = spark_schema(inside)
    if not files:
        return no_rows(spark, StructType([*columns.fields, *_LABELS]))
    groups: dict[tuple[int, str, int | None], list[ChangeFile]] = {}
    for file in files:
        by = row_keys.index(tuple(sorted(file.columns))) if file.op is Op.DELETE and not schema.keyed else None
        groups.setdefault((file.seq, file.op.value, by), []).append(file)
    if len(groups) <= UNION_MAX:
        parts = [
            scan_files(spark, group, columns)
            .withColumn(SEQ, F.lit(seq).cast("long"))
            .withColumn(OP, F.lit(op))
            .withColumn(BY, F.lit(by).cast("int"))
            for (seq, op, by), group in groups.items()
        ]
        return reduce(DataFrame.unionAll, parts)
    labels = [(PurePath(file.path).name, seq, op, by) for (seq, op, by), group in groups.items() for file in group]
    assert len({name for name, *_ in labels}) == len(labels), "names of change files hold an id"
    named = scan_files(spark, files, columns, name_as=_FILE)
    told = spark.createDataFrame(labels, StructType([StructField(_FILE, StringType()), *_LABELS]))
    return named.join(F.broadcast(told), _FILE).select(*map(column_named, columns.names), SEQ, OP, BY)


def _nth_known(rows: DataFrame, schema: TableSchema, partial: bool) -> DataFrame:
    """Lines that do not say where they stand in their commit are alone there."""
    if not partial:
        return rows
    return rows.select(
        *map(column_named, schema.names), SEQ, OP, BY, GIVEN, F.coalesce(F.col(NTH), F.lit(0)).alias(NTH)
    )


def _with_columns(rows: DataFrame, schema: TableSchema) -> DataFrame:
    """All columns of the table; one that the rows lack is null."""
    known = set(rows.columns)
    fields = spark_schema(schema.columns).fields
    columns = [column_named(f.name) if f.name in known else F.lit(None).alias(f.name) for f in fields]
    return rows.select(*[column.cast(f.dataType).alias(f.name) for column, f in zip(columns, fields, strict=True)])


def _met(
    schema: TableSchema,
    before: DataFrame,
    changes: DataFrame,
    row_keys: Sequence[Sequence[str]],
    *,
    deletes: bool,
    whole: bool,
) -> Iterator[DataFrame]:
    """The rows that a change can meet, each once. Only a delete shows the row that it met: of the others it is enough
    to know that it was there, and its order value, unless they are wanted `whole`.
    """
    rest = before
    if schema.keyed and whole:
        yield _joined(rest, changes, schema.key, "left_semi", null_safe=False)
        return
    if deletes:
        for number, by in enumerate(row_keys):
            gone = changes.where(F.col(OP).isin([op.value for op in DELETES]))
            if not schema.keyed:
                gone = gone.where(F.col(BY) == number)
            yield _joined(rest, gone, by, "left_semi", null_safe=not schema.keyed)
            rest = _joined(rest, gone, by, "left_anti", null_safe=not schema.keyed)
    if schema.keyed:
        deciding = rest.select(*map(column_named, event_columns(schema, row_keys)))
        yield _joined(deciding, changes, schema.key, "left_semi", null_safe=False)


def _joined(rows: DataFrame, other: DataFrame, by: Sequence[str], how: str, *, null_safe: bool) -> DataFrame:
    # A column that was added since is null in all rows.
    rows = rows.select("*", *[F.lit(None).alias(name) for name in by if name not in rows.columns])
    names = [f"_lithify_k{number}" for number in range(len(by))]
    keys = other.select(*[column_named(old).alias(new) for old, new in zip(by, names, strict=True)])
    pairs = [(column_named(old), F.col(new)) for old, new in zip(by, names, strict=True)]
    same = reduce(Column.__and__, [a.eqNullSafe(b) if null_safe else a == b for a, b in pairs])
    return rows.join(keys, same, how)
