"""Rows with one of some values as a SQL condition that Spark and DataFusion read alike, so that files can be ruled out.

A condition holds for all rows that are wanted, and is *exact* if it holds for no other. A few values of a plain type
are listed; of many, or of times, only the bounds are given; what cannot be spelled alike is left out.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.column_types import Family, type_of

VALUES_LISTED_MAX = 1_000
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)
_TEXT_CHARACTERS_MAX = 1_000


@dataclass(frozen=True)
class Restriction:
    """None: every row may be wanted."""

    where: str | None
    exact: bool


def restriction(wanted: pa.Table) -> Restriction:
    """For rows whose columns of these names are, together, one of the rows of `wanted`. Nulls compare equal."""
    parts = [_column(name, wanted.column(name)) for name in wanted.column_names]
    texts = [part.where for part in parts if part.where is not None]
    exact = len(parts) == 1 and parts[0].exact
    return Restriction(" and ".join(texts) or None, exact)


def _column(name: str, values: pa.ChunkedArray) -> Restriction:
    if not _PLAIN_NAME.fullmatch(name):
        return Restriction(None, exact=False)
    distinct = pc.unique(values)
    some = distinct.drop_null()
    exact = len(some) <= VALUES_LISTED_MAX
    bounds = some if exact else pa.array(list(pc.min_max(some).as_py().values()), some.type) if _bounded(some) else None
    spelled = [None] if bounds is None else [_literal(value) for value in bounds.to_pylist()]
    if any(literal is None for literal in spelled):
        return _times(name, some, nulls=len(some) < len(distinct))
    if not len(some):
        text = f"{name} is null"
    elif exact:
        text = f"{name} in ({', '.join(map(str, spelled))})"
    else:
        text = f"{name} >= {spelled[0]} and {name} <= {spelled[-1]}"
    if len(some) and len(some) < len(distinct):
        text = f"({text} or {name} is null)"
    return Restriction(f"({text})", exact)


def _times(name: str, some: pa.Array, *, nulls: bool) -> Restriction:
    """Instants by their bounds, which readers take with a margin for time zones."""
    if not pa.types.is_timestamp(some.type) or some.type.tz is None or not len(some):
        return Restriction(None, exact=False)
    low, high = (f"TIMESTAMP '{value.astimezone(dt.UTC):%Y-%m-%dT%H:%M:%S.%f}Z'" for value in _ends(some))
    text = f"{name} >= {low} and {name} <= {high}"
    return Restriction(f"(({text}) or {name} is null)" if nulls else f"({text})", exact=False)


def _bounded(values: pa.Array) -> bool:
    return type_of(values.type).family in (Family.INTEGER, Family.DATE, Family.TEXT)


def _ends(values: pa.Array) -> list[Any]:
    found = pc.min_max(values)
    return [found["min"].as_py(), found["max"].as_py()]


def _literal(value: Any) -> str | None:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case dt.datetime():
            return None
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case str() if value.isprintable() and len(value) <= _TEXT_CHARACTERS_MAX and not set(value) & set("'\\\"`"):
            return f"'{value}'"
        case _:
            return None
