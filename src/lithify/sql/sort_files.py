"""Rows of many Parquet files in one order, with bounded memory: what does not fit is sorted on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

import pyarrow as pa
from datafusion import RuntimeEnvBuilder, SessionContext, col

from lithify.core.names import quoted
from lithify.core.read_plan import Source
from lithify.sql.errors import translated_errors
from lithify.sql.scan_files import LinkFolder, scan, scanning_config

THREADS = 2
# Each run that is merged has a batch in memory: wide rows in large batches would not fit beside each other.
BATCH_ROWS = 4_096


def sorted_batches(
    sources: Sequence[Source], columns: pa.Schema, by: Sequence[str], scratch: PurePath, memory_bytes_max: int
) -> Iterator[pa.RecordBatch]:
    """All rows, ascending by these columns, nulls first. `scratch`: a folder on a disk with room for them once more."""
    config = (
        scanning_config()
        .with_target_partitions(THREADS)
        .with_batch_size(BATCH_ROWS)
        .set("datafusion.execution.parquet.schema_force_view_types", "false")
        .set("datafusion.execution.time_zone", "UTC")
    )
    runtime = RuntimeEnvBuilder().with_disk_manager_specified(str(scratch)).with_fair_spill_pool(memory_bytes_max)
    links = LinkFolder(scratch / "links")
    try:
        with translated_errors(sources=sources):
            frame = scan(SessionContext(config, runtime), sources, columns, links)
            order = [col(quoted(name)).sort(ascending=True, nulls_first=True) for name in by]
            for batch in frame.sort(*order).execute_stream():
                yield batch.to_pyarrow()
            links.check()
    finally:
        links.remove()
