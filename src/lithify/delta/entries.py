"""The live files of a log as values: as deltalake tells those of a version, and as one commit adds them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa

from lithify.core.disk_files import lies_inside
from lithify.core.names import OP, SEQ, is_job_folder
from lithify.core.ops import Op
from lithify.core.snapshot import Bounds, DataFile
from lithify.delta.foreign_bounds import believed
from lithify.delta.stated_values import Unfamiliar, bound, partition_value
from lithify.errors import Corruption

INT64_MAX = 2**63 - 1
# What deltalake escapes in the paths of its log, besides blanks, control characters and everything beyond ASCII.
_ESCAPED = re.compile(r"""[^!-~]|[\\{^}%`\]">\[<#|*?]""")


def data_files(actions: pa.Table, bounded: Sequence[str]) -> Iterator[DataFile]:
    """Of deltalake's list of the files of a version."""
    names = actions.column_names

    def column(name: str) -> list[Any]:
        return actions.column(name).to_pylist() if name in names else [None] * actions.num_rows

    bounds = {name: (column(f"min.{name}"), column(f"max.{name}"), column(f"null_count.{name}")) for name in bounded}
    partitions = {n.removeprefix("partition."): column(n) for n in names if n.startswith("partition.")}
    counted = {n.removeprefix("null_count."): actions.column(n) for n in names if n.startswith("null_count.")}
    paths, sizes, rows = column("path"), column("size_bytes"), column("num_records")
    times = column("modification_time")
    for i in range(actions.num_rows):
        yield _data_file(
            paths[i],
            sizes[i],
            rows[i],
            times[i],
            {name: (low[i], high[i], nulls[i]) for name, (low, high, nulls) in bounds.items()},
            {name: values[i] for name, values in partitions.items()},
            lambda i=i: tuple(name for name, values in counted.items() if values[i].is_valid),
        )


def added_file(
    add: Mapping[str, Any], columns: pa.Schema, partitions: Sequence[str], bounded: Sequence[str]
) -> DataFile:
    """Of one action of a commit. Raises Unfamiliar where it says what is not known here."""
    if add.get("deletionVector") is not None:
        raise Unfamiliar("a deletion vector")
    try:
        # All digits of a decimal count, and those of a double that is read so are the same.
        stats = json.loads(add.get("stats") or "{}", parse_float=Decimal)
        low, high, nulls = (stats.get(name) or {} for name in ("minValues", "maxValues", "nullCount"))
        stated = add["partitionValues"]
        if type(add["path"]) is not str or not 0 <= add["size"] <= INT64_MAX:
            raise ValueError
        if stats.get("numRecords") is not None and type(stats["numRecords"]) is not int:
            raise ValueError
        add["path"].encode()
        kinds = {name: columns.field(name).type for name in {*bounded, *partitions} if name in columns.names}
        told = kinds.keys() - set(partitions)  # what it says of partition columns besides their values is not believed
        return _data_file(
            add["path"],
            int(add["size"]),
            stats.get("numRecords"),
            add.get("modificationTime"),
            {
                name: (bound(kinds[name], low.get(name)), bound(kinds[name], high.get(name)), nulls.get(name))
                if name in told
                else (None, None, None)
                for name in bounded
            },
            {name: partition_value(kinds[name], stated.get(name)) for name in partitions},
            lambda: tuple(name for name in columns.names if nulls.get(name) is not None),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Unfamiliar(f"{add!r}") from error


def _data_file(
    log_path: str,
    size_bytes: int,
    rows: int | None,
    time_ms: int | None,
    bounds: Mapping[str, tuple[Any, Any, int | None]],
    partition: dict[str, Any],
    counted: Any,
) -> DataFile:
    """`counted`: the columns whose nulls are counted, which are those that a tombstone goes by."""
    seq, op = partition.pop(SEQ, 0), Op(partition.pop(OP, Op.UPSERT.value))
    bounds_of = Bounds if _is_ours(log_path) else believed
    return DataFile(
        log_path=log_path,
        path=_inside(log_path),
        size_bytes=size_bytes,
        rows=rows if rows is not None else -1,
        bounds={name: bounds_of(*stated) for name, stated in bounds.items()},
        partition=partition,
        seq=seq,
        op=op,
        columns=counted() if op is Op.DELETE else (),
        time_ms=time_ms or 0,
    )


def _inside(log_path: str) -> str:
    """A log may name files anywhere; here it names those of its own folder."""
    path = unquote(log_path)
    if not lies_inside(path) or (path != log_path and not lies_inside(log_path)):
        raise Corruption(
            f"the log names the file {log_path!r}, which does not lie in the table's folder: nothing outside is read; "
            "copy the table with the writer that made it (a shallow clone into a deep one), or restore its log"
        )
    return path


def _is_ours(path: str) -> bool:
    return path.startswith("write-") or is_job_folder(path.partition("/")[0])


def spelled(path: str) -> str:
    """A path as deltalake spells it in a log."""
    return _ESCAPED.sub(lambda found: quote(found[0], safe=""), path)
