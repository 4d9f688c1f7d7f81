"""Rows that a condition holds for, deleted in one commit as of one exact state of the table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lithify.core.arguments import check_text
from lithify.core.ops import Op
from lithify.core.results import Commit
from lithify.core.schema import check_key_type
from lithify.errors import Conflict, InvalidRequest
from lithify.files.read_proof import Vanished
from lithify.write.batch_ids import conditions_of
from lithify.write.conditions import AtSeq, SeqMoved, Write
from lithify.write.small_writes import Request

if TYPE_CHECKING:
    from lithify.lake.internals import TableInternals
    from lithify.sql.query_run import QueryRun

ROUNDS_MAX = 20


def delete_where(
    table: TableInternals,
    condition: str,
    batch_id: str | None,
    info: dict[str, str],
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
    for _ in range(ROUNDS_MAX):
        snapshot = table.handles.snapshot()
        # Before looking for rows: those of the first time are gone.
        if batch_id is not None and (answer := table.before(write)) is not None:
            return answer
        try:
            # Also of rows that have expired and are only hidden: who deletes wants all of it gone.
            keys = serving.read_where(table.reader.planned(snapshot.unhidden), by, condition, within)
        except Vanished:
            if table.handles.snapshot().identity == snapshot.identity:
                raise
            continue
        if not keys.num_rows and batch_id is None:
            return Commit(str(table.name), snapshot.seq, "delete where", 0, batch_id=batch_id)
        try:
            # With a batch id even "nothing to delete" is remembered: asked again, it must not delete newer rows.
            parts = {Op.DELETE: keys} if keys.num_rows else {}
            at_seq = replace(write, conditions=(*write.conditions, AtSeq(snapshot.seq)))
            return table.write(Request(at_seq, parts))
        except SeqMoved:
            continue
    raise Conflict(
        f"delete_where on {table.name} was overtaken by other writers {ROUNDS_MAX} times; nothing was deleted: try "
        "again"
    )
