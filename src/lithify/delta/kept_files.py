"""The files that a handle's version of a log in a bucket was read from, while they are small: who has the log opened
aside soon again, to change columns or to read transactions, need not fetch them a second time.

Files of a log never change. Those of other versions than the kept one and the commits that follow it are not known
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from lithify.delta.commit_files import Needed

KEPT_BYTES_MAX = 64 * 1024


class KeptFiles:
    """What a version needs, and the commits after it."""

    def __init__(self) -> None:
        self._needed: Needed | None = None
        self._files: dict[PurePath, bytes] = {}
        self._bytes = 0

    def take(self, needed: Needed, files: Mapping[PurePath, bytes] | None) -> None:
        """In place of what was kept before. None: they are too large."""
        self.forget()
        if files is not None:
            self._needed = needed
            self._add(files)

    def follow(self, version: int, path: PurePath, body: bytes) -> None:
        """A commit, which counts if it is the next one, or the first of all."""
        if version == 0:
            self.take(Needed(0, (), range(1)), {path: body})
        needed = self._needed
        if needed is not None and version == needed.version + 1:
            self._needed = Needed(version, needed.checkpoint, range(needed.commits.start, version + 1))
            self._add({path: body})

    def _add(self, files: Mapping[PurePath, bytes]) -> None:
        self._files.update(files)
        self._bytes += sum(map(len, files.values()))
        if self._bytes > KEPT_BYTES_MAX:
            self.forget()

    def forget(self) -> None:
        self._needed, self._files, self._bytes = None, {}, 0

    def needed_for(self, version: int) -> Needed | None:
        """None: that is not known here."""
        needed = self._needed
        return needed if needed is not None and needed.version == version else None

    def find(self, path: PurePath) -> bytes | None:
        return self._files.get(path)
