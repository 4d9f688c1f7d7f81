"""Footers of Parquet files as entries of an index. Also runs on Spark's executors, and imports only what they have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lithify.errors import LithifyError
from lithify.model.snapshot import DataFile
from lithify.sidecar.entries import Entries
from lithify.store.opening import footer_of, read_footer

FOOTER_THREADS, HANDFUL = 8, 16


@dataclass(frozen=True)
class FooterTask:
    data: str
    files: tuple[DataFile, ...]


def read_footers(task: FooterTask) -> tuple[bytes | None, dict[str, LithifyError]]:
    return read_entries(Path(task.data), task.files)


def read_entries(data: Path, files: Sequence[DataFile]) -> tuple[bytes | None, dict[str, LithifyError]]:
    """One block of these files' footers (None: of none of them), and what is wrong with the others, by path."""
    entries, problems = Entries(), dict[str, LithifyError]()
    for file, footer in zip(files, _footers(data, files), strict=True):
        try:
            if isinstance(footer, LithifyError):
                raise footer
            entries.add(footer_of(footer, f"{data}/{file.path}"), file.path, file.size_bytes)
        except LithifyError as error:
            problems[file.path] = error
    return (entries.block() if entries.files else None), problems


def _footers(data: Path, files: Sequence[DataFile]) -> Iterator[bytes | LithifyError]:
    """Read ahead by threads, which only wait for the disk: in handfuls, or passing them on would take longer."""
    folder = str(data)
    handfuls = [files[first : first + HANDFUL] for first in range(0, len(files), HANDFUL)]
    if len(handfuls) < 2:
        yield from (_footer(folder, file) for file in files)
        return
    with ThreadPoolExecutor(min(FOOTER_THREADS, len(handfuls))) as pool:
        for footers in pool.map(lambda some: [_footer(folder, file) for file in some], handfuls):
            yield from footers


def _footer(folder: str, file: DataFile) -> bytes | LithifyError:
    try:
        return read_footer(f"{folder}/{file.path}", file.size_bytes)
    except LithifyError as error:
        return error
