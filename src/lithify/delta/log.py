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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError

from lithify.core.snapshot import DataFile
from lithify.delta.actions import CommitRecord as CommitRecord
from lithify.delta.actions import LogChange, actions_of, commit_body, commit_properties, parse_record
from lithify.delta.archive import LogLimits, forget_archive
from lithify.delta.commit_files import Commits
from lithify.delta.commit_outcome import Intent, Lost, NotCommitted
from lithify.delta.folder import LOG_FOLDER, holds_log
from lithify.delta.forget import KEEP_TXNS, RETENTION, checkpoint_without, forgotten_at
from lithify.delta.fsync import Synced, sync_checkpoint
from lithify.delta.live_files import newest_known
from lithify.delta.open_log import check_plain, open_table, translated_error
from lithify.delta.rebuild import Txns, keep, read_txns, rebuild
from lithify.delta.stated_values import Unfamiliar
from lithify.delta.tail import Definition, Tail
from lithify.delta.torn_log import set_torn_commit_aside
from lithify.delta.trim import TrimReport, lost_to_trim, trim
from lithify.errors import CommitUnknown, Corruption, LithifyError, NotFound
from lithify.files.os_errors import Exists
from lithify.files.parquet import Written
from lithify.files.storage import Storage

logger = logging.getLogger(__name__)

