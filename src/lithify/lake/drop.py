"""Clearing away what a dropped table has left.

Who does so looks, after it has listed what is to go and before it deletes or empties anything, whether the drop is
still the newest commit to the changes: who creates the table anew commits there first, and what it writes then has
names that are not in the list. A log is emptied at exactly the version at which that was seen. No file goes before its
log has forgotten it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath

from lithify.core.names import TableName
from lithify.delta.actions import LogChange
from lithify.delta.base import OWNER, WATERMARK_TXN, BaseLog
from lithify.delta.changes import ChangesLog
from lithify.delta.commit import commit
from lithify.delta.folder import LOG_FOLDER
from lithify.delta.log import DeltaLog
from lithify.errors import NotFound
from lithify.files.at_once import at_once
from lithify.files.open_storage import storage_of
from lithify.lake.creation import check_newest, overtaken
from lithify.tables.doomed import forget_lists
from lithify.tables.handles import index_folder, table_folder
from lithify.tables.runtime import Runtime
from lithify.tables.tags import left_of_tags


def clear(
    runtime: Runtime, name: TableName, changes: ChangesLog, base_path: PurePath, opened: BaseLog | None = None
) -> None:
    """Take away what a dropped table has left; no file before its log has forgotten it. `opened`: its own base."""
    store, folder = runtime.store, table_folder(runtime, name)
    info = {"operation": "drop table", "actor": runtime.settings.actor}

    def check() -> None:
        check_newest(name, changes.log, at)

    def check_own() -> None:
        """Of the log that is committed to, whose next version decides: who loses that looks, and comes here."""
        if changes.log.version != at:
            raise overtaken(name)

    at = changes.log.version
    if base_path == folder / "base":
        # A fold that slept through this must find base moved on, at whatever version it comes back.
        with contextlib.suppress(NotFound):
            base = opened.log if opened is not None else DeltaLog.open(base_path, store)
            _empty(runtime, base, {**info, "watermark": changes.seq}, {WATERMARK_TXN: changes.seq}, check)
            if not store.remote:  # on a full disk the next commit needs the room
                files = _files_of(runtime, base_path)
                check()
                _delete(runtime, files)
    elif (owned := _owned_base(runtime, name, base_path)) is not None:
        _give_back(runtime, owned, check)
    own_check = check_own if store.remote else check
    at = _empty(runtime, changes.log, {**info, "seq": changes.seq}, {}, own_check)
    store.step("drop.emptied")
    changes.log.forget_archive()
    if store.remote:
        left, tagged = at_once(lambda: _left(runtime, folder), lambda: left_of_tags(runtime, name))
    else:
        left, tagged = _left(runtime, folder), left_of_tags(runtime, name)
    store.step("drop.listed")
    check()
    if store.remote:
        at_once(lambda: store.delete_all([*left, *tagged]), lambda: forget_lists(runtime, name))
    else:
        _delete(runtime, (*left, *tagged))
    index = index_folder(runtime, folder, changes.log.id)
    (storage_of(index) if store.remote else store).delete_folder(index)


def remains(runtime: Runtime, name: TableName, changes: ChangesLog, base_path: PurePath) -> bool:
    """Whether a dropped table is not cleared away altogether."""
    folder, store = table_folder(runtime, name), runtime.store
    index = index_folder(runtime, folder, changes.log.id)
    return (
        bool(_left(runtime, folder))
        or (not store.remote and store.exists(index))
        or _owned_base(runtime, name, base_path) is not None
    )


def _left(runtime: Runtime, folder: PurePath) -> list[PurePath]:
    """What lies in a table's folder and can go with it: only the logs stay, for the version numbers."""
    store = runtime.store
    if store.remote:
        return [folder / path for path in store.below(folder) if LOG_FOLDER not in path.split("/")[:2]]
    data = [path for log in ("changes", "base") for path in _files_of(runtime, folder / log)]
    return data + [folder / name for name in ("index", "quarantine") if store.exists(folder / name)]


def _files_of(runtime: Runtime, log: PurePath) -> list[PurePath]:
    return [log / entry for entry in runtime.store.names(log) if entry != LOG_FOLDER]


def _delete(runtime: Runtime, paths: Iterable[PurePath]) -> None:
    for path in paths:
        runtime.store.delete_folder(path)


def _owned_base(runtime: Runtime, name: TableName, base_path: PurePath) -> DeltaLog | None:
    """An adopted base that is still this table's."""
    if base_path == table_folder(runtime, name) / "base":
        return None
    with contextlib.suppress(NotFound):
        base = DeltaLog.open(base_path, runtime.store)
        return base if base.properties.get(OWNER) == owner_of(runtime, name) else None
    return None


def _give_back(runtime: Runtime, base: DeltaLog, check: Callable[[], None]) -> None:
    """An adopted base may be adopted again."""

    def build() -> LogChange:
        check()
        return LogChange({"operation": "give back"}, properties={OWNER: ""})

    commit(runtime, base, f"giving back {base.path}", build)


def _empty(
    runtime: Runtime, log: DeltaLog, info: Mapping[str, object], txns: Mapping[str, int], check: Callable[[], None]
) -> int:
    def build() -> LogChange:
        check()
        return LogChange(info, removes=log.files(()), txns=txns, data_change=True)

    done = commit(runtime, log, f"emptying {log.path}", build, look=not runtime.store.remote)
    assert done is not None
    return done.version


def owner_of(runtime: Runtime, name: TableName) -> str:
    """What an adopted base says whose it is."""
    return f"{name} in {runtime.root}"
