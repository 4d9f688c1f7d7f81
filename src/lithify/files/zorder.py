"""Writing the files of one partition anew in z-order, in memory: enough for small tables. Large ones go to Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lithify.core.arrow_rows import take
from lithify.files.addresses import path_of
from lithify.files.key_checksum import added, fingerprint_of_file
from lithify.files.local_files import bring
from lithify.files.merge_sorted import MergeResult, MergeSource, OrderTask
from lithify.files.parquet import PartWriter, Written, part_path, read
from lithify.files.zorder_values import quantiles, z_values
from lithify.metrics.progress import advance


@dataclass(frozen=True)
class ClusterTask(OrderTask):
    """In z-order of `by`."""

    @property
    def files(self) -> int:
        return max(1, round(sum(source.size_bytes for source in self.sources) / self.target_bytes))

    @property
    def check_columns(self) -> pa.Schema:
        return pa.schema([self.layout.columns.field(name) for name in self.check])


def cluster_here(task: ClusterTask) -> MergeResult:
    columns = task.layout.columns
    bring((source.path, source.size_bytes) for source in task.sources)
    parts = []
    for source in task.sources:
        parts.append(read(path_of(source.path), columns, dict(source.constants), source.size_bytes))
        advance(1, parts[-1].num_rows, source.size_bytes)
    rows = pa.concat_tables([columns.empty_table(), *parts])
    order = np.argsort(z_values(rows, quantiles(rows, task.by)), kind="stable")
    share = -(-rows.num_rows // task.files) or 1
    written = [
        write_part(task, [take(rows, order[start : start + share])], f"{task.name}-{number:05d}.parquet")
        for number, start in enumerate(range(0, rows.num_rows, share))
    ]
    checks = [fingerprint_of_source(source, task.check_columns) for source in task.sources]
    root, check = path_of(task.root), task.check_columns
    again = [fingerprint_of_file(root / file.path, check, size_bytes=file.size_bytes) for file in written]
    return MergeResult(tuple(written), task.partition, rows.num_rows, added(checks), added(again))


def write_part(task: ClusterTask, tables: Iterable[pa.Table], name: str) -> Written:
    writer = PartWriter(part_path(task.root, task.folder, name), task.layout.columns, task.layout)
    try:
        for table in tables:
            advance()
            writer.write(table.cast(task.layout.columns))
        return writer.close(path_of(task.root))
    except BaseException:
        writer.abandon()
        raise


def fingerprint_of_source(source: MergeSource, columns: pa.Schema) -> int:
    return fingerprint_of_file(path_of(source.path), columns, dict(source.constants), source.size_bytes)
