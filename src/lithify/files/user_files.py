"""Files and folders that a user names, outside of any lake: what to load, adopt, attach or follow.

Links are followed here: the path is the user's own word.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath

from lithify.errors import InvalidRequest, NotFound
from lithify.files.addresses import address_of, folder_of, is_remote, path_of
from lithify.files.open_storage import storage_of
from lithify.files.os_errors import translated

AT_ONCE = 16
_ADDRESS = re.compile(r"(?!file:)[a-z][a-z0-9+.-]+://|s3[an]?:/", re.IGNORECASE)


def user_path(text: PurePath | str) -> Path:
    """From the root, with `~` for the user's own folder."""
    if _ADDRESS.match(str(text)):
        raise InvalidRequest(f"{text} is an address: name a file or folder of this machine; copy what lies elsewhere")
    return Path(text).expanduser().absolute()


def named_place(text: PurePath | str) -> PurePath:
    """The folder, or the place in a bucket, that a user means."""
    return address_of(str(text)) or user_path(folder_of(str(text)))


def real_path(path: PurePath) -> str:
    """Where it lies, whatever links lead there."""
    return os.path.realpath(path)


def lies_in(path: PurePath, folder: PurePath) -> bool:
    """Whatever links lead there."""
    if is_remote(path) or is_remote(folder):
        return path.is_relative_to(folder)
    return PurePath(real_path(path)).is_relative_to(real_path(folder))


def is_folder(path: PurePath | str) -> bool:
    if is_remote(path):
        return storage_of(path).is_folder(path_of(path))
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
    if is_remote(path):
        return storage_of(path).size(path_of(path))
    return size_and_time_ns(path)[0]


def sizes_bytes(paths: Sequence[PurePath]) -> list[int]:
    """Many at once where each is a request."""
    if not any(map(is_remote, paths)):
        return [size_bytes(path) for path in paths]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(size_bytes, paths))


def parquet_files(folder: PurePath, *, below: bool = False) -> list[PurePath]:
    """Those in a folder, or also in the folders below it, sorted."""
    if is_remote(folder):
        names = (name for name in storage_of(folder).below(folder) if name.endswith(".parquet"))
        return sorted(folder / name for name in names if below or "/" not in name)
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
    text = str(user_path(path))
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
