"""What a lake needs of the storage that it lies in: the one door to its files.

Nothing above this room opens, lists, links, locks or deletes a file by itself. A path is a name below one of the
storage's roots, and only says where: what is done there is done here, where a test can make it fail, and where the
errors of the system become ours. Another kind of storage, a bucket say, is another class with these methods, and has to
pass `tests/files/test_storage_contract.py`. What all of them promise:

1. `create` and `swap` are decided once for each name: of any number that try at a time, one wins.
2. What has returned lasts. Where a name has to be made to last by itself, `sync_folder` of its folder does that, for
   any number of names at once; `put`, `swap` and `move` have done it.
3. Whoever reads or lists sees everything that has returned.
4. Nothing half-written is ever seen under a name that was put or created for others to read.

Some storages have folders, whose names have to last too, and files whose fate is in doubt after a failed fsync: what
concerns only those does nothing elsewhere. And some can do more than others: hold a lock, give a file a second name,
let one grow. Who needs that asks `locks`, `links` or `grows`, or keeps what it writes in a local folder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePath

from lithify.core.disk_files import DiskFile
from lithify.files.listing import Listing
from lithify.files.paths import PathGuard

Data = bytes | memoryview


class Storage(ABC):
    locks = False
    links = False
    grows = False
    remote = False  # engines cannot read it where it lies: `local` brings it here

    @property
    @abstractmethod
    def path_guard(self) -> PathGuard:
        """Which roots it reaches, and what lies there that must not be followed."""

    def step(self, name: str) -> None:  # noqa: B027
        """A named place between two calls where a test may stop the process."""

    # -- writing

    @abstractmethod
    def create(self, path: PurePath, data: Data, mode: int | None = None) -> None:
        """Put an object there if there is none, else `Exists`. Its content lasts, its name with the folder's. Who reads
        it before that may see a part: it is for names that nobody is told of yet.
        """

    def publish(self, path: PurePath, data: Data) -> None:
        """`create` for a name that others wait for: seen as a whole or not at all. An error other than `Exists` leaves
        open whether it is there.
        """
        self.create(path, data)

    @abstractmethod
    def put(self, path: PurePath, data: Data, mode: int | None = None) -> None:
        """Put an object there as a whole, in place of the one that may be there."""

    def replace(self, path: PurePath, data: Data) -> None:
        """Put other content in place of what is there, which keeps its time: seen as the one or the other, as a whole.
        The name lasts with the folder's. For whoever holds a lock: cut off, it leaves what the next call takes away.
        """
        raise NotImplementedError

    @abstractmethod
    def swap(
        self,
        path: PurePath,
        change: Callable[[bytes | None], bytes | None],
        wait_s_max: float,
        what: str,
        mode: int | None = None,
    ) -> None:
        """Put there what `change` makes of what is there, with nobody writing in between. None: nothing is there, and
        as an answer, that it stays as it is. `change` may be asked again, and should do nothing else.
        """

    @abstractmethod
    def copy(self, path: PurePath, target: PurePath) -> None:
        """The same bytes under a second name, without taking them through this process where that is possible."""

    def copy_all(self, targets: Mapping[PurePath, PurePath]) -> None:
        """The second name for each object."""
        for path, target in targets.items():
            self.copy(path, target)

    @abstractmethod
    def upload(self, file: PurePath, path: PurePath) -> None:
        """Take in a local file; it is seen once it is whole."""

    @abstractmethod
    def download(self, path: PurePath, file: PurePath) -> None:
        """A new local file with the object's content, in a folder that is made for it if need be."""

    def download_all(self, files: Mapping[PurePath, PurePath]) -> None:
        """The local file for each object."""
        for path, file in files.items():
            self.download(path, file)

    @abstractmethod
    def move(self, path: PurePath, target: PurePath, *, sync: bool = True) -> None:
        """Give an object another name. `sync=False`: that lasts when both folders are synced, the target's first."""

    @abstractmethod
    def delete(self, path: PurePath) -> None:
        """What is not there is gone already."""

    def delete_all(self, paths: Iterable[PurePath]) -> None:
        """In this order, where there is one."""
        for path in paths:
            self.delete(path)

    @abstractmethod
    def delete_folder(self, path: PurePath) -> None:
        """With all that is below it."""

    @abstractmethod
    def touch_ms(self, path: PurePath, at_ms: int | None = None, *, empty: bool = False) -> float:
        """Give an object another time, or make an empty one. By default now, by the storage's clock, which is told.
        Where a server gives the time, the time is now in any case. `empty`: it never holds anything.
        """

    # -- reading

    @abstractmethod
    def read(self, path: PurePath) -> bytes: ...

    def read_all(self, paths: Iterable[PurePath]) -> list[bytes]:
        """Of many, at the pace of a few where each takes its time."""
        return [self.read(path) for path in paths]

    @abstractmethod
    def read_range(self, path: PurePath, start: int, length: int) -> bytes:
        """Less where the object ends before."""

    @abstractmethod
    def exists(self, path: PurePath) -> bool:
        """Not being able to look is an error, not a no."""

    @abstractmethod
    def is_folder(self, path: PurePath) -> bool: ...

    @abstractmethod
    def size(self, path: PurePath) -> int: ...

    def sizes(self, paths: Iterable[PurePath]) -> list[int]:
        return [self.size(path) for path in paths]

    @abstractmethod
    def modified_ms(self, path: PurePath) -> float:
        """By the storage's clock."""

    @abstractmethod
    def tag(self, path: PurePath) -> str | None:
        """What tells this object from any other that has been there or will be. None: there is none."""

    @abstractmethod
    def names(self, folder: PurePath, after: str = "") -> list[str]:
        """What lies in a folder, sorted; nothing where there is none. `after`: only names behind this one."""

    def beginning(self, folder: PurePath) -> tuple[list[str], bool]:
        """`names`, as far as one request tells, and whether that is all of them."""
        return self.names(folder), True

    def entries(self, folder: PurePath) -> list[DiskFile]:
        """The objects that lie in a folder, in the order of their names."""
        return [found for name in self.names(folder) if (found := self.look_at(folder, name)) is not None]

    @abstractmethod
    def below(self, folder: PurePath) -> Iterator[str]:
        """Every object below a folder, by its path from there, in order."""

    @abstractmethod
    def own(self, folder: PurePath) -> Listing:
        """What in the folder of a log bears names that only Lithify gives out."""

    @abstractmethod
    def look_at(self, folder: PurePath, path: str) -> DiskFile | None:
        """One object below a folder. None: it is gone, or leads out of the folder."""

    @abstractmethod
    def local(self, path: PurePath) -> Path:
        """A file with the object's content, for engines that want one."""

    # -- folders, and what an fsync has not written down: for storages that have them

    def make_folder(self, path: PurePath, mode: int = 0o777) -> None:  # noqa: B027 (nothing to do where there are none)
        """With its parents."""

    def delete_empty_folder(self, path: PurePath) -> None:  # noqa: B027
        """One that holds something stays."""

    def sync_file(self, path: PurePath) -> None:  # noqa: B027
        """Have what an engine wrote there last."""

    def sync_folder(self, path: PurePath) -> None:  # noqa: B027
        """Have the names in it last."""

    def is_doubted(self, path: PurePath) -> bool:
        """Whether it was to last, and may not."""
        return False

    def write_anew(self, path: PurePath, data: Data) -> None:
        """Put an object in doubt there once more."""
        self.put(path, data)

    def probe(self, folder: PurePath, rounds: int = 1) -> None:  # noqa: B027
        """See that whoever keeps the objects keeps what is promised here, as a file system does; else `Unavailable`.
        Nothing stays in the folder. `rounds`: how often many try at a time.
        """

    def give_modes(self, root: PurePath, file_mode: int) -> None:  # noqa: B027
        """Who may read and write what is made below `root` from now on."""

    # -- what some can do

    def lock(
        self, path: PurePath, wait_s_max: float, what: str, *, often: bool = False
    ) -> AbstractContextManager[None]:
        """Hold others off for short work. It ends with the process. `often`: for work of about a millisecond."""
        raise NotImplementedError

    def link(self, path: PurePath, target: PurePath) -> bool:
        """A second name for the same bytes; False where there can be none. An error if the target exists."""
        return False

    def append(self, path: PurePath, data: bytes) -> int:
        """Add a line to the end in one write, which need not last; the size afterwards."""
        raise NotImplementedError

    def extend(self, path: PurePath, parts: Sequence[bytes]) -> None:
        """Add to the end, at a multiple of 8 bytes."""
        raise NotImplementedError

    def patch(self, path: PurePath, start: int, data: bytes) -> None:
        """Overwrite a few bytes in one write, which need not last."""
        raise NotImplementedError
