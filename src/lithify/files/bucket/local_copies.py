"""Local copies of what lies in a bucket: engines read files of this machine, and an object is brought here once.

Objects with data never change and no name is given out twice, so a copy that was good stays good. Its size is compared
with what the log says at every use, its pages are when they are read; one that is not right is removed and brought
again. Copies appear under their names as a whole, by a rename, and any number of processes share a folder. When it is
full, those go that nobody has used for the longest time (the time of the last use is the file's access time, which is
set here, whatever the disk does by itself).

Nothing needs the folder to be there, or to stay. A copy may go at any moment, so nobody is handed its name to use it
later: `use` hands it to a function that opens it, and begins again if it is gone by then, and `pin` gives it a second
name in a folder of this process, which lasts until the reader takes that away. Where the disk has no room, or an object
is too large to be worth it, it is brought for one reader alone.

The time of change of a copy stands for the object's tag (ETag), so that whatever tells files apart by their times
(`read_proof.tag_of`) tells objects apart, also when a copy was brought again.
"""

from __future__ import annotations

import atexit
import contextlib
import filecmp
import hashlib
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath
from typing import NamedTuple, TypeVar

from lithify.errors import LithifyError, NotFound, Unavailable
from lithify.files.bucket.disk_room import DiskRoom
from lithify.files.local import link_or_copy
from lithify.files.os_errors import translated
from lithify.files.read_proof import Vanished, check_size
from lithify.files.scratch import Scratch

T = TypeVar("T")

USED_EVERY_S = 60.0
ATTEMPTS_MAX = 3
AT_ONCE = 16
COPIES, LOCK = "copies", "copies.lock"


class Wanted(NamedTuple):
    """`size_bytes`: what the log says."""

    path: PurePath
    size_bytes: int


# Brings an object, which should have this size, into a new file, and tells its tag.
Fetch = Callable[[PurePath, Path, int], str]


class _NoRoom(Exception):
    """It cannot be kept."""


