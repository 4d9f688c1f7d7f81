"""One Delta log, with the two things that deltalake leaves to its caller: compare-and-swap and durability.

`commit` succeeds only at the version after the one this handle has validated; otherwise it raises `Lost`, and the
caller refreshes, validates everything again and retries. Before `Lost` is raised, the winning commit is read: if it
carries our own write id, the commit had succeeded after all. `make_durable` fsyncs this log's commits up to the
handle's version, and nothing may be acknowledged before it returns.

A power cut can leave the newest commit empty or torn, because deltalake does not fsync. Such a commit was never
acknowledged; `open` sets it aside. An unreadable commit anywhere else is corruption, and is named.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from lithify.errors import CommitUnknown, Corruption, LithifyError, NotFound, Unavailable
from lithify.log.entries import check_removable, data_files
from lithify.log.torn import CHECKPOINT_NAME, COMMIT_NAME, set_torn_checkpoint_aside, set_torn_commit_aside
from lithify.model.snapshot import DataFile
from lithify.store.local import Store, os_error
from lithify.store.parquet import Written

logger = logging.getLogger(__name__)

# Forgotten after the table's retention of transactions; the counters never are.
_EXPIRING = ("lithify.batch.", "lithify.job.")
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class Lost(Exception):
    """Another commit took the version. Internal: never leaves the engine."""


@dataclass(frozen=True)
class CommitRecord:
    """One commit as the log holds it."""

    version: int
    timestamp_ms: int
    info: Mapping[str, Any]
    adds: tuple[Mapping[str, Any], ...]
    removes: tuple[Mapping[str, Any], ...]
    txns: Mapping[str, int]


class DeltaLog:
    def __init__(self, path: Path, store: Store, table: DeltaTable, checkpoint_every: int) -> None:
        self.path, self._store, self._table = path, store, table
        self._checkpoint_every = checkpoint_every
        self._durable_version = -1
        self._files: tuple[tuple[int, tuple[str, ...]], list[DataFile]] | None = None
        self._txns: tuple[int, dict[str, int | None]] = (-1, {})
        self.lock = threading.RLock()

    # -- opening and creating

    @classmethod
    def exists(cls, path: Path) -> bool:
        try:
            names = os.listdir(path / "_delta_log")
        except (FileNotFoundError, NotADirectoryError):
            return False
        return any(COMMIT_NAME.fullmatch(name) or CHECKPOINT_NAME.fullmatch(name) for name in names)

    @classmethod
    def open(cls, path: Path, store: Store, version: int | None = None, checkpoint_every: int = 20) -> DeltaLog:
        if not cls.exists(path):
            raise NotFound(f"{path} holds no Delta table")
        if version is None:
            set_torn_commit_aside(path / "_delta_log", store)
        return cls(path, store, _open(path, store, version), checkpoint_every)

    @classmethod
    def create(
        cls,
        path: Path,
        store: Store,
        columns: pa.Schema,
        partition_by: Sequence[str],
        properties: Mapping[str, str],
        info: Mapping[str, Any],
        checkpoint_every: int = 20,
    ) -> DeltaLog:
        """Create, or replace in place: version numbers and txns at a path never start again."""
        store.make_folder(path)
        set_torn_commit_aside(path / "_delta_log", store)
        if cls.exists(path):
            cls.open(path, store).sync_commits()
        configuration = {
            "delta.enableExpiredLogCleanup": "false",
            "delta.setTransactionRetentionDuration": "interval 30 days",
            **properties,
        }
        try:
            table = DeltaTable.create(
                str(path),
                Schema.from_arrow(columns),
                mode="overwrite" if cls.exists(path) else "error",
                partition_by=list(partition_by),
                configuration=configuration,
                raise_if_key_not_exists=False,
                commit_properties=CommitProperties(custom_metadata={"lithify": dict(info)}, max_commit_retries=0),
                post_commithook_properties=_NO_HOOKS,
            )
        except (DeltaError, OSError) as error:
            raise _translated(error, path) from error
        log = cls(path, store, table, checkpoint_every)
        log.make_durable()
        return log

    # -- reading

    @property
    def version(self) -> int:
        return int(self._table.version())

    @property
    def id(self) -> str:
        return str(self._table.metadata().id)

    @property
    def properties(self) -> dict[str, str]:
        return dict(self._table.metadata().configuration)

    @property
    def partition_columns(self) -> list[str]:
        return list(self._table.metadata().partition_columns)

    @property
    def features(self) -> set[str]:
        protocol = self._table.protocol()
        return set(protocol.reader_features or []) | set(protocol.writer_features or [])

    def columns(self) -> pa.Schema:
        return pa.schema(self._table.schema().to_arrow())

    def txn(self, name: str) -> int | None:
        """The newest version of an application transaction, as of this handle's version."""
        if self._txns[0] != self.version:
            self._txns = (self.version, {})
        known = self._txns[1]
        if name not in known:
            known[name] = self._table.transaction_version(name)
        return known[name]

    def refresh(self) -> None:
        """Move to the head. Waits for a commit of another thread: its validation holds for the version it saw."""
        try:
            with self.lock:
                self._table.update_incremental()
        except (DeltaError, OSError) as error:
            raise _translated(error, self.path) from error

    def at(self, version: int) -> DeltaLog:
        """A handle pinned to an older version."""
        return self if version == self.version else DeltaLog.open(self.path, self._store, version)

    def files(self, bounds_of: Sequence[str]) -> list[DataFile]:
        """Live files, with the bounds of the named columns."""
        wanted = (self.version, tuple(bounds_of))
        if self._files is None or self._files[0] != wanted:
            actions = pa.table(self._table.get_add_actions(flatten=True))
            self._files = (wanted, list(data_files(actions, bounds_of)))
        return self._files[1]

    def versions(self) -> list[int]:
        """Versions whose commit is still in the log, oldest first."""
        found = (COMMIT_NAME.fullmatch(name) for name in self._store.names(self.path / "_delta_log"))
        return [int(match.group(1)) for match in found if match]

    def commit_record(self, version: int) -> CommitRecord:
        path = self.commit_path(version)
        try:
            lines = [json.loads(line) for line in self._store.read(path).splitlines() if line.strip()]
        except NotFound:
            raise NotFound(f"version {version} of {self.path} is no longer in its log: choose a newer one") from None
        except ValueError as error:
            raise Corruption(f"commit {path} is not readable: restore it from a copy") from error
        commit: dict[str, Any] = next((line["commitInfo"] for line in lines if "commitInfo" in line), {})
        info = commit.get("lithify")
        return CommitRecord(
            version,
            int(commit.get("timestamp", 0)),
            info if isinstance(info, dict) else {},
            tuple(line["add"] for line in lines if "add" in line),
            tuple(line["remove"] for line in lines if "remove" in line),
            {line["txn"]["appId"]: line["txn"]["version"] for line in lines if "txn" in line},
        )

    def commit_records(self, since_version: int = -1) -> Iterator[CommitRecord]:
        for version in self.versions():
            if since_version < version <= self.version:
                yield self.commit_record(version)

    def commit_path(self, version: int) -> Path:
        return self.path / "_delta_log" / f"{version:020d}.json"

    # -- writing

    def commit(
        self,
        adds: Iterable[tuple[Written, Mapping[str, str | None]]],
        removes: Iterable[DataFile],
        txns: Mapping[str, int],
        info: Mapping[str, Any],
        write_id: str,
        *,
        data_change: bool,
    ) -> int:
        """Swap the log from this handle's version to the next one, or raise Lost."""
        now_ms = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size_bytes, dict(partition), now_ms, data_change, file.stats)
            for file, partition in adds
        ]
        for file in removes:
            check_removable(file, self.path)
            actions.append(RemoveAction(file.path, data_change, now_ms, file.size_bytes))
        properties = self._commit_properties(txns, info, write_id)
        return self._swap(
            write_id,
            lambda: self._table.create_write_transaction(
                actions,
                "append",
                self._table.schema(),
                self.partition_columns,
                commit_properties=properties,
                post_commithook_properties=_NO_HOOKS,
            ),
        )

    def add_column(self, column: pa.Field, info: Mapping[str, Any], write_id: str) -> int:
        fields = [Field.from_arrow(column)]
        properties = self._commit_properties({}, info, write_id)
        return self._swap(
            write_id,
            lambda: self._table.alter.add_columns(
                fields, commit_properties=properties, post_commithook_properties=_NO_HOOKS
            ),
        )

    def set_properties(self, properties: Mapping[str, str], info: Mapping[str, Any], write_id: str) -> int:
        commit = self._commit_properties({}, info, write_id)
        return self._swap(
            write_id,
            lambda: self._table.alter.set_table_properties(
                dict(properties), raise_if_not_exists=False, commit_properties=commit
            ),
        )

    def _commit_properties(self, txns: Mapping[str, int], info: Mapping[str, Any], write_id: str) -> CommitProperties:
        now_ms = int(time.time() * 1000)
        return CommitProperties(
            custom_metadata={"lithify": {**info, "write_id": write_id}},
            max_commit_retries=0,
            app_transactions=[
                Transaction(name, version, now_ms if name.startswith(_EXPIRING) else None)
                for name, version in txns.items()
            ],
        )

    def _swap(self, write_id: str, attempt: Any) -> int:
        with self.lock:
            return self._swap_locked(write_id, attempt)

    def _swap_locked(self, write_id: str, attempt: Any) -> int:
        target = self.version + 1
        # Only the newest commit can ever be torn: nothing is built on one that a power cut can take back.
        self.sync_commits()
        try:
            attempt()
        except (DeltaError, OSError) as error:
            if not self._landed(target, write_id, error):
                if self.commit_path(target).exists():
                    raise Lost from error
                if isinstance(error, CommitFailedError) and "Concurrent" in str(error):
                    raise Lost from error
                raise _translated(error, self.path) from error
        try:
            self._table.update_incremental()
        except (DeltaError, OSError) as error:
            raise CommitUnknown(
                f"version {target} of {self.path} was committed, but the log cannot be read any more: {error}"
            ) from error
        return target

    def _landed(self, version: int, write_id: str, error: BaseException) -> bool:
        """Whether the commit that took our version is our own."""
        if not self.commit_path(version).exists():
            return False
        try:
            return self.commit_record(version).info.get("write_id") == write_id
        except LithifyError:
            raise CommitUnknown(
                f"whether version {version} of {self.path} was committed could not be determined: read the table "
                "before you retry"
            ) from error

    def make_durable(self) -> None:
        """After a commit: fsync it. Whatever stops that, the commit stands, and readers see it."""
        try:
            self.sync_commits()
        except LithifyError as error:
            raise CommitUnknown(
                f"version {self.version} of {self.path} is committed, but could not be made durable ({error}): check "
                "the disk, then read the table"
            ) from error

    def sync_commits(self) -> None:
        """fsync every commit up to this handle's version that this handle has not synced yet."""
        start, target = self._durable_version + 1, self.version
        if start > target:
            return
        versions: Iterable[int] = range(start, target + 1) if start else [v for v in self.versions() if v <= target]
        for version in versions:
            # Another writer of an adopted table may have cleaned up commits that a checkpoint covers.
            if version == target or self.commit_path(version).exists():
                self._store.sync_file(self.commit_path(version))
        self._store.sync_folder(self.path / "_delta_log")
        if start == 0:
            self._store.sync_folder(self.path)
        self._durable_version = target

    def checkpoint_if_due(self) -> None:
        """Keep opening and committing fast. Derived data: a failure costs time later, never an answer."""
        with self.lock:
            if self.version and self.version % self._checkpoint_every == 0:
                self._checkpoint()

    def _checkpoint(self) -> None:
        folder = self.path / "_delta_log"
        try:
            self._store.step("log.checkpoint")
            self._table.create_checkpoint()
            for name in self._store.names(folder):
                if name == "_last_checkpoint" or name.startswith(f"{self.version:020d}.checkpoint"):
                    self._store.sync_file(folder / name)
            self._store.sync_folder(folder)
            self._table = _open(self.path, self._store, None)
        except (LithifyError, DeltaError, OSError) as error:
            logger.warning("no checkpoint of %s at version %s: %s", self.path, self.version, error)


def _open(path: Path, store: Store, version: int | None) -> DeltaTable:
    try:
        return DeltaTable(str(path), version=version)
    except TableNotFoundError as error:
        raise NotFound(f"{path} holds no Delta table") from error
    except (DeltaError, OSError, ValueError) as error:
        if version is not None:
            raise NotFound(f"version {version} of {path} can no longer be read: choose a newer one") from error
        if set_torn_checkpoint_aside(path / "_delta_log", store):
            return _open(path, store, version)
        raise _translated(error, path) from error


def _translated(error: BaseException, path: Path) -> LithifyError:
    text = str(error)
    if isinstance(error, OSError) and error.errno:
        return os_error(error, path)
    for sign, number in (
        ("No space left", 28),
        ("os error 28", 28),
        ("Permission denied", 13),
        ("os error 13", 13),
        ("Read-only", 30),
    ):
        if sign in text:
            return os_error(OSError(number, sign), path)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return (
        Corruption(f"the log of {path} cannot be used: {first}")
        if isinstance(error, DeltaError)
        else Unavailable(f"{path}: {first}")
    )
