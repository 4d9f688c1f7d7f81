"""The live files of a log, as values, and the actions that add and remove them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake.transaction import AddAction, RemoveAction

from lithify.core.disk_files import lies_inside
from lithify.core.names import OP, SEQ, is_job_folder
from lithify.core.ops import Op
from lithify.core.snapshot import Bounds, DataFile
from lithify.delta.actions import LogChange
from lithify.delta.foreign_bounds import believed
from lithify.errors import Conflict, Corruption

# What deltalake escapes in the paths of its log, besides control characters and everything beyond ASCII.
_ESCAPED = frozenset('\\{^}%`]">[<#|*?')


def data_files(actions: pa.Table, bounded: Sequence[str]) -> Iterator[DataFile]:
    names = actions.column_names

    def column(name: str) -> list[Any]:
        return actions.column(name).to_pylist() if name in names else [None] * actions.num_rows

    bounds = {name: (column(f"min.{name}"), column(f"max.{name}"), column(f"null_count.{name}")) for name in bounded}
    partitions = {n.removeprefix("partition."): column(n) for n in names if n.startswith("partition.")}
    seqs, ops = partitions.pop(SEQ, None), partitions.pop(OP, None)
    counted = {n.removeprefix("null_count."): actions.column(n) for n in names if n.startswith("null_count.")}
    paths, sizes, rows = column("path"), column("size_bytes"), column("num_records")
    times = column("modification_time")
    for i in range(actions.num_rows):
        op = Op(ops[i]) if ops else Op.UPSERT
        bounds_of = Bounds if _is_ours(paths[i]) else believed
        yield DataFile(
            log_path=paths[i],
            path=_inside(paths[i]),
            size_bytes=sizes[i],
            rows=rows[i] if rows[i] is not None else -1,
            bounds={name: bounds_of(low[i], high[i], nulls[i]) for name, (low, high, nulls) in bounds.items()},
            partition={name: values[i] for name, values in partitions.items()},
            seq=seqs[i] if seqs else 0,
            op=op,
            columns=tuple(n for n, values in counted.items() if values[i].is_valid) if op is Op.DELETE else (),
            time_ms=times[i] or 0,
        )


def _inside(log_path: str) -> str:
    """A log may name files anywhere; here it names those of its own folder."""
    path = unquote(log_path)
    if not lies_inside(path) or not lies_inside(log_path):
        raise Corruption(
            f"the log names the file {log_path!r}, which does not lie in the table's folder: nothing outside is read; "
            "copy the table with the writer that made it (a shallow clone into a deep one), or restore its log"
        )
    return path


def _is_ours(path: str) -> bool:
    return path.startswith("write-") or is_job_folder(path.partition("/")[0])


def check_removable(file: DataFile, table: PurePath) -> None:
    """deltalake spells the path of a removed file in its own way; another spelling in the log would not be removed."""
    spelled = "".join(
        c if c.isascii() and c.isprintable() and c not in _ESCAPED else quote(c, safe="") for c in file.path
    )
    if spelled != file.log_path:
        raise Conflict(
            f"the log of {table} spells the file {file.log_path!r} in a way that cannot be removed safely: "
            "rewrite that file with another Delta writer (an optimize does), then try again"
        )


def actions_of(table: PurePath, change: LogChange, now_ms: int) -> list[AddAction | RemoveAction]:
    """What deltalake is to commit."""
    added_ms = now_ms if change.time_ms is None else change.time_ms
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size_bytes, dict(partition), added_ms, change.data_change, file.stats)
        for file, partition in change.adds
    ]
    for file in change.removes:
        check_removable(file, table)
        actions.append(RemoveAction(file.path, change.data_change, now_ms, file.size_bytes))
    return actions
