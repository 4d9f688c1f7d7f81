"""A table's definition and size as JSON documents tell them, of the command line and of the service."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lithify.core.results import TableStats
from lithify.core.schema import TableSchema
from lithify.core.type_text import type_name


def column_documents(schema: pa.Schema) -> list[dict[str, Any]]:
    return [{"name": f.name, "type": type_name(f.type), "nullable": f.nullable} for f in schema]


def definition_document(definition: TableSchema) -> dict[str, Any]:
    return {
        "columns": column_documents(definition.columns),
        "key": list(definition.key),
        "order_by": definition.order_json,
        "time": definition.time,
        "partition_by": list(definition.partition_by),
        "merge_rules": dict(definition.merge_rules),
        "order_groups": {order: list(names) for order, names in definition.order_groups.items()},
        "defaults": dict(definition.column_defaults),
        "schema_fingerprint": definition.fingerprint,
    }


def size_document(stats: TableStats) -> dict[str, Any]:
    return {
        "seq": stats.seq,
        "watermark": stats.watermark,
        "pending": {"files": stats.pending_files, "rows": stats.pending_rows, "bytes": stats.pending_bytes},
        "base": {"files": stats.base_files, "rows": stats.base_rows, "bytes": stats.base_bytes},
    }
