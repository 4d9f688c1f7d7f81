"""One Delta log: its head in memory, compare-and-swap, durability.

deltalake opens a log; what comes after that is read here, commit by commit (`tail`). A commit of files is written here
too: as a whole, synced, under a name that nobody has yet. What changes columns or properties is left to deltalake.

`try_commit` succeeds only at the version after the one this handle has validated; otherwise it raises `Lost`, and the
caller refreshes, validates everything again and retries. After any failure the log decides what became of the commit:
if the version carries our own write id, it had succeeded after all; if it is not there, the failure is told; if the log
cannot be read, the outcome is unknown (`commit_outcome`). `make_durable` fsyncs this log's commits up to the handle's
version, and nothing may be acknowledged before it returns.

A commit that lost touch with the log (its process slept until the versions it had seen were trimmed away) is taken back
and counts as Lost too: see `trim`.

A power cut can leave the newest commit of another writer empty or torn, because deltalake does not fsync. Such a commit
was never acknowledged; `open` sets it aside. An unreadable commit anywhere else is corruption, and is named.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Field, PostCommitHookProperties
from deltalake.exceptions import DeltaError

from lithify.core.snapshot import DataFile
from lithify.delta.actions import ENGINE, TURN_OF, LogChange, actions_of, commit_body, commit_properties, parse_record
from lithify.delta.actions import CommitRecord as CommitRecord
from lithify.delta.archive import LogLimits, forget_archive
from lithify.delta.checkpoints import Checkpoints, Due, trim_every
from lithify.delta.commit_files import Commits
from lithify.delta.commit_outcome import Intent, Lost, check_outcome
from lithify.delta.cut import Cut, cut
from lithify.delta.folder import LOG_FOLDER, holds_log
from lithify.delta.forget import KEEP_TXNS, RETENTION
from lithify.delta.fsync import Synced
from lithify.delta.head import Definition, Tail
from lithify.delta.live_files import newest_known
from lithify.delta.open_log import open_table
from lithify.delta.own_commits import NotWhole
from lithify.delta.rebuild import Txns, WrittenAside, keep, needed_files, read_txns, rebuild, written_aside
from lithify.delta.redefine import redefined
from lithify.delta.remote_log import commits_of
from lithify.delta.stated_values import Unfamiliar
from lithify.delta.torn_log import set_torn_commit_aside
from lithify.delta.trim import TrimReport, lost_to_trim, trim
from lithify.delta.turns import turns_of
from lithify.errors import CommitUnknown, Corruption, LithifyError, NotFound
from lithify.files.os_errors import Exists
from lithify.files.parquet import Written
from lithify.files.storage import Storage

logger = logging.getLogger(__name__)

AT_ONCE_MAX = 16  # commits that are asked for at a time
FOLLOWED_MAX = 200  # commits that are kept to be read again, before deltalake is asked to open the log anew
_UNKNOWN: Any = object()
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class DeltaLog:
    def __init__(self, commits: Commits, tail: Tail, checkpoint_every: int) -> None:
        self.path, self._store, self._tail = commits.table, commits.store, tail
        self._commits = commits
        self.limits: Callable[[], LogLimits] = lambda: LogLimits(checkpoint_every)
        self.now_ms: Callable[[], int] = lambda: int(time.time() * 1000)
        # Told what was added and removed, once it is durable. It must not fail: the commit stands.
        self.after_commit: Callable[[int, Sequence[Written], Sequence[DataFile]], None] = lambda *_: None
        self._synced = Synced(self._commits)
        self._checkpoints = Checkpoints(self._commits)
        self.turns = turns_of(self._commits)
        self._pinned = False
        # Opened at the version that a list of the log told, which was the newest when that was there.
        self.opened_as_listed = False
        self._time = -1, 0
        self.lock = threading.RLock()

    # -- opening

    @classmethod
    def exists(cls, path: PurePath, store: Storage) -> bool:
        return holds_log(path / LOG_FOLDER, store)

    @classmethod
    def open(
        cls,
        path: PurePath,
        store: Storage,
        version: int | None = None,
        checkpoint_every: int = 20,
        listed: Callable[[], object] = lambda: None,
    ) -> DeltaLog:
        """At its newest version, or pinned to an older one. `listed`: called in between, if it lies in a bucket."""
        commits = commits_of(path, store)
        if not store.remote:
            if not cls.exists(path, store):
                raise NotFound(f"{path} holds no Delta table")
            if version is None:
                set_torn_commit_aside(path / LOG_FOLDER, store)
        if not store.remote:
            log = cls(commits, opened_tail(commits, version), checkpoint_every)
        else:
            rebuilt = rebuild(commits, version, listed)
            log = cls(commits, Tail.of(rebuilt), checkpoint_every)
            if version is None and not rebuilt.newest:
                log._catch_up()
            log.opened_as_listed = rebuilt.newest
        log._pinned = version is not None
        return log

    # -- reading

    @property
    def version(self) -> int:
        return self._tail.version

    @property
    def definition(self) -> Definition:
        """What this version says of the table besides files and transactions; the same object while that stays."""
        return self._tail.definition

    @property
    def id(self) -> str:
        return self._tail.definition.id

    @property
    def properties(self) -> dict[str, str]:
        return self._tail.definition.properties

    @property
    def partition_columns(self) -> list[str]:
        return list(self._tail.definition.partition_columns)

    @property
    def features(self) -> set[str]:
        return set(self._tail.definition.features)

    def columns(self) -> pa.Schema:
        return self._tail.definition.columns

    def demands(self) -> list[str]:
        """What the table demands of its rows besides types and NOT NULL, in words."""
        return list(self._tail.definition.demands)

    def txn(self, name: str) -> int | None:
        """The newest version of an application transaction, as of this handle's version."""
        found: int | None = self._tail.txns.get(name, _UNKNOWN)
        if found is not _UNKNOWN:
            return found
        with self.lock:  # or what is set meanwhile would be overwritten by what was
            known = self._tail.txns
            if name not in known:
                known[name] = self._looked_up(name)
            return known[name]

    def txns(self, *names: str) -> list[int | None]:
        return [self.txn(name) for name in names]

    def _looked_up(self, name: str) -> int | None:
        """One that was not set since the log was opened."""
        if self._tail.all_txns is not None:
            return self._tail.all_txns.get(name)
        if self._is_ours() and not self._pinned:
            return self._read_txns().get(name)
        try:
            return self._tail.table.transaction_version(name)
        except (DeltaError, OSError) as error:
            # deltalake reads some of a version only when asked, from files that may have been moved or trimmed since.
            logger.info("the transactions of %s are read from its files: %s", self.path, error)
            return self._read_txns().get(name)

    def _read_txns(self) -> Txns:
        """The version may stand on other files by now; if it does not, newer ones have taken its place."""
        try:
            found = self._tail.all_txns = read_txns(self._commits, self.version)
        except NotFound as error:
            if self._pinned:
                raise
            raise Lost from error
        return found

    def refresh(self) -> None:
        """Move to the head. Waits for a commit of another thread: its validation holds for the version it saw."""
        with self.lock:
            if self._store.remote or not self._commits.end_at(self.version):
                self._catch_up()

    def is_newest(self) -> bool:
        """Whether nothing has come since. From any thread: it looks, and stays where it is."""
        try:
            return self._commits.following(self.version) is None
        except NotFound:
            return False

    def look(self, count: int, *, once: bool) -> None:
        """Move on by what has come, and ask for so many at first. `once`: and not for more."""
        with self.lock:
            self._catch_up(partial(self._follow, min(count, AT_ONCE_MAX), once=once))

    def _catch_up(self, move: Callable[[], None] | None = None) -> None:
        """Read what others have committed (`_follow`), or take a commit that is known (`_advance`). A log that was
        trimmed meanwhile no longer leads from this handle's version to the head, and some commits say what only
        deltalake knows: open it anew.
        """
        try:
            (move or partial(self._follow, 1))()
            if (table := self._checkpoints.take_opened()) is not None and table.version() > self._tail.opened:
                self._tail.rebase(table)
            if self._tail.commits_since > FOLLOWED_MAX:
                # What stands in its way stands in that of the next look too, or has passed by then.
                with contextlib.suppress(LithifyError):
                    self._rebase()
        except Unfamiliar as error:
            logger.debug("%s is opened anew: %s", self.path, error)
            self._reopen()

    def _follow(self, count: int, *, once: bool = False) -> None:
        """Ask for the next commits until there are no more: for so many at first, then half as many as have come."""
        before, at_head = self.version, False
        while not at_head:
            started_s = time.monotonic()
            try:
                contents = self._commits.ahead(self.version, count)
            except NotFound as error:
                raise Unfamiliar(f"version {self.version} has left the log") from error
            took_s = time.monotonic() - started_s
            for content in contents:
                self._advance(self._parsed(content))
            at_head = len(contents) < count
            count = min(max(1, (self.version - before) // 2), AT_ONCE_MAX)
            if once:
                break
        self.turns.looked(at_head, took_s)

    def _parsed(self, content: bytes) -> CommitRecord:
        try:
            return parse_record(self.version + 1, content)
        except NotWhole as error:
            raise self._commits.broken(self.version + 1) from error
        except ValueError as error:
            raise Unfamiliar(f"version {self.version + 1} cannot be read here") from error

    def _advance(self, commit: CommitRecord) -> None:
        try:
            self._tail.advance(commit)
        except NotWhole as error:
            raise self._commits.broken(commit.version) from error
        self.turns.committed(commit.info.get(TURN_OF))
        if commit.engine == ENGINE:
            self._synced.written(commit.version)
        self._time = commit.version, commit.timestamp_ms if "time_ms" in commit.info else 0

    def _reopen(self) -> None:
        tail, newest = opened_tail(self._commits), self.version
        if tail.version <= newest and self._store.remote:  # a list may show less than was read
            while self._commits.exists(newest + 1):
                newest += 1
            tail = opened_tail(self._commits, newest) if tail.version < newest else tail
        if tail.version < self.version:
            raise self._commits.gone(self.version)
        self._tail = tail

    def at(self, version: int) -> DeltaLog:
        """A handle pinned to an older version."""
        if version == self.version:
            return self
        if not self._store.remote and self._commits.listing().can_read(version):
            with contextlib.suppress(NotFound):  # moved to the archive meanwhile
                return DeltaLog.open(self.path, self._store, version)
        return self._rebuilt(self._commits, version)

    def keep(self, version: int, folder: PurePath) -> None:
        """Make a folder from which `saved_in` reads this version, also when it has left the log."""
        keep(self._commits, version, folder)

    def needed_files(self, version: int) -> dict[str, bytes]:
        """What a log that begins with this version, or ends with it, has to have in its folder, by name."""
        return needed_files(self._commits, version)

    def saved_in(self, folder: PurePath, version: int) -> DeltaLog:
        return self._rebuilt(commits_of(folder, self._store), version)

    def _rebuilt(self, commits: Commits, version: int) -> DeltaLog:
        rebuilt = rebuild(commits, version)
        log = DeltaLog(self._commits, Tail.of(rebuilt), self.limits().checkpoint_every)
        log._pinned = True
        return log

    def files(self, bounds_of: Sequence[str]) -> tuple[DataFile, ...]:
        """Live files, with the bounds of the named columns (and perhaps of others); the same tuple while none moves."""
        with self.lock:
            log = self.path, self.id
            check = partial(self._store.path_guard.check_files, self.path)
            try:
                live = self._tail.files(bounds_of, newest_known.get(log), check)
            except Unfamiliar as error:
                logger.debug("%s is opened anew at version %s: %s", self.path, self.version, error)
                self._tail = opened_tail(self._commits, self.version)
                live = self._tail.files(bounds_of, None, check)
            if not self._pinned:
                newest_known[log] = live
            return live.files

    def versions(self) -> range:
        """Versions whose commit is still in the log or its archive, without a gap."""
        there = self._commits.versions()
        # What was read is there, whether a list shows it already or not.
        return range(there.start, max(there.stop, self.version + 1)) if there and self._store.remote else there

    def commit_record(self, version: int) -> CommitRecord:
        return self._commits.record(version)

    def commit_records(self, since_version: int = -1) -> Iterator[CommitRecord]:
        there = self.versions()
        return self._commits.records(range(max(there.start, since_version + 1), min(there.stop, self.version + 1)))

    def dated_records(self, versions: Sequence[int]) -> Iterator[tuple[CommitRecord, int] | None]:
        """Commits, and when they were put there, by the storage's clock. None for one that is gone."""
        return self._commits.dated_records(versions)

    def commit_path(self, version: int) -> PurePath:
        """Where the commit lies now: it may move to the archive at any time."""
        return self._commits.path(version)

    # -- writing

    def next_ms(self) -> int:
        """The time of the next commit: never before that of the last, so that times go up with versions."""
        return max(self.now_ms(), self._last_ms())

    def _last_ms(self) -> int:
        """When this handle's version was committed, as far as Lithify said so."""
        version, known_ms = self._time
        if version != self.version and self._tail.opened == self.version and self._tail.opened_ms is not None:
            version, known_ms = self._time = self.version, self._tail.opened_ms
        if version != self.version:
            try:
                known_ms = int(self.commit_record(self.version).info.get("time_ms", 0))
            except (NotFound, Corruption):  # trimmed, or about to be reported by whoever needs it
                known_ms = 0
            self._time = self.version, known_ms
        return known_ms

    def try_commit(self, change: LogChange, intent: Intent) -> int:
        """Move the log from this handle's version to the next, or raise Lost. `delta/commit.py` does: nobody else."""
        with self.lock:
            now_ms = self.next_ms()
            if change.columns is not None:
                definition = redefined(self._tail.table, self._tail.definition, change.columns, change.properties or {})
                body = commit_body(change, self.partition_columns, intent.id, now_ms, definition)
                return self._swap(intent, lambda: self._publish(self.version + 1, body), body)
            if change.properties is not None or change.column is not None or not self._tail.definition.is_plain:
                return self._swap(intent, lambda: self._commit_by_deltalake(change, intent, now_ms))
            target = self.version + 1
            body = commit_body(change, self.partition_columns, intent.id, now_ms)
            return self._swap(intent, lambda: self._publish(target, body), body)

    def _publish(self, target: int, body: bytes) -> None:
        self._store.publish(self._commits.live_path(target), body)
        self._synced.written(target)

    def _commit_by_deltalake(self, change: LogChange, intent: Intent, now_ms: int) -> WrittenAside | None:
        """What the log is then, where that is known."""
        if not self._store.remote:
            self._write_by(self._opened_here(), change, intent, now_ms)
            return None

        def write(folder: PurePath) -> None:
            self._write_by(DeltaTable(str(folder), version=self.version), change, intent, now_ms)

        target = self.version + 1
        made = written_aside(self._commits, self._commits.needed_aside(self.version), write)
        self._publish(target, made.body)
        return made

    def _write_by(self, table: DeltaTable, change: LogChange, intent: Intent, now_ms: int) -> None:
        properties = commit_properties(change.txns, change.info, intent.id, now_ms)
        options: dict[str, Any] = {"commit_properties": properties, "post_commithook_properties": NO_HOOKS}
        if change.properties is not None:
            table.alter.set_table_properties(dict(change.properties), raise_if_not_exists=False, **options)
        elif change.column is not None:
            table.alter.add_columns([Field.from_arrow(change.column)], **options)
        else:
            actions = actions_of(self.path, change, now_ms)
            table.create_write_transaction(actions, "append", table.schema(), self.partition_columns, **options)

    def _opened_here(self) -> DeltaTable:
        """deltalake's handle at this version, or Lost."""
        table = self._tail.table
        if self._tail.opened < self.version:
            self._commits.check_after(self._tail.opened)
            table.update_incremental()
        if table.version() > self.version:
            self._tail = Tail(table)
            raise Lost
        if table.version() < self.version:  # its commits have left the log
            self._reopen()
            raise Lost
        self._tail.rebase(table)
        return table

    def _swap(self, intent: Intent, attempt: Callable[[], WrittenAside | None], body: bytes | None = None) -> int:
        """`body`: what the attempt writes, where that is known before; else it may tell what the log is then."""
        assert not self._pinned, "a handle on the past cannot commit"
        target = self.version + 1
        # Only the newest commit can ever be torn: nothing is built on one that a power cut can take back.
        self.sync_commits()
        self._store.step("log.swap")
        first: bytes | None = None
        made: WrittenAside | None = None
        try:
            with intent.attempt(f"version {target} of {self.path}"):
                try:
                    started_s = time.monotonic()
                    made = attempt()
                    self.turns.swapped(time.monotonic() - started_s)
                except Lost:
                    raise
                except Exception as error:
                    first = error.found if isinstance(error, Exists) else None
                    check_outcome(self._commits, target, intent, error)
                if lost_to_trim(self._commits, target, intent.id):
                    self._take_back(target, intent)
                    raise Lost
                self._move_to(target, body, made)
        except Lost:
            if first is not None:
                self._commits.note(target, first)
                self._catch_up(lambda: self._advance(self._parsed(first)))
            raise
        return target

    def _move_to(self, target: int, body: bytes | None, made: WrittenAside | None) -> None:
        """To our own commit."""
        if made is not None:
            self._tail = Tail.of(made.then)
            self._commits.note(target, made.body)
        elif body is not None:
            self._commits.note(target, body)
            self._catch_up(partial(self._advance, parse_record(target, body)))
        else:
            self._catch_up()
        if self.version < target:
            raise self._commits.gone(target)

    def _take_back(self, version: int, intent: Intent) -> None:
        """The commit does not count: readers begin at a newer checkpoint, and nobody was told of it."""
        logger.warning(
            "version %s of %s came too late, the log was trimmed meanwhile: trying again", version, self.path
        )
        path = self._commits.live_path(version)
        with contextlib.suppress(NotFound):  # trimmed once more
            if parse_record(version, self._store.read(path)).info.get("write_id") == intent.id:
                self._store.delete(path)
        self._tail = opened_tail(self._commits)

    def make_durable(self) -> None:
        """After a commit: fsync it. Whatever stops that, the commit stands, and readers see it."""
        try:
            self.sync_commits()
        except Exception as error:
            raise CommitUnknown(
                f"version {self.version} of {self.path} is committed, but could not be made durable ({error}): check "
                "the disk, then read the table"
            ) from error

    def sync_commits(self) -> None:
        """fsync every commit up to this handle's version that this handle has not synced yet."""
        # Whoever writes a checkpoint of ours has fsynced the commits in it; of others' checkpoints nobody knows.
        self._synced.up_to(self.version, trust_checkpoints=self._is_ours)

    def _is_ours(self) -> bool:
        return self.limits().is_ours

    def _keep_txns(self) -> None:
        """A table that was made to forget by deltalake's clock is told not to, before a checkpoint would forget."""
        if self._is_ours() and self.properties.get(RETENTION) not in (None, *KEEP_TXNS.values()):
            change = LogChange({"operation": "keep transactions"}, properties=KEEP_TXNS)
            self.try_commit(change, Intent(uuid.uuid4().hex))

    def checkpoint_if_due(self) -> None:
        """Every so many versions. Derived data: a failure costs time later, never an answer."""
        with self.lock:
            try:
                limits = self.limits()
                number, rest = divmod(self.version, limits.checkpoint_every)
                if number and not rest:
                    self.checkpoint(trim=number % trim_every(limits) == 0)
            except Exception as error:
                logger.warning("the log of %s could not be shortened: %s", self.path, error)

    def checkpoint(self, *, trim: bool) -> None:
        """Have one of this version written, beside the writers. `trim`: and what is old goes."""
        with self.lock:
            self._keep_txns()
            self.sync_commits()
            self._checkpoints.write(Due(self.version, self._last_ms(), self.limits(), self.now_ms), trim=trim)

    def trim_if_due(self, files_max: int | None = None) -> TrimReport:
        """Trim by the table's own limits; a log that others rely on is left alone."""
        limits = self.limits()
        if not limits.is_ours:
            return TrimReport()
        return trim(self._commits, self.now_ms(), limits, files_max)

    def trim(self, now_ms: int, retain_hours: float, commits_max: int, files_max: int | None = None) -> TrimReport:
        """Archive what is old, and delete what no kept version needs."""
        limits = replace(self.limits(), retain_hours=retain_hours, commits_max=commits_max)
        return trim(self._commits, now_ms, limits, files_max)

    def cut(self, version: int) -> Cut:
        """Have the log begin with this version, now."""
        self.sync_commits()
        return cut(self._commits, version, self.now_ms())

    def forget_archive(self) -> None:
        """Of a dropped table, of which nothing can be asked for any more."""
        if not self._store.remote:
            forget_archive(self._commits)

    def _rebase(self) -> None:
        """Have deltalake open the log at a newer version, so that neither it nor we keep what came before."""
        self._tail.rebase(opened_tail(self._commits, self.version).table)


def opened_tail(commits: Commits, version: int | None = None) -> Tail:
    """By deltalake, at the newest version or an older one."""
    if not commits.store.remote:
        return Tail(open_table(commits.table, commits.store, version))
    return Tail.of(rebuild(commits, version))
