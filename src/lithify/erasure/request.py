"""Asking for an erasure: what is refused, what would go, and what is written down before anything is done."""

from __future__ import annotations

import re
import secrets as randomness
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lithify.core.arguments import check_count, check_text
from lithify.core.ops import Op
from lithify.core.optional import need
from lithify.core.results import ErasurePlan
from lithify.core.rows import keys_of
from lithify.delta.changes import BASE_PATH
from lithify.erasure.blockers import blockers
from lithify.erasure.chain import signing_key
from lithify.erasure.inventory import take_inventory
from lithify.erasure.key_rows import Keys
from lithify.erasure.lake_access import LakeAccess
from lithify.erasure.needles import needles_of, text_of
from lithify.erasure.records import Record, Records
from lithify.erasure.rewrite import Rewriting
from lithify.erasure.sealed import Sealed
from lithify.erasure.secrets import SALT_BYTES, subject_of
from lithify.errors import Conflict, InvalidRequest
from lithify.merge.winners import latest_per_key
from lithify.tables.handles import Handles

if TYPE_CHECKING:
    from lithify.write.access import TableAccess

ROWS_MAX = 1000


@dataclass(frozen=True)
class Asked:
    """What is to be erased, found at the head."""

    table: TableAccess
    keys: pa.Table
    rows: pa.Table


def find(lake: LakeAccess, name: str, keys: Any, where: str | None, rows_max: int) -> Asked:
    table = lake.table(name)
    handles = table.handles
    _check_table(handles)
    schema = handles.schema()
    if (keys is None) == (where is None):
        raise InvalidRequest("say what to erase: keys=…, or where=…, and not both")
    check_count("rows_max", rows_max, 1, needed=True)
    with table.maintaining() as (own, reader):
        snapshot = own.snapshot().unhidden
        if where is not None:
            check_text("a condition", where)
            wanted = lake.runtime.serving.read(reader.planned(snapshot), list(schema.key), where)
            if not wanted.num_rows:
                raise InvalidRequest(
                    f"no row of {name} meets the condition now: nothing was done. Rows that are only in the past are "
                    "erased by their keys"
                )
        else:
            wanted = keys_of(keys, schema)
        wanted = latest_per_key(schema, wanted.select(list(schema.key)), Op.DELETE)
        if wanted.num_rows > rows_max:
            raise InvalidRequest(
                f"{wanted.num_rows:,} rows of {name} would be erased, more than rows_max ({rows_max:,}): nothing was "
                "done. There is no way back, so look at a dry run first, then raise rows_max"
            )
        found = [reader.get(snapshot, key) for key in wanted.to_pylist()]
    there = [row.cast(schema.columns) for row in found if row is not None]  # those of memory may all be null
    rows = pa.concat_tables([schema.columns.empty_table(), *there])
    return Asked(table, wanted, rows)


def plan(asked: Asked, history: str) -> ErasurePlan:
    with asked.table.maintaining() as (handles, _):
        snapshot = handles.snapshot()
        sizes, held = dict[str, int](), blockers(handles)
        if history == "rewrite":
            hits = take_inventory(handles, Keys(asked.keys.column_names, asked.keys)).files
            rewriting = Rewriting(handles, "", None, asked.keys, tuple(hits))
            rewriting.check_can()
            sizes, held = rewriting.foreseen(), rewriting.blockers()
    return ErasurePlan(
        str(asked.table.name),
        asked.keys.num_rows,
        asked.rows.num_rows,
        len(snapshot.base) + len(snapshot.changes),
        len(sizes),
        sum(sizes.values()),
        held,
        _AFTERWARDS[history],
    )


_AFTERWARDS = {
    "rewrite": "every version that can be read now, without the rows",
    "cut": "the rows as they are when it is done, and what comes after; nothing older, for anybody",
}


def begin(
    lake: LakeAccess, asked: Asked, history: str, reason: str | None, actor: str | None, break_pins: bool
) -> tuple[Record, bytes]:
    """Write the erasure down. The salt is answered, and kept nowhere."""
    need("erase")
    records, handles = Records(lake.runtime), asked.table.handles
    if history == "rewrite":
        Rewriting(handles, "", None, asked.keys, ()).check_can()
    _check_reason(reason, asked)
    _check_reason(actor, asked, "the actor")
    for other in records.all():
        if other.is_open and other.table_id == handles.incarnation:
            raise Conflict(
                f"erasure {other.id} of {other.table} is not done yet ({other.state}): resume or cancel it first",
                erasure=other.id,
            )
    signing_key(records)
    salt, now_ms = randomness.token_bytes(SALT_BYTES), lake.runtime.now_ms()
    keys = asked.keys.to_pylist()
    record = Record(
        id=lake.runtime.new_id(),
        table=str(handles.name),
        table_id=handles.incarnation,
        key=tuple(asked.keys.column_names),
        reason=reason,
        actor=actor or lake.runtime.settings.actor,
        requested_ms=now_ms,
        history=history,
        break_pins=break_pins,
        keys=len(keys),
        subjects=tuple(sorted(subject_of(key.values(), salt) for key in keys)),
        hidden_rows=asked.rows.num_rows,
    )
    needles = needles_of([*keys, *asked.rows.to_pylist()])
    records.create(record, Sealed.new(asked.keys, needles).files())
    return record, salt


def _check_table(handles: Handles) -> None:
    name, schema = handles.name, handles.schema()
    if handles.runtime.store.remote:
        raise InvalidRequest(
            f"erase does not work on a lake in a bucket yet ({handles.runtime.root}): delete the rows, and let vacuum "
            "and the trimming of logs take the past"
        )
    if not schema.keyed:
        raise InvalidRequest(f"table {name} has no key, and erase goes by keys: nothing was done")
    if schema.settings.get(BASE_PATH) is not None:
        raise InvalidRequest(
            f"the base of table {name} is adopted, and its log belongs to others: erase does not cut it. Nothing was "
            "done"
        )


def _check_reason(reason: str | None, asked: Asked, what: str = "the reason") -> None:
    """It stands in clear in the receipt."""
    if reason is None:
        return
    check_text(what, reason)
    texts = {text_of(value) for value in _values([*asked.keys.to_pylist(), *asked.rows.to_pylist()])}
    for text in texts:
        if len(text) > 1 and re.search(rf"(?<!\w){re.escape(text)}(?!\w)", reason, re.IGNORECASE):
            raise InvalidRequest(
                f"{what} holds a value of the rows that are to be erased, and would stand on the receipt: name a "
                "ticket instead",
                public=f"{what} holds a value of the rows that are to be erased: name a ticket instead",
            )


def _values(rows: Iterable[dict[str, Any]]) -> Iterable[Any]:
    return (value for row in rows for value in row.values() if value is not None and not isinstance(value, bool))
