"""Tags: versions of a table that stay readable under a name until somebody takes the name away.

A tag is a folder `_lithify/tags/<table>/<name>/`. Its `tag.json` names the files of the version, which vacuum spares
as it spares those of a pin, but of no process and for no time. Logs are trimmed, so the folder also holds what the
version is read from: links to one checkpoint and to the commits after it, of both logs. `tag.json` comes last and goes
first: a folder without one is no tag. All of it happens under the lock of vacuum.

Where the storage has no locks, the version is pinned meanwhile: vacuum reads the pins before the tags, so that it sees
one or the other. Each attempt keeps what it reads from in a folder of its own, which has the id of its pin and which
`tag.json` names; of two at once one gets the name, because `tag.json` is created once. An attempt whose pin is gone
when its `tag.json` stands was taken for dead, and takes it back.

What an attempt leaves that dies half-way is cleared away by the next vacuum: a folder that no `tag.json` names, once
its pin is gone. It looks in that order, folders, pins, names: whose pin is gone has the name by then, or never will.
"""

from __future__ import annotations

import builtins
import contextlib
import datetime as dt
import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath

from lithify.core.names import TableName
from lithify.core.results import Tag
from lithify.core.snapshot import Snapshot
from lithify.errors import Conflict, Corruption, InvalidRequest, LithifyError, NotFound, Unavailable
from lithify.files.deciding_file import abolish, establish
from lithify.files.os_errors import Exists
from lithify.tables.handles import Handles
from lithify.tables.pins import SparedVersion, is_pinned, pinned, vacuum_lock
from lithify.tables.runtime import Runtime

logger = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_FILE = "tag.json"


@dataclass(frozen=True, kw_only=True)
class _Stored(SparedVersion):
    name: str
    actor: str
    bytes: int
    folder: str = ""  # below that of the tag; empty: the same

    def document(self) -> builtins.bytes:
        fields = asdict(self)
        if not self.folder:
            del fields["folder"]
        return json.dumps(fields).encode()

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
    own = "" if runtime.store.locks else runtime.new_id()
    with _version_to_tag(handles, name, as_of, own) as snapshot:
        folder = _folder(runtime, handles.name) / name
        if not own:
            runtime.store.delete_folder(folder)  # of a tag that was cut off
        handles.changes.log.keep(snapshot.changes_version, folder / own / "changes")
        handles.base.log.keep(snapshot.base_version, folder / own / "base")
        size, actor = snapshot.base_bytes + snapshot.pending_bytes, runtime.settings.actor
        stored = _Stored.of(snapshot, runtime.now_ms(), name=name, actor=actor, bytes=size, folder=own)
        runtime.store.step("tag.kept")
        store, what = runtime.store, f"tag {name} of table {handles.name}"
        if not own:
            establish(store, store.put, folder / _FILE, stored.document(), what)
            return stored.shown()
        try:
            establish(store, store.publish, folder / _FILE, stored.document(), what)
        except Exists as error:
            runtime.store.delete_folder(folder / own)
            found = _found(handles, name)
            raise _taken(handles, name, "another seq" if found is None else f"seq {found.seq}") from error
        if not is_pinned(runtime, handles.name, own):
            runtime.store.delete(folder / _FILE)
            raise Unavailable(
                f"tag {name} of table {handles.name} took so long that a vacuum took this process for dead, and may "
                "have deleted files of the version; there is no such tag: try again"
            )
    return stored.shown()


@contextlib.contextmanager
def _version_to_tag(
    handles: Handles, name: str, as_of: int | str | dt.datetime | Snapshot | None, pin_id: str
) -> Iterator[Snapshot]:
    """While its files are safe from vacuum."""
    with vacuum_lock(handles.runtime, handles.name):
        if (found := _found(handles, name)) is not None:
            raise _taken(handles, name, f"seq {found.seq}")
        if not handles.runtime.store.locks:
            with pinned(handles, as_of, pin_id) as snapshot:
                yield snapshot
            return
        snapshot = handles.snapshot(as_of)
        handles.check_present(snapshot)
        yield snapshot


def _taken(handles: Handles, name: str, what: str) -> Conflict:
    return Conflict(f"table {handles.name} has a tag {name} of {what}: untag it first")


