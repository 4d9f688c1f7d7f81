"""Bytes from one storage to another, with their checksum: copies that share nothing with what they were copied from."""

from __future__ import annotations

import hashlib
from pathlib import PurePath

from lithify.errors import Corruption
from lithify.files.local import LocalStorage
from lithify.files.open_storage import storage_of
from lithify.files.os_errors import translated
from lithify.files.storage import Storage

BLOCK_BYTES = 4 * 2**20


class _Unlinked(LocalStorage):
    """A folder whose files are its own: a second name for the bytes of a lake would go bad with them."""

    links = False

    def link(self, path: PurePath, target: PurePath) -> bool:
        return False


def unlinked_storage(path: PurePath) -> Storage:
    storage = storage_of(path)
    return storage if storage.remote else _Unlinked()


def transfer(source: Storage, path: PurePath, target: Storage, to: PurePath, sha256: str | None = None) -> str:
    """Copy an object; the checksum of its content. `sha256`: what it has to be, which is seen before it is copied."""
    if not source.remote:
        source.path_guard.is_there(path)  # and is no link
    found = checksum(source, path)
    if sha256 is not None and found != sha256:
        raise Corruption(f"{path} is not what was saved: its checksum is another; use another backup", path=str(path))
    target.make_folder(to.parent)
    target.upload(source.local(path), to)
    return found


def checksum(storage: Storage, path: PurePath) -> str:
    summed = hashlib.sha256()
    with translated(path), open(storage.local(path), "rb") as file:
        while block := file.read(BLOCK_BYTES):
            summed.update(block)
    return summed.hexdigest()
