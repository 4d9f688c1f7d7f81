"""A log that lies in a bucket.

There a commit is whole or not there, so nothing can be torn, doubted or synced; and a listing may begin behind a
checkpoint, so old commits can stay where they are: there is no archive.

deltalake is never told of the bucket. Where it is needed, to open a log, to write a checkpoint, to change columns, it
gets a folder of this process that holds what a version needs (`rebuild.aside`), and what it writes there is read from
there and put into the bucket by us.

A handle looks for the next commit alone: one request, whether there is one or not. That is enough as long as no commit
that it has not seen can have been trimmed away, and nothing younger than `TRIM_AGE_MS_MIN` is. A handle that has
not looked for `LOOK_S_MAX`, by a clock that goes on while the machine sleeps, looks whether its version is still there.

A list is where looking begins, and never where it ends: a server may list an object later than it stores it. So a
commit that a list leaves out is asked for by its name before anybody goes by its absence, and what is absent where
nothing can have been trimmed was deleted by somebody else: that is corruption, and is named.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import PurePath

from lithify.delta.actions import CommitRecord, parse_record
from lithify.delta.commit_bodies import CommitBodies
from lithify.delta.commit_files import Commits, Needed, NoLog, unreadable
from lithify.delta.folder import Listing, checkpoint_name, commit_name, hinted_checkpoint
from lithify.delta.kept_files import KEPT_BYTES_MAX, KeptFiles
from lithify.errors import Corruption, LithifyError, NotFound
from lithify.files.at_once import at_once
from lithify.files.local import LocalStorage
from lithify.files.scratch import write_out
from lithify.files.storage import Storage

logger = logging.getLogger(__name__)

LOOK_S_MAX = 600.0
TRIM_AGE_MS_MIN = 24 * 3_600_000
SIDECARS = "_sidecars"
READ_AT_ONCE = 16
_bodies = CommitBodies()
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock_s() -> float:
    """Of this process: how long, never when. It goes on while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


def commits_of(table: PurePath, store: Storage) -> Commits:
    return RemoteCommits(table, store) if store.remote else Commits(table, store)


