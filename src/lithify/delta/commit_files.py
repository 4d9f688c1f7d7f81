"""The files of one log in the two places where they may lie: the log's own folder, and the archive beside it.

deltalake lists the log's folder several times for each commit, so old commits are moved to the archive (`archive`),
where only Lithify reads them. A commit moves once, from the log to the archive, oldest first: what lies in the archive
is a run of versions without a gap that ends where the log begins, or a little later while it moves. Whoever looks in
the archive, then in the log, then in the archive again finds every commit that is there. What the archive holds counts:
a commit of the same version in the log came too late (`trim`), or is the same one, still on its way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

from lithify.delta.actions import CommitRecord, parse_record
from lithify.delta.folder import ARCHIVE_FOLDER, LOG_FOLDER, Listing, checkpoint_name, commit_name
from lithify.delta.torn_log import is_parquet
from lithify.errors import Corruption, NotFound
from lithify.files.storage import Storage


class NoLog(NotFound):
    """There is nothing at all, nor was there when it was looked for."""


def unreadable(path: PurePath) -> Corruption:
    return Corruption(f"commit {path} is not readable, or not what was written: restore it from a copy")


class Needed(NamedTuple):
    """A checkpoint, unless all commits from the first on are there, and commits."""

    version: int
    checkpoint: tuple[PurePath, ...]
    commits: range


class Commits:
    def __init__(self, table: PurePath, store: Storage) -> None:
        self.table, self.store = table, store
        self.live, self.archive = table / LOG_FOLDER, table / ARCHIVE_FOLDER
        # Where the head was looked for last, and the one after it, and the head in the archive: asked at every read.
        self._looked_at: tuple[int, PurePath, PurePath, PurePath] | None = None

    def listing(self) -> Listing:
        """Of the log's own folder."""
        return Listing.of(self.live, self.store)

    def live_path(self, version: int) -> PurePath:
        return self.live / commit_name(version)

    def end_at(self, version: int) -> bool:
        """The head moves only by the next commit, and the next never goes before ours does. Looking for the two of them
        costs the same however long the log is; deltalake would list it.
        """
        looked_at = self._looked_at
        if looked_at is None or looked_at[0] != version:
            archived = self.archive / commit_name(version)
            looked_at = self._looked_at = version, self.live_path(version), self.live_path(version + 1), archived
        _, head, following, archived = looked_at
        return self.store.exists(head) and not self.store.exists(following) and not self.store.exists(archived)

    def check_after(self, version: int) -> None:
        """deltalake follows links: none of the commits that it is going to read may be one."""
        while self.store.path_guard.is_there(self.live_path(version + 1)):
            version += 1

    def is_archived(self, version: int) -> bool:
        return version >= 0 and self.store.exists(self.archive / commit_name(version))

    def path(self, version: int) -> PurePath:
        return self.archive / commit_name(version) if self.is_archived(version) else self.live_path(version)

    def exists(self, version: int) -> bool:
        return self.is_archived(version) or self.store.exists(self.live_path(version)) or self.is_archived(version)

    def read(self, name: str) -> bytes:
        for folder in (self.archive, self.live):
            try:
                return self.store.read(folder / name)
            except NotFound:
                continue
        return self.store.read(self.archive / name)

    def record(self, version: int) -> CommitRecord:
        try:
            return parse_record(version, self.read(commit_name(version)))
        except NotFound:
            raise self.gone(version) from None
        except ValueError as error:
            raise unreadable(self.path(version)) from error

    def records(self, versions: Sequence[int]) -> Iterator[CommitRecord]:
        return map(self.record, versions)

    def dated_records(self, versions: Sequence[int]) -> Iterator[tuple[CommitRecord, int] | None]:
        """With the times at which they were put there. None for one that is gone."""
        for version in versions:
            try:
                yield self.record(version), int(self.store.modified_ms(self.path(version)))
            except NotFound:
                yield None

    def versions(self) -> range:
        """Versions whose commit is still there, without a gap."""
        run = self.listing().run()
        return range(self.oldest(run[0]), run[-1] + 1) if run else range(0)

    def oldest(self, live_first: int) -> int:
        """The oldest version of the archive, or that which the log begins with. The archive may hold very many: it is
        searched, not listed.
        """
        if not self.is_archived(live_first - 1):
            return live_first
        return bisect_left(range(live_first), True, key=self.is_archived)

    def checkpoint_up_to(self, version: int, oldest: int) -> tuple[int, PurePath] | None:
        """The newest checkpoint from `oldest` to `version` that can be read. One is never far: see `archive`."""
        for candidate in range(version, oldest - 1, -1):
            for folder in (self.archive, self.live):
                path = folder / checkpoint_name(candidate)
                if self.store.exists(path) and is_parquet(path, self.store):
                    return candidate, path
        return None

    def following(self, version: int) -> bytes | None:
        """The text of the next commit. Commits go oldest first: while this version is there, the next is the one that
        was built on it, and not one that came too late for a version that is gone (`trim`). Raises NotFound if it is.
        """
        try:
            content = self.store.read(self.live_path(version + 1)).strip() or None
            # One that is empty is on its way, of a writer that does not give it its name at the end.
            if content is None and self.store.exists(self.live_path(version + 2)):
                raise unreadable(self.live_path(version + 1))
        except NotFound:
            content = None
        if not self.store.exists(self.live_path(version)) or self.is_archived(version):
            raise self.gone(version)
        return content

    def ahead(self, version: int, count: int) -> list[bytes]:
        """The texts of the next commits, `count` at most. Less: there are no more."""
        found = list[bytes]()
        while len(found) < count and (content := self.following(version + len(found))) is not None:
            found.append(content)
        return found

    def is_fresh(self) -> bool:
        """Whether what was seen of the log cannot have been trimmed since."""
        return False

    def needed_for(self, version: int | None) -> Needed:
        """What a version, or the newest one, is rebuilt from. Raises NotFound."""
        there = self.versions()
        if version is None:
            version = there.stop - 1
        found = self.checkpoint_up_to(version, there.start) if version in there else None
        if found is None and (version not in there or there.start > 0):
            raise self.gone(version)
        if found is None:
            return Needed(version, (), range(version + 1))
        return Needed(version, (found[1],), range(found[0], version + 1))

    def needed_aside(self, version: int) -> Needed:
        """The same for who writes the next version there, on which the log decides: it may be gone by now."""
        return self.needed_for(version)

    def does_without(self, needed: Needed, readable: bool) -> bool:
        """Whether to try again without this checkpoint. Where a torn one can be set aside, that was done before."""
        return False

    def note(self, version: int, body: bytes) -> None:
        """A commit that was written or read. What lies at hand is not kept."""

    def broken(self, version: int) -> Corruption:
        """Of one that is there, and not what was written."""
        return unreadable(self.path(version))

    def tells(self, version: int) -> bool:
        try:
            self.needed_for(version)
        except NotFound:
            return False
        return True

    def gone(self, version: int) -> NotFound:
        return NotFound(f"version {version} of {self.table} is no longer in its log: choose a newer one")
