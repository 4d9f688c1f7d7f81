"""The child of `examine`: reads footers, and may die of one."""

from __future__ import annotations

import itertools
import json
import mmap
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from lithify.errors import Corruption, InvalidRequest, LithifyError, NotFound, Unavailable
from lithify.files.examine import BATCH_FILES, NUMBER_BYTES
from lithify.files.local_files import keep_copies_in
from lithify.files.open_parquet import Footer, corrupt
from lithify.index.footer_reader import Read, entries_of, footers_of, path_of

ADDRESS_BYTES = 8 * 2**30
FILE_S_MAX = 120


def main(folder: str, number_fd: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    asked = (tuple(json.loads(line)) for line in sys.stdin)
    first = 0
    while batch := list(itertools.islice(asked, BATCH_FILES)):
        entries, problems = entries_of(folder, _noted(folder, batch, first, number_fd), _check_names)
        told = {path: _told(problem, path_of(folder, path)) for path, problem in problems.items()}
        line = json.dumps({"files": len(batch), "problems": told, "bytes": len(entries or b"")})
        sys.stdout.buffer.write(line.encode() + b"\n" + (entries or b""))
        sys.stdout.buffer.flush()
        first += len(batch)


def _noted(folder: str, batch: Sequence[tuple[str, int | None]], first: int, number_fd: int) -> Iterator[Read]:
    """Before anybody looks into a footer, its number is written down where it outlives this process."""
    with mmap.mmap(number_fd, NUMBER_BYTES) as number_at:
        for number, read in enumerate(footers_of(folder, batch), first):
            number_at[:] = number.to_bytes(NUMBER_BYTES, "little")
            signal.alarm(FILE_S_MAX)
            yield read


def _check_names(footer: Footer, path: str) -> None:
    try:
        names = footer.metadata.schema.to_arrow_schema().names
    except (pa.ArrowException, ValueError, OSError) as error:
        raise corrupt(path, error) from error
    if len(set(names)) < len(names):
        twice = min(name for name in names if names.count(name) > 1)
        raise InvalidRequest(
            f"{path} has more than one column {twice!r}: write it anew with a name for each, and then take it"
        )


def _told(problem: LithifyError, path: str) -> dict[str, str]:
    known = isinstance(problem, Corruption | InvalidRequest | NotFound | Unavailable)
    return {"code": problem.code if known else Corruption.code, "message": problem.message, "path": path}


if __name__ == "__main__":
    if len(sys.argv) > 3:
        keep_copies_in(Path(sys.argv[3]))
    main(sys.argv[1], int(sys.argv[2]))
