"""Which files may go: the decisions of vacuum.

A file on disk may go if, and only if, all of this holds: it is not live at the head; it is ours (a small write, or a
file in a job's folder) or a commit of ours removed it; it was last touched before the cutoff; no commit that is still
in the log and younger than the cutoff removed it, so every version in force since the cutoff keeps its files; no pinned
snapshot names it; no unfinished job owns its folder or reads it.

A removal that has left the log happened before the oldest commit that is left: no version that can still be read needs
the file. A commit is as old as its file, by the file system's clock, and not as whoever made it said: clocks of
processes run ahead and behind. The file system's may be set back, so a commit counts as being as young as the youngest
before it.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import unquote, urlsplit

from lithify.core.disk_files import DiskFile, is_small_write
from lithify.core.names import is_job_folder


class Verdict(StrEnum):
    LIVE = "live"
    FOREIGN = "foreign"
    YOUNG = "young"
    PINNED = "pinned"
    IN_JOB = "in job"
    REMOVED = "removed"
    ORPHAN = "orphan"

    @property
    def goes(self) -> bool:
        return self in (Verdict.REMOVED, Verdict.ORPHAN)


@dataclass
class LogFacts:
    """What one log says of its files. `note` its commits from the oldest on, then set `live` from the same version."""

    root: str
    complete: bool
    live: frozenset[str] = frozenset()
    named: set[str] = field(default_factory=set)
    removed_ms: dict[str, int] = field(default_factory=dict)
    removed_by_us: set[str] = field(default_factory=set)
    times_ms: list[int] = field(default_factory=list)
    oldest_ms: int | None = None
    newest_ms: int = 0
    version: int = -1

    def note(self, version: int, time_ms: int, adds: Iterable[str], removes: Iterable[str], *, ours: bool) -> None:
        """`time_ms`: when the commit's file was written."""
        self.version = version
        self.newest_ms = max(self.newest_ms, time_ms)
        self.times_ms.append(self.newest_ms)
        if self.oldest_ms is None:
            self.oldest_ms = time_ms
        self.named.update(relative_path(path, self.root) for path in adds)
        for path in removes:
            relative = relative_path(path, self.root)
            self.named.add(relative)
            self.removed_ms[relative] = self.newest_ms
            if ours:
                self.removed_by_us.add(relative)

    def may_have_been_committed(self, file: DiskFile) -> bool:
        """Whether a commit named the file, or one that has left the log may have."""
        trimmed_ms = None if self.complete else self.oldest_ms
        return file.path in self.named or (trimmed_ms is not None and file.mtime_ms < trimmed_ms)


@dataclass(frozen=True)
class Protection:
    """What must stay whatever the log says: paths of pinned snapshots, unfinished jobs by id, and what these read.
    `doomed`: what an earlier vacuum found old enough and was about to delete.
    """

    pinned: frozenset[str] = frozenset()
    job_ids: frozenset[str] = frozenset()
    inputs: frozenset[str] = frozenset()
    doomed: frozenset[str] = frozenset()


def judge(file: DiskFile, facts: LogFacts, protection: Protection, cutoff_ms: int) -> Verdict:
    if file.path in facts.live:
        return Verdict.LIVE
    if not is_ours(file.path) and file.path not in facts.removed_by_us:
        return Verdict.FOREIGN
    if max(file.mtime_ms, facts.removed_ms.get(file.path, 0)) >= cutoff_ms and file.path not in protection.doomed:
        return Verdict.YOUNG
    if job_id_of(file.path) in protection.job_ids or file.path in protection.inputs:
        return Verdict.IN_JOB
    if file.path in protection.pinned:
        return Verdict.PINNED
    return Verdict.REMOVED if facts.may_have_been_committed(file) else Verdict.ORPHAN


def freed_by_each(files: Sequence[DiskFile]) -> Iterator[int]:
    """Bytes that come free with each file when they are removed in this order: an inode's with its last link."""
    gone: Counter[tuple[int, int]] = Counter()
    for file in files:
        gone[file.inode] += 1
        yield file.size_bytes if gone[file.inode] >= file.links else 0


def is_ours(path: str) -> bool:
    """Whether only Lithify gives out such names: `write-<uuid>.parquet`, or anything in `<origin>-<uuid>/`."""
    top, slash, _ = path.partition("/")
    return is_job_folder(top) if slash else is_small_write(path)


def job_id_of(path: str) -> str | None:
    """The job that a path belongs to: its folder is `<origin>-<job id>`."""
    top = path.partition("/")[0]
    return top.rpartition("-")[2] if is_job_folder(top) else None


def relative_path(log_path: str, root: str) -> str:
    """A log's spelling of a path as it lies on disk below `root`; what lies elsewhere stays absolute."""
    path = urlsplit(log_path).path if "://" in log_path or log_path.startswith("file:") else log_path
    path = posixpath.normpath(unquote(path))
    inside = root.rstrip("/") + "/"
    return path.removeprefix(inside)