class RemoteCommits(Commits):
    def __init__(self, table: PurePath, store: Storage) -> None:
        super().__init__(table, store)
        self._unreadable = set[int]()
        self._kept = KeptFiles()
        self._log = object()
        self._looked_s = clock_s()

    def check_after(self, version: int) -> None:
        pass

    def is_archived(self, version: int) -> bool:
        return False

    def exists(self, version: int) -> bool:
        return self.store.tag(self.live_path(version)) is not None

    def read(self, name: str) -> bytes:
        return self.store.read(self.live / name)

    def oldest(self, live_first: int) -> int:
        return live_first

    def record(self, version: int) -> CommitRecord:
        if (body := _bodies.find(self._log, version)) is not None:
            return parse_record(version, body)
        try:
            body = self.read(commit_name(version))
            found = parse_record(version, body)
        except NotFound:
            raise self.gone(version) from None
        except ValueError as error:
            raise unreadable(self.live_path(version)) from error
        _bodies.keep(self._log, version, body)
        return found

    def records(self, versions: Sequence[int]) -> Iterator[CommitRecord]:
        """Many at a time, which are kept until they are asked for."""
        for begin in range(0, len(versions), READ_AT_ONCE):
            yield from at_once(*(partial(self.record, version) for version in versions[begin : begin + READ_AT_ONCE]))

    def dated_records(self, versions: Sequence[int]) -> Iterator[tuple[CommitRecord, int] | None]:
        def found(version: int) -> CommitRecord | None:
            try:
                return self.record(version)
            except NotFound:
                return None

        times_ms = {entry.path: entry.mtime_ms for entry in self.store.entries(self.live)} if versions else {}
        for begin in range(0, len(versions), READ_AT_ONCE):
            some = versions[begin : begin + READ_AT_ONCE]
            for version, record in zip(some, at_once(*(partial(found, version) for version in some)), strict=True):
                if record is None:
                    yield None
                else:
                    # A list may not tell of the last ones yet.
                    listed = times_ms.get(commit_name(version))
                    yield record, int(self.store.modified_ms(self.live_path(version))) if listed is None else listed

    # -- looks

    def following(self, version: int) -> bytes | None:
        return next(iter(self.ahead(version, 1)), None)

    def ahead(self, version: int, count: int) -> list[bytes]:
        """All are asked for at once."""
        now_s, found = clock_s(), dict[int, bytes | None]()
        wanted = range(version + 1, version + 1 + count)
        if self.is_fresh():
            found = {each: self._kept.find(self.live_path(each)) for each in wanted}
        if asked := [each for each in wanted if found.get(each) is None]:
            found.update(zip(asked, self._contents(asked), strict=True))
            if not self.is_fresh() and not self.exists(version):
                raise self.gone(version)
            self._looked_s = now_s
        following = list[bytes]()
        for each in wanted:
            # One that came while they were asked for may be there without the one before it.
            if (content := found[each]) is None:
                break
            if not content:
                raise unreadable(self.live_path(each))
            self.note(each, content)
            following.append(content)
        return following

    def _contents(self, versions: Sequence[int]) -> Sequence[bytes | None]:
        if len(versions) == 1:
            return [self._content(versions[0])]
        return at_once(*(partial(self._content, version) for version in versions))

    def _content(self, version: int) -> bytes | None:
        try:
            return self.store.read(self.live_path(version)).strip()
        except NotFound:
            return None

    def note(self, version: int, body: bytes) -> None:
        """A commit that was written or read."""
        self._kept.follow(version, self.live_path(version), body)

    def broken(self, version: int) -> Corruption:
        self._kept.forget()  # somebody may put it right
        return unreadable(self.live_path(version))

    def is_fresh(self) -> bool:
        return clock_s() - self._looked_s < LOOK_S_MAX

    # -- versions

    def versions(self) -> range:
        """What a list leaves out of the middle is there all the same."""
        listed = set(self.listing().commits)
        if not listed:
            return range(0)
        first = newest = max(listed)
        while first > 0 and (first - 1 in listed or self.exists(first - 1)):
            first -= 1
        return range(first, newest + 1)

    def _recent(self) -> Listing:
        """All of a log that is not long, else from the newest checkpoint on, as far as its hint tells."""
        (names, whole), hinted = at_once(
            lambda: self.store.beginning(self.live), lambda: hinted_checkpoint(self.live, self.store)
        )
        if whole:
            return Listing.told(names)
        if hinted is not None:
            found = Listing.of(self.live, self.store, after=f"{hinted:020d}")
            if hinted in found.checkpoints and found.commits:
                return found
        return self.listing()

    def needed_aside(self, version: int) -> Needed:
        return self._kept.needed_for(version) or self.needed_for(version)

    def needed_for(self, version: int | None) -> Needed:
        recent = self._recent()
        if version is None:
            if not recent.commits:
                raise NoLog(f"{self.table} holds no Delta table")
            version = recent.commits[-1]
        if (found := self._needed_in(recent, version)) is not None:
            return found
        listing = self.listing()
        return self._needed_in(listing, version) or self._needed_unlisted(listing, version)

    def _needed_unlisted(self, listing: Listing, version: int) -> Needed:
        """Where the list does not lead to the version: each commit that is missing is asked for by its name."""
        there = set(listing.commits)
        usable = [c for c in listing.checkpoints if c <= version and c not in self._unreadable]
        checkpoint = usable[-1] if usable else -1
        for missing in range(checkpoint + 1, version + 1):
            if missing not in there and not self.exists(missing):
                raise self._absent(missing, version, listing)
        first = checkpoint if checkpoint in there else checkpoint + 1
        return Needed(version, self._checkpoint_files(checkpoint, listing), range(first, version + 1))

    def _absent(self, missing: int, version: int, listing: Listing) -> LithifyError:
        """A log is trimmed up to a checkpoint that is not the newest one, and never beyond its last commit."""
        trimmed_to = listing.checkpoints[-2:][0] if listing.checkpoints else 0
        if missing < trimmed_to or missing > max(listing.commits, default=-1):
            return self.gone(version)
        return Corruption(
            f"commit {self.live_path(missing)} is missing, though later ones are there: somebody has deleted it; "
            "restore it, from an earlier version of the object if the bucket keeps them"
        )

    def _needed_in(self, listing: Listing, version: int) -> Needed | None:
        """From the newest checkpoint that it has; -1 stands for the beginning."""
        there = set(listing.commits)
        usable = [c for c in listing.checkpoints if c <= version and c not in self._unreadable]
        for checkpoint in (*reversed(usable), -1):
            # With the one that it is of: deltalake builds no commit on a checkpoint alone.
            commits = range(checkpoint if checkpoint in there else checkpoint + 1, version + 1)
            if version in there and set(commits) <= there:
                return Needed(version, self._checkpoint_files(checkpoint, listing), commits)
        return None

    def does_without(self, needed: Needed, readable: bool) -> bool:
        if readable or not needed.checkpoint:
            return False
        logger.warning("%s cannot be read: an older checkpoint is used", needed.checkpoint[0])
        self._unreadable.add(int(needed.checkpoint[0].name[:20]))
        self._kept.forget()
        return True

    def bring(self, needed: Needed, folder: PurePath) -> list[PurePath]:
        """Give a folder what a version is rebuilt from; where the checkpoint lies then."""
        targets = {
            source: folder / source.relative_to(self.live)
            for source in (*needed.checkpoint, *map(self.live_path, needed.commits))
        }
        missing = dict(targets)
        for source, target in targets.items():
            if (data := self._kept.find(source)) is not None:
                write_out(target, data)
                del missing[source]
        self.store.download_all(missing)
        here = LocalStorage()
        if self._kept.needed_for(needed.version) is None:
            small = sum(map(here.size, targets.values())) <= KEPT_BYTES_MAX
            self._kept.take(
                needed, {source: here.read(target) for source, target in targets.items()} if small else None
            )
        return [targets[source] for source in needed.checkpoint]

    def _checkpoint_files(self, version: int, listing: Listing) -> tuple[PurePath, ...]:
        """Others write them in parts, or with further files beside them."""
        if checkpoint_name(version) in listing.names:
            return (self.live / checkpoint_name(version),)
        if version < 0:
            return ()
        names = [name for name in listing.names if name.startswith(f"{version:020d}.checkpoint")]
        beside = [f"{SIDECARS}/{name}" for name in self.store.names(self.live / SIDECARS)]
        return tuple(self.live / name for name in (*names, *beside))
