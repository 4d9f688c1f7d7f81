"""The shim of libc_faults.c: building it, telling it what to fail, and which faults there are to try."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

SOURCE = Path(__file__).with_suffix(".c")
KINDS = (
    *("open", "create", "read", "write", "sync", "link", "rename", "unlink", "mkdir", "truncate", "mmap", "list"),
    "stat",
)
WAYS = ("refused", "done", "short", "partial")
# What each kind of call can come to: an errno and a way.
ONCE = {
    "open": ("EMFILE", "EIO", "EACCES"),
    "create": ("ENOSPC", "EIO done", "EMFILE", "EIO", "EACCES"),
    "read": ("EIO", "EIO short", "EINTR"),
    "write": ("ENOSPC partial", "EIO", "EIO short", "ENOSPC", "EINTR"),
    "sync": ("EIO", "ENOSPC"),
    "link": ("EIO done", "EIO", "ENOSPC", "EACCES"),
    "rename": ("EIO done", "EIO", "ENOSPC"),
    "unlink": ("EIO", "EIO done", "EACCES"),
    "mkdir": ("ENOSPC", "EIO done", "EIO"),
    "truncate": ("EIO", "ENOSPC"),
    "mmap": ("ENOMEM",),
    "list": ("EMFILE", "EIO"),
    "stat": ("EIO", "EACCES"),
}
# What begins and does not end: the disk is gone, full or read-only, or descriptors have run out.
LASTING = {
    "EIO": KINDS,
    "ENOSPC": ("create", "write", "mkdir", "link", "truncate"),
    "EROFS": ("create", "write", "mkdir", "link", "rename", "unlink", "truncate"),
    "EMFILE": ("open", "create", "list"),
}
_UNIQUE = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+")


@dataclass(frozen=True)
class Fault:
    """The nth call of these kinds fails, once or from then on."""

    kinds: tuple[str, ...]
    nth: int
    error: str
    way: str = "refused"
    lasting: bool = False

    def __str__(self) -> str:
        kinds = self.kinds[0] if len(self.kinds) == 1 else "call"
        return f"{kinds} {self.nth} {self.way} with {self.error}{' from then on' if self.lasting else ''}"


@dataclass(frozen=True)
class Call:
    kind: str
    path: str

    @property
    def role(self) -> tuple[str, str]:
        """Calls of one kind on files that differ only by number or id are alike."""
        return self.kind, _UNIQUE.sub("#", self.path)


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(folder: Path) -> Path:
    target = folder / "libc_faults.so"
    command = [str(compiler()), "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(target)]
    subprocess.run([*command, str(SOURCE), "-ldl"], check=True)
    return target


class Shim:
    """Of the process that it is preloaded into."""

    def __init__(self, root: Path) -> None:
        self._libc = ctypes.CDLL(None)
        self._libc.faults_counted.restype = self._libc.faults_fired.restype = ctypes.c_long
        self._libc.faults_first.restype = ctypes.c_char_p
        self._libc.faults_root(os.fsencode(root))

    @contextmanager
    def tracing(self, path: Path) -> Iterator[None]:
        """Every call below the root is written to a file."""
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self._libc.faults_trace(fd)
        try:
            with self._armed(_mask(KINDS), 0, 0, 0, 0):
                yield
        finally:
            self._libc.faults_trace(-1)
            os.close(fd)

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        number = getattr(errno, fault.error)
        with self._armed(_mask(fault.kinds), fault.nth, number, WAYS.index(fault.way), fault.lasting):
            yield

    @contextmanager
    def _armed(self, mask: int, nth: int, number: int, way: int, lasting: int) -> Iterator[None]:
        self._libc.faults_arm(mask, ctypes.c_long(nth), number, way, lasting)
        try:
            yield
        finally:
            self._libc.faults_disarm()

    @property
    def first_failed(self) -> str | None:
        """The first call that failed, and on which file."""
        return str(self._libc.faults_first().decode(errors="replace")) if self._libc.faults_fired() else None


def _mask(kinds: Sequence[str]) -> int:
    return sum(1 << KINDS.index(kind) for kind in kinds)


def read_trace(path: Path) -> list[Call]:
    lines = path.read_text(errors="replace").splitlines()
    return [Call(*line.split("\t", 1)) for line in lines]


# -- which faults to try


def every(calls: Sequence[Call]) -> list[Fault]:
    """Every call of every kind with everything that it can come to, and every point from which on all goes wrong."""
    return [fault for call in range(len(calls)) for fault in (*_once(calls, call), *_lasting(calls, call))]


def each_once(calls: Sequence[Call]) -> list[Fault]:
    """Every call of every kind once, with errors by turns; of looks at the same file in a row only the first."""
    turns: Counter[str] = Counter()
    chosen = []
    for index, call in enumerate(calls):
        if call.kind in ("stat", "list") and call in calls[max(0, index - 3) : index]:
            continue
        found = _once(calls, index)
        chosen.append(found[turns[call.kind] % len(found)])
        turns[call.kind] += 1
    return chosen


def sample(calls: Sequence[Call], random: Random, number: int) -> list[Fault]:
    """About `number` faults: most of them once, at the last call in a role, the others from some call on for good."""
    last = list({call.role: index for index, call in enumerate(calls)}.values())
    chosen = [random.choice(_once(calls, index)) for index in random.sample(last, min(len(last), number * 3 // 4))]
    lasting = [found for index in range(len(calls)) if (found := _lasting(calls, index))]
    wanted = min(len(lasting), number - len(chosen))
    return chosen + [random.choice(found) for found in random.sample(lasting, wanted)]


def _once(calls: Sequence[Call], index: int) -> list[Fault]:
    kind = calls[index].kind
    nth = sum(call.kind == kind for call in calls[: index + 1])
    parts = [error.partition(" ") for error in ONCE[kind]]
    return [Fault((kind,), nth, error, way or "refused") for error, _, way in parts]


def _lasting(calls: Sequence[Call], index: int) -> list[Fault]:
    found = []
    for error, kinds in LASTING.items():
        if calls[index].kind in kinds:
            found.append(Fault(kinds, sum(call.kind in kinds for call in calls[: index + 1]), error, lasting=True))
    return found