def untag(handles: Handles, name: str) -> None:
    if not is_tag_name(name):  # it would be a path, and lead elsewhere
        raise _no_tag(handles, name)
    with vacuum_lock(handles.runtime, handles.name):
        if (found := _found(handles, name)) is None:
            raise _no_tag(handles, name)
        store, folder = handles.runtime.store, _folder(handles.runtime, handles.name) / name
        abolish(store, folder / _FILE, f"tag {name} of table {handles.name}")
        try:
            store.delete_folder(folder / found.folder)
        except LithifyError as error:
            logger.warning("what tag %s of %s kept stays until the next vacuum: %s", name, handles.name, error)


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
    folder = _folder(handles.runtime, handles.name) / name / stored.folder
    snapshot = handles.snapshot_saved_in(folder, stored.seq, stored.changes_version, stored.base_version)
    return snapshot if snapshot.schema.expiry is None else replace(snapshot, moment_ms=stored.created_ms)


def logs_of_tags(handles: Handles) -> list[PurePath]:
    """The folders in which tags of this table keep what their versions are read from: `changes` and `base`."""
    folder = _folder(handles.runtime, handles.name)
    return [folder / stored.name / stored.folder for stored in stored_tags(handles)]


def rename_files(handles: Handles, instead: Callable[[str, str], Sequence[str]]) -> None:
    """Have tags name other files: what `instead` answers for a log and a path. Under the lock of vacuum."""
    store, folder = handles.runtime.store, _folder(handles.runtime, handles.name)
    for stored in stored_tags(handles):
        named = {
            log: tuple(dict.fromkeys(other for path in getattr(stored, log) for other in instead(log, path)))
            for log in ("changes", "base")
        }
        after = replace(stored, changes=named["changes"], base=named["base"])
        if after != stored:
            store.put(folder / stored.name / _FILE, after.document())


def clear_cut_off(handles: Handles) -> None:
    """Remove what attempts that died have left. Under the lock of vacuum, where there is one."""
    runtime, table = handles.runtime, _folder(handles.runtime, handles.name)
    store = runtime.store
    for name in store.names(table):
        if store.locks:
            if not store.exists(table / name / _FILE):
                store.delete_folder(table / name)
            continue
        attempts = [own for own in store.names(table / name) if own != _FILE]
        ended = [own for own in attempts if not is_pinned(runtime, handles.name, own)]
        stored = _read(runtime, handles.name, name) if ended else None
        for own in ended:
            if stored is None or own != stored.folder:
                store.delete_folder(table / name / own)


def left_of_tags(runtime: Runtime, name: TableName) -> list[PurePath]:
    """What the tags of a dropped table have left."""
    folder, store = _folder(runtime, name), runtime.store
    if store.remote:
        return [folder / path for path in store.below(folder)]
    return [folder] if store.exists(folder) else []


def _found(handles: Handles, name: str) -> _Stored | None:
    stored = _read(handles.runtime, handles.name, name)
    return stored if stored is not None and stored.table_id == handles.incarnation else None


def _read(runtime: Runtime, table: TableName, name: str) -> _Stored | None:
    """Also one of a table that was dropped at the same place."""
    path = _folder(runtime, table) / name / _FILE
    try:
        stored = _Stored.parsed(runtime.store.read(path))
    except NotFound:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Corruption(
            f"tag {path} cannot be read, and it may protect any file: restore it from a copy, or remove its folder"
        ) from error
    if not isinstance(stored.folder, str) or not (stored.folder == "" or stored.folder.isalnum()):
        raise Corruption(f"tag {path} names the folder {stored.folder!r}, which no tag has: restore it from a copy")
    return stored


def _no_tag(handles: Handles, name: str) -> NotFound:
    there = ", ".join(stored.name for stored in stored_tags(handles)) or "none"
    return NotFound(
        f"table {handles.name} has no tag {name!r}: it has {there}; as_of also takes a seq, or a time like "
        "2026-11-15T12:00:00Z"
    )


def _folder(runtime: Runtime, name: TableName) -> PurePath:
    return runtime.control / "tags" / str(name)
