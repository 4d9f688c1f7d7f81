"""What lies on the disk with the rows that go: their cells, also older ones, join what the scan will look for.

The logs are not asked: a file that no log names may hold them too. Files that stay name the rows only if they were
inserted again, which is the scan's to tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from lithify.erasure.key_rows import Keys, rows_with
from lithify.erasure.needles import Needle, needles_of
from lithify.errors import Corruption, NotFound
from lithify.files.open_parquet import open_file
from lithify.tables.handles import Handles

_PARTITION = re.compile(r"=[^/]*")


@dataclass(frozen=True)
class Inventory:
    """`files`: those with such rows, and how many. `unread`: files that have no key column, or cannot be read."""

    needles: frozenset[Needle]
    files: dict[str, int]
    unread: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Without values."""
        return {"files": self.files, "unread": list(self.unread)}


def without_partitions(document: Mapping[str, Any]) -> dict[str, Any]:
    """Once the files are gone: their paths, but for the values that partitions are named after."""

    def plain(path: str) -> str:
        return _PARTITION.sub("=…", path)

    files = {plain(path): rows for path, rows in document["files"].items()}
    return {"files": files, "unread": [plain(path) for path in document["unread"]]}


def take_inventory(handles: Handles, keys: Keys) -> Inventory:
    needles, files, unread = set[Needle](), dict[str, int](), list[str]()
    for folder, path in _files(handles):
        label = f"{folder.name}/{path}"
        try:
            file = open_file(folder / path)
            if not keys.stand_in(file):
                unread.append(label)
                continue
            rows = list(rows_with(keys, file, folder / path))
        except NotFound:
            continue
        except Corruption:
            unread.append(label)  # it goes, or the scan fails of it
            continue
        if rows:
            files[label] = len(rows)
            needles |= needles_of(rows)
    return Inventory(frozenset(needles), files, tuple(unread))


def _files(handles: Handles) -> Iterator[tuple[PurePath, str]]:
    for folder in (handles.changes.log.path, handles.base_folder):
        for path in sorted(handles.runtime.store.below(folder)):
            name = PurePath(path).name
            if name.endswith(".parquet") and ".checkpoint" not in name:
                yield folder, path
