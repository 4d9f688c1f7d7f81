"""What a query process can see of the disk: the folders of tables that its caller may read, and nothing else of a lake.

A process gives up its rights before it takes its first task (`landlock`) and never has more of them afterwards.
Which files a query needs is known only while it is planned, and the engine opens them by their paths; so the cage is
made of tables: for each of them the folders that its data files lie in. A process may take a query if its view has
every table of the query, and no table that the caller may not read. A new one is given the tables of the query and
those that others asked for lately, as far as its caller may read them: queries of the same rights share processes.

`Views` is pure but for looking at folders: a folder that was removed and made anew is another one to the kernel.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from lithify.sql.isolated import landlock

# Tables that a new process is given beside those of its query.
TABLES_KNOWN_MAX = 256

NONE = (
    "this system has no Landlock: query processes are told only of tables that their callers may read, but the kernel "
    "does not keep them from other files"
)

MayRead = Callable[[str], bool]


class Folder(NamedTuple):
    path: str
    device: int
    inode: int

    @classmethod
    def at(cls, path: str) -> Folder:
        try:
            found = os.stat(path)
        except OSError:  # whoever reads there says what is wrong with it
            return cls(path, 0, 0)
        return cls(path, found.st_dev, found.st_ino)


# The folders of each table, by the table's name.
View = Mapping[str, frozenset[Folder]]


def folders_at(paths: Iterable[str]) -> frozenset[Folder]:
    return frozenset(map(Folder.at, paths))


def fits(view: View, needed: View, may_read: MayRead | None) -> bool:
    """Whether a process with this view may take a query that needs that of its caller."""
    has_all = all(folders <= view.get(table, frozenset()) for table, folders in needed.items())
    return has_all and (may_read is None or all(map(may_read, view)))


class Views:
    """Tables that were asked for lately, for new processes."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, frozenset[Folder]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, view: View) -> None:
        with self._lock:
            for table, folders in view.items():
                self._known[table] = folders
                self._known.move_to_end(table)
            while len(self._known) > TABLES_KNOWN_MAX:
                self._known.popitem(last=False)

    def of_new(self, needed: View, may_read: MayRead | None) -> View:
        with self._lock:
            known = dict(self._known)
        allowed = {table: folders for table, folders in known.items() if may_read is None or may_read(table)}
        return {**allowed, **needed}


def is_possible() -> bool:
    return landlock.abi() > 0


def enter(scratch: str, folders: Iterable[str]) -> None:
    """From now on this process reads these folders and what its libraries need, and writes into `scratch` alone."""
    landlock.confine([*_of_the_interpreter(), *_OF_THE_SYSTEM, *folders], [scratch, "/dev/null"])


_OF_THE_SYSTEM = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"),
    *("/usr/share/zoneinfo", "/etc/localtime", "/etc/timezone"),
    *("/dev/urandom", "/dev/random", "/dev/zero"),
    # How much there is of the machine, by which libraries decide on threads and memory.
    *("/proc/self", "/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/sys/vm"),
    *("/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage"),
)


def _of_the_interpreter() -> list[str]:
    """Where modules lie that may still be imported. Not every folder of `sys.path`: a lake may lie below one."""
    paths = sysconfig.get_paths()
    own = str(Path(__file__).parents[2])
    return [sys.executable, own, *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))]
