"""Schemas between Spark and Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StringType, StructType

from lithify.errors import InvalidRequest


def column_named(name: str) -> Column:
    """The column of exactly this name, whatever letters are in it."""
    return F.col("`" + name.replace("`", "``") + "`")


def arrow_schema(schema: StructType) -> pa.Schema:
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except (PySparkException, TypeError) as error:
        raise InvalidRequest(
            f"the Spark schema has a type that Delta does not have: {str(error).splitlines()[0]}"
        ) from error


def spark_schema(schema: pa.Schema) -> StructType:
    """All nullable: what files hold is checked when they are written, and Spark plans faster than it verifies."""
    return from_arrow_schema(pa.schema([f.with_nullable(True) for f in schema]), prefer_timestamp_ntz=True)


def in_order_of(frame: DataFrame, columns: pa.Schema) -> list[Column]:
    """What to put the frame's rows in order by, so that they come in the order that the values have as `columns`: a
    moment or a number that comes as text has several spellings, which must come to one task. The rows stay as they are.
    """
    found = []
    for wanted in spark_schema(columns):
        given = column_named(wanted.name)
        is_text = isinstance(frame.schema[wanted.name].dataType, StringType)
        found.append(
            given if not is_text or isinstance(wanted.dataType, StringType) else given.try_cast(wanted.dataType)
        )
    return found


def columns_to_json(columns: pa.Schema) -> Any:
    return spark_schema(columns).jsonValue()


def columns_from_json(document: Any) -> pa.Schema:
    return arrow_schema(StructType.fromJson(document))
