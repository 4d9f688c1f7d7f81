"""The reading half of statements that write, on Spark: queries over the tables of a lake, DataFrames and views, and
what the rows of their answers come to.

What a statement writes is one DataFrame, its *effect*: the table's columns, and in `ACTION` whether the row is
inserted, updated or deleted (then its key alone counts). Values are fitted to the table's columns on the executors, by
the function that fits them everywhere. One that does not fit is no failed task, which would tell in a Java trace, but a
row with the error in it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lithify.core.ops import Op
from lithify.core.query_text import with_inputs
from lithify.core.schema import TableSchema
from lithify.errors import InvalidRequest, LithifyError
from lithify.files.parquet import Written
from lithify.spark.event_write import EventTask, write_resolved
from lithify.spark.schemas import arrow_schema, column_named, spark_schema
from lithify.spark.tasks import SPARK_ERRORS, compute_failed
from lithify.spark.transforms import refusals
from lithify.spark.write import WriteTask, write_parts

ACTION, ERROR = "_lithify_action", "_lithify_error"
INSERT, UPDATE, DELETE = "insert", "update", "delete"
_RANK, _LINE = "_lithify_rank", "_lithify_line"
# Of a statement, no line of what Spark is asked is one of the user's.
_NO_LINES = 1 << 30

Assign = Callable[[pa.Table], pa.Table]


def asked(
    spark: SparkSession,
    what: str,
    query: str,
    tables: Mapping[str, DataFrame],
    given: Mapping[str, DataFrame],
    *,
    own_words: bool,
) -> DataFrame:
    """The rows of a query over `tables` (`namespace.table`), what is `given` under one name, and whatever the session
    knows. `own_words`: it is the user's text, so that places in it mean something.
    """
    named = {name: f"table_{number}" for number, name in enumerate(tables)}
    plain = {name: f"given_{number}" for number, name in enumerate(given)}
    frames: dict[str, Any] = {named[name]: frame for name, frame in tables.items()}
    frames |= {plain[name]: frame for name, frame in given.items()}
    with refusals(what, lines_before=1 if own_words else _NO_LINES):
        return spark.sql(with_inputs(query, named, plain), None, **frames)


def check_frames(spark: SparkSession, frames: Mapping[str, Any]) -> None:
    for name, frame in frames.items():
        if not hasattr(frame, "sparkSession"):
            raise InvalidRequest(f"{name}= is {type(frame).__name__}: give a Spark DataFrame, or name a view")
        if frame.sparkSession is not spark:
            raise InvalidRequest(
                f"the DataFrame {name} is of another Spark session than the lake's: open the lake with that session, "
                "Lake(path, spark=frame.sparkSession)"
            )


def positional(frame: DataFrame) -> DataFrame:
    """Columns of an answer are told by their place: two of them may have the same name."""
    return frame.toDF(*[f"_{number}" for number in range(len(frame.columns))])


def effect_of(frame: DataFrame, action: str, schema: TableSchema, assign: Assign) -> DataFrame:
    """The rows of an answer as the table's; `assign` fits a few of them at a time, or says why not."""
    wanted = pa.schema([pa.field(f.name, f.type) for f in schema.columns])
    wanted = wanted.append(pa.field(ACTION, pa.string())).append(pa.field(ERROR, pa.binary()))
    shape = spark_schema(wanted)
    arrow = arrow_schema(shape)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not batch.num_rows:
                continue
            try:
                rows = assign(pa.Table.from_batches([batch]))
                rows = rows.append_column(ACTION, pa.array([action] * rows.num_rows, pa.string()))
            except LithifyError as error:
                rows = pa.table({ERROR: pa.array([pickle.dumps(error)], pa.binary())})
            columns = [
                rows.column(f.name).cast(f.type) if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type)
                for f in arrow
            ]
            yield from pa.table(columns, schema=arrow).to_batches()

    return positional(frame).mapInArrow(run, shape)


@dataclass(frozen=True)
class Weight:
    """How many rows of each kind an effect has; keys that it changes, or inserts, more than once; and between which
    values the first column of the key lies in what it inserts.
    """

    inserted: int
    updated: int
    deleted: int
    changed_twice: pa.Table | None
    inserted_twice: pa.Table | None
    first: Any
    last: Any

    @property
    def rows(self) -> int:
        return self.inserted + self.updated + self.deleted


def weigh(effect: DataFrame, key: Sequence[str]) -> Weight:
    """One look at all of it. Raises what is wrong with a value."""
    keys = [column_named(name) for name in key]
    count = {action: F.count(F.when(F.col(ACTION) == action, 1)) for action in (INSERT, UPDATE, DELETE)}
    by_key = effect.groupBy(*keys).agg(
        *[count[action].alias(f"_lithify_{action}") for action in count], F.max(ERROR).alias(ERROR)
    )
    new, changed = F.col(f"_lithify_{INSERT}"), F.col(f"_lithify_{UPDATE}") + F.col(f"_lithify_{DELETE}")
    one, whole = keys[0] if keys else F.lit(None), F.struct(*keys) if keys else F.lit(None)
    found = _fetched(
        by_key.agg(
            *[F.coalesce(F.sum(f"_lithify_{action}"), F.lit(0)).alias(action) for action in count],
            F.max(F.when(changed > 1, whole)).alias("changed_twice"),
            F.max(F.when(new > 1, whole)).alias("inserted_twice"),
            F.min(F.when(new > 0, one)).alias("first"),
            F.max(F.when(new > 0, one)).alias("last"),
            F.max(ERROR).alias("error"),
        )
    )
    said = found.to_pylist()[0]
    if said["error"] is not None:
        raise pickle.loads(bytes(said["error"]))
    changed_key, new_key = (_key(found, name) if key else None for name in ("changed_twice", "inserted_twice"))
    return Weight(said[INSERT], said[UPDATE], said[DELETE], changed_key, new_key, said["first"], said["last"])


