"""Tags: versions of a table that stay readable under a name until somebody takes the name away.

A tag is a folder `_lithify/tags/<table>/<name>/`. Its `tag.json` names the files of the version, which vacuum spares
as it spares those of a pin, but of no process and for no time. Logs are trimmed, so the folder also holds what the
version is read from: links to one checkpoint and to the commits after it, of both logs. `tag.json` comes last and goes
first: a folder without one is no tag. All of it happens under the lock of vacuum.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from pathlib import PurePath

from lithify.core.names import TableName
from lithify.core.results import Tag
from lithify.core.snapshot import Snapshot
from lithify.errors import Conflict, Corruption, InvalidRequest, NotFound
from lithify.tables.handles import Handles
from lithify.tables.pins import SparedVersion, vacuum_lock
from lithify.tables.runtime import Runtime

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_FILE = "tag.json"


@dataclass(frozen=True, kw_only=True)
class _Stored(SparedVersion):
    name: str
    actor: str
    bytes: int

    def shown(self) -> Tag:
        created = dt.datetime.fromtimestamp(self.created_ms / 1000, dt.UTC)
        return Tag(self.name, self.table, self.seq, created, self.actor, self.bytes)


def is_tag_name(text: object) -> bool:
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def tag(handles: Handles, name: str, as_of: int | str | dt.datetime | Snapshot | None = None) -> Tag:
    """Raises Conflict if there is a tag of that name."""
    if not is_tag_name(name):
        raise InvalidRequest(
            f"{name!r} is no name of a tag: a letter, then up to 63 letters, digits, underscores, dots and hyphens"
        )
    runtime = handles.runtime
    with vacuum_lock(runtime, handles.name):
        if (found := _found(handles, name)) is not None:
            raise Conflict(f"table {handles.name} has a tag {name} of seq {found.seq}: untag it first")
        snapshot = handles.snapshot(as_of)
        handles.check_present(snapshot)
        folder = _folder(runtime, handles.name) / name
        runtime.store.delete_folder(folder)  # of a tag that was cut off
        handles.changes.log.keep(snapshot.changes_version, folder / "changes")
        handles.base.log.keep(snapshot.base_version, folder / "base")
        size, actor = snapshot.base_bytes + snapshot.pending_bytes, runtime.settings.actor
        stored = _Stored.of(snapshot, runtime.now_ms(), name=name, actor=actor, bytes=size)
        runtime.store.step("tag.kept")
        runtime.store.put(folder / _FILE, stored.document())
    return stored.shown()


def untag(handles: Handles, name: str) -> None:
    if not is_tag_name(name):  # it would be a path, and lead elsewhere
        raise _no_tag(handles, name)
    with vacuum_lock(handles.runtime, handles.name):
        if _found(handles, name) is None:
            raise _no_tag(handles, name)
        store, folder = handles.runtime.store, _folder(handles.runtime, handles.name) / name
        store.delete(folder / _FILE)
        store.sync_folder(folder)
        store.delete_folder(folder)


def tags(handles: Handles) -> list[Tag]:
    """By name."""
    handles.changes.log.refresh()
    handles.check_alive()
    return [stored.shown() for stored in stored_tags(handles)]


def stored_tags(handles: Handles) -> list[_Stored]:
    """Of this table, not of one that was dropped at the same place. Raises Corruption where one cannot be read."""
    names = handles.runtime.store.names(_folder(handles.runtime, handles.name))
    found = (_found(handles, name) for name in names)
    return [stored for stored in found if stored is not None]


def tagged(handles: Handles, name: str) -> Snapshot:
    """The version that a tag names, read from what the tag keeps of the logs."""
    stored = _found(handles, name)
    if stored is None:
        raise _no_tag(handles, name)
    folder = _folder(handles.runtime, handles.name) / name
    return handles.snapshot_saved_in(folder, stored.seq, stored.changes_version, stored.base_version)


def forget_tags(runtime: Runtime, name: TableName) -> None:
    """Of a dropped table."""
    runtime.store.delete_folder(_folder(runtime, name))


def _found(handles: Handles, name: str) -> _Stored | None:
    path = _folder(handles.runtime, handles.name) / name / _FILE
    try:
        stored = _Stored.parsed(handles.runtime.store.read(path))
    except NotFound:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Corruption(
            f"tag {path} cannot be read, and it may protect any file: restore it from a copy, or remove its folder"
        ) from error
    return stored if stored.table_id == handles.incarnation else None


def _no_tag(handles: Handles, name: str) -> NotFound:
    there = ", ".join(stored.name for stored in stored_tags(handles)) or "none"
    return NotFound(
        f"table {handles.name} has no tag {name!r}: it has {there}; as_of also takes a seq, or a time like "
        "2026-11-15T12:00:00Z"
    )


def _folder(runtime: Runtime, name: TableName) -> PurePath:
    return runtime.control / "tags" / str(name)
