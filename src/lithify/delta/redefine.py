"""Other columns for a table, as actions of a commit that may add and remove files as well.

deltalake changes columns in commits of their own, and only ever adds one. A commit that also puts files of the new
columns in the place of the old ones keeps every version of the log readable by every engine, without column mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema

from lithify.delta.head import Definition
from lithify.errors import InvalidRequest

NTZ = "timestampNtz"
_READER, _WRITER = 3, 7  # versions that list their features
# What a writer of these versions keeps to without a list.
_IMPLIED = {2: ("appendOnly", "invariants"), 3: ("checkConstraints",), 4: ("changeDataFeed", "generatedColumns")}


def redefined(
    table: DeltaTable, said: Definition, columns: pa.Schema, properties: Mapping[str, str]
) -> list[Mapping[str, Any]]:
    """`table`: of any version since the definition was `said`."""
    if not said.is_plain:
        raise InvalidRequest(
            f"the columns of {table.table_uri} cannot be changed: it uses {', '.join(sorted(said.features))}"
        )
    metadata = table.metadata()
    action = {
        "id": said.id,
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": Schema.from_arrow(columns).to_json(),
        "partitionColumns": list(said.partition_columns),
        "createdTime": metadata.created_time,
        "configuration": {**said.properties, **properties},
    }
    actions: list[Mapping[str, Any]] = [
        {"metaData": {key: value for key, value in action.items() if value is not None}}
    ]
    if NTZ not in said.features and any(_has_ntz(column.type) for column in columns):
        actions.insert(0, {"protocol": _with_ntz(said)})
    return actions


def _with_ntz(said: Definition) -> dict[str, Any]:
    implied = [name for version, names in _IMPLIED.items() if said.writer_version >= version for name in names]
    writer = sorted({*said.features, NTZ, *(implied if said.writer_version < _WRITER else ())})
    reader = sorted({name for name in said.features if name in (NTZ, "variantType")} | {NTZ})
    return {
        "minReaderVersion": _READER,
        "minWriterVersion": _WRITER,
        "readerFeatures": reader,
        "writerFeatures": writer,
    }


def _has_ntz(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return any(_has_ntz(kind.field(number).type) for number in range(kind.num_fields))
