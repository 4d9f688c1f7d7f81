"""Columns as documents, {"name", "type", "nullable"}, and as Arrow schemas. Types are those of `lithify create`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lithify.core.schema import normalise
from lithify.core.types import parse_type, type_name
from lithify.errors import InvalidRequest
from lithify.http.documents.tables import ColumnDocument


def schema_of(columns: Sequence[ColumnDocument]) -> pa.Schema:
    return pa.schema([pa.field(column.name, parse_type(column.type), column.nullable) for column in columns])


def column_documents(schema: pa.Schema) -> list[dict[str, Any]]:
    """Of a table."""
    return [{"name": f.name, "type": type_name(f.type), "nullable": f.nullable} for f in schema]


def answer_columns(schema: pa.Schema) -> list[dict[str, str]]:
    """Of an answer, whose types may be ones that no table has."""
    return [{"name": f.name, "type": _shown_type(f.type, f.name)} for f in schema]


def _shown_type(kind: pa.DataType, name: str) -> str:
    try:
        return type_name(normalise(kind, name))
    except InvalidRequest:
        return type_name(kind)
