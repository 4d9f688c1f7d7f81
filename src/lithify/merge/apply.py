"""How changes are applied: base rows without those that an overlay hides, plus those that it shows.

| where the rows are                                      | its form                                             |
|---------------------------------------------------------|------------------------------------------------------|
| in memory                                               | `standing`, then the overlay's rows                  |
| in files that DataFusion scans                          | `hiding_sql`, then the overlay's rows                |
| in files, with more changes than are merged in memory   | `distributed_sql`, for DataFusion and Spark          |
| in files that Spark scans                               | `spark/overlay.py`: bitmaps, or an anti-join         |
| in a file that a fold rewrites                          | `files/rewrite.py`: each new row where its old stood |
| in a hot table                                          | `cache/hot_rows.py: applied`: hidden rows are marked     |

All of them mean the same: `by` are the columns that tell a row (the key, or those that pending tombstones of a table
with no key go by), a row goes if a hidden line equals it in all of them, and nulls compare equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.arrow_rows import anti_join
from lithify.core.names import quoted
from lithify.core.schema import TableSchema, nullable
from lithify.merge.late import without_late_sql
from lithify.merge.newer import newest_first_sql
from lithify.merge.partial_sql import merged_sql


def standing(rows: pa.Table, hidden: pa.Table, by: Sequence[str]) -> pa.Table:
    """The rows that `hidden` does not hide, in their order."""
    if not hidden.num_rows or not rows.num_rows or not by:
        return rows
    hidden = hidden.select(list(by)).cast(nullable(hidden.select(list(by)).schema))
    if rows.num_rows < hidden.num_rows // 4:
        # Few rows are not worth a hash table of all hidden keys: keep those keys that can meet one of them.
        first = hidden.column(by[0])
        hidden = hidden.filter(pc.is_in(first, value_set=rows.column(by[0]).cast(first.type)))
    return anti_join(rows, hidden, by)


def same_sql(left: str, right: str, by: Mapping[str, bool]) -> str:
    """Whether a line of one relation equals one of another in the columns `by`; True: nulls compare equal."""
    return " AND ".join(
        f"({left}.{quoted(name)} {'IS NOT DISTINCT FROM' if with_nulls else '='} {right}.{quoted(name)})"
        for name, with_nulls in by.items()
    )


def hiding_sql(rows: str, shown: str, hidden_rows: str, hidden: str, by: Mapping[str, bool]) -> str:
    """An anti-join. The names `shown` and `hidden` for the two sides must not be those of a column: inside of EXISTS,
    `t.x` is the field x of a column t.
    """
    same = same_sql(hidden, shown, by)
    return f"SELECT * FROM {rows} {shown} WHERE NOT EXISTS (SELECT 1 FROM {hidden_rows} {hidden} WHERE {same})"


def distributed_sql(
    schema: TableSchema,
    base: str,
    changes: str,
    row_key: Sequence[str] = (),
    quote: str = '"',
    *,
    partial: bool = False,
    remembered: str | None = None,
) -> str:
    """The same merge as one SQL text for both engines, for changes too large for one machine's memory.

    `base` has the user's columns; `changes` also has _seq and _op. `partial`: some changes give some columns alone;
    then `changes` also tells which (null: all of them), and the order of lines within a commit. `remembered`: keys and
    order values of deletes that keep some of them out (`late.tombstone_columns`).
    """

    def q(name: str) -> str:
        return quoted(name) if quote == '"' else f"`{name}`"

    columns = ", ".join(q(name) for name in schema.names)
    if remembered is not None:
        changes = f"({without_late_sql(schema, changes, remembered, quote)}) z"
    if partial:
        return merged_sql(schema, base, changes, q)
    union = (
        f"SELECT {columns}, CAST(0 AS BIGINT) AS _seq, 'base' AS _op FROM {base} "
        f"UNION ALL SELECT {columns}, _seq, _op FROM {changes}"
    )
    by = ", ".join(q(name) for name in (schema.key or row_key))
    if not by:
        return f"SELECT {columns} FROM ({union}) u"
    if not schema.keyed:
        return (
            f"SELECT {columns} FROM (SELECT *, max(CASE WHEN _op = 'delete' THEN _seq ELSE -1 END) OVER "
            f"(PARTITION BY {by}) AS _gone "
            f"FROM ({union}) u) w WHERE _op <> 'delete' AND _seq > _gone"
        )
    order = "".join(f"{each}, " for each in newest_first_sql(schema, q))
    gone = "'delete'"
    if schema.order_by:
        gone = "'delete', 'delete_at', 'gone_at'"
        union = (
            "SELECT * FROM (SELECT *, max(CASE WHEN _op IN ('delete', 'replace', 'gone_at') THEN _seq ELSE -1 END) "
            f"OVER (PARTITION BY {by}) "
            f"AS _gone FROM ({union}) u) b WHERE _op <> 'delete' AND _seq >= _gone"
        )
    return (
        f"SELECT {columns} FROM (SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY {order}_seq DESC) AS _rank "
        f"FROM ({union}) u) w WHERE _rank = 1 AND _op NOT IN ({gone})"
    )
