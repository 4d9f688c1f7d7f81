"""Files and folders that a user names, outside of any lake: what to load, adopt, attach or follow.

Links are followed here: the path is the user's own word.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from lithify.errors import NotFound
from lithify.files.os_errors import translated


def user_path(text: PurePath | str) -> Path:
    """From the root, with `~` for the user's own folder."""
    return Path(text).expanduser().absolute()


def real_path(path: PurePath) -> str:
    """Where it lies, whatever links lead there."""
    return os.path.realpath(path)


def is_folder(path: PurePath | str) -> bool:
    with translated(path):
        return Path(path).is_dir()


def is_file(path: PurePath | str) -> bool:
    with translated(path):
        return Path(path).is_file()


def size_and_time_ns(path: PurePath | str) -> tuple[int, int]:
    with translated(path):
        found = Path(path).stat()
        return found.st_size, found.st_mtime_ns


def size_bytes(path: PurePath | str) -> int:
    return size_and_time_ns(path)[0]


def parquet_files(folder: PurePath, *, below: bool = False) -> list[Path]:
    """Those in a folder, or also in the folders below it, sorted."""
    with translated(folder):
        found = Path(folder).rglob("*.parquet") if below else Path(folder).glob("*.parquet")
        return sorted(found)


def find_files(paths: str | Sequence[str]) -> list[str]:
    """Files behind paths, folders and globs."""
    found: list[str] = []
    for path in [paths] if isinstance(paths, str) else list(paths):
        with translated(path):
            found += _behind(path)
    return [str(Path(file).absolute()) for file in dict.fromkeys(found)]


def _behind(path: str) -> Iterator[str]:
    text = str(Path(path).expanduser())
    matches = [text] if Path(text).exists() else sorted(glob.glob(text, recursive=True))
    if not matches:
        raise NotFound(f"{path} matches no file")
    for match in matches:
        if not Path(match).is_dir():
            yield match
            continue
        inside = sorted(str(f) for f in Path(match).rglob("*") if f.is_file() and not f.name.startswith((".", "_")))
        if not inside:
            raise NotFound(f"{match} has no files in it")
        yield from inside
