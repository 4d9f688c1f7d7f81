"""`x NOT IN (SELECT …)` where the engine forgets NULLs, and would find, or delete, other rows.

Whether x is among some rows is unknown where x is NULL, or one of the rows is and no other is equal. The engine keeps
to that where NOT IN is all that a condition says, or stands beside AND alone. Everywhere else it takes unknown for no:
which is right as long as the two come to the same, as they do for `x IN (…)` beside OR, and wrong where a NOT, IS NULL
or a function tells them apart. There, and where a NOT IN names columns of the query around it, it is refused, unless
both sides are columns of tables that hold no NULLs. `NOT EXISTS` says what is meant, and is never unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from datafusion.expr import Expr
from datafusion.plan import LogicalPlan

from lithify.core.names import TableRef
from lithify.core.sql_text import without_comments
from lithify.errors import InvalidRequest

_SOUGHT = re.compile(r"\bin[\s(]+(?:select|with|values)\b", re.IGNORECASE)
_IS_ONE = "IN (<subquery>)"
# Of a subquery's own conditions the engine shows the text alone.
_NEGATED = re.compile(r"(?:\S+ NOT|NOT \S+) \Z")
_LOOK_BACK_MAX = 200
# What leaves the columns of tables as they are.
_PLAIN = re.compile(r"(?:Filter|TableScan|SubqueryAlias|Inner Join|Cross Join)\b")
_PLAIN_INSIDE = re.compile(
    r'Projection\(Projection \{ expr: \[Column\(Column \{ relation: [^\[\]]*?, name: "([^"]+)" \}\)\], input: '
)
_CHANGED_INSIDE = ("Join(", "Aggregate(", "Union(", "Window(", "Unnest(", "Values(")
# Unknown and no are the same behind these, and what is inside of them is as it was, or turned around.
_TESTS = {"IsTrue": True, "IsNotTrue": True, "IsFalse": False, "IsNotFalse": False}


def check_in_subqueries(plan: LogicalPlan, query: str, schemas: Mapping[TableRef, pa.Schema]) -> None:
    """InvalidRequest for a plan, not yet optimised, that holds such a condition. `schemas`: of the tables it names."""
    if _SOUGHT.search(without_comments(query)) is None:
        return
    text = plan.display_indent()
    waiting, seen = [plan], set[str]()
    while waiting:
        node = waiting.pop()
        waiting.extend(node.inputs())
        if not (said := node.display()).startswith("Filter: "):
            continue
        seen.add(said)
        for found in _forgetful(node.to_variant().predicate()):
            if not _is_never_null(found, node, list(schemas.values())):
                raise _refused(found.canonical_name())
    for line in text.splitlines():
        if (said := line.strip()).startswith("Filter: ") and said not in seen and (" OR " in said or "CASE " in said):
            _check_inner(said)


def _check_inner(condition: str) -> None:
    for one in re.finditer(re.escape(_IS_ONE), condition):
        before = _NEGATED.search(condition[max(0, one.start() - _LOOK_BACK_MAX) : one.start()])
        if before is not None:
            raise _refused(before[0] + _IS_ONE)


def _refused(said: str) -> InvalidRequest:
    said = said.replace("(<subquery>)", "(SELECT …)")
    shown = said if len(said) <= 120 else f"{said[:117]}..."
    return InvalidRequest(
        f"the query is not accepted: NULLs would be forgotten in {shown}, which stands beside OR, within NOT, CASE or "
        "a function, or names columns of the query around it: write NOT EXISTS (SELECT 1 FROM … WHERE … = …) for NOT IN"
    )


def _forgetful(condition: Expr) -> Iterator[Expr]:
    """Where the engine takes unknown for no, and it makes a difference."""
    # Whether it is to hold, or not to; None: either counts. And whether it stands beside AND alone.
    waiting: list[tuple[Expr, bool | None, bool]] = [(condition, True, True)]
    while waiting:
        expr, holds, alone = waiting.pop()
        kind = expr.variant_name()
        if kind == "BinaryExpr" and (binary := expr.to_variant()).op() in ("AND", "OR"):
            alone = alone and (binary.op() == "AND") is holds
            waiting += [(side, holds, alone) for side in (binary.left(), binary.right())]
        elif kind == "Not":
            waiting.append((expr.to_variant().expr(), None if holds is None else not holds, alone))
        elif kind in _TESTS:
            waiting.append((expr.to_variant().expr(), _TESTS[kind], False))
        elif kind == "InSubquery":
            found = expr.to_variant()
            negated = holds is None or found.negated() is holds
            if negated and (not alone or "OuterReferenceColumn" in str(found.subquery())):
                yield expr
        elif kind == "Case" and expr.to_variant().expr() is None:
            case = expr.to_variant()
            for when, then in case.when_then_expr():
                waiting += [(when, True, False), (then, holds, False)]
            if (otherwise := case.else_expr()) is not None:
                waiting.append((otherwise, holds, False))
        elif kind != "Literal" and _IS_ONE in expr.canonical_name():
            waiting += [(part, None, False) for part in _parts(expr)]


def _parts(expr: Expr) -> list[Expr]:
    try:
        found = expr.rex_call_operands()
    except Exception:  # it has none that the engine shows
        return []
    return [part for part in found if part.canonical_name() != expr.canonical_name()]


def _is_never_null(expr: Expr, node: LogicalPlan, schemas: Sequence[pa.Schema]) -> bool:
    """Whether both sides are columns that tables declare so, and nothing in between makes a NULL."""
    found = expr.to_variant()
    inside = str(found.subquery())
    column = _PLAIN_INSIDE.search(inside)
    if column is None or inside.count("(Projection {") > 1 or any(sign in inside for sign in _CHANGED_INSIDE):
        return False
    if found.expr().variant_name() != "Column":
        return False
    waiting = list(node.inputs())
    while waiting:
        below = waiting.pop()
        if _PLAIN.match(below.display()) is None:
            return False
        waiting.extend(below.inputs())
    names = {column[1], found.expr().to_variant().name()}
    fields = [field for schema in schemas for field in schema if field.name in names]
    return not any(field.nullable for field in fields)
