"""A disk that remembers what was fsynced, and shows what a power cut would leave.

A file's content survives as of its last fsync; a name survives as of the last fsync of its folder, all the way up.
Everything else may be lost, or may have reached the disk in part: `strict` drops all of it, a seed decides at random.

`fails` chooses one fsync, by its number and file, that fails as Linux lets it: it is told once, what could not be
written stays readable and counts as written, and later fsyncs of the file succeed without writing it.
"""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any


class Disk:
    """Watches every fsync of this process, whoever calls it, while it is entered."""

    def __init__(self, root: Path, fails: Callable[[int, Path], bool] = lambda number, path: False) -> None:
        self._root, self._fails = root, fails
        self.file_syncs = 0
        self.failed: Path | None = None
        self._dropped: set[int] = set()
        self._contents: dict[int, bytes] = {}
        self._entries: dict[int, dict[str, int]] = {}
        self._pins: dict[int, int] = {}
        self._folders: set[int] = set()
        self._fsync: Any = os.fsync
        # What was there before the test began is taken for durable.
        for folder, folders, files in os.walk(root):
            for name in (*folders, *files):
                self._note(Path(folder) / name)
            self._note(Path(folder))

    def __enter__(self) -> Disk:
        os.fsync = self._watch  # type: ignore[assignment]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.fsync = self._fsync
        for fd in self._pins.values():
            os.close(fd)

    def _watch(self, fd: int) -> None:
        path, status = Path(os.readlink(f"/proc/self/fd/{fd}")), os.fstat(fd)
        if stat.S_ISREG(status.st_mode) and path.is_relative_to(self._root):
            self.file_syncs += 1
            if self.failed is None and self._fails(self.file_syncs, path):
                self.failed = path
                self._dropped.add(self._pin(path))
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            if status.st_ino in self._dropped:
                return
        self._fsync(fd)
        self._note(path)

    def _note(self, path: Path) -> None:
        number = self._pin(path)
        if stat.S_ISDIR(os.stat(path).st_mode):
            self._folders.add(number)
            self._entries[number] = {name: self._pin(path / name) for name in os.listdir(path)}
        else:
            self._contents[number] = path.read_bytes()

    def _pin(self, path: Path) -> int:
        """The inode, held open so that its number is not given to another file."""
        number = os.stat(path).st_ino
        if number not in self._pins:
            self._pins[number] = os.open(path, os.O_PATH)
        if stat.S_ISDIR(os.stat(path).st_mode):
            self._folders.add(number)
        return number

    # -- after the cut

    def strict(self, target: Path) -> Path:
        """Only what was fsynced."""
        return self._leave(target, None)

    def torn(self, target: Path, seed: int) -> Path:
        """What was fsynced, and anything between nothing and all of the rest."""
        return self._leave(target, random.Random(seed))

    def _leave(self, target: Path, chance: random.Random | None) -> Path:
        self._folder(os.stat(self._root).st_ino, self._root, target, chance)
        return target

    def _folder(self, number: int, source: Path | None, target: Path, chance: random.Random | None) -> None:
        target.mkdir(parents=True)
        entries = dict(self._entries.get(number, {}))
        now = {n: os.stat(source / n).st_ino for n in sorted(os.listdir(source))} if source else {}
        if chance is not None:
            for name in {**entries, **now}:
                if entries.get(name) != now.get(name) and chance.random() < 0.5:
                    if name in now:
                        entries[name] = now[name]
                    else:
                        del entries[name]
        for name, child in entries.items():
            origin = source / name if source and now.get(name) == child else None
            if child in self._folders or (origin is not None and origin.is_dir()):
                self._folder(child, origin, target / name, chance)
            else:
                (target / name).write_bytes(self._content(child, origin, chance))

    def _content(self, number: int, source: Path | None, chance: random.Random | None) -> bytes:
        durable = self._contents.get(number, b"")
        if chance is None or source is None:
            return durable
        now = source.read_bytes()
        if now == durable:
            return durable
        return chance.choice([durable, now, now[: len(now) // 2], bytes(len(now))])
