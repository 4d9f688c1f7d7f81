"""Footers of Parquet files as entries of an index. Also runs on Spark's executors, and imports only what they have."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePath

from lithify.core.snapshot import DataFile
from lithify.errors import LithifyError
from lithify.files import addresses
from lithify.files.examine import Named, read_by_child
from lithify.files.open_parquet import Footer, footer_of, read_tagged_footer
from lithify.index.footers import Entries

FOOTER_THREADS, HANDFUL = 8, 16

# A file, and its footer with the file's tag, or why there is none.
Read = tuple[Named, tuple[bytes, int] | LithifyError]
EntriesRead = tuple[bytes | None, dict[str, LithifyError]]


@dataclass(frozen=True)
class FooterTask:
    """None of these files may be one that ends the process that reads its footer."""

    data: str
    files: tuple[DataFile, ...]


def read_footers(task: FooterTask) -> EntriesRead:
    return entries_of(task.data, footers_of(task.data, named(task.files)))


def read_entries(data: PurePath, files: Sequence[DataFile]) -> tuple[list[bytes], dict[str, LithifyError]]:
    """Blocks of these files' footers, and what is wrong with the others, by path. What footers of other writers say is
    read by a child.
    """
    folder = str(data)
    read = [entries_of(folder, footers_of(folder, named([file for file in files if not file.is_foreign])))]
    for some in read_by_child(named([file for file in files if file.is_foreign]), folder):
        read.append((some.entries, some.problems))
    return [entries for entries, _ in read if entries], {path: p for _, found in read for path, p in found.items()}


def entries_of(
    folder: str, reads: Iterable[Read], check: Callable[[Footer, str], None] = lambda footer, path: None
) -> EntriesRead:
    """`check`: raises what else is wrong with a file that lies there."""
    entries, problems = Entries(), dict[str, LithifyError]()
    for (path, size_bytes), read in reads:
        try:
            if isinstance(read, LithifyError):
                raise read
            there = path_of(folder, path)
            footer = footer_of(read[0], there)
            check(footer, there)
            entries.add(footer, path, size_bytes or 0, read[1])
        except LithifyError as error:
            problems[path] = error
    return (entries.block() if entries.files else None), problems


def named(files: Sequence[DataFile]) -> list[Named]:
    return [(file.path, file.size_bytes) for file in files]


def path_of(folder: str, path: str) -> str:
    return f"{folder}/{path}" if folder else path


def footers_of(folder: str, files: Sequence[Named]) -> Iterator[Read]:
    """Read ahead by threads, which only wait for the disk: in handfuls, or passing them on would take longer, and no
    more than one for each thread, as some footers are large.
    """
    size = 1 if addresses.is_remote(folder) else HANDFUL  # each is a request
    handfuls = [files[first : first + size] for first in range(0, len(files), size)]
    if len(handfuls) < 2:
        yield from _read(folder, files)
        return
    with ThreadPoolExecutor(min(FOOTER_THREADS, len(handfuls))) as pool:
        ahead: deque[Future[list[Read]]] = deque()
        for some in handfuls:
            ahead.append(pool.submit(_read, folder, some))
            if len(ahead) > FOOTER_THREADS:
                yield from ahead.popleft().result()
        for reading in ahead:
            yield from reading.result()


def _read(folder: str, files: Sequence[Named]) -> list[Read]:
    return [(file, _footer(path_of(folder, file[0]), file[1])) for file in files]


def _footer(path: str, size_bytes: int | None) -> tuple[bytes, int] | LithifyError:
    try:
        return read_tagged_footer(path, size_bytes)
    except LithifyError as error:
        return error
