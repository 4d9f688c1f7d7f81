"""Lines that give some columns alone (`partial`), as SQL for both engines: windows over the lines of each key.

A line counts unless an earlier one of the same life of its key has a higher order value; a delete or replace begins a
new life. A column is that of the last line so far that counts and gives it, or what its merge rule makes of all lines
so far of this life (`rules_sql`). Without order_by an upsert begins a new life as well. A line counts for an order
group if it says something of it, and nothing newer came so far; what sets a whole row stands first in its life, and
counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lithify.core.names import GIVEN, NTH, OP, SEQ
from lithify.core.schema import TableSchema
from lithify.merge.newer import ranked_sql
from lithify.merge.rules_sql import rule_sql

Quote = Callable[[str], str]
_ORDERED_DELETES = "'delete_at', 'gone_at'"


def merged_sql(schema: TableSchema, base: str, changes: str, q: Quote) -> str:
    """The rows of a table. `base` has its columns; `changes` also has `SEQ`, `OP`, `GIVEN` and `NTH`."""
    columns, by = ", ".join(q(name) for name in schema.names), ", ".join(q(name) for name in schema.key)
    union = (
        f"SELECT {columns}, CAST(0 AS BIGINT) AS {SEQ}, 'base' AS {OP}, CAST(NULL AS STRING) AS {GIVEN}, "
        f"CAST(0 AS INT) AS {NTH} FROM {base} UNION ALL SELECT {columns}, {SEQ}, {OP}, {GIVEN}, {NTH} FROM {changes}"
    )
    barriers = "'delete', 'replace', 'gone_at'" if schema.order_by else "'delete', 'replace', 'upsert'"
    lines = (
        f"SELECT * FROM (SELECT *, max(CASE WHEN {OP} IN ({barriers}) THEN {SEQ} ELSE -1 END) OVER (PARTITION BY {by}) "
        f"AS _gone FROM ({union}) u) b WHERE {OP} <> 'delete' AND {SEQ} >= _gone"
    )
    lines = _with_newest(schema, _winning(schema, lines, by, q), by, q)
    rank = f"{_from_the_end(schema, by, SEQ, NTH)} AS _rank"
    taken = [name for name in schema.names if name not in schema.key]
    inside = f"SELECT {', '.join([by, OP, *_last_given(schema, taken, by, q), rank])} FROM ({lines}) w"
    there = f"_rank = 1 AND {OP} NOT IN ({_ORDERED_DELETES})" if schema.order_by else "_rank = 1"
    return f"SELECT {', '.join(_whole(schema, schema.names, taken, q))} FROM ({inside}) r WHERE {there}"


def whole_events_sql(schema: TableSchema, events: str, columns: Sequence[str], others: Sequence[str], q: Quote) -> str:
    """Events of a feed with a whole row each, one per key and commit, and without those that lost: what was an update
    is an upsert of the row as it was then. `columns`: those of the table that the events have; `others`: what else.
    """
    by, life = ", ".join(q(name) for name in schema.key), "_lithify_life"
    so_far = f"PARTITION BY {by} ORDER BY {SEQ}, {NTH} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    barriers = "'delete', 'replace', 'gone_at'" if schema.order_by else "'delete', 'replace', 'upsert'"
    lines = f"SELECT *, sum(CASE WHEN {OP} IN ({barriers}) THEN 1 ELSE 0 END) OVER ({so_far}) AS {life} FROM {events}"
    by_life = f"{by}, {life}"
    lines = _winning(schema, lines, by_life, q, spared=f"{OP} NOT IN ('upsert', 'update', 'delete_at')")
    lines = _with_newest(schema, lines, by_life, q)
    rank = f"{_from_the_end(schema, f'{by}, {SEQ}', NTH)} AS _rank"
    taken = [name for name in columns if name not in schema.key]
    kept = [by, SEQ, _plain_op(), *others]
    inside = f"SELECT {', '.join([*kept, *_last_given(schema, taken, by_life, q), rank])} FROM ({lines}) w"
    shown = [*_whole(schema, columns, taken, q), SEQ, OP, *others]
    return f"SELECT {', '.join(shown)} FROM ({inside}) r WHERE _rank = 1"


def _from_the_end(schema: TableSchema, by: str, *order: str) -> str:
    """Which one it is of the lines, 1 for the last."""
    if schema.rules:
        # Beside a window that goes down, DataFusion turns others around, and array_agg gives its lists turned around.
        number = f"row_number() OVER (PARTITION BY {by} ORDER BY {', '.join(order)})"
        return f"count(*) OVER (PARTITION BY {by}) - {number} + 1"
    return f"row_number() OVER (PARTITION BY {by} ORDER BY {', '.join(f'{name} DESC' for name in order)})"


def _plain_op() -> str:
    deleted = f"WHEN {OP} IN ({_ORDERED_DELETES}) THEN 'delete'"
    return f"CASE WHEN {OP} = 'update' THEN 'upsert' {deleted} ELSE {OP} END AS {OP}"


def _before(by: str) -> str:
    return f"PARTITION BY {by} ORDER BY {SEQ}, {NTH} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"


def _winning(schema: TableSchema, lines: str, by: str, q: Quote, spared: str | None = None) -> str:
    """The lines without those that a higher order value stands before, but for those that a condition spares."""
    if not schema.order_by:
        return lines
    ranked, order = ranked_sql(schema, f"({lines}) l", q)
    conditions = [*([spared] if spared else []), "_best IS NULL", f"{order} >= _best"]
    return (
        f"SELECT * FROM (SELECT *, max({order}) OVER ({_before(by)}) AS _best FROM {ranked}) o "
        f"WHERE {' OR '.join(conditions)}"
    )


def _with_newest(schema: TableSchema, lines: str, by: str, q: Quote) -> str:
    """The lines, each with the highest order value so far of every order group."""
    if not schema.order_groups:
        return lines
    best = [
        f"max(CASE WHEN {_gives(order)} THEN {q(order)} END) OVER ({_so_far(by)}) AS {_newest(schema, order)}"
        for order in schema.order_groups
    ]
    return f"SELECT *, {', '.join(best)} FROM ({lines}) g"


def _newest(schema: TableSchema, order: str) -> str:
    return f"_lithify_newest_{list(schema.order_groups).index(order)}"


def _so_far(by: str) -> str:
    return f"PARTITION BY {by} ORDER BY {SEQ}, {NTH} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


def _gives(name: str) -> str:
    return f"{GIVEN} IS NULL OR instr({GIVEN}, {_text(f',{name},')}) > 0"


def _last_given(schema: TableSchema, names: Sequence[str], by: str, q: Quote) -> list[str]:
    """Inside of a struct, because null is a value, and the absence of one is not."""
    so_far = _so_far(by)
    found = []
    for number, name in enumerate(names):
        given = f"CASE WHEN {_gives(name)} THEN"
        rule = schema.rules.get(name)
        if rule is not None and rule.by:
            counts = f"{GIVEN} IS NULL OR (({_gives(rule.by)}) AND {q(rule.by)} >= {_newest(schema, rule.by)})"
            made = f"last_value(CASE WHEN {counts} THEN named_struct('v', {q(name)}) END) IGNORE NULLS OVER ({so_far})"
        elif rule is not None:
            kind, spark = schema.columns.field(name).type, q("").startswith("`")
            made = f"named_struct('v', {rule_sql(rule, kind, f'{given} {q(name)} END', so_far, spark=spark)})"
        else:
            made = f"last_value({given} named_struct('v', {q(name)}) END) IGNORE NULLS OVER ({so_far})"
        found.append(f"{made} AS _last_{number}")
    return found


def _whole(schema: TableSchema, columns: Sequence[str], taken: Sequence[str], q: Quote) -> list[str]:
    return [q(name) if name in schema.key else f"_last_{taken.index(name)}['v'] AS {q(name)}" for name in columns]


def _text(value: str) -> str:
    """A text for both engines, which do not agree on quotes inside of one."""
    parts = [f"'{part}'" for part in value.split("'")]
    return parts[0] if len(parts) == 1 else f"concat({', chr(39), '.join(parts)})"
