"""Rows in memory as a table that a query can name, here and in a query process: a snapshot with no files, whose rows
are all pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lithify.core.ops import Overlay
from lithify.core.predicates import Predicate
from lithify.core.read_plan import PlannedTable, ReadPlan, RowsInMemory, Summary
from lithify.core.schema import TableSchema
from lithify.core.snapshot import Snapshot


@dataclass(frozen=True)
class GivenRows(PlannedTable):
    """`beside`: a table that their reader may read. A query process that has been given these rows is one for it."""

    rows: pa.Table
    beside: PlannedTable

    @property
    def snapshot(self) -> Snapshot:
        schema = TableSchema(self.rows.schema)
        return Snapshot(self.beside.snapshot.table, schema, 0, 0, 0, 0, (), (), "given")

    @property
    def folders(self) -> tuple[str, ...]:
        return self.beside.folders

    def plan(self, predicate: Predicate | None = None, columns: Sequence[str] | None = None) -> ReadPlan:
        return ReadPlan(self.snapshot, (), (), Overlay(self.rows.schema.empty_table(), self.rows))

    def fetch(self) -> None:
        """They are in memory."""

    def hot(self, columns: Sequence[str] | None) -> RowsInMemory | None:
        return None

    def want_hot(self, columns: Sequence[str] | None) -> None:
        """They are in memory."""

    def summary(self) -> Summary | None:
        return None
