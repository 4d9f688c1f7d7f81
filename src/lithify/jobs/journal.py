"""A bounded file of JSON lines: what maintenance did. For people to read; nothing depends on it.

Lines are appended in one write each, so that several processes can share the file. A line that a crash cut off is
skipped. When the file has grown too large, its newer half is kept.
"""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

from lithify.errors import NotFound
from lithify.files.storage import Storage

BYTES_MAX = 1 << 20


class Journal:
    def __init__(self, store: Storage, path: PurePath, bytes_max: int = BYTES_MAX) -> None:
        self._store, self._path, self._bytes_max = store, path, bytes_max

    def append(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, default=str).encode() + b"\n"
        try:
            size = self._store.append(self._path, line)
        except NotFound:
            self._store.make_folder(self._path.parent)
            size = self._store.append(self._path, line)
        if size > self._bytes_max:
            self._shorten()

    def read(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Newest first."""
        try:
            lines = self._store.read(self._path).splitlines()
        except NotFound:
            return []
        records: list[dict[str, Any]] = []
        for line in reversed(lines):
            if limit is not None and len(records) >= limit:
                break
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                records.append(record)
        return records

    def _shorten(self) -> None:
        def newer_half(data: bytes | None) -> bytes | None:
            if data is None or len(data) <= self._bytes_max:
                return None
            return data[data.index(b"\n", len(data) // 2) + 1 :]

        self._store.swap(self._path, newer_half, 30, f"shortening {self._path}")
