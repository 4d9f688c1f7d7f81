"""A storage without folders, links, locks and files that grow, as a bucket is: objects in one SQLite file.

It keeps to what an object store can do, conditional puts above all, so that nothing in the contract asks for more.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath

from lithify.core.disk_files import DiskFile, is_small_write, lies_inside
from lithify.core.names import is_job_folder
from lithify.errors import NotFound, Unavailable
from lithify.files.listing import Listing
from lithify.files.os_errors import Exists
from lithify.files.paths import PathGuard
from lithify.files.storage import Data, Storage

WAIT_S = 30.0
_OBJECTS = (
    "create table if not exists objects (version integer primary key autoincrement, name text unique, data blob, "
    "modified_ms real)"
)


class Bucket(Storage):
    def __init__(self, root: Path, now_ms: Callable[[], float] = lambda: time.time() * 1000) -> None:
        self._root, self._now_ms = root, now_ms
        self._path_guard = PathGuard()
        self._path_guard.trust(root)
        with self._session() as session:
            session.execute(_OBJECTS)

    @property
    def path_guard(self) -> PathGuard:
        return self._path_guard

    @contextlib.contextmanager
    def _session(self) -> Iterator[sqlite3.Connection]:
        session = sqlite3.connect(self._root / "bucket.db", timeout=WAIT_S, isolation_level=None)
        try:
            session.execute("pragma synchronous = off")
            session.execute("begin immediate")
            yield session
            session.execute("commit")
        finally:
            session.close()

    def _name(self, path: PurePath) -> str:
        return "/".join(self._path_guard.split(path)[1])

    def _found(self, session: sqlite3.Connection, path: PurePath) -> tuple[int, bytes, float] | None:
        found = session.execute("select version, data, modified_ms from objects where name = ?", [self._name(path)])
        row: tuple[int, bytes, float] | None = found.fetchone()
        return row

    def _get(self, path: PurePath) -> tuple[int, bytes, float]:
        with self._session() as session:
            found = self._found(session, path)
        if found is None:
            raise NotFound(f"{path} does not exist")
        return found

    def _put(self, session: sqlite3.Connection, path: PurePath, data: Data, at_ms: float | None = None) -> None:
        modified_ms = self._now_ms() if at_ms is None else at_ms
        session.execute("delete from objects where name = ?", [self._name(path)])
        row = [self._name(path), bytes(data), modified_ms]
        session.execute("insert into objects (name, data, modified_ms) values (?, ?, ?)", row)

    def _put_if(self, path: PurePath, data: Data, version: int | None) -> bool:
        """Whether the object still had that version; None: whether there was none."""
        with self._session() as session:
            found = self._found(session, path)
            same = (None if found is None else found[0]) == version
            if same:
                self._put(session, path, data)
            return same

    # -- writing

    def create(self, path: PurePath, data: Data, mode: int | None = None) -> None:
        if not self._put_if(path, data, None):
            raise Exists(f"{path} exists already")

    def put(self, path: PurePath, data: Data, mode: int | None = None) -> None:
        with self._session() as session:
            self._put(session, path, data)

    def swap(
        self,
        path: PurePath,
        change: Callable[[bytes | None], bytes | None],
        wait_s_max: float,
        what: str,
        mode: int | None = None,
    ) -> None:
        until_s = time.monotonic() + wait_s_max
        while time.monotonic() <= until_s:
            with self._session() as session:
                found = self._found(session, path)
            after = change(None if found is None else found[1])
            if after is None or self._put_if(path, after, None if found is None else found[0]):
                return
        raise Unavailable(f"others kept changing {what} for {wait_s_max:.0f} s: try again later")

    def copy(self, path: PurePath, target: PurePath) -> None:
        self._name(target)
        self.create(target, self.read(path))

    def upload(self, file: PurePath, path: PurePath) -> None:
        self.create(path, Path(file).read_bytes())

    def download(self, path: PurePath, file: PurePath) -> None:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_bytes(self.read(path))

    def move(self, path: PurePath, target: PurePath, *, sync: bool = True) -> None:
        self._name(target)
        self.put(target, self.read(path))
        self.delete(path)

    def delete(self, path: PurePath) -> None:
        with self._session() as session:
            session.execute("delete from objects where name = ?", [self._name(path)])

    def delete_folder(self, path: PurePath) -> None:
        for name in list(self.below(path)):
            self.delete(path / name)

    def touch_ms(self, path: PurePath, at_ms: int | None = None, *, empty: bool = False) -> float:
        with self._session() as session:
            found = self._found(session, path)
            self._put(session, path, b"" if found is None else found[1], at_ms)
        return self.modified_ms(path)

    # -- reading

    def read(self, path: PurePath) -> bytes:
        return self._get(path)[1]

    def read_range(self, path: PurePath, start: int, length: int) -> bytes:
        return self.read(path)[start : start + length]

    def exists(self, path: PurePath) -> bool:
        return self.tag(path) is not None or self.is_folder(path)

    def is_folder(self, path: PurePath) -> bool:
        return any(self.below(path))

    def size(self, path: PurePath) -> int:
        return len(self.read(path))

    def modified_ms(self, path: PurePath) -> float:
        return self._get(path)[2]

    def tag(self, path: PurePath) -> str | None:
        try:
            return str(self._get(path)[0])
        except NotFound:
            return None

    def names(self, folder: PurePath, after: str = "") -> list[str]:
        return sorted({first for name in self.below(folder) if (first := name.partition("/")[0]) > after})

    def below(self, folder: PurePath) -> Iterator[str]:
        prefix = f"{self._name(folder)}/"
        with self._session() as session:
            rows = session.execute("select name from objects order by name").fetchall()
        yield from (name.removeprefix(prefix) for (name,) in rows if name.startswith(prefix))

    def own(self, folder: PurePath) -> Listing:
        names = (name for name in self.below(folder) if is_small_write(name) or is_job_folder(name.partition("/")[0]))
        return Listing([found for name in names if (found := self.look_at(folder, name)) is not None])

    def look_at(self, folder: PurePath, path: str) -> DiskFile | None:
        if not lies_inside(path):
            return None
        try:
            version, data, modified_ms = self._get(folder / path)
        except NotFound:
            return None
        return DiskFile(path, len(data), int(modified_ms), (0, version))

    def local(self, path: PurePath) -> Path:
        file = self._root / "cache" / str(self.tag(path))
        self.download(path, file)
        return file
