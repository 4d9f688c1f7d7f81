"""Rows that a condition holds for go, as of one exact state of the table: their keys are looked up on a snapshot, and
deleted if it is still the newest (`decided.py`). Without a key, rows are known by the columns that the condition names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lithify.core.arguments import check_text
from lithify.core.ops import Op
from lithify.core.results import Commit
from lithify.core.schema import check_key_type
from lithify.core.snapshot import Snapshot
from lithify.errors import InvalidRequest
from lithify.write.batch_ids import conditions_of
from lithify.write.conditions import Write
from lithify.write.decided import Decision, write_decided

if TYPE_CHECKING:
    from lithify.sql.query_run import QueryRun
    from lithify.write.access import TableAccess


def delete_where(
    table: TableAccess,
    condition: str,
    batch_id: str | None,
    info: Mapping[str, str],
    *,
    within: QueryRun | None = None,
) -> Commit:
    """`info`: who and why. `within`: the rows are looked for in a process of its own, which is stopped at its limits or
    when the query is cancelled (`LakeInternals.limited`).
    """
    check_text("a condition", condition)
    write = Write("delete where", {**info, "condition": condition}, conditions_of(batch_id))
    schema, serving = table.handles.schema(), table.runtime.serving
    by = list(schema.key) or serving.columns_of(schema.columns, condition, within)
    if not by:
        raise InvalidRequest(
            f"the condition {condition!r} names no column: to delete everything from a table with no key, "
            "drop and create it"
        )
    for name in by if not schema.keyed else ():
        check_key_type(schema.columns.field(name), "delete_where on a table with no key:")

    def decide(snapshot: Snapshot) -> Decision:
        # Also of rows that have expired and are only hidden: who deletes wants all of it gone. With a batch id even
        # "nothing to delete" is remembered: asked again, it must not delete newer rows.
        return Decision({Op.DELETE: serving.read_where(table.reader.planned(snapshot.unhidden), by, condition, within)})

    return write_decided(table, write, decide, called="delete_where", done="deleted")
