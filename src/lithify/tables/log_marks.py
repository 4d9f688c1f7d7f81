"""Whether a log is still at the version that somebody saw: told by two looks for files, without opening it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from lithify.delta.folder import LOG_FOLDER, commit_name
from lithify.delta.log import DeltaLog
from lithify.files.storage import Storage


@dataclass(frozen=True)
class LogMark:
    """The commit of that version, and the name that the next one will have."""

    newest: PurePath
    tag: str | None
    following: PurePath

    @classmethod
    def of(cls, log: DeltaLog, store: Storage) -> LogMark:
        newest, following = (log.path / LOG_FOLDER / commit_name(log.version + n) for n in (0, 1))
        return cls(newest, store.tag(newest), following)

    def holds(self, store: Storage) -> bool:
        """A commit without a tag, because it has left the log, tells nothing."""
        return self.tag is not None and store.tag(self.newest) == self.tag and store.tag(self.following) is None
