"""Folders for lakes under test."""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_MEMORY = "/dev/shm"


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder that is gone afterwards; in memory where possible, because a test's fsyncs need not cost anything."""
    path = Path(tempfile.mkdtemp(prefix="lithify-test-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def copied(source: Path, target: Path) -> Path:
    """A lake made once for many tests costs each of them a copy. Times stay, because logs are trimmed by them, and so
    do hard links, because a folded file may have two names.
    """
    names: dict[int, str] = {}

    def copy(file: str, target_path: str) -> None:
        number = os.stat(file).st_ino
        if number in names:
            os.link(names[number], target_path)
        else:
            names[number] = target_path
            shutil.copy2(file, target_path)

    return Path(shutil.copytree(source, target, copy_function=copy))


def repeat(before: Path, after: Path, path: Path) -> None:
    """Do to `path` what turned `before` into `after`, as if another process had just done it there: what is new or
    differs comes, what is gone goes, and everything else that `path` holds stays.
    """
    old, new = _files(before), _files(after)
    for name in new:
        if name not in old or not filecmp.cmp(before / name, after / name):
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            coming = (path / name).with_name(".coming")
            shutil.copy2(after / name, coming)
            coming.replace(path / name)
    for name in old - new:
        (path / name).unlink(missing_ok=True)


def put_text(path: Path, text: str) -> None:
    """All of it or nothing, wherever the process is stopped, by whichever of its threads."""
    coming = path.with_name(f".{path.name}.coming")
    coming.write_text(text)
    coming.replace(path)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Everything in the folder, by its path there; folders are None."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def _files(folder: Path) -> set[Path]:
    return {file.relative_to(folder) for file in folder.rglob("*") if file.is_file()}
