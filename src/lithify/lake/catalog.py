"""Which tables a lake has: creating, dropping, listing.

These rare operations hold one advisory lock per lake. Dropping is a commit, and creating again at the same path
goes on with the next version, so that a writer that slept through both is refused by its compare-and-swap.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from lithify.core.names import CONTROL_FOLDER, TableName
from lithify.core.schema import TableSchema
from lithify.core.type_text import type_name
from lithify.delta.actions import LogChange
from lithify.delta.base import OWNER, WATERMARK_TXN, BaseLog
from lithify.delta.changes import BASE_PATH, CREATED_AT_SEQ, CREATED_AT_VERSION, DROPPED, ChangesLog
from lithify.delta.commit import commit
from lithify.delta.commit_outcome import Lost
from lithify.delta.folder import LOG_FOLDER, commit_name
from lithify.delta.log import DeltaLog
from lithify.errors import CommitUnknown, Conflict, Corruption, InvalidRequest, LithifyError, NotFound, Unavailable
from lithify.files.paths import is_link
from lithify.files.storage import Storage
from lithify.options.table_options import stored
from lithify.tables.handles import (
    adopted_folder,
    base_folder,
    checked_table_folder,
    index_folder,
    not_found,
    table_folder,
)
from lithify.tables.runtime import Runtime
from lithify.tables.tags import forget_tags
from lithify.write.options import parsed_options

logger = logging.getLogger(__name__)

LAKE_FORMAT = 1
LOOKS_MAX = 10_000


def open_lake(root: PurePath, store: Storage, *, create: bool) -> None:
    """Check that `root` is a lake this version can use; make it one if it is empty."""
    marker = root / CONTROL_FOLDER / "lake.json"
    _check_control(root / CONTROL_FOLDER, store)
    if store.exists(marker):
        try:
            described = json.loads(store.read(marker))
            version = int(described["format"])
        except (ValueError, KeyError, TypeError) as error:
            raise Corruption(
                f'{marker} is not readable: restore it, or write {{"format": {LAKE_FORMAT}}} into it'
            ) from error
        if version > LAKE_FORMAT:
            raise InvalidRequest(
                f"lake {root} was written by a newer Lithify (format {version}; this one knows {LAKE_FORMAT}): "
                "upgrade lithify"
            )
        return
    if store.exists(root) and not store.is_folder(root):
        raise InvalidRequest(f"{root} is a file, not a folder: give the lake a folder")
    if not create:
        raise NotFound(f"{root} is no lake: create one with `lithify init {root}`")
    # A control folder without a marker: a creation that was cut off, or one going on in another process.
    if any(name != CONTROL_FOLDER for name in store.names(root)):
        raise InvalidRequest(f"{root} is no lake and not empty: give an empty or a new folder")
    store.make_folder(root / CONTROL_FOLDER / "jobs")
    store.put(marker, json.dumps({"format": LAKE_FORMAT}).encode())


def _check_control(folder: PurePath, store: Storage) -> None:
    """No link lies in the control folder, nor in the folders in it; what streams keep deeper is looked at when used."""
    store.path_guard.check_entries(folder)
    for name in store.names(folder):
        store.path_guard.check_entries(folder / name)


@dataclass(frozen=True)
class _Look:
    """Whether a table was dropped, as its log said at a version: true until the next commit, which two looks for files
    find out, while opening the log costs milliseconds.
    """

    dropped: bool
    newest: PurePath
    tag: str | None
    following: PurePath
    cleared: bool = False  # of a dropped one: it was found to have left nothing

    @classmethod
    def at(cls, changes: ChangesLog, store: Storage) -> _Look:
        newest, following = (changes.log.path / LOG_FOLDER / commit_name(changes.log.version + n) for n in (0, 1))
        return cls(changes.dropped, newest, store.tag(newest), following)

    def holds(self, store: Storage) -> bool:
        try:
            return self.tag is not None and store.tag(self.newest) == self.tag and not store.exists(self.following)
        except LithifyError:
            return False


class Catalog:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._looks: dict[TableName, _Look] = {}

    @contextlib.contextmanager
    def _exclusive(self, what: str) -> Iterator[None]:
        path = self._runtime.control / "catalog.lock"
        with self._runtime.store.lock(path, self._runtime.settings.lock_wait_s_max, what):
            yield

    def create(
        self,
        name: TableName,
        schema: TableSchema,
        *,
        if_not_exists: bool,
        settings: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        fill: Callable[[BaseLog], None] | None = None,
    ) -> bool:
        """Returns whether the table was created now. `fill` puts rows into base before the table comes into being."""
        parsed = parsed_options({} if options is None else options, schema, self._runtime.settings)
        own = {name: value for name, value in parsed.items() if value is not None}
        with self._exclusive(f"creating {name}"):
            return self._create(name, schema, if_not_exists, {**(settings or {}), **stored(own)}, fill)

    def _create(
        self,
        name: TableName,
        schema: TableSchema,
        if_not_exists: bool,
        settings: Mapping[str, str],
        fill: Callable[[BaseLog], None] | None,
    ) -> bool:
        store, every = self._runtime.store, self._runtime.settings.checkpoint_every
        folder = checked_table_folder(self._runtime, name)
        created_at_seq = 0
        changes = self._changes_of(name)
        if changes is not None:
            if not changes.dropped:
                if not if_not_exists:
                    raise Conflict(f"table {name} exists already: drop it first, or pass if_not_exists=True")
                _check_same(name, changes.schema, schema)
                changes.log.make_durable()  # whoever created it may not have come so far
                return False
            created_at_seq = changes.seq
        base_path = folder / "base"
        if BASE_PATH in settings:
            base_path = adopted_folder(self._runtime, PurePath(settings[BASE_PATH]), f"the base of table {name}")
        # Another lake may have folded into this base: seqs go on above its watermark, or writes would count as folded.
        with contextlib.suppress(NotFound):
            base = BaseLog.open(base_path, store, str(name), every)
            created_at_seq = max(created_at_seq, base.watermark)
        store.step("create.start")
        info = {
            "operation": "create table",
            "seq": created_at_seq,
            "watermark": created_at_seq,
            "actor": self._runtime.settings.actor,
        }
        with _nothing_created_yet(name):
            if BASE_PATH not in settings:
                write_id = self._runtime.new_id()
                DeltaLog.create(base_path, store, schema.base_columns, schema.partitions, {}, info, write_id, every)
                store.step("create.base")
            if fill is not None:
                fill(BaseLog.open(base_path, store, str(name), every))
            store.make_folder(folder / "changes")
            for parent in (folder, folder.parent, self._runtime.root):
                store.sync_folder(parent)
        properties = {
            **schema.properties(),
            **settings,
            CREATED_AT_SEQ: str(created_at_seq),
            CREATED_AT_VERSION: str(changes.log.version + 1 if changes is not None else 0),
            # A tombstone may go by any column, and its statistics tell which: none may be left out.
            "delta.dataSkippingNumIndexedCols": "-1",
            # Every fold removes all the files it took; for a week, they would fill the checkpoints. Vacuum does not
            # need them: it reads the commits.
            "delta.deletedFileRetentionDuration": "interval 0 seconds",
        }
        columns, partitions = schema.changes_columns, ["_seq", "_op"]
        try:
            write_id = self._runtime.new_id()
            DeltaLog.create(folder / "changes", store, columns, partitions, properties, info, write_id, every)
        except Lost as error:
            raise Conflict(f"{folder / 'changes'} was written to meanwhile: look at it, then create {name}") from error
        store.step("create.changes")
        return True

    def _changes_of(self, name: TableName) -> ChangesLog | None:
        path = table_folder(self._runtime, name) / "changes"
        try:
            return ChangesLog.open(path, self._runtime.store, str(name), self._runtime.settings.checkpoint_every)
        except NotFound:
            return None

    def drop(self, name: TableName, only_at_seq: int | None = None) -> None:
        """One commit drops the table; what is left to do then is clearing away, and goes on where an earlier drop was
        interrupted. `only_at_seq`: refuse if anything was written since.
        """
        with self._exclusive(f"dropping {name}"):
            checked_table_folder(self._runtime, name)
            changes = self._changes_of(name)
            if changes is None:
                raise not_found(name)
            base_path = base_folder(self._runtime, name, changes.schema)
            cleared = changes.dropped and not self._remains(name, changes, base_path)

            def mark() -> LogChange | None:
                if changes.dropped:
                    return None
                if only_at_seq is not None and changes.seq != only_at_seq:
                    raise Conflict(f"table {name} was written to meanwhile: it was not dropped")
                info = {"operation": "drop table", "actor": self._runtime.settings.actor, "seq": changes.seq}
                return LogChange(info, properties={DROPPED: "true"})

            commit(self._runtime, changes.log, f"dropping {name}", mark)
            if cleared:
                raise not_found(name)
            self._runtime.store.step("drop.changes")
            try:
                self._clear(name, changes, base_path)
            except Exception as error:
                logger.warning(
                    "table %s is dropped, but not all is cleared away: %s; maintenance will do it, or drop it again",
                    name,
                    error,
                )

    def _clear(self, name: TableName, changes: ChangesLog, base_path: PurePath) -> None:
        """Take away what a dropped table has left; no file before its log has forgotten it."""
        store, folder = self._runtime.store, table_folder(self._runtime, name)
        info = {"operation": "drop table", "actor": self._runtime.settings.actor}
        if base_path == folder / "base":
            # A fold that slept through this must find base moved on, at whatever version it comes back.
            with contextlib.suppress(NotFound):
                base = DeltaLog.open(base_path, store)
                self._empty(base, {**info, "watermark": changes.seq}, {WATERMARK_TXN: changes.seq})
        elif (owned := self._owned_base(name, base_path)) is not None:
            self._give_back(owned)
        self._empty(changes.log, {**info, "seq": changes.seq}, {})
        store.step("drop.emptied")
        changes.log.forget_archive()
        for own in ("changes", "base"):
            self._delete_data(folder / own)
        for derived in self._derived(folder, changes):
            store.delete_folder(derived)
        forget_tags(self._runtime, name)

    def _remains(self, name: TableName, changes: ChangesLog, base_path: PurePath) -> bool:
        """Whether a dropped table is not cleared away altogether."""
        folder, store = table_folder(self._runtime, name), self._runtime.store
        return (
            any(entry != LOG_FOLDER for own in ("changes", "base") for entry in store.names(folder / own))
            or any(store.exists(derived) for derived in self._derived(folder, changes))
            or self._owned_base(name, base_path) is not None
        )

    def _derived(self, folder: PurePath, changes: ChangesLog) -> tuple[PurePath, ...]:
        return folder / "index", folder / "quarantine", index_folder(self._runtime, folder, changes.log.id)

    def _owned_base(self, name: TableName, base_path: PurePath) -> DeltaLog | None:
        """An adopted base that is still this table's."""
        if base_path == table_folder(self._runtime, name) / "base":
            return None
        with contextlib.suppress(NotFound):
            base = DeltaLog.open(base_path, self._runtime.store)
            return base if base.properties.get(OWNER) == owner_of(self._runtime, name) else None
        return None

    def _give_back(self, base: DeltaLog) -> None:
        """An adopted base may be adopted again."""
        change = LogChange({"operation": "give back"}, properties={OWNER: ""})
        commit(self._runtime, base, f"giving back {base.path}", lambda: change)

    def _empty(self, log: DeltaLog, info: Mapping[str, object], txns: Mapping[str, int]) -> None:
        def build() -> LogChange:
            return LogChange(info, removes=log.files(()), txns=txns, data_change=True)

        commit(self._runtime, log, f"emptying {log.path}", build)

    def _delete_data(self, folder: PurePath) -> None:
        """Nothing of a dropped table can be asked for any more; only its logs stay, for the version numbers."""
        for entry in self._runtime.store.names(folder):
            if entry != LOG_FOLDER:
                self._runtime.store.delete_folder(folder / entry)

    def finish_drops(self, problem: Callable[[str], None]) -> list[str]:
        """Clear away what interrupted drops have left. What was done is answered; what cannot be done now is told."""
        finished = []
        for name in self._named():
            if self.exists(name):
                continue
            look = self._looks.get(name)
            if look is not None and look.cleared:
                continue
            try:
                if self._finish_drop(name):
                    finished.append(f"dropping of {name}: cleared away what it had left")
                elif look is not None:
                    self._looks[name] = replace(look, cleared=True)
            except Exception as error:
                problem(f"{name} is dropped, but not all of it is cleared away: {error}")
        return finished

    def _finish_drop(self, name: TableName) -> bool:
        checked_table_folder(self._runtime, name)
        if self._changes_of(name) is None:
            return False
        with self._exclusive(f"clearing {name} away"):
            changes = self._changes_of(name)
            if changes is None or not changes.dropped:
                return False
            base_path = base_folder(self._runtime, name, changes.schema)
            if not self._remains(name, changes, base_path):
                return False
            changes.log.make_durable()
            self._clear(name, changes, base_path)
            return True

    def tables(self) -> list[TableName]:
        return [name for name in self._named() if self.exists(name)]

    def _named(self) -> list[TableName]:
        """By the folders that there are."""
        found = []
        root, store = self._runtime.root, self._runtime.store
        for namespace in store.names(root):
            if namespace.startswith(("_", ".")):
                continue
            folder = root / namespace
            if store.path_guard.is_link(folder) and store.path_guard.is_link(
                folder := store.path_guard.followed(folder, 1)
            ):
                if store.is_folder(folder):
                    logger.warning("%s", is_link(folder))
                continue
            found += [TableName(namespace, table) for table in store.names(folder)]
        return found

    def exists(self, name: TableName) -> bool:
        look = self._looks.get(name)
        if look is not None and look.holds(self._runtime.store):
            return not look.dropped
        self._looks.pop(name, None)
        try:
            changes = self._changes_of(name)
        except LithifyError:
            # A damaged table is still a table: naming it lets the user see and repair it.
            return True
        if changes is None:
            return False
        with contextlib.suppress(LithifyError):
            if len(self._looks) < LOOKS_MAX:
                self._looks[name] = _Look.at(changes, self._runtime.store)
        return not changes.dropped


