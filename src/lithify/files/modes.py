"""Who may read and write what is laid down in a lake.

The setting `file_mode` is given to files as it is, and to folders with the right to enter for whoever may read. Whoever
writes without the settings at hand, a task on another machine, say, gives a file the mode of the folder that it was
told to write into, which was made by them. What has a second name may be somebody else's file, and is left alone.
"""

from __future__ import annotations

import contextlib
import os
import stat

_RIGHTS = 0o666


def folder_mode(file_mode: int) -> int:
    return file_mode | (file_mode & 0o444) >> 2


def give_mode(fd: int, file_mode: int) -> None:
    """To an open file or folder of ours."""
    found = os.fstat(fd)
    is_folder = stat.S_ISDIR(found.st_mode)
    wanted = folder_mode(file_mode) if is_folder else file_mode
    ours = found.st_uid == os.geteuid() and (is_folder or found.st_nlink == 1)
    if ours and stat.S_IMODE(found.st_mode) & 0o777 != wanted:
        # Bits such as setgid, which give new files the folder's group, are somebody's choice.
        os.fchmod(fd, (stat.S_IMODE(found.st_mode) & ~0o777) | wanted)


def follow_folder(path: str | os.PathLike[str], folder: str | os.PathLike[str]) -> None:
    """Give what was just made the mode of a folder of the lake, where the file system has modes."""
    mode = os.stat(folder).st_mode
    with contextlib.suppress(PermissionError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            give_mode(fd, mode & _RIGHTS)
        finally:
            os.close(fd)
