"""Rows that expire: when, and which rows of a table are still there at a moment. Pure.

A row is there while its time plus the declared length lies after the moment, and for ever if it has no time. That is
one comparison of the stored value with a constant of the column's own type, the *cutoff*: in microseconds, or for a
date, which means its midnight in UTC, in days. Times without a zone are taken for UTC. So memory, DataFusion, Spark and
the index compare integers, and none can differ.

It is asked of the winner of a merge and never before: a version of a row that has expired still beats older ones.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.column_types import Family, type_of
from lithify.core.predicates import Compare, IsNull, Or, Predicate
from lithify.errors import InvalidRequest
from lithify.options.expiry_text import EXPIRES, FORM, expiry_text, parse_expiry

if TYPE_CHECKING:
    from lithify.core.snapshot import Bounds

DAY_US = 86_400_000_000
# The share of expired rows that a file is rewritten for, unless the others soon follow: within this share of the time
# that a row lives, or a day.
DROPPED_SHARE_MIN, SOON_SHARE = 0.5, 0.25


@dataclass(frozen=True)
class Cutoff:
    """Rows with this value or a lower one in the column have expired."""

    column: str
    kind: pa.DataType
    value: int  # microseconds since 1970 UTC; of a date, days

    @cached_property
    def scalar(self) -> pa.Scalar:
        return pa.scalar(self.value, self.kind)

    @cached_property
    def shown(self) -> Predicate:
        """What holds for rows that are still there."""
        return Or((Compare(self.column, ">", self.scalar.as_py()), IsNull(self.column)))

    def standing(self, rows: pa.Table) -> pa.Table:
        """Rows that are still there, in their order."""
        return rows.filter(pc.fill_null(pc.greater(rows.column(self.column), self.scalar), True))


@dataclass(frozen=True)
class Expiry:
    column: str
    after_us: int
    kind: pa.DataType

    def __str__(self) -> str:
        return expiry_text(self.column, self.after_us)

    def at(self, moment_ms: int) -> Cutoff:
        cutoff_us = moment_ms * 1000 - self.after_us
        return Cutoff(self.column, self.kind, cutoff_us // DAY_US if pa.types.is_date(self.kind) else cutoff_us)

    def worth_dropping(self, bounds: Bounds, cutoff: Cutoff) -> bool:
        """Whether so much of a file with these bounds has expired that it is rewritten, or goes, for that alone. Its
        rows are taken to lie evenly between the bounds.
        """
        if not bounds.known or bounds.low > (at := cutoff.scalar.as_py()):
            return False
        if bounds.high <= at:
            return True
        soon = dt.timedelta(microseconds=max(self.after_us * SOON_SHARE, DAY_US))
        return bool(at - bounds.low >= DROPPED_SHARE_MIN * (bounds.high - bounds.low) and bounds.high - at > soon)


def expiry_of(text: str, columns: pa.Schema) -> Expiry:
    """What a declaration means for a table with these columns, or a refusal."""
    column, after_us = parse_expiry(text)
    if column not in columns.names:
        raise InvalidRequest(f"option {EXPIRES} names {column!r}: the table has {', '.join(columns.names)}")
    kind = columns.field(column).type
    if type_of(kind).family not in (Family.TIMESTAMP, Family.DATE):
        raise InvalidRequest(f"option {EXPIRES} names {column!r}, which is {kind}, and no time: it is {FORM}")
    return Expiry(column, after_us, kind)
