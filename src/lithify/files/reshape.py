"""Writing one file anew for other columns: the same rows in the same order, one file in and one file out.

A task reads row group by row group and depends on pyarrow alone, so the same code runs in this process and on Spark's
executors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lithify.core.column_changes import Reshape
from lithify.errors import Corruption
from lithify.files.addresses import path_of
from lithify.files.parquet import Layout, PartWriter, Written, batches_of, part_path


@dataclass(frozen=True)
class ReshapeTask:
    """Write `source` into `target` below `root`. `partition`: of its entry in the log, old and new."""

    source: str
    source_rows: int
    source_bytes: int
    constants: Mapping[str, Any]
    reshape: Reshape
    layout: Layout
    root: str
    target: str
    partition: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Reshaped:
    source: str
    written: Written
    partition: Mapping[str, str | None]


def reshape(task: ReshapeTask) -> Reshaped:
    folder, _, name = task.target.rpartition("/")
    rows = 0
    writer = PartWriter(part_path(task.root, folder, name), task.layout.columns, task.layout)
    try:
        stored = task.reshape.stored
        for batch in batches_of(path_of(task.source), stored, dict(task.constants), task.source_bytes):
            rows += batch.num_rows
            writer.write(task.reshape.apply(batch).cast(task.layout.columns))
        written = writer.close(path_of(task.root))
    except BaseException:
        writer.abandon()
        raise
    if not rows == written.rows or rows != task.source_rows >= 0:
        raise Corruption(
            f"{task.source} has {rows} rows instead of {task.source_rows}, and {written.rows} were written: nothing "
            "was committed; restore this file from a copy",
            path=task.source,
        )
    return Reshaped(task.source, written, task.partition)
