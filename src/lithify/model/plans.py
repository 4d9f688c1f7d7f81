"""What a read will do, decided before any engine is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lithify.model.merge import Op, Overlay
from lithify.model.names import is_job_folder
from lithify.model.schema import TableSchema
from lithify.model.snapshot import DataFile, Snapshot

ADOPTED = "adopt"


@dataclass(frozen=True)
class Source:
    """A Parquet file to scan. `constants`: partition columns that stand in the log and not in the file."""

    path: str
    rows: int
    size_bytes: int
    constants: tuple[tuple[str, Any], ...] = ()
    seq: int = 0
    op: Op = Op.UPSERT


@dataclass(frozen=True)
class ReadPlan:
    """Scan `clean` as it is, `touched` without the overlay's hidden keys, and show the overlay's rows.

    Where the changes are too large for one machine's memory, `overlay` is None and the engine merges `changes` itself.
    """

    snapshot: Snapshot
    clean: tuple[Source, ...]
    touched: tuple[Source, ...]
    overlay: Overlay | None
    changes: tuple[Source, ...] = ()

    @property
    def schema(self) -> TableSchema:
        return self.snapshot.schema

    @property
    def by(self) -> tuple[str, ...]:
        """The columns that tell a hidden row: the key, or the pending row key."""
        return self.schema.key or self.snapshot.row_key


def source_of(file: DataFile, folder: str, schema: TableSchema) -> Source:
    return Source(f"{folder}/{file.path}", file.rows, file.size_bytes, constants_of(file, schema), file.seq, file.op)


def constants_of(file: DataFile, schema: TableSchema) -> tuple[tuple[str, Any], ...]:
    """Files that Lithify writes hold their partition columns; adopted ones leave them to the log."""
    top = file.path.partition("/")[0]
    if (
        not schema.partition_by
        or (is_job_folder(top) and not top.startswith(ADOPTED))
        or ("/" not in file.path and file.seq)
    ):
        return ()
    return tuple((name, file.partition[name]) for name in schema.partition_by if name in file.partition)


def by_constants(sources: Iterable[Source]) -> Mapping[tuple[tuple[str, Any], ...], list[Source]]:
    groups: dict[tuple[tuple[str, Any], ...], list[Source]] = {}
    for source in sources:
        groups.setdefault(source.constants, []).append(source)
    return groups
