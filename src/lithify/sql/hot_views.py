"""Hot rows as DataFusion sees them, and when files are the better choice.

The table that DataFusion reads is made once for each state of a hot table and goes with it; it reads the same memory.
Where rows of it are dead, a view passes over them by their bits and shows the table's own columns. Strings that are
kept as dictionaries or views are shown so first, which is faster. Where a query cannot be planned or run like that, or
would give other types, they are shown as strings.
"""

from __future__ import annotations

import threading
import weakref

import pyarrow as pa
from datafusion import SessionContext, col
from datafusion.catalog import Table
from datafusion.expr import Expr

from lithify.cache.hot_rows import ALIVE
from lithify.cache.strings import is_encoded
from lithify.core.expiry import Cutoff
from lithify.core.names import quoted
from lithify.core.read_plan import ReadPlan, RowsInMemory
from lithify.sql.scan_files import frame_of, shown, table_of_batches
from lithify.sql.scan_memory import fits_memory

# Up to so many rows, a scan in memory takes less time than it takes to find out whether files would be faster.
SCANNED_ROWS_MAX = 4_000_000
LITTLE_RAW_BYTES = 4 * 2**20
# The part that ends the building side of a join goes on with its own rows at once and leaves one of those that waited
# for it to its own thread, where no other can take it. With one part for each thread that thread would do two of them.
PARTS_PER_THREAD = 2
# So few rows are not worth waking other threads for.
ONE_THREAD_ROWS_MAX = 65_536


class HotViews:
    def __init__(self, scratch: SessionContext, threads: int) -> None:
        self._scratch, self._threads = scratch, threads
        self._tables: weakref.WeakKeyDictionary[RowsInMemory, Table] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def table(self, hot: RowsInMemory, *, plain: bool, cutoff: Cutoff | None = None) -> Table:
        """`plain`: with strings as strings. `cutoff`: without the rows that have expired."""
        with self._lock:
            table = self._tables.get(hot)
            if table is None:
                # In parts, so that the engine need not deal them out first.
                parts = PARTS_PER_THREAD * self._threads if hot.rows > ONE_THREAD_ROWS_MAX else 1
                table = table_of_batches(self._scratch, hot.batches(), hot.columns, parts)
                table = self._tables[hot] = self._living(table, hot) if hot.has_dead else table
        strings = plain and hot.is_encoded
        return self._view(table, hot, cutoff, strings=strings) if strings or cutoff is not None else table

    def _living(self, table: Table, hot: RowsInMemory) -> Table:
        frame = frame_of(self._scratch, table).filter(col(quoted(ALIVE)))
        return Table(frame.select(*(col(quoted(name)) for name in hot.columns.names)).into_view())

    def _view(self, table: Table, hot: RowsInMemory, cutoff: Cutoff | None, *, strings: bool) -> Table:
        frame = frame_of(self._scratch, table)
        if cutoff is not None:
            frame = shown(frame, cutoff)
        if strings:
            frame = frame.select(*map(_as_string, hot.columns))
        return Table(frame.into_view())


def _as_string(field: pa.Field) -> Expr:
    column = col(quoted(field.name))
    return column.cast(pa.string()).alias(field.name) if is_encoded(field.type) else column


def reads_most(plan: ReadPlan) -> bool:
    """Whether a plan leaves at least half of what there is to read."""
    if not plan.clean and not plan.touched:
        return False
    report = plan.pruning
    return report is None or 2 * report.bytes_read >= report.bytes_total


def reads_little(plan: ReadPlan) -> bool:
    raw_bytes = sum(source.raw_bytes or 0 for source in (*plan.clean, *plan.touched))
    return fits_memory(plan) and raw_bytes <= LITTLE_RAW_BYTES
