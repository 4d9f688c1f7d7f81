"""A POSIX folder as a store.

Every call that touches the disk goes through one object, so that a test can hand in a store that records, fails or
stops at any of them. `step` names the places between storage calls where a process may die; a real store does
nothing there. Errors of the operating system are translated here, once, with their cause kept. No call follows a link
that lies in a lake, nor leaves it (`paths`).

When an fsync fails, the kernel may drop what it could not write and call the file clean, so that the next fsync of it
succeeds, in any process. Such a file is in doubt: a mark beside it says so, which every process sees for as long as the
kernel could be wrong about it (and perhaps longer), and it is never synced again. Its content has to be written anew,
as another file, by somebody who can tell that what is read is what was written (`write_anew`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from lithify.errors import LithifyError, NotFound, Unavailable
from lithify.files.modes import folder_mode, give_mode
from lithify.files.os_errors import os_error as os_error
from lithify.files.os_errors import translated as translated
from lithify.files.paths import Places, is_link, remove_tree

_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY
_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC
DOUBTED = ".doubted-"


class Store:
    _modes: tuple[str, int] | None = None

    @cached_property
    def places(self) -> Places:
        """Where this store may reach."""
        return Places()

    @cached_property
    def _doubted(self) -> set[Path]:
        """In case no mark could be left."""
        return set()

    def give_modes(self, root: Path, file_mode: int) -> None:
        """What is made below `root` from now on gets this mode, folders one made from it."""
        self._modes = str(root), file_mode

    def _mode_of(self, path: Path) -> int | None:
        """None: what the umask leaves."""
        if self._modes is None:
            return None
        (root, mode), text = self._modes, str(path)
        return mode if text == root or text.startswith(f"{root}/") else None

    def step(self, name: str) -> None:
        """A named place where a crash test may stop the process."""

    def write_new(self, path: Path, data: bytes | memoryview, mode: int | None = None) -> None:
        """Create `path` with `data`, durable but for its directory entry. Fails if it exists."""
        with translated(path):
            self.step("store.write")
            fd = self._open(path, _NEW, mode)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                os.fsync(fd)
            except BaseException:
                with contextlib.suppress(OSError, LithifyError):
                    self._unlink(path)
                raise
            finally:
                os.close(fd)

    def _open(self, path: Path, flags: int, mode: int | None = None) -> int:
        with self.places.entry(path) as (at, name):
            fd = os.open(name, flags | _OPEN, mode or self._mode_of(path) or 0o644, dir_fd=at)
        if flags & os.O_CREAT and mode is None:
            self._give_mode(fd, path)
        return fd

    def _give_mode(self, fd: int, path: Path) -> None:
        if (mode := self._mode_of(path)) is not None:
            try:
                give_mode(fd, mode)
            except BaseException:
                os.close(fd)
                raise

    def _unlink(self, path: Path) -> None:
        with self.places.entry(path) as (at, name):
            os.unlink(name, dir_fd=at)

    def replace(self, path: Path, data: bytes, mode: int | None = None) -> None:
        """Write `path` as a whole: temporary file, fsync, rename, fsync of the folder."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
        self.write_new(temporary, data, mode)
        with translated(path):
            try:
                self.step("store.rename")
                with self.places.entry(path) as (at, name):
                    os.replace(temporary.name, name, src_dir_fd=at, dst_dir_fd=at)
            except BaseException:
                with contextlib.suppress(OSError, LithifyError):
                    self._unlink(temporary)
                raise
        self.sync_folder(path.parent)

    def append(self, path: Path, data: bytes) -> int:
        """Add a line to the end in one write, not durable; the file's size afterwards."""
        with translated(path):
            fd = self._open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR)
            try:
                size = os.fstat(fd).st_size
                if size and os.pread(fd, 1, size - 1) != b"\n":
                    data = b"\n" + data  # after a line that a crash cut off
                os.write(fd, data)
                return os.fstat(fd).st_size
            finally:
                os.close(fd)

    def extend(self, path: Path, parts: Sequence[bytes]) -> None:
        """Add to the end of a file, at a multiple of 8 bytes, durable."""
        with translated(path):
            self.step("store.write")
            fd = self._open(path, os.O_WRONLY | os.O_APPEND)
            try:
                size = os.fstat(fd).st_size
                for data in (bytes(-size % 8), *parts):
                    view = memoryview(data)
                    while view:
                        view = view[os.write(fd, view) :]
                self.step("store.sync")
                os.fsync(fd)
            finally:
                os.close(fd)

    def patch(self, path: Path, place: int, data: bytes) -> None:
        """Overwrite a few bytes in one write, not durable."""
        with translated(path):
            self.step("store.patch")
            fd = self._open(path, os.O_WRONLY)
            try:
                os.pwrite(fd, data, place)
            finally:
                os.close(fd)

    def read(self, path: Path) -> bytes:
        with translated(path), open(self._open(path, os.O_RDONLY), "rb") as file:
            return file.read()

    def exists(self, path: Path) -> bool:
        """Whether it is there. Not being able to look is an error, not a no."""
        with translated(path):
            try:
                os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def sync_file(self, path: Path) -> None:
        if self.is_doubted(path):
            raise Unavailable(
                f"{path} could not be written to disk before, and what is on the disk now is unknown: check the disk, "
                "then put the file there anew"
            )
        self._sync(path, self._doubt)

    def sync_folder(self, path: Path) -> None:
        """A file system that cannot write its folders down takes no more writes: there is nothing to remember."""
        self._sync(path, lambda path: None)

    def _sync(self, path: Path, on_failure: Callable[[Path], None]) -> None:
        with translated(path):
            self.step("store.sync")
            fd = self._open(path, os.O_RDONLY)
            self._give_mode(fd, path)  # also to what engines of others wrote
            try:
                os.fsync(fd)
            except OSError:
                on_failure(path)
                raise
            finally:
                os.close(fd)

    def is_doubted(self, path: Path) -> bool:
        """Whether an fsync of this file has failed."""
        return path in self._doubted or self.exists(path.with_name(f"{DOUBTED}{path.name}"))

    def _doubt(self, path: Path) -> None:
        self._doubted.add(path)
        with contextlib.suppress(OSError, LithifyError):
            os.close(self._open(path.with_name(f"{DOUBTED}{path.name}"), os.O_CREAT | os.O_WRONLY))

    def write_anew(self, path: Path, data: bytes) -> None:
        """Put a file in doubt there once more: another one with the same content, durable."""
        self.replace(path, data)
        self.remove(path.with_name(f"{DOUBTED}{path.name}"))
        self._doubted.discard(path)

    def make_folder(self, path: Path) -> None:
        """Create a folder and its parents, with durable entries for what was created."""
        missing = []
        current = path
        while not self.exists(current):
            missing.append(current)
            current = current.parent
        with translated(path):
            self.step("store.make_folder")
            self.places.check_folder(path)
            path.mkdir(parents=True, exist_ok=True)
            for folder in missing:
                if (mode := self._mode_of(folder)) is not None:
                    folder.chmod(folder_mode(mode))
        for folder in missing:
            self.sync_folder(folder)
        if missing:
            self.sync_folder(current)

    def link(self, source: Path, target: Path) -> None:
        """The same bytes under a second name; a copy where the file system has no hard links."""
        if not self.link_if_possible(source, target):
            with translated(target):
                with source.open("rb") as old, open(self._open(target, _NEW), "wb") as new:
                    shutil.copyfileobj(old, new)
                self.sync_file(target)

    def link_if_possible(self, source: Path, target: Path) -> bool:
        """A second name, unless the file system has no hard links. Fails if `target` exists."""
        with translated(target):
            self.step("store.link")
            try:
                with self.places.entry(target) as (at, name):
                    os.link(source, name, dst_dir_fd=at, follow_symlinks=False)
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
                    raise
                return False
        return True

    def remove(self, path: Path) -> None:
        with translated(path), contextlib.suppress(FileNotFoundError):
            self.step("store.remove")
            self._unlink(path)

    def remove_folder(self, path: Path) -> None:
        with translated(path), contextlib.suppress(FileNotFoundError):
            self.step("store.remove_folder")
            with self.places.entry(path) as (at, name):
                remove_tree(at, name)

    def remove_empty_folder(self, path: Path) -> None:
        """Remove a folder that holds nothing; one that holds something, or is gone, stays as it is."""
        with translated(path):
            self.step("store.remove_folder")
            try:
                with self.places.entry(path) as (at, name):
                    os.rmdir(name, dir_fd=at)
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise

    def rename(self, source: Path, target: Path) -> None:
        self.move(source, target)
        self.sync_folder(target.parent)

    def move(self, source: Path, target: Path) -> None:
        """Rename, durable when both folders are synced, that of the target first."""
        with translated(source):
            self.step("store.rename")
            with self.places.entry(source) as (old, name), self.places.entry(target) as (new, new_name):
                os.rename(name, new_name, src_dir_fd=old, dst_dir_fd=new)

    def names(self, folder: Path) -> list[str]:
        try:
            with translated(folder):
                fd = self._open(folder, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    return sorted(os.listdir(fd))
                finally:
                    os.close(fd)
        except NotFound:
            return []

    def modified_ms(self, path: Path) -> float:
        return self._status(path).st_mtime_ns / 1_000_000

    def touch_ms(self, path: Path, at_ms: int | None = None) -> float:
        """Give a file another time: by default that of the file system's clock, which is so told."""
        times = None if at_ms is None else (at_ms / 1000, at_ms / 1000)
        with translated(path):
            fd = self._open(path, os.O_CREAT | os.O_WRONLY)
            try:
                os.utime(fd, times)
                return os.fstat(fd).st_mtime_ns / 1_000_000
            finally:
                os.close(fd)

    def size(self, path: Path) -> int:
        return self._status(path).st_size

    def _status(self, path: Path) -> os.stat_result:
        with translated(path), self.places.entry(path) as (at, name):
            found = os.stat(name, dir_fd=at, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                raise is_link(path)
            return found

    @contextlib.contextmanager
    def lock(self, path: Path, wait_s_max: float, what: str) -> Iterator[None]:
        """Hold an advisory lock for rare, short, lake-wide work. The kernel releases it when the process dies."""
        with translated(path):
            fd = self._open(path, os.O_CREAT | os.O_RDWR)
        try:
            deadline = time.monotonic() + wait_s_max
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise Unavailable(
                            f"another process has held the lock for {what} for {wait_s_max:.0f} s: try again later"
                        ) from None
                    time.sleep(0.02)
            yield
        finally:
            os.close(fd)
