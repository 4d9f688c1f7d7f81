"""One commit as the log holds it: what Lithify adds to it, and reading it back."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltalake import CommitProperties, Transaction

# Forgotten after the table's retention of transactions; the counters never are.
_EXPIRING = ("lithify.batch.", "lithify.lane.", "lithify.job.")


@dataclass(frozen=True)
class CommitRecord:
    version: int
    timestamp_ms: int
    info: Mapping[str, Any]
    adds: tuple[Mapping[str, Any], ...]
    removes: tuple[Mapping[str, Any], ...]
    txns: Mapping[str, int]


def commit_properties(txns: Mapping[str, int], info: Mapping[str, Any], write_id: str) -> CommitProperties:
    """Without retries: the commit succeeds at the version after the handle's, or not at all."""
    now_ms = int(time.time() * 1000)
    return CommitProperties(
        custom_metadata={"lithify": {**info, "write_id": write_id}},
        max_commit_retries=0,
        app_transactions=[
            Transaction(name, version, now_ms if name.startswith(_EXPIRING) else None) for name, version in txns.items()
        ],
    )


def parse_record(version: int, content: bytes) -> CommitRecord:
    """Raises ValueError for what is no JSON."""
    lines = [json.loads(line) for line in content.splitlines() if line.strip()]
    commit: dict[str, Any] = next((line["commitInfo"] for line in lines if "commitInfo" in line), {})
    info = commit.get("lithify")
    return CommitRecord(
        version,
        int(commit.get("timestamp", 0)),
        info if isinstance(info, dict) else {},
        tuple(line["add"] for line in lines if "add" in line),
        tuple(line["remove"] for line in lines if "remove" in line),
        {line["txn"]["appId"]: line["txn"]["version"] for line in lines if "txn" in line},
    )
