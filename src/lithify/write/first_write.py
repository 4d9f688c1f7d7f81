"""The first write of a table that is created with rows: its file is staged here, and the commit that makes the table
names it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import PurePath

import pyarrow as pa

from lithify.core.names import TableName
from lithify.core.ops import Op
from lithify.core.schema import TableSchema
from lithify.delta.actions import LogChange
from lithify.delta.changes import SEQ_TXN, ChangesLog
from lithify.errors import LithifyError
from lithify.files.change_files import encoded_changes
from lithify.files.open_parquet import footer_in
from lithify.files.parquet import Written
from lithify.metrics.recent_events import RecentEvents
from lithify.tables.runtime import Runtime
from lithify.write.conditions import Write
from lithify.write.small_writes import one_row_per_key


@dataclass
class FirstWrite:
    """`rows` fit the schema, and of a table with a key each has its own."""

    runtime: Runtime
    name: TableName
    schema: TableSchema
    rows: pa.Table
    write: Write
    seq: int = 0
    _staged: list[tuple[PurePath, Written]] = field(default_factory=list)

    def change(self, changes: ChangesLog) -> LogChange:
        """What the commit is to do. Asked again, it is the same file."""
        store, folder = self.runtime.store, changes.log.path
        if not self._staged:
            rows = one_row_per_key(self.schema, self.rows, Op.UPSERT)
            data, stats = encoded_changes(self.schema, Op.UPSERT, rows)
            path = f"write-{self.runtime.new_id()}.parquet"
            store.create(folder / path, data)
            self._staged.append((folder / path, Written(path, len(data), rows.num_rows, stats, footer_in(data))))
            store.sync_folder(folder)
            store.step("write.files")
        said = self.write.said(self.rows.num_rows, 0, self.runtime.settings.actor)
        done = changes.added([(written, Op.UPSERT) for _, written in self._staged], {}, said)
        self.seq = done.txns[SEQ_TXN]
        return done

    def discard(self) -> None:
        """Where the table was not created. What cannot be removed now goes with the claim."""
        for path, _ in self._staged:
            with contextlib.suppress(LithifyError):
                self.runtime.store.delete(path)

    def tell(self) -> None:
        self.runtime.activity.committed(1, self.rows.num_rows)
        self.runtime.shared(RecentEvents).wrote(str(self.name), self.seq, self.rows.num_rows)