class LocalCopies:
    """`bytes_max`: of all copies; by default 10 GB, and at most a fifth of what the disk has left for them. `server`:
    where the objects come from, as the same address may mean another one elsewhere.
    """

    def __init__(
        self, folder: Path, fetch: Fetch, bytes_max: int | None = None, server: Callable[[], str] = str
    ) -> None:
        self.folder, self.bytes_max, self._fetch, self._server = folder, bytes_max, fetch, server
        self._room = DiskRoom(folder / COPIES, folder / LOCK, bytes_max)
        self._lock = threading.Lock()
        self._under_way: dict[Path, threading.Event] = {}
        self._scratch: Scratch | None = None
        self._scratch_of = 0

    # -- reading

    def find(self, path: PurePath, size_bytes: int | None = None) -> Path | None:
        """The copy as it lies there, for a look. It may go at any time."""
        copy = self._at(path)
        try:
            found = os.stat(copy)
        except OSError:
            return None
        if size_bytes is not None and found.st_size != size_bytes:
            self.forget(path)
            return None
        if time.time() - found.st_atime > USED_EVERY_S:
            _note_use(copy)
        return copy

    def use(self, path: PurePath, size_bytes: int, open_copy: Callable[[Path], T]) -> T:
        """What a function makes of a copy. It is asked again where the copy was gone (FileNotFoundError); what it has
        open at its end stays.
        """
        for _ in range(ATTEMPTS_MAX):
            try:
                copy = self.find(path, size_bytes) or self._brought(path, size_bytes)
            except _NoRoom:
                break
            with contextlib.suppress(FileNotFoundError):
                return open_copy(copy)
        with self._for_one(path, size_bytes) as copy:
            return open_copy(copy)

    def bring(self, wanted: Iterable[Wanted]) -> None:
        """What is going to be used soon, many at once; of more than fits, the beginning."""
        missing, room = [], self._room.bytes_max() / 2
        for entry in dict.fromkeys(wanted):
            if self.find(*entry) is None:
                room -= entry.size_bytes
                if room < 0:
                    break
                missing.append(entry)

        def brought(entry: Wanted) -> None:
            with contextlib.suppress(_NoRoom):  # whoever reads it brings it for itself
                self._brought(*entry)

        _each(brought, missing)

    def is_under_way(self, path: PurePath) -> bool:
        """Whether a thread is bringing it."""
        return self._at(path) in self._under_way

    def pin(self, wanted: Sequence[Wanted], folder: Path) -> list[Path]:
        """Names in a folder that stay while it does, one for each."""
        names = [folder / f"{uuid.uuid4().hex}.parquet" for _ in wanted]
        self.pin_as(list(zip(wanted, names, strict=True)))
        return names

    def pin_as(self, names: Sequence[tuple[Wanted, Path]]) -> None:
        """The same under names that the caller gives, on the disk of the copies, and takes away."""
        _each(lambda entry: self._pin(*entry), names)

    def _pin(self, wanted: Wanted, name: Path) -> None:
        def give_name(copy: Path) -> None:
            link_or_copy(copy, name, shutil.copy2)

        with translated(name):
            try:
                self.use(*wanted, give_name)
            except FileNotFoundError as error:  # somebody has removed the folder of names
                raise Vanished.at(str(wanted.path)) from error

    def pins_folder(self, group: str | None = None) -> Path:
        """A new folder of this process, on the disk of the copies, or in the folder of a group. The caller removes
        it.
        """
        parent = self._temporary() if group is None else self.group_folder(group)
        with translated(self.folder):
            return Path(tempfile.mkdtemp(prefix="pins-", dir=parent))

    def group_folder(self, group: str) -> Path:
        """One folder of this process for pins that belong together."""
        folder = self._temporary() / hashlib.blake2b(group.encode(), digest_size=16).hexdigest()
        with translated(folder):
            os.makedirs(folder, exist_ok=True)
        return folder

    def used_bytes(self) -> int:
        return self._room.used_bytes()

    def free_bytes(self) -> int:
        """What the disk has left."""
        return self._room.free_bytes()

    def limit_bytes(self) -> float:
        """What they may take now."""
        return self._room.bytes_max()

    def is_other(self, path: PurePath, tag: str) -> bool:
        """Whether the object, which has this tag now, has other bytes than its copy. Another tag alone does not say so:
        what the server has copied, or took in parts, may have one of its own for the same bytes.
        """
        copy = self.find(path)
        if copy is None or os.stat(copy).st_mtime_ns == time_for(tag):
            return False
        draft = self.draft()
        try:
            self._fetch(path, draft, os.stat(copy).st_size)
            return not filecmp.cmp(copy, draft, shallow=False)
        finally:
            draft.unlink(missing_ok=True)

    def forget(self, path: PurePath) -> None:
        """A copy that is not right, or of no use any more."""
        with contextlib.suppress(OSError):
            os.unlink(self._at(path))

    # -- writing

    def keep(self, path: PurePath, tag: str, data: bytes | memoryview) -> None:
        """What this process has just put into the bucket, so that it need not be brought."""
        with contextlib.suppress(OSError, LithifyError):  # then it is brought when it is read
            draft = self.draft()
            try:
                draft.write_bytes(data)
                self.keep_file(path, tag, draft)
            finally:
                draft.unlink(missing_ok=True)

    def keep_file(self, path: PurePath, tag: str, file: Path) -> None:
        """The same of a file, if it lies on the same disk: a second name for it."""
        with contextlib.suppress(OSError, LithifyError):
            size_bytes = os.stat(file).st_size
            if size_bytes <= self._room.bytes_max() / 2:
                os.link(file, draft := self.draft())
                self._take(draft, path, tag)
                self._room.added(size_bytes)

    def same(self, path: PurePath, target: PurePath) -> None:
        """The object was copied: so is what is here of it."""
        with contextlib.suppress(OSError, LithifyError):
            os.link(self._at(path), draft := self.draft())
            copy = self._at(target)
            os.makedirs(copy.parent, mode=0o700, exist_ok=True)
            os.rename(draft, copy)

    def draft(self) -> Path:
        """The name of a new file of this process, on the disk of the copies."""
        return self._temporary() / f"{uuid.uuid4().hex}.draft"

    # -- one copy

    def _at(self, path: PurePath) -> Path:
        name = hashlib.blake2b(f"{self._server()}\n{path}".encode(), digest_size=20).hexdigest()
        return self.folder / COPIES / name[:2] / f"{name[2:]}.parquet"

    def _brought(self, path: PurePath, size_bytes: int) -> Path:
        """The copy, made by this thread or by another that is at it."""
        copy = self._at(path)
        while True:
            with self._lock:
                under_way = self._under_way.get(copy)
                if under_way is None:
                    self._under_way[copy] = mine = threading.Event()
                    break
            under_way.wait()
            if (found := self.find(path, size_bytes)) is not None:
                return found
        try:
            return self.find(path, size_bytes) or self._bring(path, size_bytes)
        finally:
            with self._lock:
                del self._under_way[copy]
            mine.set()

    def _bring(self, path: PurePath, size_bytes: int) -> Path:
        if size_bytes > self._room.bytes_max() / 2:
            raise _NoRoom
        for attempt in range(ATTEMPTS_MAX):
            draft = self._draft_or_no_room()
            try:
                copy = self._take(draft, path, self._fetched(path, size_bytes, draft))
                self._room.added(size_bytes)
                return copy
            except FileNotFoundError:  # somebody has removed the whole folder
                continue
            except (OSError, Unavailable) as error:
                if isinstance(error, Unavailable) and not error.details.get("disk_full"):
                    raise
                if attempt:
                    break
                self._room.make(size_bytes)
            finally:
                with contextlib.suppress(OSError):
                    draft.unlink(missing_ok=True)
        raise _NoRoom

    def _draft_or_no_room(self) -> Path:
        try:
            return self.draft()
        except LithifyError as error:  # no place for copies at all: reads go on without
            raise _NoRoom from error

    def _fetched(self, path: PurePath, size_bytes: int, file: Path) -> str:
        try:
            tag = self._fetch(path, file, size_bytes)
        except NotFound as error:
            if not file.parent.exists():
                raise FileNotFoundError(str(file)) from error
            raise Vanished.at(str(path)) from error
        check_size(str(path), os.stat(file).st_size, size_bytes)
        return tag

    def _take(self, draft: Path, path: PurePath, tag: str) -> Path:
        copy = self._at(path)
        os.utime(draft, ns=(time.time_ns(), time_for(tag)))
        os.makedirs(copy.parent, mode=0o700, exist_ok=True)
        os.rename(draft, copy)
        return copy

    @contextlib.contextmanager
    def _for_one(self, path: PurePath, size_bytes: int) -> Iterator[Path]:
        """A file for one reader, in whichever folder has room for it."""
        for parent in (self.folder, None):
            try:
                scratch = Scratch("copy", parent)
            except LithifyError:
                continue
            try:
                file = scratch.path / "file.parquet"
                try:
                    os.utime(file, ns=(time.time_ns(), time_for(self._fetched(path, size_bytes, file))))
                except Unavailable as error:
                    if not error.details.get("disk_full"):
                        raise
                    continue
                yield file
                return
            finally:
                scratch.close()
        raise Unavailable(
            f"no space left for a local copy of {path}, of {size_bytes:,} bytes: free some in {self.folder} or in the "
            "folder for temporary files, or name another folder (cache_folder)",
            disk_full=True,
        )

    def _temporary(self) -> Path:
        """This process's own folder beside the copies."""
        with self._lock:
            scratch, pid = self._scratch, os.getpid()
            if scratch is None or self._scratch_of != pid or not scratch.path.exists():
                with translated(self.folder):
                    os.makedirs(self.folder, mode=0o700, exist_ok=True)
                self._scratch = scratch = Scratch("copies", self.folder)
                self._scratch_of = pid
                atexit.register(lambda: scratch.close() if os.getpid() == pid else None)
            return scratch.path


