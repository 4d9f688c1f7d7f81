"""What a driver lays down in a lake for its executors, which read the same folder: it saves time, and may be lost.

It appears as a whole or not at all, and with the mode of the lake's folders. Whoever lays something down first takes
away what nobody has asked for in a long time.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from uuid import uuid4

from lithify.errors import LithifyError
from lithify.files.modes import follow_folder
from lithify.files.os_errors import translated
from lithify.files.paths import discard_tree


def is_staged(folder: PurePath) -> bool:
    with translated(folder):
        return Path(folder).is_dir()


def stage_file(path: PurePath, write: Callable[[PurePath], None], sweep: Callable[[], None]) -> int:
    """Its size. What lies there already counts as asked for now. `sweep`: comes before a folder that is new."""
    folder, file = Path(path.parent), Path(path)
    with translated(folder):
        if folder.is_symlink() or file.is_symlink():
            discard_tree(folder)
        if not folder.is_dir():
            sweep()
        folder.mkdir(parents=True, exist_ok=True)
        follow_folder(folder, folder.parent)
        if file.exists():
            os.utime(folder)
            return file.stat().st_size
        draft = folder / f".{file.name}.{uuid4().hex}"
        try:
            write(draft)
            follow_folder(draft, folder.parent)
            os.replace(draft, file)
        finally:
            draft.unlink(missing_ok=True)
        return file.stat().st_size


def stage_folder(folder: PurePath, files: dict[str, Callable[[PurePath], None]]) -> None:
    """Where another process is first, it is with the same content."""
    target = Path(folder)
    draft = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        with translated(folder):
            draft.mkdir(parents=True)
            for name, write in files.items():
                write(draft / name)
                follow_folder(draft / name, target.parent)
            follow_folder(draft, target.parent)
            if not target.is_dir():
                os.rename(draft, target)
    except LithifyError:
        if not target.is_dir():
            raise
    finally:
        discard_tree(draft)


def staged_folders(index: PurePath, prefix: str) -> list[Path]:
    with translated(index):
        return sorted(Path(index).glob(f"{prefix}*"))


def sweep(index: PurePath, prefixes: Sequence[str], unused_s_max: float) -> None:
    for folder in (folder for prefix in prefixes for folder in staged_folders(index, prefix)):
        with contextlib.suppress(OSError):
            if time.time() - folder.lstat().st_mtime > unused_s_max:
                discard_tree(folder)
