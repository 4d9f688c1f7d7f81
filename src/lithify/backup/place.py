"""Where backups lie: a folder, or a prefix in a bucket, for the backups of one lake.

    lithify-backup.json                          says what this is
    backups/<id>.json                            a backup: its manifest, put there when all it names is there
    making/<id>                                  a backup that is being made
    data/<table>/<table id>/<log>/<path>         files of rows, which never change: all backups share them
    logs/<id>/<table>/<log>/<name>               what the version of one backup is read from

Nothing here is linked to the lake: bytes that go bad there are good here. What a manifest names is there whole; what no
manifest names is of a backup that died, or of one that was removed, and goes with the next removal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import PurePath

from lithify.backup.manifest import Manifest, SavedFile, SavedTable
from lithify.errors import Conflict, Corruption, InvalidRequest, NotFound
from lithify.files.transfer import unlinked_storage

MARKER = "lithify-backup.json"
_ID = re.compile(r"[0-9]{8}T[0-9]{9}Z-[0-9a-f]{6}")


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
        for folder in ("backups", "making", "data", "logs"):
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
            return Manifest.parsed(self.store.read(path))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Corruption(f"{path} cannot be read ({error}): use another backup") from error

    def manifests(self) -> list[Manifest]:
        return [self.manifest(id) for id in self.ids()]

    def write(self, manifest: Manifest) -> None:
        self.store.put(self._manifest(manifest.id), manifest.document())

    def forget(self, id: str) -> None:
        """The manifest goes first: what it names may go then."""
        self.store.delete(self._manifest(id))
        self.store.sync_folder(self.path / "backups")

    def _manifest(self, id: str) -> PurePath:
        return self.path / "backups" / f"{id}.json"

    # -- one at a time with removals

    def begin(self, id: str) -> None:
        self.store.put(self.path / "making" / id, b"")

    def end(self, id: str) -> None:
        self.store.delete(self.path / "making" / id)

    def check_still(self) -> None:
        """No backup is being made, which may rely on files that no manifest names yet."""
        if making := self.store.names(self.path / "making"):
            raise Conflict(
                f"backup {making[0]} is being made in {self.path}, or died: wait for it; if it died, delete "
                f"{self.path / 'making' / making[0]}"
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
