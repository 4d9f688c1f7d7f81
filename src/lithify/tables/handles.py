"""The open logs of one table, and the snapshots taken from them.

A snapshot reads the changes head first, then base: base can only be newer than that, and changes at or below its
watermark are ignored. The other way round, a fold in between would make rows vanish.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import PurePath
from typing import Unpack

from lithify.core.names import TableName
from lithify.core.position import seq_of
from lithify.core.schema import TableSchema
from lithify.core.snapshot import DataFile, Snapshot
from lithify.delta.actions import LogChange
from lithify.delta.base import BaseLog
from lithify.delta.changes import BASE_PATH, ChangesLog
from lithify.delta.commit import Besides, Build, Committed, commit
from lithify.delta.commit_files import NoLog
from lithify.delta.commit_outcome import Lost
from lithify.delta.log import DeltaLog
from lithify.errors import Corruption, InvalidRequest, NotFound
from lithify.files.addresses import is_remote, path_of
from lithify.files.local_files import names_folder
from lithify.files.paths import not_allowed
from lithify.merge.late import remembering
from lithify.options.table_options import defaults_of
from lithify.tables.past_snapshots import PastSnapshots
from lithify.tables.runtime import Runtime

LOOKS_MAX = 5
_ID = re.compile(r"[0-9A-Za-z-]{1,64}")
# Every snapshot that somebody in this process still holds. Vacuum spares their files.
_live: weakref.WeakValueDictionary[int, Snapshot] = weakref.WeakValueDictionary()
_handles: weakref.WeakValueDictionary[int, Handles] = weakref.WeakValueDictionary()


class Handles:
    def __init__(self, runtime: Runtime, name: TableName) -> None:
        self.runtime, self.name = runtime, name
        self.folder = checked_table_folder(runtime, name)
        self._opened_at_head, self._seen_by = False, 0
        if runtime.store.remote:
            self._open_at_once()
        else:
            self._open_changes()
            self.base = self._opened_base(self.base_folder)
        self.base.log.limits = partial(self.changes.base_limits, ours=self.base_folder == self.folder / "base")
        self.changes.log.now_ms = self.base.log.now_ms = runtime.now_ms
        # One lock for both logs: whoever validates and commits holds still what every other thread would move.
        self.base.log.lock = self.changes.log.lock
        index = index_folder(runtime, self.folder, self.incarnation)
        self.base_index = runtime.indexes.of(str(name), self.incarnation, index / "base.pm", self.base_folder)
        self.changes_index = runtime.indexes.of(
            f"{name} (changes)", self.incarnation, index / "changes.pm", self.changes.log.path
        )
        self.base.log.after_commit = self.base_index.after_commit
        self.changes.log.after_commit = self.changes_index.after_solid
        self._snapshot: Snapshot | None = None
        self._past = PastSnapshots()
        # Snapshots whose files were seen.
        self._present: weakref.WeakValueDictionary[int, Snapshot] = weakref.WeakValueDictionary()
        _handles[id(self)] = self

    def _open_changes(self, listed: Callable[[], object] = lambda: None) -> None:
        runtime, name = self.runtime, self.name
        every, defaults = runtime.settings.checkpoint_every, defaults_of(runtime.settings)
        try:
            self.changes = ChangesLog.open(self.folder / "changes", runtime.store, str(name), every, defaults, listed)
        except NotFound as error:
            if not isinstance(error, NoLog) and DeltaLog.exists(self.folder / "changes", runtime.store):
                raise
            raise not_found(name) from error
        if self.changes.dropped:
            raise not_found(name)
        self.incarnation = self.changes.log.id
        self.base_folder = base_folder(runtime, name, self.changes.schema)

    def _opened_base(self, folder: PurePath, listed: Callable[[], object] = lambda: None) -> BaseLog:
        every = self.runtime.settings.checkpoint_every
        return BaseLog.open(folder, self.runtime.store, str(self.name), every, listed)

    def _open_at_once(self) -> None:
        """Both logs at the same time, base where it mostly lies. What base has is asked once it is known which version
        of changes is read: then it is as new as a look at both would find it.
        """
        listed, usual = threading.Event(), self.folder / "base"
        with ThreadPoolExecutor(1) as beside:
            ahead = beside.submit(self._opened_base, usual, listed.wait)
            try:
                self._open_changes(listed.set)
            finally:
                listed.set()
        if self.base_folder == usual:
            self.base = ahead.result()
            self._opened_at_head = self.changes.log.opened_as_listed
        else:
            ahead.exception()
            self.base = self._opened_base(self.base_folder)

    @contextlib.contextmanager
    def as_opened(self) -> Iterator[None]:
        """For the rest of the call that has opened it: what it saw then is what its first look would find."""
        self._seen_by = threading.get_ident() if self._opened_at_head else 0
        try:
            yield
        finally:
            self._seen_by = 0

    @property
    def data_folders(self) -> tuple[str, ...]:
        """All that data files lie in: those of both logs, and where links in them lead; of a lake in a bucket, where
        local names of them lie that other processes are given.
        """
        if self.runtime.store.remote:
            return (names_folder(self.incarnation),)
        own = str(self.changes.log.path), str(self.base_folder)
        linked = self.runtime.store.path_guard.linked
        return (*own, *(target for folder in own for target in sorted(linked.get(folder, ()))))

    def check_alive(self) -> None:
        """The table that this handle was opened on must not have been dropped (or dropped and created anew)."""
        if self.changes.dropped or self.changes.log.id != self.incarnation:
            raise NotFound(f"table {self.name} was dropped: open it again if it was created anew")

    def has_columns_of(self, schema: TableSchema) -> bool:
        """Whether both logs are at the columns that something was planned with."""
        return self.changes.schema.has_columns_of(schema) and self.base.generation == schema.generation

    def commit(
        self,
        log: DeltaLog,
        what: str,
        build: Build,
        *,
        look: bool = True,
        **besides: Unpack[Besides],
    ) -> Committed | None:
        """One commit to one of the two logs, of a table that is still there."""

        def checked() -> LogChange | None:
            if at_once:
                self._look()
            elif log is self.base.log:
                self.changes.log.refresh()
            self.check_alive()
            return build()

        # A commit to base depends on both logs, which are asked at once where that takes requests.
        at_once = look and log is self.base.log and self.runtime.store.remote
        return commit(self.runtime, log, f"{what} {self.name}", checked, look=look and not at_once, **besides)

    def snapshot(self, as_of: int | str | dt.datetime | Snapshot | None = None, *, look: bool = True) -> Snapshot:
        """Without `look` it is one that the handles know, who have been moved to the head before."""
        if isinstance(as_of, Snapshot):
            if as_of.table_id != self.incarnation:
                raise InvalidRequest(f"as_of is a snapshot of another table than {self.name}: take one of this table")
            return as_of
        snapshot = self._noted(lambda: self._take(as_of), look)
        if as_of is not None or snapshot.schema.expiry is None:
            return snapshot
        return self._noted(lambda: replace(snapshot, moment_ms=self.runtime.now_ms()), look=False)

    def snapshot_before(self, seq: int, *, look: bool = True) -> Snapshot:
        """The table as the write with this seq found it, also where the log no longer tells of the write before."""
        return self._noted(lambda: self._take_before(seq), look)

    def _noted(self, take: Callable[[], Snapshot], look: bool) -> Snapshot:
        snapshot = self._taken(take, look)
        _live[id(snapshot)] = snapshot
        return snapshot

    def _taken(self, take: Callable[[], Snapshot], look: bool) -> Snapshot:
        for number in range(LOOKS_MAX):
            # Trimmed or archived under us, a version has newer ones in its place: look again.
            with contextlib.suppress(Lost), self.changes.log.lock:
                if (look and not self._has_just_looked()) or number:
                    self._look()
                return take()
        raise Corruption(
            f"the log of table {self.name} cannot be read at its newest version: restore its commits from a copy"
        )

    def _has_just_looked(self) -> bool:
        """This thread, for the call that it is in. True once."""
        if self._seen_by != threading.get_ident():
            return False
        self._seen_by = 0
        return True

    def _look(self) -> None:
        """Changes first: what a fold has taken from there is in base by then. Where a look is a request, both go out at
        once, and base is looked at again if there was anything new in changes.
        """
        changes, base, store = self.changes.log, self.base.log, self.runtime.store
        if store.remote:
            before = changes.version
            with ThreadPoolExecutor(1) as beside:
                ahead = beside.submit(base.is_newest)
                changes.refresh()
            self.check_alive()
            if ahead.result() and changes.version == before:
                return
        else:
            changes.refresh()
            self.check_alive()
        store.step("snapshot.between")
        base.refresh()

    def _take(self, as_of: int | str | dt.datetime | None) -> Snapshot:
        if as_of is not None:
            return self._snapshot_as_of(as_of)
        versions = (self.changes.log.version, self.base.log.version)
        cached = self._snapshot
        if cached is None or (cached.changes_version, cached.base_version) != versions:
            cached = self._snapshot = self._build(self.changes, self.base)
        return cached

    def _take_before(self, seq: int) -> Snapshot:
        return self._snapshot_at(seq - 1, self.changes.record_of_seq(seq).version - 1)

    @property
    def cached_snapshot(self) -> Snapshot | None:
        """The last one that was taken of the head, if it is still kept. Looks at nothing."""
        return self._snapshot

    def forget_snapshot(self) -> None:
        """At any time, from any thread: it is only kept for the next reader."""
        self._snapshot = None
        self._past.forget()

    def _build(self, changes: ChangesLog, base: BaseLog, seq_max: int | None = None) -> Snapshot:
        schema = changes.schema
        if base.generation > schema.generation:
            # New columns are in base first, and count once changes say so: until then it is read as it was before.
            version = base.version_up_to(max(changes.seq, base.watermark), schema.generation)
            base = BaseLog(base.log.at(version), str(self.name))
        base.check_readable(schema)
        watermark = base.watermark
        live = changes.files()
        pending: list[DataFile] = [f for f in live if f.seq > watermark]
        pending.sort(key=lambda f: (f.seq, f.op, f.path))
        folded: list[DataFile] = [f for f in live if f.seq <= watermark] if schema.order_by else []
        folded.sort(key=lambda f: (f.seq, f.op, f.path))
        return Snapshot(
            table=str(self.name),
            schema=schema,
            changes_version=changes.log.version,
            base_version=base.log.version,
            seq=max(changes.seq, watermark) if seq_max is None else seq_max,
            watermark=watermark,
            changes=tuple(pending),
            base=base.files(schema),
            table_id=self.incarnation,
            remembered=remembering(folded),
        )

    def snapshot_saved_in(self, folder: PurePath, seq: int, changes_version: int, base_version: int) -> Snapshot:
        """A version whose logs were kept there."""
        if (found := self._past.find(key := (folder, seq, changes_version, base_version))) is not None:
            return found
        changes = ChangesLog(self.changes.log.saved_in(folder / "changes", changes_version), str(self.name))
        base = BaseLog(self.base.log.saved_in(folder / "base", base_version), str(self.name))
        return self._past.keep(key, self._build(changes, base, seq))

    def _snapshot_as_of(self, as_of: int | str | dt.datetime) -> Snapshot:
        from lithify.tables.tags import is_tag_name, tagged

        if isinstance(as_of, str) and is_tag_name(as_of):
            return tagged(self, as_of)
        moment = self._parsed_as_of(as_of)
        key = moment, self.changes.log.version, self.base.log.version
        if (found := self._past.find(key)) is None:
            found = self._snapshot_at_moment(moment)
            if found.schema.expiry is None or isinstance(moment, int):  # else what is hidden depends on when it is now
                self._past.keep(key, found)
        return found

    def _snapshot_at_moment(self, moment: int | dt.datetime) -> Snapshot:
        seq = self.resolve_as_of(moment)
        snapshot = self._snapshot_at(seq, self._newest_version_of(seq))
        if snapshot.schema.expiry is None:
            return snapshot
        # What has expired by then is hidden: by the time that was asked for, or by when the write was committed.
        if isinstance(moment, dt.datetime):
            return replace(snapshot, moment_ms=min(int(moment.timestamp() * 1000), self.runtime.now_ms()))
        return replace(snapshot, moment_ms=self.changes.record_of_seq(seq).timestamp_ms)

    def _snapshot_at(self, seq: int, version: int) -> Snapshot:
        """`version`: one of the changes log, with everything up to `seq`."""
        changes = ChangesLog(self.changes.log.at(version), str(self.name))
        base = BaseLog(self.base.log.at(self.base.version_up_to(seq, changes.schema.generation)), str(self.name))
        if base.watermark > seq or base.generation > changes.schema.generation:
            raise NotFound(f"table {self.name} can no longer be read as of seq {seq}: its base log was trimmed")
        return self._build(changes, base, seq)

    def check_present(self, snapshot: Snapshot, *, to_read: bool = False) -> None:
        """Every file of a snapshot of the past must still be there. `to_read`: whoever reads it notices by itself if
        one goes later, so that in a bucket it is asked once for each snapshot.
        """
        store = self.runtime.store
        if to_read and store.remote and self._present.get(id(snapshot)) is snapshot:
            return
        changes = (*snapshot.remembered, *snapshot.changes)
        for folder, files in ((self.changes.log.path, changes), (self.base_folder, snapshot.base)):
            if store.remote and files:  # one list instead of a request for each
                there = set(store.below(folder))
                gone = next((file.path for file in files if file.path not in there), None)
            else:
                gone = next((file.path for file in files if not store.exists(folder / file.path)), None)
            if gone is not None:
                raise NotFound(
                    f"table {self.name} as of {snapshot.seq} can no longer be read: vacuum has removed "
                    f"{folder / gone}; choose a newer seq"
                )
        self._present[id(snapshot)] = snapshot

    def _newest_version_of(self, seq: int) -> int:
        """The newest version with exactly the rows and columns of `seq`: vacuum may have removed what a rewrite of
        change files, which comes later under the same seq, has replaced.
        """
        version = self.changes.record_of_seq(seq).version
        for record in self.changes.log.commit_records(version):
            if record.info.get("seq", seq) != seq or record.info.get("operation") == "add column":
                break
            version = record.version
        return version

    def _parsed_as_of(self, as_of: int | str | dt.datetime) -> int | dt.datetime:
        if isinstance(as_of, bool) or not isinstance(as_of, int | str | dt.datetime):
            raise InvalidRequest(
                f"as_of is a seq (int), a time (datetime or ISO text) or the name of a tag, not {type(as_of).__name__}"
            )
        if isinstance(as_of, str) and "@" in as_of:
            as_of = seq_of(as_of, str(self.name), self.incarnation)
        if isinstance(as_of, str):
            try:
                as_of = int(as_of) if as_of.isdigit() else dt.datetime.fromisoformat(as_of)
            except ValueError:
                raise InvalidRequest(
                    f"as_of {as_of!r} is neither a seq, nor a time like 2026-11-15T12:00:00, nor a tag"
                ) from None
        if isinstance(as_of, dt.datetime):
            return as_of if as_of.tzinfo else as_of.replace(tzinfo=dt.UTC)
        return as_of

    def resolve_as_of(self, as_of: int | str | dt.datetime) -> int:
        as_of = self._parsed_as_of(as_of)
        newest, oldest = self.changes.seq, self.changes.created_at_seq
        if isinstance(as_of, dt.datetime):
            return max(self.changes.seq_at_time(as_of), oldest)
        if not oldest <= as_of <= newest:
            raise NotFound(f"table {self.name} has no seq {as_of}: it has {oldest} to {newest}")
        return as_of

    def schema(self) -> TableSchema:
        with self.changes.log.lock:
            if not self._has_just_looked():
                self.changes.log.refresh()
            self.check_alive()
            return self.changes.schema


def live_snapshots(table_id: str) -> list[Snapshot]:
    """Snapshots of a table that are alive in this process, through whichever lake they were taken."""
    alive = (reference() for reference in _live.valuerefs())
    return [snapshot for snapshot in alive if snapshot is not None and snapshot.table_id == table_id]


def forget_snapshots(table_id: str) -> None:
    """What the handles of this process keep of a table for the next reader only."""
    for reference in _handles.valuerefs():
        handles = reference()
        if handles is not None and handles.incarnation == table_id:
            handles.forget_snapshot()


def table_folder(runtime: Runtime, name: TableName) -> PurePath:
    """Where a table lies. Its folder, or that of its namespace, may be a link to a folder that the settings allow."""
    return runtime.store.path_guard.followed(runtime.root / name.namespace / name.table, 2)


def checked_table_folder(runtime: Runtime, name: TableName) -> PurePath:
    """The same, once it was looked at for links: in it, and where tables keep what they can do without."""
    folder = table_folder(runtime, name)
    for part in (folder, folder / "index", folder / "quarantine"):
        runtime.store.path_guard.check_entries(part)
    return folder


def base_folder(runtime: Runtime, name: TableName, schema: TableSchema) -> PurePath:
    """A table's own folder, or the place of an adopted table: the log names it, the settings have to allow it."""
    adopted = schema.settings.get(BASE_PATH)
    if adopted is None:
        return table_folder(runtime, name) / "base"
    return adopted_folder(runtime, path_of(adopted), f"the base of table {name}")


def adopted_folder(runtime: Runtime, path: PurePath, what: str) -> PurePath:
    path_guard = runtime.store.path_guard
    if not (path.is_absolute() or is_remote(path)) or not path_guard.allows(path):
        raise not_allowed(path, what)
    path_guard.trust(path)
    return path


def index_folder(runtime: Runtime, folder: PurePath, table_id: str) -> PurePath:
    """Where the indexes of a table lie: on this machine, if the lake does not."""
    local = runtime.settings.index_folder
    if local is None and runtime.store.remote:
        local = runtime.settings.copies_folder / "index"
    if local is None:
        return folder / "index"
    # The id stands in the log, where it may be any text.
    return local / (table_id if _ID.fullmatch(table_id) else blake2b(table_id.encode(), digest_size=16).hexdigest())


def not_found(name: TableName) -> NotFound:
    return NotFound(f"table {name} does not exist in this lake: `lithify tables` lists what does", table=str(name))


def dropped(name: TableName) -> NotFound:
    return NotFound(f"table {name} was dropped: open it again if it was created anew")
