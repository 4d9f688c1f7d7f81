"""One commit as the log holds it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CommitRecord:
    version: int
    timestamp_ms: int
    info: Mapping[str, Any]
    adds: tuple[Mapping[str, Any], ...]
    removes: tuple[Mapping[str, Any], ...]
    txns: Mapping[str, int]


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
