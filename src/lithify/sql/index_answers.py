"""Queries that the index alone answers: counts and exact bounds of all rows of one table.

Only the plainest plan is recognised: an Aggregate with no groups directly over one scan with no filter, each of its
results handed on as it is, perhaps renamed. Each aggregate is recognised by its whole text, so that one with a
DISTINCT, a FILTER or an order inside is none of ours. Everything else runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from datafusion.expr import Expr
from datafusion.plan import LogicalPlan

from lithify.core.column_types import type_of
from lithify.core.read_plan import PlannedTable, Summary

_COUNT_ALL = "count(Int64(1))"


def answer_of(plan: LogicalPlan, shape: pa.Schema, planned: PlannedTable) -> pa.Table | None:
    """The answer of an optimised plan over this one table, of the types in `shape`; None: it has to be run."""
    wanted = _aggregates(plan, planned.schema.columns)
    if wanted is None or len(wanted) != len(shape):
        return None
    summary = planned.summary()
    if summary is None:
        return None
    arrays = []
    for find, field in zip(wanted, shape, strict=True):
        found = find(summary)
        if found is None:
            return None
        try:
            arrays.append(pa.array([found[0]], field.type))
        except (pa.ArrowException, ValueError, OverflowError):
            return None
    return pa.table(arrays, schema=shape)


Find = Callable[[Summary], tuple[Any] | None]


def _aggregates(plan: LogicalPlan, columns: pa.Schema) -> list[Find] | None:
    """What each column of the answer is, or None if the plan is another one."""
    outputs: list[str] | None = None
    if plan.display().startswith("Projection:"):
        outputs = []
        for expr in plan.to_variant().projections():
            inner = _unaliased(expr)
            if inner.variant_name() != "Column":
                return None
            outputs.append(inner.to_variant().name())
        plan = plan.inputs()[0]
    if not plan.display().startswith("Aggregate: groupBy=[[]]"):
        return None
    aggregate = plan.to_variant()
    scan = plan.inputs()[0]
    if scan.inputs() or not scan.display().startswith("TableScan:"):
        return None
    table = scan.to_variant()
    if table.filters() or table.fetch() is not None:
        return None
    known = _known(".".join(part for part in table.fqn() if part), columns)
    named = {expr.schema_name(): known.get(_unaliased(expr).canonical_name()) for expr in aggregate.aggregate_exprs()}
    found = [named.get(name) for name in (outputs if outputs is not None else named)]
    kinds = [find for find in found if find is not None]
    return kinds if len(kinds) == len(found) else None


def _unaliased(expr: Expr) -> Expr:
    while expr.variant_name() == "Alias":
        expr = expr.to_variant().expr()
    return expr


def _known(table: str, columns: pa.Schema) -> dict[str, Find]:
    found: dict[str, Find] = {_COUNT_ALL: lambda summary: (summary.rows,)}
    for column in columns:
        name = f"{table}.{column.name}"
        found[f"count({name})"] = _count(column.name)
        if type_of(column.type).is_comparable:
            found[f"min({name})"] = _bound(column.name, 0)
            found[f"max({name})"] = _bound(column.name, 1)
    return found


def _count(column: str) -> Find:
    def find(summary: Summary) -> tuple[Any] | None:
        nulls = summary.nulls(column)
        return None if nulls is None else (summary.rows - nulls,)

    return find


def _bound(column: str, side: int) -> Find:
    def find(summary: Summary) -> tuple[Any] | None:
        bounds = summary.bounds(column)
        return None if bounds is None else (bounds[side],)

    return find
