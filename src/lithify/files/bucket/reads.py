"""Reads of objects that go into files, or need only their ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

import obstore
from obstore.exceptions import GenericError

from lithify.errors import LithifyError, NotFound
from lithify.files.addresses import BucketPath
from lithify.files.bucket.client import client_of
from lithify.files.bucket.errors import Broken, again
from lithify.files.bucket.marks import nonce_bytes
from lithify.files.os_errors import translated

if TYPE_CHECKING:
    from obstore import GetOptions

PART_BYTES, PARTS_AT_ONCE = 8 << 20, 4
_NO_RANGE = "416"
_NOTHING = memoryview(b"")


def fetch(path: PurePath, file: Path, size_bytes: int = 0) -> str:
    """Bring an object into a new file, in a folder that is made for it if need be; its tag. A large one comes in parts,
    a few at a time: each has the time that one request has. `size_bytes`: what it should have, so that its parts need
    not wait for the first of them, which tells.
    """
    address = BucketPath(path)
    with translated(file):
        os.makedirs(file.parent, exist_ok=True)
        with open(file, "xb", buffering=0) as target:

            def bring(start: int, tag: str | None = None) -> _Part:
                part = again(path, lambda: _part(address, start, tag))
                _write_at(target.fileno(), part.data, start)
                return _Part(_NOTHING, *part[1:])

            try:
                first = _bring_parts(bring, size_bytes)
                target.truncate(first.size - first.nonce_bytes)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(file)
                raise
            return first.tag


def _bring_parts(bring: Callable[..., _Part], size_bytes: int) -> _Part:
    """The first of them, once all are there, of one and the same object."""
    begun = _parts_of_size(bring, size_bytes) if size_bytes > PART_BYTES else []
    if not begun or any(part.tag != begun[0].tag for part in begun):
        begun = [bring(0)]
    first = begun[0]
    if left := range(PART_BYTES * len(begun), first.size, PART_BYTES):
        with ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
            list(pool.map(lambda start: bring(start, first.tag), left))
    return first


def _parts_of_size(bring: Callable[..., _Part], size_bytes: int) -> list[_Part]:
    """None where it has another size, so that one of them is not there."""
    with ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
        try:
            return list(pool.map(bring, range(0, size_bytes, PART_BYTES)))
        except NotFound:
            raise
        except LithifyError:
            return []


class _Part(NamedTuple):
    data: memoryview
    size: int
    tag: str
    nonce_bytes: int


def fetch_range(path: PurePath, file: Path, start: int, length: int) -> str:
    """A part of an object as a new file; the tag of the object."""
    with translated(file):
        os.makedirs(file.parent, exist_ok=True)
        part = again(path, lambda: _part(BucketPath(path), start, length=length))
        with open(file, "xb", buffering=0) as target:
            _write_at(target.fileno(), part.data, 0)
        return part.tag


def _part(address: BucketPath, start: int, tag: str | None = None, length: int | None = None) -> _Part:
    """`tag`: of the object that the first part came from."""
    wanted = PART_BYTES if length is None else length
    options: GetOptions = {"range": (start, start + wanted)}
    if tag is not None:
        options["if_match"] = tag
    try:
        found = obstore.get(client_of(address), address.key, options=options)
    except GenericError as error:
        if start or _NO_RANGE not in str(error):
            raise
        found = obstore.get(client_of(address), address.key)  # an empty one, of which there is no part
    data, size = memoryview(found.bytes()), found.meta["size"]
    if len(data) != min(wanted, size - start):
        raise Broken(f"{len(data)} bytes of {address} came from {start} on, of {size} in all")
    return _Part(data, size, str(found.meta["e_tag"]), nonce_bytes(found))


def _write_at(fd: int, view: memoryview, start: int) -> None:
    while view:
        written = os.pwrite(fd, view, start)
        view, start = view[written:], start + written


def read_tail(path: PurePath, length: int) -> tuple[bytes, int, str]:
    """The end of an object, its size and its tag."""
    address = BucketPath(path)

    def get() -> tuple[bytes, int, str]:
        found = obstore.get(client_of(address), address.key, options={"range": {"suffix": length}})
        return bytes(found.bytes()), found.meta["size"], str(found.meta["e_tag"])

    return again(path, get)
