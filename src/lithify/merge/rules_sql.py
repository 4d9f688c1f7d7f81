"""Merge rules (`rules`) as SQL for both engines: aggregates over a window of the lines of a key.

Aggregates pass over nulls, as the rules do. Sums of whole numbers are added up as decimals, and the way back to the
column's type fails where it has no room. Both engines hold NaN to be above all numbers.
"""

from __future__ import annotations

import pyarrow as pa

from lithify.core.merge_rules import Rule

_AGGREGATES = {"min": "min", "max": "max", "or": "max", "and": "min"}


def rule_sql(rule: Rule, kind: pa.DataType, value: str, window: str, *, spark: bool) -> str:
    """What a rule makes of `value`, which is null where a line does not give it, over the lines of `window`."""
    over = f"OVER ({window})"
    match rule.kind:
        case "sum" | "count":
            scale = kind.scale if pa.types.is_decimal(kind) else 0
            total = f"sum(CAST({value} AS DECIMAL(38, {scale}))) {over}"
            return f"CAST({total} AS {'BIGINT' if kind == pa.int64() else f'DECIMAL(38, {scale})'})"
        case "append":
            return _appended(rule.bound, value, over, spark=spark)
        case "first" | "last_non_null":
            return f"{'first' if rule.kind == 'first' else 'last'}_value({value}) IGNORE NULLS {over}"
        case _:
            return f"{_AGGREGATES[rule.kind]}({value}) {over}"


def _appended(bound: int, value: str, over: str, *, spark: bool) -> str:
    """A list that stands alone is left as it is."""
    if spark:
        every = f"flatten(collect_list({value}) {over})"
        newest = f"slice({every}, greatest(size({every}) - {bound - 1}, 1), {bound})"
    else:
        newest = f"array_slice(flatten(array_agg({value}) IGNORE NULLS {over}), -{bound}, -1)"
    alone = f"last_value({value}) IGNORE NULLS {over}"
    return f"CASE WHEN count({value}) {over} > 1 THEN {newest} ELSE {alone} END"
