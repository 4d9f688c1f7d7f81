"""What lies in a log's folder: commits, checkpoints, and what can be read from them.

A version can be read if a checkpoint at or below it is there with every commit in between, or all commits from the
first on. Commits below the newest unbroken run are remains: of a clean-up that was cut off, or of a commit that
came too late.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import PurePath

from lithify.errors import NotFound
from lithify.files.storage import Storage

LOG_FOLDER = "_delta_log"
ARCHIVE_FOLDER = "_log_archive"
COMMIT_NAME = re.compile(r"(\d{20})\.json")
CHECKPOINT_NAME = re.compile(r"(\d{20})\.checkpoint.*\.parquet")
HINT = "_last_checkpoint"
LOCK = ".lithify-recovery"  # held by whoever takes files out of the log
TURN = ".lithify-turn"  # held by whoever commits while others want to


@dataclass(frozen=True)
class Listing:
    names: tuple[str, ...]
    commits: tuple[int, ...]
    checkpoints: tuple[int, ...]

    @classmethod
    def of(cls, folder: PurePath, store: Storage, after: str = "") -> Listing:
        return cls.told(store.names(folder, after))

    @classmethod
    def told(cls, told: Iterable[str]) -> Listing:
        """From the names, in order."""
        names = tuple(told)
        # There may be very many commits: their names are told by their length before anything else is asked.
        commits = tuple(int(name[:20]) for name in names if len(name) == 25 and COMMIT_NAME.fullmatch(name))
        others = (CHECKPOINT_NAME.fullmatch(name) for name in names if len(name) != 25)
        return cls(names, commits, tuple(sorted({int(match.group(1)) for match in others if match})))

    def run(self) -> tuple[int, ...]:
        """The newest commits without a gap, oldest first."""
        start = len(self.commits) - 1
        while start > 0 and self.commits[start - 1] == self.commits[start] - 1:
            start -= 1
        return self.commits[max(start, 0) :]

    def tail(self, version: int, *, after_checkpoint: bool) -> list[int]:
        """Commits up to `version`; only those after the newest checkpoint among them, if so asked."""
        covered = [c for c in self.checkpoints if c <= version] if after_checkpoint else []
        return [v for v in self.run() if (covered[-1] if covered else -1) < v <= version]

    def covers(self, version: int) -> bool:
        return bool(self.checkpoints) and self.checkpoints[-1] >= version

    def can_read(self, version: int, without: Collection[int] = ()) -> bool:
        """Whether the log still says what the table was at `version`, also without some of its checkpoints."""
        present = set(self.commits)
        anchors = [c for c in self.checkpoints if c <= version and c not in without]
        return all(v in present for v in range(anchors[-1] + 1 if anchors else 0, version + 1))


def holds_log(folder: PurePath, store: Storage) -> bool:
    return any(COMMIT_NAME.fullmatch(name) or CHECKPOINT_NAME.fullmatch(name) for name in store.names(folder))


def commit_name(version: int) -> str:
    return f"{version:020d}.json"


def checkpoint_name(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def hinted_checkpoint(folder: PurePath, store: Storage) -> int | None:
    """The newest checkpoint as the log's own pointer tells it: cheap, and only a hint."""
    try:
        hint = json.loads(store.read(folder / HINT))
    except (NotFound, ValueError):
        return None
    version = hint.get("version") if isinstance(hint, dict) else None
    return version if isinstance(version, int) else None
