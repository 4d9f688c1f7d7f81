"""Schemas between Spark and Arrow."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from lithify.errors import InvalidRequest


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