TRIM_EVERY_CHECKPOINTS, TRIM_EVERY_COMMITS = 16, 320  # whichever comes first
FOLLOWED_MAX = 200  # commits that are kept to be read again, before deltalake is asked to open the log anew
HEAD_ATTEMPTS_MAX = 5  # to have deltalake at the head while others commit
TRIM_FILES_MAX = 2_000  # on the way of a write; more is left to maintenance and to the next time
_UNKNOWN: Any = object()
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class DeltaLog:
    def __init__(self, path: PurePath, store: Storage, table: DeltaTable, checkpoint_every: int) -> None:
        self.path, self._store, self._tail = path, store, Tail(table)
        self._commits = Commits(path, store)
        self.limits: Callable[[], LogLimits] = lambda: LogLimits(checkpoint_every)
        self.now_ms: Callable[[], int] = lambda: int(time.time() * 1000)
        # Told what was added and removed, once it is durable. It must not fail: the commit stands.
        self.after_commit: Callable[[int, Sequence[Written], Sequence[DataFile]], None] = lambda *_: None
        self._synced = Synced(self._commits)
        self._pinned = False
        self._time = -1, 0
        self.lock = threading.RLock()

    # -- opening and creating

    @classmethod
    def exists(cls, path: PurePath, store: Storage) -> bool:
        return holds_log(path / LOG_FOLDER, store)

    @classmethod
    def open(cls, path: PurePath, store: Storage, version: int | None = None, checkpoint_every: int = 20) -> DeltaLog:
        if not cls.exists(path, store):
            raise NotFound(f"{path} holds no Delta table")
        if version is None:
            set_torn_commit_aside(path / LOG_FOLDER, store)
        log = cls(path, store, open_table(path, store, version), checkpoint_every)
        log._pinned = version is not None
        return log

    @classmethod
    def create(
        cls,
        path: PurePath,
        store: Storage,
        columns: pa.Schema,
        partition_by: Sequence[str],
        properties: Mapping[str, str],
        info: Mapping[str, Any],
        write_id: str,
        checkpoint_every: int = 20,
    ) -> DeltaLog:
        """Create, or replace in place: version numbers and txns at a path never start again. Raises Lost."""
        store.make_folder(path)
        check_plain(path, store)
        set_torn_commit_aside(path / LOG_FOLDER, store)
        target = 0
        if cls.exists(path, store):
            before = cls.open(path, store)
            before.sync_commits()
            target = before.version + 1
        configuration = {"delta.enableExpiredLogCleanup": "false", **KEEP_TXNS, **properties}
        intent = Intent(write_id)
        said = {"lithify": {**info, "write_id": intent.id}}
        with intent.attempt(f"version {target} of {path}"):
            try:
                DeltaTable.create(
                    str(path),
                    Schema.from_arrow(columns),
                    mode="overwrite" if target else "error",
                    partition_by=list(partition_by),
                    configuration=configuration,
                    raise_if_key_not_exists=False,
                    commit_properties=CommitProperties(custom_metadata=said, max_commit_retries=0),
                    post_commithook_properties=_NO_HOOKS,
                )
            except Exception as error:
                _check_outcome(Commits(path, store), target, intent, error)
            log = cls(path, store, open_table(path, store), checkpoint_every)
        log.make_durable()
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
            if not self._at_head():
                self._catch_up()

    def _catch_up(self, commit: CommitRecord | None = None) -> None:
        """Read what others have committed, or take the next commit as it is. A log that was trimmed meanwhile no longer
        leads from this handle's version to the head, and some commits say what only deltalake knows: open it anew.
        """
        try:
            if commit is not None:
                self._advance(commit)
            while commit is None and (following := self._next_commit()) is not None:
                self._advance(following)
            if self._tail.commits_since > FOLLOWED_MAX:
                # What stands in its way stands in that of the next look too, or has passed by then.
                with contextlib.suppress(LithifyError):
                    self._rebase()
        except Unfamiliar as error:
            logger.debug("%s is opened anew: %s", self.path, error)
            self._reopen()

    def _advance(self, commit: CommitRecord) -> None:
        self._tail.advance(commit)
        self._time = commit.version, commit.timestamp_ms if "time_ms" in commit.info else 0

    def _next_commit(self) -> CommitRecord | None:
        """Commits go oldest first: while this version is there, the next is the one that was built on it, and not one
        that came too late for a version that is gone (`trim`).
        """
        here, following = self._commits.live_path(self.version), self._commits.live_path(self.version + 1)
        try:
            # One that is empty is on its way, of a writer that does not give it its name at the end.
            content = self._store.read(following).strip() or None
        except NotFound:
            content = None
        if not self._store.exists(here) or self._commits.is_archived(self.version):
            raise Unfamiliar(f"version {self.version} has left the log")
        try:
            return None if content is None else parse_record(self.version + 1, content)
        except ValueError as error:
            raise Unfamiliar(f"version {self.version + 1} cannot be read here") from error

    def _reopen(self) -> None:
        table = open_table(self.path, self._store)
        if table.version() < self.version:
            raise self._commits.gone(self.version)
        self._tail = Tail(table)

    def _at_head(self) -> bool:
        """The head moves only by the next commit, and the next never goes before ours does. Looking for the two of them
        costs the same however long the log is; deltalake would list it.
        """
        here, following = self._commits.live_path(self.version), self._commits.live_path(self.version + 1)
        at_head = self._store.exists(here) and not self._store.exists(following)
        return at_head and not self._commits.is_archived(self.version)

    def at(self, version: int) -> DeltaLog:
        """A handle pinned to an older version."""
        if version == self.version:
            return self
        if self._commits.listing().can_read(version):
            with contextlib.suppress(NotFound):  # moved to the archive meanwhile
                return DeltaLog.open(self.path, self._store, version)
        return self._rebuilt(self._commits, version)

    def keep(self, version: int, folder: PurePath) -> None:
        """Make a folder from which `saved_in` reads this version, also when it has left the log."""
        keep(self._commits, version, folder)

    def saved_in(self, folder: PurePath, version: int) -> DeltaLog:
        return self._rebuilt(Commits(folder, self._store), version)

    def _rebuilt(self, commits: Commits, version: int) -> DeltaLog:
        rebuilt = rebuild(commits, version)
        log = DeltaLog(self.path, self._store, rebuilt.table, self.limits().checkpoint_every)
        log._pinned, log._tail.all_txns = True, rebuilt.txns
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
                self._tail = Tail(open_table(self.path, self._store, self.version))
                live = self._tail.files(bounds_of, None, check)
            if not self._pinned:
                newest_known[log] = live
            return live.files

    def versions(self) -> range:
        """Versions whose commit is still in the log or its archive, without a gap."""
        return self._commits.versions()

    def commit_record(self, version: int) -> CommitRecord:
        return self._commits.record(version)

    def commit_records(self, since_version: int = -1) -> Iterator[CommitRecord]:
        there = self.versions()
        for version in range(max(there.start, since_version + 1), min(there.stop, self.version + 1)):
            yield self.commit_record(version)

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
            if change.properties is not None or change.column is not None or not self._tail.definition.is_plain:
                return self._swap(intent, lambda: self._commit_by_deltalake(change, intent, now_ms))
            target = self.version + 1
            body = commit_body(change, self.partition_columns, intent.id, now_ms)
            return self._swap(intent, lambda: self._publish(target, body), body)

    def _publish(self, target: int, body: bytes) -> None:
        self._store.publish(self._commits.live_path(target), body)
        self._synced.written(target)

    def _commit_by_deltalake(self, change: LogChange, intent: Intent, now_ms: int) -> None:
        table = self._opened_here()
        properties = commit_properties(change.txns, change.info, intent.id, now_ms)
        options: dict[str, Any] = {"commit_properties": properties, "post_commithook_properties": _NO_HOOKS}
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

    def _swap(self, intent: Intent, attempt: Callable[[], object], body: bytes | None = None) -> int:
        """`body`: what the attempt writes, where that is known before."""
        assert not self._pinned, "a handle on the past cannot commit"
        target = self.version + 1
        # Only the newest commit can ever be torn: nothing is built on one that a power cut can take back.
        self.sync_commits()
        self._store.step("log.swap")
        with intent.attempt(f"version {target} of {self.path}"):
            try:
                attempt()
            except Lost:
                raise
            except Exception as error:
                _check_outcome(self._commits, target, intent, error)
            if lost_to_trim(self._commits, target, intent.id):
                self._take_back(target, intent)
                raise Lost
            self._catch_up(None if body is None else parse_record(target, body))
            if self.version < target:
                raise self._commits.gone(target)
        return target

    def _take_back(self, version: int, intent: Intent) -> None:
        """The commit does not count: readers begin at a newer checkpoint, and nobody was told of it."""
        logger.warning(
            "version %s of %s came too late, the log was trimmed meanwhile: trying again", version, self.path
        )
        path = self._commits.live_path(version)
        with contextlib.suppress(NotFound):  # trimmed once more
            if parse_record(version, self._store.read(path)).info.get("write_id") == intent.id:
                self._store.delete(path)
        self._tail = Tail(open_table(self.path, self._store))

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
        return self.limits().retain_hours is not None

    def _keep_txns(self) -> None:
        """A table that was made to forget by deltalake's clock is told not to, before a checkpoint would forget."""
        if self._is_ours() and self.properties.get(RETENTION) not in (None, *KEEP_TXNS.values()):
            change = LogChange({"operation": "keep transactions"}, properties=KEEP_TXNS)
            self.try_commit(change, Intent(uuid.uuid4().hex))

    def checkpoint_if_due(self) -> None:
        """Keep opening and committing fast. Derived data: a failure costs time later, never an answer."""
        with self.lock:
            try:
                limits = self.limits()
                number, rest = divmod(self.version, limits.checkpoint_every)
                if not number or rest:
                    return
                trim_every = max(1, min(TRIM_EVERY_CHECKPOINTS, TRIM_EVERY_COMMITS // limits.checkpoint_every))
                self._checkpoint(forget=number % trim_every == 0)
                if number % trim_every == 0:
                    self.trim_if_due(TRIM_FILES_MAX)
            except Exception as error:
                logger.warning("the log of %s could not be shortened: %s", self.path, error)

    def trim_if_due(self, files_max: int | None = None) -> TrimReport:
        """Trim by the table's own limits; a log that others rely on is left alone."""
        limits = self.limits()
        if limits.retain_hours is None:
            return TrimReport()
        return trim(self._commits, self.now_ms(), limits, files_max)

    def trim(self, now_ms: int, retain_hours: float, commits_max: int, files_max: int | None = None) -> TrimReport:
        """Archive what is old, and delete what no kept version needs."""
        limits = replace(self.limits(), retain_hours=retain_hours, commits_max=commits_max)
        return trim(self._commits, now_ms, limits, files_max)

    def forget_archive(self) -> None:
        """Of a dropped table, of which nothing can be asked for any more."""
        forget_archive(self._commits)

    def _checkpoint(self, *, forget: bool) -> None:
        """`forget`: leave out what the log need not remember any more."""
        if not self._store.exists(self._commits.live_path(self.version)):
            return  # others have gone on so far that this version is in the archive
        try:
            self._store.step("log.checkpoint")
            self._keep_txns()
            self.sync_commits()
            names = forgotten_at(self._commits, self._last_ms()) if forget and self._is_ours() else frozenset()
            if names:
                checkpoint_without(self._commits, self.version, names)
            else:
                self._opened_at_head().create_checkpoint()
            sync_checkpoint(self._commits, self.version)
            if forget:
                self._rebase()
        except (LithifyError, DeltaError, OSError, Lost) as error:
            logger.warning("no checkpoint of %s at version %s: %s", self.path, self.version, error)

    def _opened_at_head(self) -> DeltaTable:
        """deltalake's handle at the version that this one then has, every commit of it synced."""
        for _ in range(HEAD_ATTEMPTS_MAX):
            with contextlib.suppress(Lost):
                table = self._opened_here()
                self.sync_commits()
                return table
        raise Lost

    def _rebase(self) -> None:
        """Have deltalake open the log at a newer version, so that neither it nor we keep what came before."""
        self._tail.rebase(open_table(self.path, self._store, self.version))


def _check_outcome(commits: Commits, target: int, intent: Intent, error: Exception) -> None:
    """After a failed attempt, ask the log: returns if it stands, else raises Lost or NotCommitted. What cannot be read
    here says nothing.
    """
    if commits.exists(target):
        if commits.record(target).info.get("write_id") == intent.id:
            return
        raise Lost from error
    if commits.listing().commits[-1:] > (target,):
        raise Lost from error
    if isinstance(error, Exists) or (isinstance(error, CommitFailedError) and "Concurrent" in str(error)):
        raise Lost from error
    raise NotCommitted(translated_error(error, commits.table)) from error
