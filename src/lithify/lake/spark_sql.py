"""SQL on Spark over the tables of a lake: SELECTs, and the statements that `lake.execute` takes, with DataFrames and
views of the session as their sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lithify.core.arguments import check_batch_id, check_text
from lithify.core.names import TableName, is_table_name, parse_table_name
from lithify.core.optional import need
from lithify.core.query_text import lookups
from lithify.core.results import Executed
from lithify.core.spark_text import engine_names, spark_text
from lithify.errors import InvalidRequest, LimitExceeded
from lithify.files.read_proof import look_again
from lithify.lake.catalog_queries import catalog_answer
from lithify.sql.parameters import Parameters, bound, spark_literal
from lithify.sql.statements.first_word import first_word, is_statement
from lithify.sql.statements.travel import Traveled, traveled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lithify.core.lake_methods import Wish
    from lithify.core.predicates import Predicate
    from lithify.core.read_plan import PlannedTable
    from lithify.lake.internals import LakeInternals
    from lithify.sql.statements.model import CreateTable

_QUERIES = ("select", "with", "values", "from", "table", "")  # "": one in brackets


def spark_sql(
    lake: LakeInternals, text: str, parameters: Parameters, frames: Mapping[str, Any], wish: Wish
) -> DataFrame | Executed:
    need("spark")
    from lithify.spark.statements import asked, check_frames

    check_text("a query", text)
    check_batch_id(wish.batch_id)
    spark = lake.spark()
    check_frames(spark, frames)
    text = bound(engine_names(text), parameters, spark_literal)
    if is_statement(text):
        return _execute(lake, spark, text, frames, wish)
    if wish != type(wish)():
        raise InvalidRequest("a dry run, a batch id, an actor and a reason are for statements that write")
    if (told := catalog_answer(lake, text)) is not None:
        return spark.createDataFrame(told)
    if first_word(text) not in _QUERIES:
        raise InvalidRequest(
            f"spark_sql takes SELECT and statements that write to the lake's tables, not {first_word(text).upper()}: "
            "ask Spark itself, lake.spark.sql(…)"
        )
    tables = _Tables(lake, spark, traveled(text))
    query = spark_text(tables.query)
    named = {name: tables.frame(name) for name in lookups(query, tables.is_table)}
    return asked(spark, "the query", query, named, frames, own_words=True)


def _execute(
    lake: LakeInternals, spark: SparkSession, text: str, frames: Mapping[str, DataFrame], wish: Wish
) -> Executed:
    from lithify.dml.on_spark import SparkReading, run_on_spark
    from lithify.sql.statements.model import CreateTable, Delete, Target, Truncate, Writing

    tables = _Tables(lake, spark, traveled(text))
    statement = lake.runtime.serving.parsed(tables.query)
    if isinstance(statement, Truncate):
        statement = Delete(Target(statement.name), None, None)
    settings = lake.runtime.settings
    reading = SparkReading(
        spark,
        frames,
        tables.is_table,
        tables.frame,
        tables.frame_of,
        settings.statement_rows_max,
        settings.stream_rows_max,
    )
    if isinstance(statement, Writing):
        return run_on_spark(statement, lake.table(statement.target.name), reading, wish)
    if wish.dry_run or wish.batch_id is not None:
        raise InvalidRequest("a dry run and a batch id are for statements that write rows")
    if isinstance(statement, CreateTable) and statement.source is not None:
        return _create_as(lake, spark, statement, tables, frames, dict(wish.info or {}))
    from lithify.lake.statements import execute

    return execute(lake, text, None, wish)


def _create_as(
    lake: LakeInternals,
    spark: SparkSession,
    statement: CreateTable,
    tables: _Tables,
    frames: Mapping[str, DataFrame],
    info: Mapping[str, Any],
) -> Executed:
    """Spark answers the query; its rows come here, and are written with the table."""
    from lithify.lake.definitions import create_with, is_there
    from lithify.spark.statements import asked, rows_within

    assert statement.source is not None
    name, rows_max = parse_table_name(statement.name), lake.runtime.settings.statement_rows_max
    if (there := is_there(lake, name, statement)) is not None:
        return there
    query = spark_text(statement.source)
    named = {each: tables.frame(each) for each in lookups(query, tables.is_table)}
    what = f"the statement on {name}"
    rows = rows_within(asked(spark, what, query, named, frames, own_words=False), rows_max)
    if rows is None:
        raise LimitExceeded(
            f"CREATE TABLE {name} AS takes more than {rows_max:,} rows (statement_rows_max), and nothing was created: "
            "CREATE TABLE with its columns, then INSERT INTO … SELECT, or raise the limit",
            limit="rows",
        )
    return create_with(lake, name, statement, rows, info)


class _Tables:
    """The tables of a lake as a text names them, each as of the moment that it says."""

    def __init__(self, lake: LakeInternals, spark: SparkSession, found: Traveled) -> None:
        self._lake, self._spark, self.query = lake, spark, found.query
        # Spark folds names: what is in the text is compared in lower case.
        self._moments = {f"{namespace}.{name}".lower(): there for (namespace, name), there in found.tables.items()}

    def is_table(self, name: str) -> bool:
        return name in self._moments or (is_table_name(name) and self._lake.catalog.exists(TableName(*name.split("."))))

    def frame(self, name: str) -> DataFrame:
        ref, moment = self._moments.get(name, (tuple(name.split(".")), None))
        table = TableName(*ref)

        def read() -> DataFrame:
            return self.frame_of(self._lake.open_tables.read(table, lambda found: found.planned(moment)), None)

        return look_again(read)

    def frame_of(self, planned: PlannedTable, predicate: Predicate | None) -> DataFrame:
        from lithify.spark.read import frame_of

        runtime = self._lake.runtime
        name = planned.snapshot.table
        index = self._lake.table(str(name)).handles.folder / "index"
        return frame_of(self._spark, planned.plan(predicate), index, runtime.owner.label, runtime.settings.s3a)
