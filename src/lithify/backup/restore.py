"""Bringing a backup back, as a new lake.

Tables are laid out as they lay; every file is compared with its checksum on the way. What says that the folder is a
lake comes last: one that was cut off is none, and nothing reads it. Nothing that exists is ever written over. The
index of each table is made anew with its first use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated

from lithify.backup.manifest import Manifest, SavedFile, SavedTable
from lithify.backup.place import BackupPlace, check_apart
from lithify.core.html import Shown
from lithify.core.names import parse_table_name
from lithify.delta.folder import LOG_FOLDER
from lithify.errors import Corruption, InvalidRequest, LithifyError, NotFound
from lithify.files.storage import Storage
from lithify.files.transfer import checksum, transfer, unlinked_storage
from lithify.files.user_files import named_place
from lithify.lake.catalog import make_lake

logger = logging.getLogger(__name__)
AT_ONCE = 4
Progress = Callable[[str, float | None], None]


@dataclass(frozen=True)
class RestoreReport(Shown):
    """What came back."""

    id: Annotated[str, "The backup's id."]
    lake: Annotated[str, "Where the new lake lies."]
    tables: Annotated[int, "Tables that it has."]
    rows: Annotated[int, "Rows in their bases."]
    bytes: Annotated[int, "Bytes that were copied."]


def restore_backup(
    backups: str | PurePath,
    new_lake: str | PurePath,
    id: str | None = None,
    tables: Sequence[str] | None = None,
    *,
    progress: Progress = lambda what, share: None,
) -> RestoreReport:
    """Make a new lake of a backup, the newest one or that of an `id`, in a folder or at `s3://bucket/prefix` where
    nothing is. Every file is compared with its checksum.
    """
    place, lake = BackupPlace(named_place(backups)), named_place(new_lake)
    manifest = place.manifest(id)
    check_apart(place.path, lake, "the new lake")
    chosen = _chosen(manifest, tables)
    store = unlinked_storage(lake)
    store.path_guard.trust(lake)
    if store.exists(lake) and (not store.is_folder(lake) or store.names(lake)):
        raise InvalidRequest(f"{lake} is there already, and a backup is never restored over anything: give a new place")
    for number, (name, saved) in enumerate(chosen.items()):
        progress(f"restoring {name}", number / len(chosen))
        _restored(place, manifest.id, name, saved, store, lake)
    make_lake(lake, store)
    size = sum(saved.size_bytes for saved in chosen.values())
    return RestoreReport(manifest.id, str(lake), len(chosen), sum(saved.rows for saved in chosen.values()), size)


def _chosen(manifest: Manifest, tables: Sequence[str] | None) -> dict[str, SavedTable]:
    for name in manifest.tables:
        parse_table_name(name)  # it becomes a path
    if tables is None:
        return dict(manifest.tables)
    names = [str(parse_table_name(name)) for name in tables]
    for name in names:
        if name not in manifest.tables:
            there = ", ".join(manifest.tables) or "no table"
            raise NotFound(f"backup {manifest.id} has no table {name}: it has {there}", table=name)
    return {name: manifest.tables[name] for name in names}


def _restored(place: BackupPlace, id: str, name: str, saved: SavedTable, store: Storage, lake: PurePath) -> None:
    namespace, _, table = name.partition(".")
    folder = lake / namespace / table
    for log, files in saved.data.items():
        _brought(place, place.data_folder(name, saved, log), files, store, folder / log)
    for log, files in saved.logs.items():
        _brought(place, place.log_folder(id, name, log), files, store, folder / log / LOG_FOLDER)


def _brought(
    place: BackupPlace, source: PurePath, files: Iterable[SavedFile], store: Storage, target: PurePath
) -> None:
    def bring(file: SavedFile) -> PurePath:
        transfer(place.store, source / file.path, store, target / file.path, file.sha256)
        return (target / file.path).parent

    with ThreadPoolExecutor(AT_ONCE) as pool:
        folders = set(pool.map(bring, files))
    for folder in folders:
        store.sync_folder(folder)


def verify_backup(
    backups: str | PurePath, id: str | None = None, *, progress: Progress = lambda what, share: None
) -> tuple[Manifest, list[str]]:
    """Read all of a backup and compare checksums. What it holds, and what is wrong with it, file by file."""
    place = BackupPlace(named_place(backups))
    manifest = place.manifest(id)
    files = place.files_of(manifest)

    def look(at: int) -> str | None:
        where, file = files[at]
        progress("comparing checksums", at / len(files))
        try:
            if place.store.size(where) != file.size_bytes or checksum(place.store, where) != file.sha256:
                raise Corruption(f"{where} is not what was saved")
        except LithifyError as error:
            return error.message
        return None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(look, range(len(files))))
    return manifest, [problem for problem in found if problem is not None]


def remove_backups(
    backups: str | PurePath, ids: Sequence[str] | None = None, keep: int | None = None
) -> tuple[list[str], int]:
    """Those of these ids, or all but the `keep` newest; and the files that only they named, which are counted."""
    path = named_place(backups)
    place = BackupPlace(path)
    place.check()
    if (ids is None) == (keep is None) or (keep is not None and keep < 1):
        raise InvalidRequest("say which backups: their ids, or how many of the newest to keep, at least 1")
    with place.alone("a removal"):
        return _removed(place, ids, keep)


def _removed(place: BackupPlace, ids: Sequence[str] | None, keep: int | None) -> tuple[list[str], int]:
    there = place.ids()
    if unknown := [id for id in ids or () if id not in there]:
        raise NotFound(
            f"{place.path} has no backup {unknown[0]!r}: `lithify backup list {place.path}` shows what there is"
        )
    gone = list(ids) if ids is not None else there[: -(keep or 1)]
    needed, deleted = place.named_by(place.manifest(id) for id in there if id not in gone), 0
    for number, id in enumerate(gone):
        try:
            place.forget(id)
        except LithifyError as error:
            if not number:
                raise
            error.message += f" (removed before that, for good: {', '.join(gone[:number])})"
            raise
    try:
        for kind in ("data", "logs"):
            for name in list(place.store.below(place.path / kind)):
                if (file := place.path / kind / name) not in needed:
                    place.store.delete(file)
                    deleted += 1
        for id in gone:
            place.store.delete_folder(place.path / "logs" / id)
    except LithifyError as error:
        logger.warning("files of removed backups stay in %s until the next removal: %s", place.path, error)
    return gone, deleted
