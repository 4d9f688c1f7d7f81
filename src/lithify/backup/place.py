"""Where backups lie: a folder, or a prefix in a bucket, for the backups of one lake.

    lithify-backup.json                          says what this is
    backups/<id>.json                            a backup: its manifest, put there when all it names is there
    busy.json                                    who makes or removes a backup now: one at a time; with busy.lock
    data/<table>/<table id>/<log>/<path>         files of rows, which never change: all backups share them
    logs/<id>/<table>/<log>/<name>               what the version of one backup is read from

Nothing here is linked to the lake: bytes that go bad there are good here. What a manifest names is there whole; what no
manifest names is of a backup that died, or of one that was removed, and goes with the next removal.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import PurePath

from lithify.backup.manifest import Manifest, SavedFile, SavedTable
from lithify.errors import Conflict, Corruption, InvalidRequest, LithifyError, NotFound
from lithify.files.addresses import is_remote
from lithify.files.deciding_file import abolish, establish
from lithify.files.transfer import unlinked_storage
from lithify.files.user_files import real_path
from lithify.tables.runtime import Owner

logger = logging.getLogger(__name__)
MARKER = "lithify-backup.json"
LOCK_WAIT_S_MAX = 10.0
# What this process is doing in any place, by the ids of its marks.
_at_work: set[str] = set()
_ID = re.compile(r"[0-9]{8}T[0-9]{9}Z-[0-9a-f]{6}")


def check_apart(path: PurePath, other: PurePath, what: str) -> None:
    """Neither may lie in the other, whatever links lead there."""
    if is_remote(path) != is_remote(other):
        return
    one, two = (each if is_remote(each) else PurePath(real_path(each)) for each in (path, other))
    if one == two or one in two.parents or two in one.parents:
        raise InvalidRequest(f"{path} and {what} {other} lie in each other: give the backup a place of its own")


class BackupPlace:
    def __init__(self, path: PurePath) -> None:
        self.path, self.store = path, unlinked_storage(path)
        self.store.path_guard.trust(path)

    def prepare(self) -> None:
        """Make it one, if nothing else is there."""
        if self.store.exists(self.path / MARKER):
            return
        if self.store.names(self.path):
            raise InvalidRequest(f"{self.path} holds something that is no backup: give an empty or a new place")
        for folder in ("backups", "data", "logs"):
            self.store.make_folder(self.path / folder)
        self.store.put(self.path / MARKER, json.dumps({"format": 1}).encode())

    def check(self) -> None:
        if not self.store.exists(self.path / MARKER):
            raise NotFound(f"{self.path} holds no backups: `lithify backup create {self.path}` makes one there")

    def ids(self) -> list[str]:
        """Oldest first."""
        self.check()
        names = self.store.names(self.path / "backups")
        return [name.removesuffix(".json") for name in names if _ID.fullmatch(name.removesuffix(".json"))]

    def manifest(self, id: str | None = None) -> Manifest:
        """Of a backup, or of the newest one."""
        ids = self.ids()
        if id is None and ids:
            id = ids[-1]
        if id not in ids:
            what = f"no backup {id!r}" if id is not None else "no backup that was finished"
            raise NotFound(f"{self.path} has {what}: `lithify backup list {self.path}` shows what there is")
        path = self._manifest(id)
        try:
            found = Manifest.parsed(self.store.read(path))
            if found.id != id:
                raise ValueError(f"it is that of {found.id}")
            return found
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise Corruption(
                f"{path} cannot be read ({error}): use another backup, and delete this file if it is of no use"
            ) from error

    def manifests(self) -> list[Manifest]:
        return [self.manifest(id) for id in self.ids()]

    def readable_manifests(self) -> list[Manifest]:
        """Those of the others are named in the log."""
        found = []
        for id in self.ids():
            try:
                found.append(self.manifest(id))
            except Corruption as error:
                logger.warning("%s", error)
        return found

    def write(self, manifest: Manifest) -> None:
        establish(self.store, self.store.put, self._manifest(manifest.id), manifest.document(), f"backup {manifest.id}")

    def forget(self, id: str) -> None:
        """The manifest goes first: what it names may go then."""
        abolish(self.store, self._manifest(id), f"backup {id}")

    def _manifest(self, id: str) -> PurePath:
        return self.path / "backups" / f"{id}.json"

    @contextlib.contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """Make or remove a backup: what one is about to name, no other may take for a leftover."""
        marker, mine = self.path / "busy.json", uuid.uuid4().hex
        document = json.dumps({"what": what, "id": mine, **asdict(Owner.this_process())}).encode()

        def taken(mark: bytes | None) -> bytes:
            if mark is not None:
                self._check_dead(marker, mark)
            return document

        _at_work.add(mine)
        try:
            # Looked at and replaced in one step: of those who find the mark of a dead process, one takes its place.
            self.store.swap(marker, taken, LOCK_WAIT_S_MAX, f"the backups in {self.path}")
            try:
                yield
            finally:
                self._unmark(marker)
        finally:
            _at_work.discard(mine)

    def _unmark(self, marker: PurePath) -> None:
        try:
            self.store.delete(marker)
        except LithifyError as error:
            logger.warning("%s stays; whoever comes next sees that its work has ended: %s", marker, error)

    def _check_dead(self, marker: PurePath, mark: bytes) -> None:
        """Whoever left this mark is known to be gone, or is this process and has ended that work."""
        said = ""
        with contextlib.suppress(ValueError, TypeError, KeyError):
            found = json.loads(mark)
            said = f" ({found.pop('what')}, process {found['pid']} on {found['host']})"
            work, owner = found.pop("id", None), Owner(**found)
            has_ended = work is not None and work not in _at_work and owner == Owner.this_process()
            if has_ended or not owner.may_be_alive():
                return
        raise Conflict(
            f"another backup is being made or removed in {self.path}{said}: wait for it; if that process is gone, "
            f"delete {marker}"
        )

    # -- where files lie

    def data_folder(self, table: str, saved: SavedTable | str, log: str) -> PurePath:
        id = saved if isinstance(saved, str) else saved.table_id
        return self.path / "data" / table / id / log

    def log_folder(self, backup: str, table: str, log: str) -> PurePath:
        return self.path / "logs" / backup / table / log

    def named_by(self, manifests: Iterable[Manifest]) -> set[PurePath]:
        return {path for manifest in manifests for path, _ in self.files_of(manifest)}

    def files_of(self, manifest: Manifest) -> list[tuple[PurePath, SavedFile]]:
        found = []
        for table, saved in manifest.tables.items():
            for log, files in saved.logs.items():
                found += [(self.log_folder(manifest.id, table, log) / file.path, file) for file in files]
            for log, files in saved.data.items():
                found += [(self.data_folder(table, saved, log) / file.path, file) for file in files]
        return found
