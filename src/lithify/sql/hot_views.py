"""Hot rows as DataFusion sees them, and when files are the better choice.

The table that DataFusion reads is made once for each state of a hot table and goes with it; it reads the same memory.
Strings that are kept as dictionaries are shown so first, which is faster. Where a query cannot be planned or run like
that, or would give other types, they are shown as strings through a view.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

import pyarrow as pa
from datafusion import SessionContext, col
from datafusion.catalog import Table
from datafusion.expr import Expr

from lithify.cache.rows import RowsInMemory
from lithify.core.expiry import Cutoff
from lithify.core.names import quoted
from lithify.core.read_plan import ReadPlan
from lithify.sql.scan_files import shown, table_of_batches
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

    def table(
        self, hot: RowsInMemory, ctx_of: Callable[[], SessionContext], *, plain: bool, cutoff: Cutoff | None = None
    ) -> Table:
        """`ctx_of` gives the context in which a view of it is built, if one is needed. `cutoff`: without the rows that
        have expired.
        """
        with self._lock:
            table = self._tables.get(hot)
            if table is None:
                # In parts, so that the engine need not deal them out first.
                parts = PARTS_PER_THREAD * self._threads if hot.rows > ONE_THREAD_ROWS_MAX else 1
                table = self._tables[hot] = table_of_batches(self._scratch, hot.batches(), hot.columns, parts)
        strings = plain and hot.has_dictionaries
        return _view(ctx_of(), table, hot, cutoff, strings=strings) if strings or cutoff is not None else table


def _view(ctx: SessionContext, table: Table, hot: RowsInMemory, cutoff: Cutoff | None, *, strings: bool) -> Table:
    name = f"lithify_hot_{id(hot)}"
    if not ctx.table_exist(name):
        ctx.register_table(name, table)
    frame = ctx.table(f"datafusion.public.{name}")
    if cutoff is not None:
        frame = shown(frame, cutoff)
    if strings:
        frame = frame.select(
            *[_as_string(f) if pa.types.is_dictionary(f.type) else col(quoted(f.name)) for f in hot.columns]
        )
    return Table(frame.into_view())


def _as_string(field: pa.Field) -> Expr:
    return col(quoted(field.name)).cast(pa.string()).alias(field.name)


def reads_most(plan: ReadPlan) -> bool:
    """Whether a plan leaves at least half of what there is to read."""
    if not plan.clean and not plan.touched:
        return False
    report = plan.pruning
    return report is None or 2 * report.bytes_read >= report.bytes_total


def reads_little(plan: ReadPlan) -> bool:
    raw_bytes = sum(source.raw_bytes or 0 for source in (*plan.clean, *plan.touched))
    return fits_memory(plan) and raw_bytes <= LITTLE_RAW_BYTES
