"""Footers of Parquet files as entries of an index. Also runs on Spark's executors, and imports only what they have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePath

from lithify.core.snapshot import DataFile
from lithify.errors import LithifyError
from lithify.files.open_parquet import column_orders, footer_of, read_tagged_footer
from lithify.index.examine import examine
from lithify.index.footers import Entries

FOOTER_THREADS, HANDFUL = 8, 16


@dataclass(frozen=True)
class FooterTask:
    """`examined`: none of these files ends the process that reads its footer."""

    data: str
    files: tuple[DataFile, ...]
    examined: bool = False


def read_footers(task: FooterTask) -> tuple[bytes | None, dict[str, LithifyError]]:
    return read_entries(PurePath(task.data), task.files, examined=task.examined)


def read_entries(
    data: PurePath, files: Sequence[DataFile], *, examined: bool = False
) -> tuple[bytes | None, dict[str, LithifyError]]:
    """One block of these files' footers (None: of none of them), and what is wrong with the others, by path.

    Footers of other writers that do not end as all footers do nowadays (`column_orders`) may be those of an old writer,
    or encrypted in part, which ends the process: they are examined first, unless they were.
    """
    entries, problems = Entries(), dict[str, LithifyError]()
    footers = list(zip(files, _footers(data, files), strict=True))
    if not examined:
        foreign = [(file, raw) for file, raw in footers if file.is_foreign and not isinstance(raw, LithifyError)]
        odd = [file for file, (raw, _) in foreign if not column_orders(raw)[0]]
        problems = examined_files(data, odd)
    for file, footer in footers:
        if file.path in problems:
            continue
        try:
            if isinstance(footer, LithifyError):
                raise footer
            raw, tag = footer
            entries.add(footer_of(raw, f"{data}/{file.path}"), file.path, file.size_bytes, tag)
        except LithifyError as error:
            problems[file.path] = error
    return (entries.block() if entries.files else None), problems


def examined_files(data: PurePath, files: Sequence[DataFile]) -> dict[str, LithifyError]:
    """What is wrong with which of these files, by path, found without putting this process at risk."""
    found = examine([(f"{data}/{file.path}", file.size_bytes) for file in files])
    return {file.path: found[f"{data}/{file.path}"] for file in files if f"{data}/{file.path}" in found}


def _footers(data: PurePath, files: Sequence[DataFile]) -> Iterator[tuple[bytes, int] | LithifyError]:
    """Read ahead by threads, which only wait for the disk: in handfuls, or passing them on would take longer."""
    folder = str(data)
    handfuls = [files[first : first + HANDFUL] for first in range(0, len(files), HANDFUL)]
    if len(handfuls) < 2:
        yield from (_footer(folder, file) for file in files)
        return
    with ThreadPoolExecutor(min(FOOTER_THREADS, len(handfuls))) as pool:
        for footers in pool.map(lambda some: [_footer(folder, file) for file in some], handfuls):
            yield from footers


def _footer(folder: str, file: DataFile) -> tuple[bytes, int] | LithifyError:
    try:
        return read_tagged_footer(f"{folder}/{file.path}", file.size_bytes)
    except LithifyError as error:
        return error
