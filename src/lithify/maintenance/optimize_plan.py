"""Deciding a cluster (z-order): by which columns, and which files. Pure.

Every partition is written anew as a whole, on its own: a file never holds rows of two, which is also why a partition
column cannot be clustered by.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import pyarrow as pa

from lithify.core.arguments import check_names
from lithify.core.partitioning import partition_strings
from lithify.core.schema import TableSchema
from lithify.core.snapshot import DataFile, Snapshot
from lithify.core.wording import plural
from lithify.errors import Conflict, InvalidRequest
from lithify.maintenance.plans import CompactPlan

CLUSTER = "cluster"
COLUMNS_MAX = 8


def columns_to_cluster(schema: TableSchema, table: str, by: str | Iterable[str] | None) -> tuple[str, ...]:
    """The given columns, checked; by default those of `sort_by`, else the key, then the time column."""
    if by is None:
        fixed = set(schema.partition_by)
        usual = schema.options["sort_by"] or (*schema.key, *filter(None, (schema.time,)))
        names = [name for name in usual if name not in fixed]
        chosen = tuple(dict.fromkeys(names))
        if not chosen:
            raise InvalidRequest(f"table {table} has neither a key nor a time column: say by which columns, by=[...]")
        return chosen[:COLUMNS_MAX]
    if not isinstance(by, str):
        check_names("the columns to order by", by)
    chosen = (by,) if isinstance(by, str) else tuple(by)
    if not 1 <= len(chosen) <= COLUMNS_MAX:
        raise InvalidRequest(f"z-order takes 1 to {COLUMNS_MAX} columns, not {len(chosen)}")
    for name in chosen:
        if name in schema.partitions:
            raise InvalidRequest(
                f"table {table} is partitioned by {name!r}, so each of its files holds one value of it already: "
                "z-order by other columns"
            )
        if name not in schema.names:
            raise InvalidRequest(f"column {name!r} is not in table {table}: it has {', '.join(schema.names)}")
        if pa.types.is_nested(schema.columns.field(name).type):
            raise InvalidRequest(
                f"column {name!r} is {schema.columns.field(name).type}: only plain values have an order to cluster by"
            )
    if len(set(chosen)) < len(chosen):
        raise InvalidRequest(f"z-order names a column twice: {', '.join(chosen)}")
    return chosen


def cluster_plans(
    snapshot: Snapshot, by: tuple[str, ...], target_bytes: int, busy: Collection[str] = ()
) -> list[CompactPlan]:
    taken = next((file.path for file in snapshot.base if file.path in busy), None)
    if taken is not None:
        raise Conflict(
            f"{taken} of table {snapshot.table} is being rewritten by another job: try again when it is done"
        )
    groups: dict[tuple[tuple[str, str | None], ...], list[DataFile]] = {}
    for file in snapshot.base:
        values = partition_strings(snapshot.schema, file.partition)
        groups.setdefault(tuple(sorted(values.items())), []).append(file)
    return [_plan(snapshot, dict(values), files, by, target_bytes) for values, files in groups.items()]


def _plan(
    snapshot: Snapshot,
    partition: Mapping[str, str | None],
    files: list[DataFile],
    by: tuple[str, ...],
    target_bytes: int,
) -> CompactPlan:
    size = sum(file.size_bytes for file in files)
    outputs = max(1, round(size / target_bytes))
    return CompactPlan(
        table=snapshot.table,
        origin=CLUSTER,
        files=tuple(sorted(files, key=lambda file: file.path)),
        partition=partition,
        target_bytes=target_bytes,
        why=f"z-order by {', '.join(by)}",
        gain=f"{plural(len(files), 'file')} → {outputs}, each a narrow range of {', '.join(by)}",
        bytes_out=size,
        by=by,
    )