def owner_of(runtime: Runtime, name: TableName) -> str:
    """What an adopted base says whose it is."""
    return f"{name} in {runtime.root}"


@contextlib.contextmanager
def _nothing_created_yet(name: TableName) -> Iterator[None]:
    """A table comes into being with the first commit to its changes. Whatever became of base before, there is none."""
    try:
        yield
    except (CommitUnknown, Lost) as error:
        raise Unavailable(
            f"table {name} was not created, its base cannot be written now: {error}; try again"
        ) from error


def _check_same(name: TableName, present: TableSchema, wanted: TableSchema) -> None:
    for what in ("key", "order_by", "time", "partition_by"):
        has, asked = getattr(present, what), getattr(wanted, what)
        if has != asked:
            raise Conflict(
                f"table {name} exists with another {what}: it has {_listed(has)}, asked for was {_listed(asked)}"
            )
    if present.columns != wanted.columns:
        raise Conflict(
            f"table {name} exists with other columns: it has {_columns(present)}; asked for were {_columns(wanted)}"
        )


def _listed(names: tuple[str, ...] | str | None) -> str:
    return ", ".join([names] if isinstance(names, str) else names or ()) or "none"


def _columns(schema: TableSchema) -> str:
    return ", ".join(f"{f.name}:{type_name(f.type)}{'' if f.nullable else '!'}" for f in schema.columns)