class Pins:
    """Local names of files that stay until it is closed, in the folder of a group if one is named."""

    def __init__(self, copies: LocalCopies, group: str | None = None) -> None:
        self._copies, self._group = copies, group
        self._folders: list[tuple[Path, Scratch | None]] = []

    def add(self, wanted: Sequence[Wanted]) -> list[Path]:
        try:
            folder = self._copies.pins_folder(self._group)
        except LithifyError:  # no place for copies: the one for temporary files has to do
            folder = None
        if folder is not None:
            self._folders.append((folder, None))
            try:
                return self._copies.pin(wanted, folder)
            except Unavailable as error:
                if not error.details.get("disk_full"):
                    raise
        elsewhere = Scratch("pins")
        self._folders.append((elsewhere.path, elsewhere))
        return self._copies.pin(wanted, elsewhere.path)

    def close(self) -> None:
        while self._folders:
            folder, scratch = self._folders.pop()
            if scratch is not None:
                scratch.close()
            shutil.rmtree(folder, ignore_errors=True)


def _each(work: Callable[[T], object], entries: Sequence[T]) -> None:
    if len(entries) < 2:
        for entry in entries:
            work(entry)
        return
    with ThreadPoolExecutor(min(AT_ONCE, len(entries))) as pool:
        waiting = [pool.submit(work, entry) for entry in entries]
        try:
            for one in waiting:
                one.result()
        finally:
            for one in waiting:
                one.cancel()


def time_for(tag: str) -> int:
    """A time in nanoseconds, long ago, that stands for a tag."""
    return int.from_bytes(hashlib.blake2b(tag.encode(), digest_size=7).digest(), "little") + 1


def _note_use(copy: Path) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(copy, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.utime(fd, ns=(time.time_ns(), os.fstat(fd).st_mtime_ns))
        finally:
            os.close(fd)