def _key(found: pa.Table, name: str) -> pa.Table | None:
    keys = found.column(name).combine_chunks()
    return pa.Table.from_struct_array(keys) if keys[0].is_valid else None


def keys_there(effect: DataFrame, there: DataFrame, key: Sequence[str]) -> pa.Table | None:
    """A key that is inserted, is in the table, and is not deleted by the same statement; None: there is no such key."""
    new, gone = (_only(effect.where(F.col(ACTION) == action), key) for action in (INSERT, DELETE))
    found = new.join(_only(there, key), list(key), "left_semi").join(gone, list(key), "left_anti")
    key_there = _fetched(found.limit(1))
    return key_there if key_there.num_rows else None


def without(effect: DataFrame, there: DataFrame, key: Sequence[str]) -> DataFrame:
    """Rows whose key is not there; those that do not fit stay, to be told."""
    return effect.join(_only(there, key), list(key), "left_anti")


def among(rows: DataFrame, keys: DataFrame, key: Sequence[str]) -> DataFrame:
    """Rows whose key is one of these."""
    return rows.join(_only(keys, key), list(key), "left_semi")


def first_of_each(effect: DataFrame, key: Sequence[str]) -> DataFrame:
    """Of rows with one key that which came first."""
    numbered = effect.withColumn(_LINE, F.monotonically_increasing_id())
    order = Window.partitionBy(*[column_named(name) for name in key]).orderBy(_LINE)
    return numbered.withColumn(_RANK, F.row_number().over(order)).where(F.col(_RANK) == 1).drop(_LINE, _RANK)


def together(effects: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionAll, effects)


def renamed(rows: DataFrame, columns: Sequence[str], prefix: str) -> DataFrame:
    return rows.select(*[column_named(name).alias(prefix + name) for name in columns])


# -- what is written


def rows_of_effect(effect: DataFrame, schema: TableSchema) -> dict[str, pa.Table]:
    """By action, those of deletes with their key alone."""
    rows = _fetched(effect.drop(ERROR))
    found = {}
    for action in (INSERT, UPDATE, DELETE) if schema.keyed else (INSERT,):
        part = rows.filter(pc.equal(rows.column(ACTION), action)).drop_columns([ACTION])
        wanted = schema.select(schema.key) if action == DELETE else schema.columns
        found[action] = part.select(wanted.names).cast(wanted)
    return found


def write_effect(effect: DataFrame, schema: TableSchema, root: str, folder: str) -> list[tuple[Written, Op]]:
    """By the executors. A key that is deleted and inserted is inserted."""
    if not schema.keyed:
        rows = effect.drop(ACTION, ERROR)
        return [(file, Op.UPSERT) for file in write_parts(rows, WriteTask(schema, root, folder))]
    ranked = effect.drop(ERROR).withColumn(_RANK, F.when(F.col(ACTION) == DELETE, 0).otherwise(1))
    task = EventTask(schema, root, folder, ACTION, (_RANK,), wins=schema.order_by is not None)
    try:
        return write_resolved(ranked, task)
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error


# -- how much of the target can matter


@dataclass(frozen=True)
class Range:
    """Between which values a column lies; all of them, where they are few."""

    first: Any
    last: Any
    values: tuple[Any, ...] | None


def ranges_of(frame: DataFrame, columns: Sequence[str], values_max: int) -> dict[str, Range]:
    """Of a frame that is computed once for this. Nulls equal nothing, so they are left out."""
    if not columns:
        return {}
    counts = [F.count("*").alias("rows")]
    bounds = [
        bound(column_named(name)).alias(f"{kind}_{n}") for n, name in enumerate(columns) for kind, bound in _BOUNDS
    ]
    found = _fetched(frame.agg(*counts, *bounds)).to_pylist()[0]
    values = _fetched(_only(frame, columns)) if found["rows"] <= values_max else None
    ranges = {}
    for n, name in enumerate(columns):
        distinct = None if values is None else values.column(name).combine_chunks().unique().drop_null().to_pylist()
        ranges[name] = Range(found[f"min_{n}"], found[f"max_{n}"], None if distinct is None else tuple(distinct))
    return ranges


_BOUNDS: tuple[tuple[str, Callable[[Column], Column]], ...] = (("min", F.min), ("max", F.max))


def rows_within(frame: DataFrame, rows_max: int) -> pa.Table | None:
    """All rows, or None if there are more."""
    rows = _fetched(frame.limit(rows_max + 1))
    return None if rows.num_rows > rows_max else rows


def _fetched(frame: DataFrame) -> pa.Table:
    try:
        return frame.toArrow()
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error


def _only(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    return frame.select(*[column_named(name) for name in columns])
