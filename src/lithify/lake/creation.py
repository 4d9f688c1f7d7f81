"""A table comes into being: its base, then its changes, whose first commit decides.

Two who create a table at once, with other columns perhaps, must not leave the base of the one below the changes of the
other. A lock keeps them apart. Where the storage has none there is a lease, which nobody can rely on, so the two logs
do:

1. Who creates claims the table, by a commit to its changes that leaves it dropped.
2. It looks which version base has; then whether its claim is still the newest commit to the changes.
3. It makes base, as exactly the version after the one it saw.
4. The table comes into being with a commit to its changes, as exactly the version after the claim.

If a rival claims before 2 is done, we give up. If later, it looks at base later than we did: either it makes base
after us, on top of ours, and 4 fails for us; or before us, and 3 does. So whoever comes through 4 has made base last.
A claim that nobody fulfils is a table that does not exist: the next one to create it, or to drop it, goes on from
there.

A table that is created with rows is claimed, whatever the storage: the commit that makes it is the first write. Then
nobody sees it without them, and a crash leaves a claim.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath

from lithify.core.names import TableName
from lithify.core.schema import TableSchema
from lithify.delta.actions import LogChange
from lithify.delta.base import BaseLog
from lithify.delta.changes import BASE_PATH, CLAIMED, CREATED_AT_SEQ, CREATED_AT_VERSION, DROPPED, ChangesLog
from lithify.delta.commit import commit
from lithify.delta.commit_files import NoLog
from lithify.delta.commit_outcome import Lost
from lithify.delta.create_log import create_log
from lithify.delta.log import DeltaLog
from lithify.delta.remote_log import LOOK_S_MAX, clock_s
from lithify.errors import CommitUnknown, Conflict, Unavailable
from lithify.files.storage import Storage
from lithify.tables.handles import table_folder
from lithify.tables.runtime import Runtime
from lithify.write.first_write import FirstWrite

BASE_ATTEMPTS_MAX = 20


@dataclass(frozen=True)
class Creation:
    """What is to be created, with the versions that its first commits are to have, by a look at `looked_s`. `fill` puts
    rows into base; `first` is the table's first write, of files that it has staged.
    """

    name: TableName
    schema: TableSchema
    settings: Mapping[str, str]
    base_path: PurePath
    created_at_seq: int
    version: int
    base_version: int
    looked_s: float
    fill: Callable[[BaseLog], None] | None = None
    first: FirstWrite | None = None

    def info(self, runtime: Runtime) -> dict[str, object]:
        numbers = {"seq": self.created_at_seq, "watermark": self.created_at_seq}
        return {"operation": "create table", **numbers, "actor": runtime.settings.actor}


def create_logs(runtime: Runtime, table: Creation) -> None:
    store, folder, every = runtime.store, table_folder(runtime, table.name), runtime.settings.checkpoint_every
    claim = rival = None
    if not store.locks or table.first is not None:
        told = {DROPPED: "true", CLAIMED: runtime.new_id()}
        # With a first write, the claim is what the table was before it: empty.
        info = {"operation": "claim table"} if table.first is None else table.info(runtime)
        claim = _create_changes(runtime, table, info, told)
        rival = None if store.locks else claim
        if not store.locks and clock_s() - table.looked_s > LOOK_S_MAX:
            raise overtaken(table.name)  # asleep since it looked: a log of then may have been made, and trimmed
        store.step("create.claimed")
    with _nothing_created_yet(table.name):
        base = None
        if BASE_PATH not in table.settings:
            base = _create_base(runtime, table, rival)
            store.step("create.base")
        if table.fill is not None:
            if base is None or rival is None:
                table.fill(BaseLog.open(table.base_path, store, str(table.name), every))
            else:
                table.fill(BaseLog(base, str(table.name)))  # as it was made: another one is a rival's
        store.make_folder(folder / "changes")
        for parent in (folder, folder.parent, runtime.root):
            store.sync_folder(parent)
    if claim is None:
        _create_changes(runtime, table, table.info(runtime), {})
    else:
        _fulfil(runtime, table, claim)
    store.step("create.changes")


def _create_changes(runtime: Runtime, table: Creation, info: Mapping[str, object], more: Mapping[str, str]) -> DeltaLog:
    path, schema = table_folder(runtime, table.name) / "changes", table.schema
    locks, every = runtime.store.locks, runtime.settings.checkpoint_every
    properties = {
        **schema.properties(),
        **table.settings,
        CREATED_AT_SEQ: str(table.created_at_seq),
        CREATED_AT_VERSION: str(table.version if locks or table.first is not None else table.version + 1),
        # A tombstone may go by any column, and its statistics tell which: none may be left out.
        "delta.dataSkippingNumIndexedCols": "-1",
        # Every fold removes all the files it took; for a week, they would fill the checkpoints. Vacuum does not
        # need them: it reads the commits.
        "delta.deletedFileRetentionDuration": "interval 0 seconds",
        **more,
    }
    columns, at, write_id = schema.changes_columns, table.version, runtime.new_id()
    try:
        return create_log(
            path, runtime.store, columns, ["_seq", "_op"], properties, info, write_id, every, at_version=at
        )
    except Lost as error:
        raise Conflict(f"{path} was written to meanwhile: look at it, then create {table.name}") from error


def _create_base(runtime: Runtime, table: Creation, claim: DeltaLog | None) -> DeltaLog:
    store, path, every = runtime.store, table.base_path, runtime.settings.checkpoint_every
    columns, partitions, info = table.schema.base_columns, table.schema.partitions, table.info(runtime)
    if claim is None:
        at = table.base_version
        return create_log(path, store, columns, partitions, {}, info, runtime.new_id(), every, at_version=at)
    for _ in range(BASE_ATTEMPTS_MAX):
        at = _version_of(path, store) + 1
        store.step("create.looked")
        check_newest(table.name, claim, table.version)
        store.step("create.checked")
        try:
            base = create_log(path, store, columns, partitions, {}, info, runtime.new_id(), every, at_version=at)
        except Lost:
            continue  # to a rival, or to who clears away what was there before
        if base.version != at:
            break
        return base
    raise overtaken(table.name)


def _version_of(path: PurePath, store: Storage) -> int:
    """-1: there is none."""
    if not store.remote:
        return DeltaLog.open(path, store).version if DeltaLog.exists(path, store) else -1
    try:
        return DeltaLog.open(path, store).version
    except NoLog:
        return -1


def _fulfil(runtime: Runtime, table: Creation, claim: DeltaLog) -> None:
    def build() -> LogChange:
        if claim.version != table.version:
            raise overtaken(table.name)
        there = {DROPPED: "false", CLAIMED: ""}
        if table.first is None:
            return LogChange(table.info(runtime), properties=there)
        written = table.first.change(ChangesLog(claim, str(table.name)))
        return replace(written, columns=table.schema.changes_columns, properties=there)

    # Not looked at before: at any other version than the one after the claim it is lost, and then looked at.
    discard = (lambda: None) if table.first is None else table.first.discard
    commit(runtime, claim, f"creating {table.name}", build, discard=discard, look=False)


def check_newest(name: TableName, changes: DeltaLog, version: int) -> None:
    """Nobody has committed to the table's changes since."""
    with changes.lock:
        changes.refresh()
        if changes.version != version:
            raise overtaken(name)


def overtaken(name: TableName) -> Conflict:
    return Conflict(f"another process creates or drops table {name} at the same time: look at it, then try again")


@contextlib.contextmanager
def _nothing_created_yet(name: TableName) -> Iterator[None]:
    """A table comes into being with the first commit to its changes. Whatever became of base before, there is none."""
    try:
        yield
    except (CommitUnknown, Lost) as error:
        raise Unavailable(
            f"table {name} was not created, its base cannot be written now: {error}; try again"
        ) from error
