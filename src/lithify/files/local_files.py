"""A file of this machine for every path that an engine is to read: the file itself, or a copy of what lies in a bucket.

The modules that open data files ask here, so that nobody above them has to know where a lake lies. Copies are shared by
everything in this process (`local_copies`); what only buckets need is loaded for them alone.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, TypeVar

from lithify.errors import LithifyError
from lithify.files.addresses import BucketPath, is_remote
from lithify.files.os_errors import translated

if TYPE_CHECKING:
    from lithify.files.bucket.blocks import BlockReader
    from lithify.files.bucket.lasting_names import LastingNames
    from lithify.files.bucket.local_copies import LocalCopies, Pins
    from lithify.files.storage import Storage

T = TypeVar("T")

NEAR_BYTES_MAX = 16 * 2**20
FREE_SHARE_MAX = 0.9  # of the disk, for what has to be there at a time

_lock = threading.Lock()
_copies: LocalCopies | None = None
_lasting: tuple[LocalCopies, int, LastingNames] | None = None


def keep_copies_in(where: Path | str, bytes_max: int | None = None) -> None:
    """From now on, for all of this process."""
    from lithify.files.bucket.blocks import fetch_copy
    from lithify.files.bucket.client import server
    from lithify.files.bucket.local_copies import LocalCopies

    global _copies
    folder = Path(where).absolute()
    with _lock:
        if _copies is None or _copies.folder != folder or _copies.bytes_max != bytes_max:
            _copies = LocalCopies(folder, fetch_copy, bytes_max, server)


def copies_known() -> LocalCopies | None:
    """If somebody has said where, or needed one."""
    return _copies


def copies() -> LocalCopies:
    if _copies is None:
        keep_copies_in(Path(os.path.expanduser("~/.cache/lithify")))
    assert _copies is not None
    return _copies


def lasting_names(wanted: Sequence[tuple[str, int]]) -> list[str]:
    """Local names of objects, with their sizes, that an engine may open later on."""
    from lithify.files.bucket.lasting_names import LastingNames

    global _lasting
    known = copies()
    with _lock:
        if _lasting is None or _lasting[:2] != (known, os.getpid()):
            _lasting = known, os.getpid(), LastingNames(known)
        names = _lasting[2]
    return names.of(wanted)


def room_for(wanted: Iterable[tuple[str, int]]) -> bool:
    """Whether the disk has room for copies of all of these, with their sizes, at a time, and for others besides."""
    missing_bytes = sum(size_bytes for path, size_bytes in wanted if at_hand(path, size_bytes) is None)
    return missing_bytes <= copies().free_bytes() * FREE_SHARE_MAX


def use(path: PurePath | str, size_bytes: int | None, open_file: Callable[[str], T]) -> T:
    """What a function makes of a local file with this content, which is there while the function runs; what it opens
    can be read afterwards. FileNotFoundError is what it raises where there is none. `size_bytes`: what the log says.
    """
    if not is_remote(path):
        return open_file(str(path))
    address = BucketPath(path)
    if size_bytes is None:
        from lithify.files.bucket.storage import BucketStorage

        size_bytes = BucketStorage().size(address)
    return copies().use(address, size_bytes, lambda copy: open_file(str(copy)))


def at_hand(path: PurePath | str, size_bytes: int | None = None) -> str | None:
    """A local file with this content, if that needs no request. It may go at any time."""
    if not is_remote(path):
        return str(path)
    copy = copies().find(BucketPath(path), size_bytes)
    return None if copy is None else str(copy)


def bring(wanted: Iterable[tuple[PurePath | str, int]]) -> None:
    """Have local files of all of these, with their sizes, because they are read soon: many at once where it takes
    requests.
    """
    remote = [(path, size_bytes) for path, size_bytes in wanted if is_remote(path)]
    if remote:
        from lithify.files.bucket.local_copies import Wanted

        copies().bring(Wanted(BucketPath(path), size_bytes) for path, size_bytes in remote)


def bring_soon(wanted: Sequence[tuple[PurePath | str, int]]) -> None:
    """The same beside what the caller does meanwhile. Whoever reads them waits for what is under way; what cannot be
    brought is told to them.
    """

    def work() -> None:
        with contextlib.suppress(LithifyError, OSError):
            bring(wanted)

    if any(is_remote(path) for path, _ in wanted):
        threading.Thread(target=work, name="lithify-copies", daemon=True).start()


def is_on_its_way(path: PurePath | str) -> bool:
    """Whether a thread of this process is bringing it."""
    return is_remote(path) and copies().is_under_way(BucketPath(path))


def is_far(path: PurePath | str, size_bytes: int) -> bool:
    """Whether a few rows of it are better read from blocks (`read_far`) than from a copy that has to be brought."""
    return size_bytes > NEAR_BYTES_MAX and is_remote(path) and at_hand(path, size_bytes) is None


def read_far(path: PurePath | str, size_bytes: int) -> BlockReader:
    from lithify.files.bucket.blocks import BlockReader

    return BlockReader(copies(), BucketPath(path), size_bytes)


def copy_out(store: Storage, path: PurePath, size_bytes: int, file: PurePath) -> None:
    """A file of the lake as a new local file of somebody else's: a second name where that is possible, else a copy."""
    if not is_remote(path):
        return store.download(path, file)
    with translated(file):
        use(path, size_bytes, lambda local: shutil.copyfile(local, file))


def forget(path: PurePath | str) -> bool:
    """Take a copy that was found to be damaged away. Whether there was one: another attempt may go better then."""
    if not is_remote(path):
        return False
    from lithify.files.bucket.blocks import forget_blocks

    was_there = at_hand(path) is not None
    copies().forget(BucketPath(path))
    return forget_blocks(copies(), BucketPath(path)) or was_there


def is_other_than_copy(store: Storage, path: PurePath) -> bool:
    """Whether what lies there has other bytes than the copy that is here."""
    if not is_remote(path) or (tag := store.tag(path)) is None:
        return False
    return copies().is_other(path, tag.partition(" ")[0])


def draft() -> Path:
    """The name of a new local file, which goes to a bucket when it is whole."""
    from lithify.files.scratch import Scratch

    try:
        return copies().draft()
    except LithifyError:  # no place for copies: the one for temporary files has to do
        scratch = Scratch("draft")
        atexit.register(scratch.close)
        return scratch.path / "draft"


def upload(file: Path, path: PurePath) -> None:
    """Seen when it is whole. The copy of it that is kept is the file itself, where that is possible."""
    from lithify.files.bucket.storage import BucketStorage

    BucketStorage().upload(file, path)


def names_folder(group: str) -> str:
    """Where names of this group's copies lie while they are in use, for as long as this process runs."""
    return str(copies().group_folder(group))


class LocalNames:
    """Names of local files that stay until it is closed, whatever becomes of the copies. Those of copies lie in one
    folder for each `group` (`names_folder`).
    """

    def __init__(self, group: str | None = None) -> None:
        self._group = group
        self._pins: Pins | None = None

    def of(self, wanted: Sequence[tuple[str, int]]) -> list[str]:
        """One for each path, with its size."""
        remote = [number for number, (path, _) in enumerate(wanted) if is_remote(path)]
        names = [path for path, _ in wanted]
        if remote:
            from lithify.files.bucket.local_copies import Pins, Wanted

            self._pins = self._pins or Pins(copies(), self._group)
            pinned = self._pins.add([Wanted(BucketPath(wanted[number][0]), wanted[number][1]) for number in remote])
            for number, name in zip(remote, pinned, strict=True):
                names[number] = str(name)
        return names

    def close(self) -> None:
        if self._pins is not None:
            self._pins.close()
