"""Storage in folders of a POSIX file system.

Every call that touches the disk goes through one object, so that a test can hand in one that records, fails or stops at
any of them. `step` names the places between storage calls where a process may die; a real storage does nothing there.
Errors of the operating system are translated here, once, with their cause kept. No call follows a link that lies in a
lake, nor leaves it (`paths`).

When an fsync fails, the kernel may drop what it could not write and call the file clean, so that the next fsync of it
succeeds, in any process. Such a file is in doubt: a mark beside it says so, which every process sees for as long as the
kernel could be wrong about it (and perhaps longer), and it is never synced again. Its content has to be written anew,
as another file, by somebody who can tell that what is read is what was written (`write_anew`).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path, PurePath

from lithify.core.disk_files import DiskFile
from lithify.errors import LithifyError, NotFound, Unavailable
from lithify.files.listing import Listing, files_below, list_own, look_at
from lithify.files.modes import folder_mode, give_mode
from lithify.files.os_errors import os_error, translated
from lithify.files.paths import PathGuard, is_link, remove_tree
from lithify.files.storage import Data, Storage

_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY
_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC
# Another file system, one without links, or files of another user.
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)
DOUBTED = ".doubted-"
_renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
_NOREPLACE = 1


def link_or_copy(path: PurePath, name: PurePath, copy: Callable[[PurePath, PurePath], object]) -> None:
    """A second name of a file, or where there can be none a copy."""
    try:
        os.link(path, name)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        copy(path, name)


class LocalStorage(Storage):
    locks = links = grows = True
    _modes: tuple[str, int] | None = None

    @cached_property
    def path_guard(self) -> PathGuard:
        return PathGuard()

    @cached_property
    def _doubted(self) -> set[PurePath]:
        """In case no mark could be left."""
        return set()

    def give_modes(self, root: PurePath, file_mode: int) -> None:
        """Folders get a mode made from it."""
        self._modes = str(root), file_mode

    def _mode_of(self, path: PurePath) -> int | None:
        """None: what the umask leaves."""
        if self._modes is None:
            return None
        (root, mode), text = self._modes, str(path)
        return mode if text == root or text.startswith(f"{root}/") else None

    def create(self, path: PurePath, data: Data, mode: int | None = None) -> None:
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

    def _open(self, path: PurePath, flags: int, mode: int | None = None) -> int:
        with self.path_guard.entry(path) as (at, name):
            fd = os.open(name, flags | _OPEN, mode or self._mode_of(path) or 0o644, dir_fd=at)
        if flags & os.O_CREAT and mode is None:
            self._give_mode(fd, path)
        return fd

    def _give_mode(self, fd: int, path: PurePath) -> None:
        if (mode := self._mode_of(path)) is not None:
            try:
                give_mode(fd, mode)
            except BaseException:
                os.close(fd)
                raise

    def _unlink(self, path: PurePath) -> None:
        with self.path_guard.entry(path) as (at, name):
            os.unlink(name, dir_fd=at)

    def put(self, path: PurePath, data: Data, mode: int | None = None) -> None:
        """Temporary file, fsync, rename, fsync of the folder."""
        temporary = _temporary(path)
        self.create(temporary, data, mode)
        self._give_name(temporary, path, _rename)
        self.sync_folder(path.parent)

    def replace(self, path: PurePath, data: Data) -> None:
        """Temporary file, fsync, rename. The temporary one is always called the same, so that none is left behind."""
        before, temporary = self._status(path), path.with_name(f".{path.name}.tmp")
        self.delete(temporary)
        self.create(temporary, data)
        with translated(temporary):
            fd = self._open(temporary, os.O_WRONLY)
            try:
                os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))
                os.fsync(fd)  # of the time: logs are trimmed, and versions dated, by it
            finally:
                os.close(fd)
        self._give_name(temporary, path, _rename)

    def publish(self, path: PurePath, data: Data) -> None:
        """Temporary file, fsync, another name for it that nobody has."""
        temporary = _temporary(path)
        self.create(temporary, data)
        self._give_name(temporary, path, _rename_new)

    def _give_name(self, temporary: PurePath, path: PurePath, rename: Callable[[int, str, str], None]) -> None:
        with translated(path):
            try:
                self.step("store.rename")
                with self.path_guard.entry(path) as (at, name):
                    rename(at, temporary.name, name)
            except BaseException:
                with contextlib.suppress(OSError, LithifyError):
                    self._unlink(temporary)
                raise

    def swap(
        self,
        path: PurePath,
        change: Callable[[bytes | None], bytes | None],
        wait_s_max: float,
        what: str,
        mode: int | None = None,
    ) -> None:
        """All who swap hold the lock beside the file."""
        with self.lock(path.with_suffix(".lock"), wait_s_max, what):
            try:
                before = self.read(path)
            except NotFound:
                before = None
            if (after := change(before)) is not None:
                self.put(path, after, mode)

    def append(self, path: PurePath, data: bytes) -> int:
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

    def extend(self, path: PurePath, parts: Sequence[bytes]) -> None:
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

    def patch(self, path: PurePath, start: int, data: bytes) -> None:
        with translated(path):
            self.step("store.patch")
            fd = self._open(path, os.O_WRONLY)
            try:
                os.pwrite(fd, data, start)
            finally:
                os.close(fd)

    def read(self, path: PurePath) -> bytes:
        with translated(path), open(self._open(path, os.O_RDONLY), "rb") as file:
            return file.read()

    def read_range(self, path: PurePath, start: int, length: int) -> bytes:
        with translated(path):
            fd = self._open(path, os.O_RDONLY)
            try:
                return os.pread(fd, length, start)
            finally:
                os.close(fd)

    def local(self, path: PurePath) -> Path:
        return Path(path)

    def exists(self, path: PurePath) -> bool:
        """Also what a link leads to: one to an allowed folder counts."""
        return _seen(path) is not None

    def is_folder(self, path: PurePath) -> bool:
        found = _seen(path)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def sync_file(self, path: PurePath) -> None:
        if self.is_doubted(path):
            raise Unavailable(
                f"{path} could not be written to disk before, and what is on the disk now is unknown: check the disk, "
                "then put the file there anew"
            )
        self._sync(path, self._doubt)

    def sync_folder(self, path: PurePath) -> None:
        """A file system that cannot write its folders down takes no more writes: there is nothing to remember."""
        self._sync(path, lambda path: None)

    def _sync(self, path: PurePath, on_failure: Callable[[PurePath], None]) -> None:
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

    def is_doubted(self, path: PurePath) -> bool:
        return path in self._doubted or self.exists(path.with_name(f"{DOUBTED}{path.name}"))

    def _doubt(self, path: PurePath) -> None:
        self._doubted.add(path)
        with contextlib.suppress(OSError, LithifyError):
            os.close(self._open(path.with_name(f"{DOUBTED}{path.name}"), os.O_CREAT | os.O_WRONLY))

    def write_anew(self, path: PurePath, data: Data) -> None:
        """Another file, with the same content."""
        self.put(path, data)
        self.delete(path.with_name(f"{DOUBTED}{path.name}"))
        self._doubted.discard(path)

    def make_folder(self, path: PurePath, mode: int = 0o777) -> None:
        """What was made has entries that last."""
        missing = []
        current = path
        while not self.exists(current):
            missing.append(current)
            current = current.parent
        with translated(path):
            self.step("store.make_folder")
            self.path_guard.check_folder(path)
            os.makedirs(path, mode, exist_ok=True)
            for folder in missing:
                if (given := self._mode_of(folder)) is not None:
                    os.chmod(folder, folder_mode(given))
        for folder in missing:
            self.sync_folder(folder)
        if missing:
            self.sync_folder(current)

    def copy(self, path: PurePath, target: PurePath) -> None:
        """A hard link, where there can be one; else another file, which gets its name when it is whole and lasts."""
        if self.link(path, target):
            return
        temporary = _temporary(target)
        with translated(target):
            try:
                self.step("store.write")
                with open(path, "rb") as old, open(self._open(temporary, _NEW), "wb") as new:
                    shutil.copyfileobj(old, new)
                    new.flush()
                    os.fsync(new.fileno())
            except BaseException:
                with contextlib.suppress(OSError, LithifyError):
                    self._unlink(temporary)
                raise
        self._give_name(temporary, target, _rename_new)

    def upload(self, file: PurePath, path: PurePath) -> None:
        self.copy(file, path)

    def download(self, path: PurePath, file: PurePath) -> None:
        with translated(path):
            self.step("store.link")
            os.makedirs(file.parent, exist_ok=True)
            link_or_copy(path, file, shutil.copyfile)

    def link(self, path: PurePath, target: PurePath) -> bool:
        with translated(target):
            self.step("store.link")
            try:
                with self.path_guard.entry(target) as (at, name):
                    os.link(path, name, dst_dir_fd=at, follow_symlinks=False)
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
                return False
        return True

    def delete(self, path: PurePath) -> None:
        with translated(path), contextlib.suppress(FileNotFoundError):
            self.step("store.delete")
            self._unlink(path)

    def delete_folder(self, path: PurePath) -> None:
        with translated(path), contextlib.suppress(FileNotFoundError):
            self.step("store.delete_folder")
            with self.path_guard.entry(path) as (at, name):
                remove_tree(at, name)

    def delete_empty_folder(self, path: PurePath) -> None:
        with translated(path):
            self.step("store.delete_folder")
            try:
                with self.path_guard.entry(path) as (at, name):
                    os.rmdir(name, dir_fd=at)
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise

    def move(self, path: PurePath, target: PurePath, *, sync: bool = True) -> None:
        with translated(path):
            self.step("store.rename")
            with self.path_guard.entry(path) as (old, name), self.path_guard.entry(target) as (new, new_name):
                os.rename(name, new_name, src_dir_fd=old, dst_dir_fd=new)
        if sync:
            self.sync_folder(target.parent)

    def names(self, folder: PurePath, after: str = "") -> list[str]:
        with translated(folder):
            try:
                fd = self._open(folder, os.O_RDONLY | os.O_DIRECTORY)
            except (FileNotFoundError, NotADirectoryError):
                return []
            try:
                return sorted(name for name in os.listdir(fd) if name > after)
            finally:
                os.close(fd)

    def below(self, folder: PurePath) -> Iterator[str]:
        return files_below(folder)

    def own(self, folder: PurePath) -> Listing:
        return list_own(folder)

    def look_at(self, folder: PurePath, path: str) -> DiskFile | None:
        return look_at(folder, path)

    def modified_ms(self, path: PurePath) -> float:
        return self._status(path).st_mtime_ns / 1_000_000

    def touch_ms(self, path: PurePath, at_ms: int | None = None, *, empty: bool = False) -> float:
        times = None if at_ms is None else (at_ms / 1000, at_ms / 1000)
        with translated(path):
            fd = self._open(path, os.O_CREAT | os.O_WRONLY)
            try:
                os.utime(fd, times)
                return os.fstat(fd).st_mtime_ns / 1_000_000
            finally:
                os.close(fd)

    def size(self, path: PurePath) -> int:
        return self._status(path).st_size

    def tag(self, path: PurePath) -> str | None:
        found = _seen(path)
        return None if found is None else f"{found.st_ino}-{found.st_mtime_ns}-{found.st_size}"

    def _status(self, path: PurePath) -> os.stat_result:
        with translated(path), self.path_guard.entry(path) as (at, name):
            found = os.stat(name, dir_fd=at, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                raise is_link(path)
            return found

    @contextlib.contextmanager
    def lock(self, path: PurePath, wait_s_max: float, what: str, *, often: bool = False) -> Iterator[None]:
        """Advisory. The kernel releases it when the process dies. It does not queue those who wait: with `often`, who
        has waited longer looks more often, and so mostly comes first.
        """
        with translated(path):
            fd = self._open(path, os.O_CREAT | os.O_RDWR)
        try:
            deadline, looks = time.monotonic() + wait_s_max, 0
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    looks += 1
                    if time.monotonic() > deadline:
                        raise Unavailable(
                            f"another process has held the lock for {what} for {wait_s_max:.0f} s: try again later"
                        ) from None
                    time.sleep(max(0.0005, 0.008 / looks) if often else 0.02)
            yield
        finally:
            os.close(fd)


def _temporary(path: PurePath) -> PurePath:
    return path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")


def _rename(folder: int, name: str, new: str) -> None:
    os.replace(name, new, src_dir_fd=folder, dst_dir_fd=folder)


def _rename_new(folder: int, name: str, new: str) -> None:
    """Another name in the same folder, unless a file has it already."""
    if _renameat2 is not None and not _renameat2(folder, os.fsencode(name), folder, os.fsencode(new), _NOREPLACE):
        return
    number = errno.ENOSYS if _renameat2 is None else ctypes.get_errno()
    if number not in (errno.ENOSYS, errno.EINVAL):
        raise OSError(number, os.strerror(number), new)
    # NFS, say, has only links for that. Where there are none either, Delta cannot commit.
    os.link(name, new, src_dir_fd=folder, dst_dir_fd=folder)
    os.unlink(name, dir_fd=folder)


def _seen(path: PurePath) -> os.stat_result | None:
    """Asked so often that it does without a context."""
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise os_error(error, path) from error
