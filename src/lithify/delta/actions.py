"""One commit: what it changes, what Lithify adds to it, and reading it back from the log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction

from lithify.core.snapshot import DataFile
from lithify.delta.forget_rules import may_expire
from lithify.files.parquet import Written

Adds = Sequence[tuple[Written, Mapping[str, str | None]]]


@dataclass(frozen=True)
class LogChange:
    """What a commit is to do: to files, or to the table's properties, or a new column. `time_ms`: how old the rows of
    added files are, if not new.
    """

    info: Mapping[str, Any]
    adds: Adds = ()
    removes: Sequence[DataFile] = ()
    txns: Mapping[str, int] = field(default_factory=dict)
    data_change: bool = False
    time_ms: int | None = None
    properties: Mapping[str, str] | None = None
    column: pa.Field | None = None


@dataclass(frozen=True)
class CommitRecord:
    version: int
    timestamp_ms: int
    info: Mapping[str, Any]
    adds: tuple[Mapping[str, Any], ...]
    removes: tuple[Mapping[str, Any], ...]
    txns: Mapping[str, int]


def commit_properties(
    txns: Mapping[str, int], info: Mapping[str, Any], write_id: str, time_ms: int
) -> CommitProperties:
    """Without retries: the commit succeeds at the version after the handle's, or not at all. deltalake adds the time of
    its own process; `time_ms` is that of the log.
    """
    return CommitProperties(
        custom_metadata={"lithify": {**info, "write_id": write_id, "time_ms": time_ms}},
        max_commit_retries=0,
        app_transactions=[
            Transaction(name, version, time_ms if may_expire(name) else None) for name, version in txns.items()
        ],
    )


def parse_record(version: int, content: bytes) -> CommitRecord:
    """Raises ValueError for what is no JSON."""
    lines = [json.loads(line) for line in content.splitlines() if line.strip()]
    commit: dict[str, Any] = next((line["commitInfo"] for line in lines if "commitInfo" in line), {})
    info = commit.get("lithify")
    info = info if isinstance(info, dict) else {}
    return CommitRecord(
        version,
        int(info.get("time_ms", commit.get("timestamp", 0))),
        info,
        tuple(line["add"] for line in lines if "add" in line),
        tuple(line["remove"] for line in lines if "remove" in line),
        {line["txn"]["appId"]: line["txn"]["version"] for line in lines if "txn" in line},
    )
