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


@dataclass(frozen=True)
class Change:
    """The rows of one change file, with the seq and operation its log entry gives them."""

    seq: int
    op: Op
    rows: pa.Table


@dataclass(frozen=True)
class Overlay:
    hidden: pa.Table
    rows: pa.Table
    contested: pa.Table | None = None

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
