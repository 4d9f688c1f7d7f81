"""Which tables a lake has: creating, dropping, listing.

These rare operations hold one advisory lock per lake, or a lease where the storage has no locks. Dropping is a commit,
and creating again at the same path goes on with the next version, so that a writer that slept through both is refused
by its compare-and-swap.

Neither lock nor lease is what keeps tables whole: who slept past the end of a lease does no harm. Creating is told in
`lake/creation.py`, clearing away what a dropped table has left in `lake/drop.py`.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from lithify.core.names import CONTROL_FOLDER, TableName
from lithify.core.order_groups import shown_groups
from lithify.core.schema import FORMAT, TableSchema
from lithify.core.type_text import type_name
from lithify.delta.actions import LogChange
from lithify.delta.base import BaseLog
from lithify.delta.changes import BASE_PATH, CLAIMED, DROPPED, ChangesLog
from lithify.delta.commit import commit
from lithify.delta.folder import LOG_FOLDER, commit_name
from lithify.delta.remote_log import LOOK_S_MAX, clock_s
from lithify.errors import Conflict, Corruption, InvalidRequest, LithifyError, NotFound, Unavailable
from lithify.files.addresses import path_of
from lithify.files.at_once import at_once
from lithify.files.deciding_file import establish
from lithify.files.open_storage import storage_of
from lithify.files.paths import is_link
from lithify.files.storage import Storage
from lithify.jobs.leases import waited_for
from lithify.lake.creation import Creation, create_logs
from lithify.lake.drop import clear, remains
from lithify.options.table_options import DEFAULTS, MISSING_COLUMNS
from lithify.tables.handles import (
    adopted_folder,
    base_folder,
    checked_table_folder,
    index_folder,
    not_found,
    table_folder,
)
from lithify.tables.runtime import Runtime
from lithify.write.first_write import FirstWrite
from lithify.write.options import parsed_options, properties_of

logger = logging.getLogger(__name__)

LAKE_FORMAT = 1
MARKER = "lake.json"
LOOKS_MAX = 10_000
LOOKS_AT_ONCE = 16
LEASE_S = 15.0


def open_lake(root: PurePath, store: Storage, *, create: bool | None) -> None:
    """Check that `root` is a lake this version can use; make it one if it is empty. `create` None: and say so."""
    marker = root / CONTROL_FOLDER / MARKER
    _check_control(root / CONTROL_FOLDER, store)
    if (content := _marker_at(marker, store)) is not None:
        try:
            described = json.loads(content)
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
    if create is False:
        raise NotFound(f"{root} is no lake: create one with `lithify init {root}`")
    if create is None and not store.remote and not store.is_folder(root.parent):
        raise NotFound(
            f"{root.parent} is no folder, so no lake is made in it: check the path, or make one with `lithify init "
            f"{root}`"
        )
    # A control folder without a marker: a creation that was cut off, or one going on in another process.
    if any(name != CONTROL_FOLDER for name in store.names(root)):
        what = "prefix" if store.remote else "folder"
        raise InvalidRequest(f"{root} is no lake and not empty: give an empty or a new {what}")
    make_lake(root, store)
    if create is None:
        logger.warning("made a new lake in %s", root)


def make_lake(root: PurePath, store: Storage) -> None:
    """What is in it already, if anything, is part of it from now on."""
    store.probe(root / CONTROL_FOLDER)
    store.make_folder(root / CONTROL_FOLDER / "jobs")
    marker = root / CONTROL_FOLDER / MARKER
    document = json.dumps({"format": LAKE_FORMAT}).encode()
    establish(store, store.put, marker, document, f"lake {root}", alone=False)


def _marker_at(path: PurePath, store: Storage) -> bytes | None:
    if not store.remote and not store.exists(path):  # or something in its way that is no folder
        return None
    try:
        return store.read(path)
    except NotFound:
        return None


def is_lake(place: PurePath) -> bool:
    return storage_of(place).exists(place / CONTROL_FOLDER / MARKER)


def _check_control(folder: PurePath, store: Storage) -> None:
    """No link lies in the control folder, nor in the folders in it; what streams keep deeper is looked at when used."""
    if store.remote:
        return  # which has none
    store.path_guard.check_entries(folder)
    for name in store.names(folder):
        store.path_guard.check_entries(folder / name)


@dataclass(frozen=True)
class _Look:
    """Whether a table was dropped, as its log said at a version: true until the next commit, which two looks for files
    find out, while opening the log costs milliseconds. In a bucket one of them is enough for a while, as it is for
    whoever follows the log (`remote_log`).
    """

    dropped: bool
    newest: PurePath
    tag: str | None
    following: PurePath
    looked_s: float
    cleared: bool = False  # of a dropped one: it was found to have left nothing

    @classmethod
    def at(cls, changes: ChangesLog, store: Storage) -> _Look:
        newest, following = (changes.log.path / LOG_FOLDER / commit_name(changes.log.version + n) for n in (0, 1))
        looked_s = clock_s()
        return cls(changes.dropped, newest, store.tag(newest), following, looked_s)

    def still(self, store: Storage) -> _Look | None:
        """The same, seen now, if it holds."""
        looked_s = clock_s()
        try:
            fresh = store.remote and looked_s - self.looked_s < LOOK_S_MAX
            if self.tag is None or not (fresh or store.tag(self.newest) == self.tag):
                return None
            there = store.tag(self.following) is not None if store.remote else store.exists(self.following)
            return None if there else replace(self, looked_s=looked_s)
        except LithifyError:
            return None


class Catalog:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._looks: dict[TableName, _Look] = {}

    @contextlib.contextmanager
    def _exclusive(self, what: str) -> Iterator[None]:
        wait_s = self._runtime.settings.lock_wait_s_max
        if self._runtime.store.locks:
            lock = self._runtime.store.lock(self._runtime.control / "catalog.lock", wait_s, what)
        else:
            lock = waited_for(self._runtime, "catalog", LEASE_S, wait_s, what)
        with lock:
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
        first: FirstWrite | None = None,
    ) -> bool:
        """Returns whether the table was created now. `fill` puts rows into base before the table comes into being;
        `first`, its first write, is the commit by which it does.
        """
        parsed = parsed_options({} if options is None else options, schema, self._runtime.settings)
        own = {name: value for name, value in parsed.items() if value is not None}
        if schema.keyed:
            own.setdefault(MISSING_COLUMNS, DEFAULTS[MISSING_COLUMNS])  # a table that says nothing is from before
        with self._exclusive(f"creating {name}"):
            settings = {**(settings or {}), **properties_of(own, FORMAT)}
            return self._create(name, schema, if_not_exists, settings, fill, first)

    def _create(
        self,
        name: TableName,
        schema: TableSchema,
        if_not_exists: bool,
        settings: Mapping[str, str],
        fill: Callable[[BaseLog], None] | None,
        first: FirstWrite | None,
    ) -> bool:
        store, folder = self._runtime.store, checked_table_folder(self._runtime, name)
        created_at_seq = 0
        base_path = folder / "base"
        if BASE_PATH in settings:
            base_path = adopted_folder(self._runtime, path_of(settings[BASE_PATH]), f"the base of table {name}")
        looked_s = clock_s()
        changes, base = self._logs_of(name, base_path)
        if changes is not None:
            if not changes.dropped:
                if not if_not_exists:
                    raise Conflict(f"table {name} exists already: drop it first, or pass if_not_exists=True")
                _check_same(name, changes.schema, schema)
                changes.log.make_durable()  # whoever created it may not have come so far
                return False
            created_at_seq = changes.seq
        # Another lake may have folded into this base: seqs go on above its watermark, or writes would count as folded.
        base_version = -1
        if base is not None:
            created_at_seq, base_version = max(created_at_seq, base.watermark), base.log.version
        store.step("create.start")
        versions = (-1 if changes is None else changes.log.version) + 1, base_version + 1
        create_logs(
            self._runtime, Creation(name, schema, settings, base_path, created_at_seq, *versions, looked_s, fill, first)
        )
        return True

    def _logs_of(self, name: TableName, base_path: PurePath) -> tuple[ChangesLog | None, BaseLog | None]:
        """At once where that takes requests. What is decided on them, their next commits decide again."""

        def open_base() -> BaseLog | None:
            with contextlib.suppress(NotFound):
                every = self._runtime.settings.checkpoint_every
                return BaseLog.open(base_path, self._runtime.store, str(name), every)
            return None

        if self._runtime.store.remote:
            return at_once(lambda: self._changes_of(name), open_base)
        changes = self._changes_of(name)
        return changes, None if changes is not None and not changes.dropped else open_base()

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
            folder = checked_table_folder(self._runtime, name)
            changes, base = self._logs_of(name, folder / "base")
            if changes is None:
                raise not_found(name)
            base_path = base_folder(self._runtime, name, changes.schema)
            cleared = changes.dropped and not changes.claimed and not remains(self._runtime, name, changes, base_path)

            def mark() -> LogChange | None:
                if changes.dropped and not changes.claimed:
                    return None
                if only_at_seq is not None and changes.seq != only_at_seq:
                    raise Conflict(f"table {name} was written to meanwhile: it was not dropped")
                info = {"operation": "drop table", "actor": self._runtime.settings.actor, "seq": changes.seq}
                return LogChange(info, properties={DROPPED: "true", **({CLAIMED: ""} if changes.claimed else {})})

            # Opened a moment ago, where a look takes a request: if it has moved on since, this loses, and looks.
            self._commit_drop(name, changes, mark)
            if cleared:
                raise not_found(name)
            self._runtime.store.step("drop.changes")
            try:
                clear(self._runtime, name, changes, base_path, base)
            except Exception as error:
                logger.warning(
                    "table %s is dropped, but not all is cleared away: %s; maintenance will do it, or drop it again",
                    name,
                    error,
                )

    def _commit_drop(self, name: TableName, changes: ChangesLog, mark: Callable[[], LogChange | None]) -> None:
        runtime = self._runtime

        def attempt() -> None:
            commit(runtime, changes.log, f"dropping {name}", mark, look=not runtime.store.remote)

        try:
            attempt()
        except Unavailable as error:
            index = index_folder(runtime, table_folder(runtime, name), changes.log.id)
            if runtime.store.remote or not error.details.get("disk_full") or not runtime.store.exists(index):
                raise
            # Whoever drops a table on a full disk wants the room. What is derived may go at any time.
            runtime.store.delete_folder(index)
            attempt()

    def finish_drops(self, problem: Callable[[str], None], there: Collection[str] = ()) -> list[str]:
        """Clear away what interrupted drops have left. What was done is answered; what cannot be done now is told.
        `there`: tables that were there a moment ago.
        """
        finished = []
        for name in self._named():
            if str(name) in there or self.exists(name):
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
            if changes is None or not changes.dropped or changes.claimed:
                return False
            base_path = base_folder(self._runtime, name, changes.schema)
            if not remains(self._runtime, name, changes, base_path):
                return False
            changes.log.make_durable()
            clear(self._runtime, name, changes, base_path)
            return True

    def tables(self) -> list[TableName]:
        named = self._named()
        if not self._runtime.store.remote or len(named) < 2:
            return [name for name in named if self.exists(name)]
        with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
            return [name for name, there in zip(named, pool.map(self.exists, named), strict=True) if there]

    def named(self) -> list[TableName]:
        """By their folders, without a look at each: one that was half made or half dropped may be among them."""
        return [name for name in self._named() if not self._is_known_dropped(name) or self.exists(name)]

    def _is_known_dropped(self, name: TableName) -> bool:
        look = self._looks.get(name)
        return look is not None and look.dropped

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
        if look is not None and (seen := look.still(self._runtime.store)) is not None:
            self._looks[name] = seen
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


def _check_same(name: TableName, present: TableSchema, wanted: TableSchema) -> None:
    if present.merge_rules != wanted.merge_rules:
        raise Conflict(
            f"table {name} exists with other merge rules: it has {_rules(present)}, asked for was {_rules(wanted)}"
        )
    if present.order_groups != wanted.order_groups:
        raise Conflict(
            f"table {name} exists with other order groups: it has {shown_groups(present.order_groups) or 'none'}, "
            f"asked for was {shown_groups(wanted.order_groups) or 'none'}"
        )
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
    if wanted.column_defaults and present.column_defaults != wanted.column_defaults:
        raise Conflict(
            f"table {name} exists with other defaults: it has {dict(present.column_defaults) or 'none'}, asked for was "
            f"{dict(wanted.column_defaults)}; change them with alter_column"
        )


def _listed(names: tuple[str, ...] | str | None) -> str:
    return ", ".join([names] if isinstance(names, str) else names or ()) or "none"


def _rules(schema: TableSchema) -> str:
    return ", ".join(f"{name}: {rule}" for name, rule in schema.merge_rules.items()) or "none"


def _columns(schema: TableSchema) -> str:
    return ", ".join(f"{f.name}:{type_name(f.type)}{'' if f.nullable else '!'}" for f in schema.columns)
