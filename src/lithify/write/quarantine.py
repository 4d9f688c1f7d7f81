"""Records that are no rows are set aside in the table's folder, durable before the commit that says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from lithify.core.json_out import dumps
from lithify.files.storage import Storage
from lithify.tables.handles import Handles

CHUNK_BYTES = 1 << 20


def set_aside(
    handles: Handles, name: str, records: Sequence[Mapping[str, Any]] | Callable[[PurePath], Sequence[PurePath]]
) -> dict[str, Any]:
    """Keep records as JSON lines in the table's folder quarantine/`name`, in place of what it held, durable. A function
    writes the files itself. What the commit should say about it is answered.
    """
    store, folder = handles.runtime.store, handles.folder / "quarantine" / name
    count, written = 0, list[str]()
    # What is there goes last: a rival with the same portion may have committed it, and these are its records too.
    if callable(records):
        staging = folder.with_name(f".{name}-{handles.runtime.new_id()}")
        store.make_folder(folder.parent)
        try:
            for file in records(staging):
                count += _lines(store, file)
                store.sync_file(file)
                store.make_folder(folder)
                store.move(file, folder / file.name, sync=False)
                written.append(file.name)
        finally:
            store.delete_folder(staging)
    elif texts := [dumps(record) + "\n" for record in records]:
        count, written = len(texts), ["part-00000.json"]
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


def _lines(store: Storage, file: PurePath) -> int:
    count, start, last = 0, 0, b"\n"
    while chunk := store.read_range(file, start, CHUNK_BYTES):
        count, start, last = count + chunk.count(b"\n"), start + len(chunk), chunk[-1:]
    return count + (last != b"\n")
