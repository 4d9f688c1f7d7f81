"""What a Delta table demands of its rows: CHECK constraints, invariants, generated and identity columns, NOT NULL, and
that none of them changes (append-only).

Whoever writes to a table has to keep to them, and Lithify evaluates none but NOT NULL. So a table that has others is
not adopted, and where another writer adds one to an adopted base, nothing is folded into it any more: what is written
stays pending, and readers of base see no row that breaks its rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

_CHECK = "delta.constraints."
_APPEND_ONLY = "delta.appendOnly"


def demands(properties: Mapping[str, str], schema_json: str) -> list[str]:
    """In words, of the properties and the columns of a table as its log has them; NOT NULL is not among them."""
    checks = sorted(name for name in properties if name.startswith(_CHECK))
    found = [f"the property {_APPEND_ONLY} (rows in it cannot change)"] if _is_set(properties, _APPEND_ONLY) else []
    found += [f"the CHECK constraint {name.removeprefix(_CHECK)} ({properties[name]})" for name in checks]
    return found + list(_of_fields(json.loads(schema_json), ""))


def _is_set(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").lower() == "true"


def _of_fields(kind: Any, prefix: str) -> Iterator[str]:
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        name, notes = f"{prefix}{field['name']}", field.get("metadata") or {}
        if "delta.invariants" in notes:
            yield f"an invariant of column {name!r} ({_expression(notes['delta.invariants'])})"
        if "delta.generationExpression" in notes:
            yield f"the generated column {name!r} ({notes['delta.generationExpression']})"
        if any(note.startswith("delta.identity.") for note in notes):
            yield f"the identity column {name!r}"
        yield from _of_fields(field["type"], f"{name}.")
    for inside in ("elementType", "keyType", "valueType"):
        yield from _of_fields(kind.get(inside), prefix)


def _expression(invariant: Any) -> str:
    try:
        return str(json.loads(invariant)["expression"]["expression"])
    except (ValueError, TypeError, KeyError):
        return str(invariant)


def stricter(base: pa.Schema, table: pa.Schema) -> list[str]:
    """Columns that may not be null in base, and may be in the table."""
    return [
        column.name
        for column in table
        if column.nullable and column.name in base.names and not base.field(column.name).nullable
    ]
