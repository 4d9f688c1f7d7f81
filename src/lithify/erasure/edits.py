"""What the logs of a table are to say in place of what they say of files with rows that go (`delta/past.py`).

There are two passes. The first has commits remove the new file wherever they remove the old one. The second names the
new file, or none where no row is left for one. Whatever a pass writes, it writes without values: bounds of the old
files and free texts go with the first. Files that are named and not there any more, because vacuum has taken them, keep
their place, so that nobody takes a version for whole that is not; only their bounds go.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import unquote

from lithify.delta.entries import spelled
from lithify.erasure.file_without import FileWithout
from lithify.erasure.words import Words, without_bounds
from lithify.errors import Conflict
from lithify.files.storage import Storage

Said = Mapping[str, Any]


class Edits:
    """Of the log of a table at `root`. `instead`: by the paths of the old files. `names`: the second pass."""

    def __init__(
        self, store: Storage, root: PurePath, instead: Mapping[str, FileWithout], words: Words, *, names: bool
    ) -> None:
        self._store, self._root, self._instead = store, root, instead
        self._words, self._names = words, names

    def add(self, add: Said) -> Said | None:
        path = unquote(add["path"])
        found = self._instead.get(path)
        if found is None:
            return self._of_other(add, path)
        if add.get("deletionVector") is not None:
            raise Conflict(
                f"{self._root / path} has a deletion vector of another writer: compact the table, then resume"
            )
        if not self._names:
            return _with_stats(add, without_bounds(add["stats"])) if add.get("stats") else add
        if found.path is None:
            return None
        after = {**add, "path": spelled(found.path), "size": found.size_bytes}
        return _with_stats(after, found.stats(_counted(add["stats"]))) if add.get("stats") else after

    def _of_other(self, add: Said, path: str) -> Said:
        stats = add.get("stats")
        if not self._words.are_stated(stats) or self._store.exists(self._root / path):
            return add
        return _with_stats(add, without_bounds(str(stats)))

    def removes(self, remove: Said, removed: Collection[str]) -> Sequence[Said]:
        path = unquote(remove["path"])
        found = self._instead.get(path)
        plain = remove
        if remove.get("stats") and (found is not None or self._words.are_stated(remove["stats"])):
            plain = {**remove, "stats": None}
        if found is None:
            return [plain]
        if found.path is None:
            # Of a partition that was named after one of her values.
            return [] if self._names and self._words.stand_in(path) else [plain]
        other = spelled(found.path)
        if other in removed:
            return [plain]
        size = {"size": found.size_bytes} if remove.get("size") is not None else {}
        return [plain, {**plain, "path": other, **size}]

    def said(self, info: Said) -> Said:
        return self._words.blanked(info)

    def concerns(self, path: str, stats: str | None) -> bool:
        return self._names and (unquote(path) in self._instead or self._words.are_stated(stats))


def _with_stats(add: Said, stats: str) -> Said:
    """The same object where they are the same."""
    if add.get("stats") == stats and not add.get("stats_parsed"):
        return add
    return {**add, "stats": stats, **({"stats_parsed": None} if "stats_parsed" in add else {})}


def _counted(stats: str) -> list[str]:
    """The columns that the old file's statistics are about: tombstones go by those whose nulls are counted."""
    return list(json.loads(stats).get("nullCount") or ())
