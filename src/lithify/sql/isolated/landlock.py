"""What the kernel lets this process touch from now on, for good: Linux Landlock.

A process may give up rights that it has, without being root, and never gets them back; neither do its children. What
is not named is refused: opening files and folders, making, renaming and deleting them, running programs, TCP
connections, sockets without a path and signals to others, as far as the kernel knows these (`abi`). Descriptors that
are open already stay as they are, and looking at a path's metadata is not refused. A rule holds for the file or folder
that lies at a path when the rule is made, and for all that lies below it, whatever becomes of its name.

Rights belong to threads: a process confines itself while it has only one.
"""

from __future__ import annotations

import ctypes
import functools
import os
import stat
import sys
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION, _PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FIRST = (1 << 13) - 1
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_DEVICES = 1 << 6 | 1 << 11
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_ABSTRACT_SOCKETS, _SIGNALS = 1 << 0, 1 << 1


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


@functools.cache
def abi() -> int:
    """Which version of it the kernel has; 0: none."""
    if sys.platform != "linux":
        return 0
    try:
        return _system_call(_CREATE_RULESET, None, 0, _ASK_VERSION)
    except OSError:
        return 0


def confine(reads: Iterable[str], writes: Iterable[str]) -> None:
    """Of all files, this process may read those at or below `reads`, and read, write, make and delete at or below
    `writes`. Paths where nothing is are left out.
    """
    version = abi()
    read = _READ_FILE | _READ_DIR
    every = _FIRST | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    every |= _IOCTL_DEV if version >= 5 else 0
    ruleset = _created(version, every)
    try:
        for paths, rights in ((reads, read), (writes, every & ~(_EXECUTE | _DEVICES | _IOCTL_DEV))):
            for path in paths:
                _allow(ruleset, path, rights)
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "no_new_privs was refused")
        _system_call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _created(version: int, every: int) -> int:
    rules = _Ruleset(every, _BIND_TCP | _CONNECT_TCP, _ABSTRACT_SOCKETS | _SIGNALS)
    # An older kernel knows only the first fields.
    fields = 1 if version < 4 else 2 if version < 6 else 3
    return _system_call(_CREATE_RULESET, ctypes.byref(rules), fields * ctypes.sizeof(ctypes.c_uint64), 0)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _OF_FILES
        rule = _PathBeneath(rights, fd)
        _system_call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(fd)


def _system_call(number: int, *arguments: object) -> int:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    wide = [ctypes.c_long(given) if isinstance(given, int) else given for given in arguments]
    answer = int(call(ctypes.c_long(number), *wide))
    if answer < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return answer
