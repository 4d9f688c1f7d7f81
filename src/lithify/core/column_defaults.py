"""Defaults of columns: what a row gets that does not name the column.

A default is a value of the column's type, never an expression. It is put in by whoever makes rows of what a caller
hands over, so that everything after that knows whole rows only: no reader, fold or feed knows of defaults, and rows
that were there before the column, or its default, keep what they have. Null that is written is null.

Columns of the key and of `order_by` have none, because rows that lack these are told apart by nothing; nor have those
with a merge rule or in an order group, where a row that lacks the column says nothing about it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.column_types import Family, Misfit, type_of
from lithify.core.names import names_given
from lithify.core.type_text import type_name
from lithify.errors import Corruption, InvalidRequest

TEXT_MAX = 10_000


def default_of(value: Any, column: pa.Field) -> Any:
    """A default as it is kept, which is as JSON spells it; None: no default."""
    if value is None:
        return None
    known, said = type_of(column.type), f"the default of column {column.name!r}"
    if known.family is Family.NESTED:
        raise InvalidRequest(
            f"column {column.name!r} is {type_name(column.type)}: a default is one plain value; give such a column in "
            "every row"
        )
    try:
        found = known.from_json([value.as_py() if isinstance(value, pa.Scalar) else value], True)
    except Misfit as misfit:
        raise InvalidRequest(
            f"{said} does not fit {type_name(column.type)}: it takes {misfit.wanted}, as a value and not as an "
            "expression"
        ) from None
    if known.family is Family.FLOAT and not math.isfinite(found[0].as_py()):
        raise InvalidRequest(f"{said} is no finite number: give one")
    if known.beyond_calendar(pa.chunked_array([found])) is not None:
        raise InvalidRequest(f"{said} is not between the years 1 and 9999: give one that is")
    kept = known.to_json(found)[0]
    if isinstance(kept, str) and len(kept) > TEXT_MAX:
        raise InvalidRequest(f"{said} has {len(kept):,} characters: {TEXT_MAX:,} are enough")
    return kept


def checked_defaults(
    wanted: Any, columns: pa.Schema, roles: Mapping[str, tuple[str, ...]], ruled: Iterable[str]
) -> dict[str, Any]:
    """A user's defaults, by column and in the order of the columns. `roles`: columns that tell which row it is;
    `ruled`: those with a merge rule, or in an order group.
    """
    if wanted is None:
        return {}
    if not isinstance(wanted, Mapping):
        raise InvalidRequest(f"defaults are values by column, like {{'status': 'new'}}, not {type(wanted).__name__}")
    ruled = set(ruled)
    for name in wanted:
        if name not in columns.names:
            raise InvalidRequest(
                f"there is a default for {name!r}, which is no column: it has {', '.join(columns.names)}"
            )
        if wanted[name] is not None:
            _check_may_have_default(name, wanted[name], roles, ruled)
    found = {name: default_of(wanted[name], columns.field(name)) for name in columns.names if name in wanted}
    return {name: value for name, value in found.items() if value is not None}


def _check_may_have_default(name: str, value: Any, roles: Mapping[str, tuple[str, ...]], ruled: set[str]) -> None:
    for role in ("key", "order_by"):
        if name in roles.get(role, ()):
            raise InvalidRequest(f"column {name!r} is in {role}, which every row has to give: it has no default")
    if name in ruled:
        raise InvalidRequest(
            f"column {name!r} has a merge rule or an order group, by which a row that lacks it says nothing about it: "
            "it has no default"
        )
    if value == "" and name in roles.get("partition_by", ()):
        raise InvalidRequest(f"partition column {name!r} cannot be empty text, which Delta cannot tell from null")


def stored_defaults(defaults: Mapping[str, Any]) -> str:
    return json.dumps(dict(defaults), separators=(",", ":"))


def read_defaults(text: str | None, columns: pa.Schema, where: str) -> dict[str, Any]:
    """The inverse of `stored_defaults`."""
    if not text:
        return {}
    try:
        found = json.loads(text)
        scalars(found, columns)
        return {str(name): value for name, value in found.items()}
    except (ValueError, AttributeError, KeyError, Misfit) as error:
        raise Corruption(f"{where} has defaults of columns that cannot be read: {text[:200]!r}") from error


def scalars(defaults: Mapping[str, Any], columns: pa.Schema) -> dict[str, pa.Scalar]:
    """Kept defaults as values of their columns."""
    return {name: type_of(columns.field(name).type).from_json([value])[0] for name, value in defaults.items()}


def lacking(texts: pa.ChunkedArray, name: str) -> pa.ChunkedArray | None:
    """Which rows do not name a column; None: all do. `texts`: what each names (`names.GIVEN`); each distinct one is
    looked at once.
    """
    without = [text for text in texts.unique().to_pylist() if name not in names_given(text)]
    return pc.is_in(texts, pa.array(without, pa.string())) if without else None
