"""Records that are no rows are set aside in the table's folder, durable before the commit that says so.

`quarantine/<name>/part-*.json` holds those of one load, batch or step as JSON lines: why, the record as it came, and
where it stood. They stay until they are purged, or until they fit after all (`retry_quarantine`).
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import PurePath
from sys import maxsize
from typing import Any

from lithify.core.json_out import dumps
from lithify.core.results import RecordSetAside, SetAside
from lithify.errors import Conflict, Corruption, NotFound, did_you_mean
from lithify.files.storage import Storage
from lithify.tables.handles import Handles

CHUNK_BYTES = 1 << 20
HOUR_MS = 3_600_000
PART = "part-"
ROUNDS_MAX = 20


def set_aside(
    handles: Handles, name: str, records: Sequence[Mapping[str, Any]] | Callable[[PurePath], Sequence[PurePath]]
) -> dict[str, Any]:
    """Keep records as JSON lines in the table's folder quarantine/`name`, in place of what it held, durable. A function
    writes the files itself. What the commit should say about it is answered.
    """
    store, folder = handles.runtime.store, folder_of(handles, name)
    count, written = 0, list[str]()
    # What is there goes last: a rival with the same portion may have committed it, and these are its records too.
    if callable(records):
        staging = folder.with_name(f".{name}-{handles.runtime.new_id()}")
        store.make_folder(folder.parent)
        try:
            for file in records(staging):
                count += sum(1 for _ in _lines(store, file))
                store.sync_file(file)
                store.make_folder(folder)
                store.move(file, folder / file.name, sync=False)
                written.append(file.name)
        finally:
            store.delete_folder(staging)
    elif texts := [dumps(record) + "\n" for record in records]:
        count, written = len(texts), [f"{PART}00000.json"]
        store.make_folder(folder)
        store.put(folder / written[0], "".join(texts).encode())
    if not count:
        store.delete_folder(folder)
        return {}
    store.sync_folder(folder)
    for older in store.names(folder):
        if older not in written:
            store.delete(folder / older)
    store.sync_folder(folder.parent)
    store.step("arrival.set_aside")
    return {"quarantined": count, "quarantine": str(folder.relative_to(handles.folder))}


def folder_of(handles: Handles, name: str) -> PurePath:
    return handles.folder / "quarantine" / name


def sets_aside(handles: Handles, names: Sequence[str] | None = None, before_ms: float | None = None) -> list[SetAside]:
    """What is there, oldest first; or of that, what has these names and was set aside before then."""
    found = [_described(handles, name, before_ms) for name in (_names(handles) if names is None else names)]
    return sorted((each for each in found if each is not None), key=lambda each: (each.created, each.name))


def lines_of(handles: Handles, name: str) -> Iterator[bytes]:
    """The records of that name, each as the JSON line that it is kept as."""
    check_there(handles, name)
    store, folder = handles.runtime.store, folder_of(handles, name)
    for part in parts_of(store, folder):
        yield from _lines(store, folder / part)


def records_of(
    handles: Handles, name: str, limit: int, after: int, bytes_max: int | None = None
) -> tuple[list[RecordSetAside], bool]:
    """Some of that name, behind the first of them, and whether there are more. `bytes_max`: where a page ends, after
    its first record at the earliest.
    """
    store, folder = handles.runtime.store, folder_of(handles, name)
    for _ in range(ROUNDS_MAX):
        check_there(handles, name)
        before = state_of(store, folder)
        try:
            found, size = list[RecordSetAside](), 0
            for line in islice(lines_of(handles, name), min(after, maxsize), None):
                size += len(line)
                if len(found) == limit or (found and bytes_max is not None and size > bytes_max):
                    return found, True
                found.append(record_of(line, handles, name))
            return found, False
        except (Corruption, NotFound):
            if state_of(store, folder) == before:
                raise
    raise busy(handles, name)


def state_of(store: Storage, folder: PurePath) -> list[tuple[str, int]]:
    """Whoever takes records out leaves less than there was: what is the same before and after was not touched."""
    return [(file.path, file.size_bytes) for file in store.entries(folder) if file.path.startswith(PART)]


def busy(handles: Handles, name: str) -> Conflict:
    return Conflict(f"others keep trying the records {name} of table {handles.name} once more: look again later")


def record_of(line: bytes, handles: Handles, name: str) -> RecordSetAside:
    try:
        kept = json.loads(line)
        fields = {field: kept.get(field) for field in ("file", "line", "column")}
        record = RecordSetAside(kept["why"], kept["record"], **fields)
        if type(record.line) not in (int, type(None)):
            raise TypeError
        for text in (record.why, record.record, record.file or "", record.column or ""):
            str.encode(text)
        return record
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Corruption(
            f"a line in {folder_of(handles, name)} is no record that was set aside ({type(error).__name__}): correct "
            f"it, or purge {name}"
        ) from error


def purge(handles: Handles, name: str | None = None, older_than_hours: float | None = None) -> list[SetAside]:
    """Delete those of one name, or all that were set aside so long ago. What went is answered."""
    if name is not None:
        check_there(handles, name)
    store, gone = handles.runtime.store, list[SetAside]()
    cutoff_ms = handles.runtime.now_ms() - (older_than_hours or 0) * HOUR_MS
    for each in sets_aside(handles, [name] if name is not None else None, cutoff_ms if older_than_hours else None):
        store.delete_folder(folder_of(handles, each.name))
        gone.append(each)
    if gone:
        store.sync_folder(handles.folder / "quarantine")
    return gone


def check_there(handles: Handles, name: str) -> None:
    if name not in (names := _names(handles)):
        near = did_you_mean(name, names) or f"`lithify quarantine list {handles.name}` shows what there is"
        raise NotFound(f"nothing was set aside in table {handles.name} as {name!r}: {near}")


def parts_of(store: Storage, folder: PurePath) -> list[str]:
    return sorted(name for name in store.names(folder) if name.startswith(PART))


def _names(handles: Handles) -> list[str]:
    """Folders that begin with a dot are being written."""
    return [name for name in handles.runtime.store.names(handles.folder / "quarantine") if not name.startswith(".")]


def _described(handles: Handles, name: str, before_ms: float | None) -> SetAside | None:
    store, folder = handles.runtime.store, folder_of(handles, name)
    try:
        parts = parts_of(store, folder)
        created_ms = max((store.modified_ms(folder / part) for part in parts), default=0.0)
        if before_ms is not None and created_ms >= before_ms:
            return None
        records = sum(1 for part in parts for _ in _lines(store, folder / part))
        size = sum(store.sizes(folder / part for part in parts))
    except NotFound:  # purged or written anew meanwhile
        return None
    return SetAside(name, records, size, dt.datetime.fromtimestamp(created_ms / 1000, dt.UTC)) if parts else None


def _lines(store: Storage, file: PurePath) -> Iterator[bytes]:
    start, rest = 0, b""
    while chunk := store.read_range(file, start, CHUNK_BYTES):
        start += len(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        yield from filter(None, lines)
    if rest:
        yield rest
