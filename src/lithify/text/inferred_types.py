"""Which types the columns of text files have, when nobody says: those that all of their values fit as they are read.

Text comes out wherever something else would lose a letter of it: numbers with zeros in front, numbers beyond int64.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lithify.errors import InvalidRequest
from lithify.text.csv_rows import parse_values

# The first one that fits is taken.
KINDS: Mapping[str, pa.DataType] = {
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_NUMBER = ("int64", "float64")
_WORDS = r"^\s*(?i:true|false)\s*$"
_ZEROS_OR_DIGITS = r"^\s*[+-]?(?:0\d|\d{19,}\s*$)"

Seen = dict[str, frozenset[str] | None]


def kinds_of(texts: pa.Table, known: Seen) -> Seen:
    """The kinds that values of each column fit; None: it has had no value yet."""
    found = dict(known)
    for name in texts.column_names:
        values = texts.column(name).combine_chunks().drop_null()
        left = found.get(name)
        if len(values) and (left is None or left):
            asked = frozenset(KINDS) if left is None else left
            found[name] = frozenset(kind for kind in asked if _fits(values, kind))
        else:
            found.setdefault(name, None)
    return found


def _fits(values: pa.Array, kind: str) -> bool:
    sample = values.slice(0, 1)
    if len(parse_values(sample, KINDS[kind])[1]):
        return False
    if kind in _NUMBER and pc.any(pc.match_substring_regex(values, _ZEROS_OR_DIGITS)).as_py():
        return kind == "int64" and _all_int64(values)
    if kind == "bool":
        return bool(pc.all(pc.match_substring_regex(values, _WORDS)).as_py())
    return not len(parse_values(values, KINDS[kind])[1])


def _all_int64(values: pa.Array) -> bool:
    """Numbers of 19 digits may still fit."""
    zeros = pc.any(pc.match_substring_regex(values, r"^\s*[+-]?0\d")).as_py()
    return not zeros and not len(parse_values(values, pa.int64())[1])


def merged(parts: Iterable[Seen]) -> Seen:
    found: Seen = {}
    for part in parts:
        for name, kinds in part.items():
            before = found.get(name)
            found[name] = kinds if before is None else before if kinds is None else before & kinds
    return found


def columns_of(seen: Seen) -> pa.Schema:
    return pa.schema(
        [
            (name, next((KINDS[kind] for kind in KINDS if kinds and kind in kinds), pa.string()))
            for name, kinds in seen.items()
        ]
    )


def json_columns(parts: Iterable[pa.Schema]) -> pa.Schema:
    """Columns of JSON rows by the types of their values: a number is no text."""
    try:
        found = pa.unify_schemas([pa.schema([]), *parts], promote_options="permissive")
    except (pa.ArrowException, TypeError) as error:
        raise InvalidRequest(
            f"a column holds values of several types ({str(error).splitlines()[0]}): create the table with the columns "
            "that you want"
        ) from error
    return pa.schema([pa.field(f.name, _without_null(f.type)) for f in found])


def _without_null(kind: pa.DataType) -> pa.DataType:
    """A value that was never there is taken for text."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_without_null(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _without_null(f.type)) for f in kind])
    return kind
