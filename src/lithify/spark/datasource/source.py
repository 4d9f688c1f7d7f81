"""The data source `lithify`: what Spark asks of it, translated into questions to a table.

Spark makes a new Python process for each of schema, plan and commit, and pickles the source and its readers from
one to the other and to the executors. So a source holds nothing but its options, and finds the table again wherever it
is asked. How tables are opened is left to a subclass: this package does not know the engine, and executors, which
unpickle the source too, never open one.

    schema ─▶ plan (reader.partitions) ─▶ tasks (reader.read)
              plan (writer: a job)     ─▶ tasks (writer.write) ─▶ commit or abort
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructField, StructType

from lithify.core.missing_columns import check_frame, refuses_missing
from lithify.core.names import SEQ
from lithify.core.predicates import Predicate
from lithify.core.rows import check_convertible
from lithify.core.schema import TableSchema
from lithify.errors import InvalidRequest, cut_here
from lithify.files.read_proof import look_again
from lithify.merge.change_feed import KIND, feed_schema
from lithify.spark.datasource.options import (
    SourceOptions,
    Use,
    as_remembered,
    check_use,
    names_table,
    of_catalog,
    parse,
    remembered,
)
from lithify.spark.datasource.plan import ScanPartition, partitions_of, partitions_of_rows
from lithify.spark.datasource.read import TableReader, check_wanted
from lithify.spark.datasource.stream import FeedReader
from lithify.spark.datasource.table import TableAccess, pages
from lithify.spark.datasource.write import TableStreamWriter, TableWriter
from lithify.spark.schemas import arrow_schema, spark_schema

NAME = "lithify"


class TableSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    @cached_property
    def parsed(self) -> SourceOptions:
        return parse(self.options)

    def opened(self) -> AbstractContextManager[TableAccess]:
        raise NotImplementedError

    @cut_here
    def schema(self) -> StructType:
        options = self.parsed
        with self.opened() as table:
            schema = table.planned(options.as_of).schema
        columns = feed_schema(schema) if options.changes else schema.columns
        if options.columns is None:
            return self._noted(spark_schema(columns))
        unknown = next((name for name in options.columns if name not in columns.names), None)
        if unknown is not None:
            raise InvalidRequest(f"the table has no column {unknown!r}: it has {', '.join(columns.names)}")
        return self._noted(spark_schema(pa.schema([columns.field(name) for name in options.columns])))

    def _noted(self, schema: StructType) -> StructType:
        """Of a table that is being created in Spark's catalog: with what it is, which is all that Spark tells of it
        when it is used.
        """
        if not of_catalog(self.options):
            return schema
        told = as_remembered(self.options)
        return StructType([StructField(f.name, f.dataType, f.nullable, told) for f in schema.fields])

    def _recall(self, schema: StructType) -> None:
        """Which table of Spark's catalog this is, where no option says so."""
        if not names_table(self.options):
            known = next((remembered(f.metadata) for f in schema.fields if f.metadata), {})
            self.options = {**known, **self.options}

    @cut_here
    def reader(self, schema: StructType) -> DataSourceReader:
        self._recall(schema)
        check_use(self.options, Use.READ)
        options = self.parsed
        with self.opened() as table:
            definition = table.planned(options.as_of).schema
        if options.changes:
            return TableReader(feed_schema(definition), schema, lambda _: self._changes())
        return TableReader(definition.columns, schema, partial(self._scan, schema), prunes=options.read_once)

    def _scan(self, wanted: StructType, predicate: Predicate) -> list[ScanPartition]:
        with self.opened() as table:
            plan = look_again(lambda: table.planned(self.parsed.as_of).plan(predicate))
            check_wanted(wanted, plan.schema.columns)  # they may have changed since the DataFrame was loaded
            return partitions_of(plan, table.index)

    def _changes(self) -> list[ScanPartition]:
        options = self.parsed
        with self.opened() as table:
            since = table.seq_of(options.since or "earliest")
            until = table.seq_of(options.until or "latest")
            return partitions_of_rows(pages(table, since, until, before=options.before), table.index)

    @cut_here
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        self._recall(schema)
        check_use(self.options, Use.WRITE)
        _refuse_overwrite(overwrite)
        with self.opened() as table:
            definition = table.definition
            check_convertible(arrow_schema(schema), definition.columns, definition.column_defaults)
            check_mode(self.parsed, definition)
            ordered = definition.keyed and definition.has_places(schema.names)
            target = table.begin_write()
            complete = refuses_missing(target.schema, self.parsed.missing)
            if complete:
                try:
                    check_frame(schema.names, target.schema)
                except InvalidRequest:
                    table.abort_write(target)
                    raise
            return TableWriter(self, replace(target, ordered=ordered, complete=complete))

    @cut_here
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        check_use(self.options, Use.STREAM_IN)
        if not self.parsed.changes:
            raise InvalidRequest(
                f"a stream reads changes, each row with {SEQ} and {KIND}: add .option('changes', 'true'), or say where "
                "to begin with .option('startingPosition', …)"
            )
        return FeedReader(self, schema)

    @cut_here
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        check_use(self.options, Use.STREAM_OUT)
        options = self.parsed
        _refuse_overwrite(overwrite)
        with self.opened() as table:
            columns = arrow_schema(schema)
            check_mode(options, table.definition)
            check_stream_columns(columns, table.definition, options.op_column)
        return TableStreamWriter(self, columns)


def check_mode(options: SourceOptions, schema: TableSchema) -> None:
    if options.mode == "upsert" and not schema.keyed:
        raise InvalidRequest("the table has no key, so there is nothing to upsert by: write with option mode=append")


def check_stream_columns(given: pa.Schema, schema: TableSchema, op_column: str | None) -> None:
    columns, defaults = schema.columns, schema.column_defaults
    if op_column is None:
        check_convertible(given, columns, defaults)
    elif op_column not in given.names:
        raise InvalidRequest(f"the stream has no column {op_column!r}, which option 'opColumn' names")
    else:
        check_convertible(pa.schema([field for field in given if field.name != op_column]), columns, defaults)


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise InvalidRequest(
            "mode('overwrite') and INSERT OVERWRITE are not supported: a table is changed row by row. Write with "
            "mode('append') and option mode=upsert; to let a DataFrame be all of the table, in one commit: "
            "lake.spark_sql('MERGE INTO … USING df ON … WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT * "
            "WHEN NOT MATCHED BY SOURCE THEN DELETE', df=frame)"
        )
