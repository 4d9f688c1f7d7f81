"""From DataFusion's expressions to predicates that pruning understands.

A condition is taken apart along AND, OR and NOT down to comparisons of one column with constants. NOT is pushed down to
the comparisons, which is exact in SQL's three-valued logic: NOT (a < 1) is TRUE where a >= 1 is. What a constant means
beside a column is up to the dialect of the text, so a `Constants` decides it; whatever it does not decide, and every
other expression, is UNKNOWN. A predicate may be TRUE for more rows than the condition, never for fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
from datafusion.expr import Expr

from lithify.core.predicates import UNKNOWN, Compare, In, IsNull, Op, Predicate, Prefix, both, either

# Operands of one chain of ANDs or ORs that are looked at, and how deep conditions are followed.
TERMS_MAX = 256
DEPTH_MAX = 64

_MIRRORED: dict[str, Op] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED: dict[str, Op] = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_SAME: dict[str, Op] = {"=": "=", "!=": "<>", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


class Never:
    """A part that is TRUE for no row, such as a comparison with NULL."""


NEVER: Final = Never()
Part = Predicate | Never


class Constants(Protocol):
    """What a column and a constant beside it mean in one dialect of SQL."""

    def column(self, expr: Expr) -> pa.Field | None:
        """The column that this expression stands for, if every comparison with it is one with the column."""

    def value(self, column: pa.Field, expr: Expr) -> tuple[Any] | None:
        """The value (None: NULL) that a comparison of the column with this constant compares with."""

    def compare(self, column: pa.Field, op: Op, expr: Expr) -> Part:
        """The comparison of the column with a constant."""


def predicate_of(expr: Expr, constants: Constants) -> Predicate:
    part = _part(expr, constants, negated=False, depth=0)
    return UNKNOWN if isinstance(part, Never) else part


def _part(expr: Expr, constants: Constants, *, negated: bool, depth: int) -> Part:
    if depth > DEPTH_MAX:
        return UNKNOWN
    kind = expr.variant_name()
    if kind == "BinaryExpr":
        return _binary(expr, constants, negated=negated, depth=depth)
    if kind == "Column":
        column = constants.column(expr)
        if column is None or not pa.types.is_boolean(column.type):
            return UNKNOWN
        return Compare(column.name, "=", not negated)
    if kind == "Literal":
        value = expr.python_value().as_py()
        return NEVER if value is None or value is negated else UNKNOWN
    if kind in _UNARY:
        holds = _UNARY[kind]
        # Where the test is TRUE for NULL too, it tells nothing that a predicate could say.
        return (
            UNKNOWN
            if negated not in holds
            else _part(expr.to_variant().expr(), constants, negated=holds[negated], depth=depth + 1)
        )
    if kind in ("IsNull", "IsNotNull"):
        column = constants.column(expr.to_variant().expr())
        return UNKNOWN if column is None else IsNull(column.name, negated=(kind == "IsNotNull") is not negated)
    if kind == "InList":
        return _in_list(expr.to_variant(), constants, negated=negated)
    if kind == "Between":
        return _between(expr.to_variant(), constants, negated=negated)
    if kind == "Like" and not negated:
        return _like(expr, constants)
    return UNKNOWN


# Whether what is inside is negated, by whether the test itself is. Absent: TRUE for NULL.
_UNARY: dict[str, dict[bool, bool]] = {
    "Not": {False: True, True: False},
    "IsTrue": {False: False},
    "IsNotTrue": {True: False},
    "IsFalse": {False: True},
    "IsNotFalse": {True: True},
}


def _binary(expr: Expr, constants: Constants, *, negated: bool, depth: int) -> Part:
    binary = expr.to_variant()
    name = binary.op()
    if name in ("AND", "OR"):
        terms = [
            UNKNOWN if term is None else _part(term, constants, negated=negated, depth=depth + 1)
            for term in _chain(binary, name)
        ]
        return _all(terms) if (name == "AND") is not negated else _any(terms)
    if name == ("IS DISTINCT FROM" if negated else "IS NOT DISTINCT FROM"):
        name, negated = "=", False
        if any(_is_null(side) for side in (binary.left(), binary.right())):
            return UNKNOWN
    op = _SAME.get(name)
    if op is None:
        return UNKNOWN
    op = _NEGATED[op] if negated else op
    if (column := constants.column(binary.left())) is not None:
        return constants.compare(column, op, binary.right())
    if (column := constants.column(binary.right())) is not None:
        return constants.compare(column, _MIRRORED[op], binary.left())
    return UNKNOWN


def _is_null(expr: Expr) -> bool:
    return expr.variant_name() == "Literal" and not expr.python_value().is_valid


def _chain(binary: Any, op: str) -> list[Expr | None]:
    """The operands of a chain of one operator; None stands for what is left of one that is too long."""
    waiting: list[Expr] = [binary.right(), binary.left()]
    terms: list[Expr | None] = []
    while waiting:
        expr = waiting.pop()
        inner = expr.to_variant() if expr.variant_name() == "BinaryExpr" else None
        if inner is None or inner.op() != op:
            terms.append(expr)
        elif len(terms) + len(waiting) < TERMS_MAX:
            waiting += [inner.right(), inner.left()]
        else:
            terms.append(None)
    return terms


def _all(parts: Sequence[Part]) -> Part:
    known = [part for part in parts if not isinstance(part, Never)]
    return both(known) if len(known) == len(parts) else NEVER


def _any(parts: Sequence[Part]) -> Part:
    known = [part for part in parts if not isinstance(part, Never)]
    return either(known) if known else NEVER


def _in_list(found: Any, constants: Constants, *, negated: bool) -> Part:
    column = constants.column(found.expr())
    if column is None:
        return UNKNOWN
    values = []
    for item in found.list():
        value = constants.value(column, item)
        if value is None:
            return UNKNOWN
        values.append(value[0])
    return In(column.name, tuple(values), negated=found.negated() is not negated)


def _between(found: Any, constants: Constants, *, negated: bool) -> Part:
    column = constants.column(found.expr())
    if column is None:
        return UNKNOWN
    if found.negated() is not negated:
        return _any([constants.compare(column, "<", found.low()), constants.compare(column, ">", found.high())])
    return _all([constants.compare(column, ">=", found.low()), constants.compare(column, "<=", found.high())])


def _like(expr: Expr, constants: Constants) -> Part:
    found = expr.to_variant()
    column = constants.column(found.expr())
    if column is None or found.negated() or not pa.types.is_string(column.type):
        return UNKNOWN
    # ILIKE comes as the same node, and only its text tells it apart.
    if not expr.canonical_name().startswith(f"{found.expr().canonical_name()} LIKE "):
        return UNKNOWN
    pattern = constants.value(column, found.pattern())
    if pattern is None or not isinstance(pattern[0], str):
        return UNKNOWN
    # A shorter prefix only keeps more, so everything from the first character with a meaning of its own is left out.
    special = {"%", "_", "\\", found.escape_char()}
    end = next((position for position, letter in enumerate(pattern[0]) if letter in special), len(pattern[0]))
    return Prefix(column.name, pattern[0][:end])
