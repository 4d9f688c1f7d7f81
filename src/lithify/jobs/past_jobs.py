"""A bounded file of JSON lines: what maintenance did. For people to read; nothing depends on it.

Lines are appended in one write each, so that several processes can share the file. A line that a crash cut off is
skipped. When the file has grown too large, its newer half is kept.

Where files do not grow, each line is a swap of the whole, which is kept so much smaller: jobs that end are rare, and
whoever reads the history needs one request.
"""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

from lithify.errors import NotFound
from lithify.files.storage import Storage

BYTES_MAX = 1 << 20
SWAPPED_BYTES_MAX = 1 << 18
WAIT_S_MAX = 30


class Journal:
    def __init__(self, store: Storage, path: PurePath, bytes_max: int = BYTES_MAX) -> None:
        self._store, self._path = store, path
        self._bytes_max = bytes_max if store.grows else min(bytes_max, SWAPPED_BYTES_MAX)

    def append(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, default=str).encode() + b"\n"
        if not self._store.grows:
            # The line, which has a time or an id in it, makes the content one that never was before.
            self._store.swap(self._path, lambda data: self._newer((data or b"") + line), WAIT_S_MAX, str(self._path))
            return
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
        def shortened(data: bytes | None) -> bytes | None:
            return None if data is None or len(data) <= self._bytes_max else self._newer(data)

        self._store.swap(self._path, shortened, WAIT_S_MAX, f"shortening {self._path}")

    def _newer(self, data: bytes) -> bytes:
        """All of it, or its newer half where that is too much."""
        return data if len(data) <= self._bytes_max else data[data.index(b"\n", len(data) // 2) + 1 :]
