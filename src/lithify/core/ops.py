"""What a change does to a key, one file of changes, and what changes come to: values of the merge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa


class Op(StrEnum):
    UPSERT = "upsert"
    DELETE = "delete"
    REPLACE = "replace"
    UPDATE = "update"
    DELETE_AT = "delete_at"
    GONE_AT = "gone_at"


# Operations that bring whole rows; those that end whatever came before them on a key; and deletes that have a place in
# the order of a table with order_by: `delete_at` competes like an upsert, `gone_at` is one behind a barrier, as a
# replace is an upsert behind one.
WHOLE = frozenset({Op.UPSERT, Op.REPLACE})
BARRIERS = frozenset({Op.DELETE, Op.REPLACE, Op.GONE_AT})
ORDERED_DELETES = frozenset({Op.DELETE_AT, Op.GONE_AT})
DELETES = frozenset({Op.DELETE, *ORDERED_DELETES})


@dataclass(frozen=True)
class Change:
    """The rows of one change file, with the seq and operation its log entry gives them."""

    seq: int
    op: Op
    rows: pa.Table


@dataclass(frozen=True)
class Overlay:
    """Keys whose base row is hidden, and rows shown instead. What base has to decide first: `contested`, keys and order
    values that a newer base row beats, and `patches`, lines that say some columns of a row alone.
    """

    hidden: pa.Table
    rows: pa.Table
    contested: pa.Table | None = None
    patches: pa.Table | None = None

    @property
    def empty(self) -> bool:
        return not self.hidden.num_rows and not self.rows.num_rows


# What feeds call it, in lower case. One letter: as Debezium and others do, r for a row of the initial snapshot.
WORDS: Mapping[str, Op] = {
    "insert": Op.UPSERT,
    "update": Op.UPSERT,
    "upsert": Op.UPSERT,
    "delete": Op.DELETE,
    "i": Op.UPSERT,
    "c": Op.UPSERT,
    "r": Op.UPSERT,
    "u": Op.UPSERT,
    "d": Op.DELETE,
}
