"""What one backup holds: of each table a version, the files of its two logs and of its rows. Pure.

A manifest is read as data that somebody may have changed: no path in it leads out of the folder that it is below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

FORMAT = 1
CHANGES, BASE = LOGS = ("changes", "base")
_PART = re.compile(r"(?!\.{1,2}$)[^/\\\0]+")
_SUM = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class SavedFile:
    """`path` is that below the folder of its log; `sha256` of its content."""

    path: str
    size_bytes: int
    sha256: str

    def __post_init__(self) -> None:
        if not all(_PART.fullmatch(part) for part in self.path.split("/")):
            raise ValueError(f"{self.path!r} is no path of a backup")
        if type(self.size_bytes) is not int or self.size_bytes < 0 or not _SUM.fullmatch(self.sha256):
            raise ValueError(f"{self.path} has no size or no checksum")


@dataclass(frozen=True)
class SavedTable:
    """A version of a table: of each log (`LOGS`) what it is read from, and the files that it names."""

    table_id: str
    seq: int
    rows: int
    logs: Mapping[str, tuple[SavedFile, ...]]
    data: Mapping[str, tuple[SavedFile, ...]]

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9A-Za-z-]+", self.table_id) or {*self.logs} != {*LOGS} or {*self.data} != {*LOGS}:
            raise ValueError("a table of it is not described whole")

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for files in (*self.logs.values(), *self.data.values()) for file in files)


@dataclass(frozen=True)
class Manifest:
    """`left_out`: tables that are not part of it, each with the reason."""

    id: str
    lake: str
    created: str
    tables: Mapping[str, SavedTable]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(table.size_bytes for table in self.tables.values())

    def document(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}, ensure_ascii=False, indent=1).encode()

    @classmethod
    def parsed(cls, document: bytes) -> Manifest:
        """Raises ValueError, TypeError, KeyError or AttributeError where it is none."""
        said = json.loads(document)
        if said["format"] != FORMAT:
            raise ValueError(f"it has format {said['format']}, this Lithify knows {FORMAT}")
        tables = {str(name): _table(found) for name, found in said["tables"].items()}
        left_out = {str(name): str(reason) for name, reason in said["left_out"].items()}
        return cls(str(said["id"]), str(said["lake"]), str(said["created"]), tables, left_out)


def _table(said: Mapping[str, Any]) -> SavedTable:
    logs, data = (
        {log: tuple(SavedFile(**file) for file in files) for log, files in said[kind].items()}
        for kind in ("logs", "data")
    )
    return SavedTable(str(said["table_id"]), int(said["seq"]), int(said["rows"]), logs, data)
