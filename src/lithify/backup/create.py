"""Making a backup, while the lake is written to.

Of each table a version is pinned, so that no vacuum takes its files meanwhile, and copied: first its files of rows, of
which those that an earlier backup has copied are there already, then what its two logs are read from. The manifest
comes last: before that there is no backup, and what lies there already serves the next one. Tables are copied one after
the other, each as it is then: what is written to several of them at once is not seen at one moment.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated

from lithify.backup.manifest import BASE, CHANGES, Manifest, SavedFile, SavedTable
from lithify.backup.place import BackupPlace, check_apart
from lithify.core.html import Shown
from lithify.core.names import parse_table_name
from lithify.core.snapshot import DataFile, Snapshot
from lithify.delta.changes import BASE_PATH
from lithify.delta.log import DeltaLog
from lithify.errors import NotFound
from lithify.files.storage import Storage
from lithify.files.transfer import checksum, transfer
from lithify.files.user_files import named_place
from lithify.lake.internals import internals
from lithify.tables.handles import Handles, not_found
from lithify.tables.pins import pinned

if TYPE_CHECKING:
    from lithify.lake.lake import Lake

AT_ONCE = 4
Progress = Callable[[str, float | None], None]
OUTSIDE = "its base is an adopted table outside of the lake: back that up where it lies"


@dataclass(frozen=True)
class BackupReport(Shown):
    """What a backup holds, and what was copied for it."""

    id: Annotated[str, "What `restore_backup` takes; they sort by their time."]
    path: Annotated[str, "Where it lies."]
    tables: Annotated[int, "Tables that it holds."]
    rows: Annotated[int, "Rows in their bases."]
    bytes: Annotated[int, "Bytes of all files that it is made of."]
    files_copied: Annotated[int, "Data files that no earlier backup had."]
    bytes_copied: Annotated[int, "Their bytes."]
    left_out: Annotated[dict[str, str], "Tables that it does not hold, each with the reason."]
    seconds: Annotated[float, "How long it took."]


def create_backup(
    lake: Lake,
    place: str | PurePath,
    tables: Sequence[str] | None = None,
    *,
    progress: Progress = lambda what, share: None,
) -> BackupReport:
    """Copy what a lake holds now to a folder or to `s3://bucket/prefix`, while others write to it. Of files that an
    earlier backup in that place has, nothing is copied. `tables`: only these.
    """
    path, inside = named_place(place), internals(lake)
    check_apart(path, lake.path, "the lake")
    names = _chosen(lake, tables)
    kept = BackupPlace(path)
    kept.prepare()
    runtime = inside.runtime
    started = dt.datetime.fromtimestamp(runtime.now_ms() / 1000, dt.UTC)
    id = f"{started:%Y%m%dT%H%M%S}{started.microsecond // 1000:03}Z-{runtime.new_id()[:6]}"
    saved, left_out = dict[str, SavedTable](), dict[str, str]()
    with kept.alone(f"backup {id}"):
        copying = _Copying(kept, runtime.store)
        for number, name in enumerate(names):
            progress(f"saving {name}", number / len(names))
            try:
                handles = inside.table(name).handles
                if handles.changes.schema.settings.get(BASE_PATH) is not None:
                    left_out[name] = OUTSIDE
                    continue
                saved[name] = _saved(copying, id, handles)
            except NotFound as error:
                if name in lake.tables():
                    raise
                left_out[name] = f"it was dropped meanwhile ({error.message})"
        manifest = Manifest(id, str(lake.path), started.isoformat(timespec="seconds"), saved, left_out)
        kept.write(manifest)
    ended = dt.datetime.fromtimestamp(runtime.now_ms() / 1000, dt.UTC)
    rows = sum(table.rows for table in saved.values())
    return BackupReport(
        id,
        str(path),
        len(saved),
        rows,
        manifest.size_bytes,
        copying.files,
        copying.bytes,
        left_out,
        (ended - started).total_seconds(),
    )


def _chosen(lake: Lake, tables: Sequence[str] | None) -> list[str]:
    there = lake.tables()
    if tables is None:
        return there
    chosen = [parse_table_name(name) for name in tables]
    for name in chosen:
        if str(name) not in there:
            raise not_found(name)
    return [str(name) for name in chosen]


class _Copying:
    """What earlier backups have copied, and what is copied now."""

    def __init__(self, place: BackupPlace, source: Storage) -> None:
        self.place, self._source = place, source
        manifests = place.readable_manifests()
        self._known = {path: file for manifest in manifests for path, file in place.files_of(manifest)}
        self.files = self.bytes = 0

    def copied(self, folder: PurePath, root: PurePath, files: Sequence[DataFile]) -> tuple[SavedFile, ...]:
        """Files of rows, which never change, below a folder of the backup."""

        def copy(file: DataFile) -> tuple[SavedFile, bool]:
            target = folder / file.path
            if (summed := self._found(target, file.size_bytes)) is not None:
                return SavedFile(file.path, file.size_bytes, summed), False
            source = root / file.path
            if store.exists(target):  # of a backup that died
                summed = checksum(self._source, source)
                if store.size(target) == file.size_bytes and checksum(store, target) == summed:
                    return SavedFile(file.path, file.size_bytes, summed), False
                store.delete(target)
            return SavedFile(file.path, file.size_bytes, transfer(self._source, source, store, target)), True

        store = self.place.store
        with ThreadPoolExecutor(AT_ONCE) as pool:
            saved = tuple(pool.map(copy, files))
        new = [file for file, is_new in saved if is_new]
        for parent in {(folder / file.path).parent for file in files}:  # one that died may not have come so far
            store.sync_folder(parent)
        self.files, self.bytes = self.files + len(new), self.bytes + sum(file.size_bytes for file in new)
        return tuple(file for file, _ in saved)

    def _found(self, path: PurePath, size_bytes: int) -> str | None:
        """The checksum of what lies there already."""
        known, store = self._known.get(path), self.place.store
        if known is None or known.size_bytes != size_bytes or not store.exists(path):
            return None
        return known.sha256 if store.size(path) == size_bytes else None

    def put(self, folder: PurePath, files: Mapping[str, bytes]) -> tuple[SavedFile, ...]:
        """Files of a log."""
        store = self.place.store
        store.make_folder(folder)
        for name, content in files.items():
            store.put(folder / name, content)
        return tuple(SavedFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items())


def _saved(copying: _Copying, id: str, handles: Handles) -> SavedTable:
    name, place = str(handles.name), copying.place
    with pinned(handles, None) as snapshot:
        logs, data = dict[str, tuple[SavedFile, ...]](), dict[str, tuple[SavedFile, ...]]()
        for log, opened, files in _parts(handles, snapshot):
            data[log] = copying.copied(place.data_folder(name, snapshot.table_id, log), opened.path, files)
        for log, opened, _ in _parts(handles, snapshot):
            version = snapshot.changes_version if log == CHANGES else snapshot.base_version
            logs[log] = copying.put(place.log_folder(id, name, log), opened.needed_files(version))
        return SavedTable(snapshot.table_id, snapshot.seq, sum(file.rows for file in snapshot.base), logs, data)


def _parts(handles: Handles, snapshot: Snapshot) -> Iterator[tuple[str, DeltaLog, Sequence[DataFile]]]:
    yield CHANGES, handles.changes.log, (*snapshot.remembered, *snapshot.changes)
    yield BASE, handles.base.log, snapshot.base
