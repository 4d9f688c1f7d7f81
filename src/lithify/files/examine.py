"""Files that somebody else wrote are read by a child process first.

Arrow ends the whole process on some footers: on encrypted columns, and on values that no writer would write. A child
that dies takes nothing with it. It reads footers batch after batch as an index does, writes down which file it is at,
and answers each batch with what an index keeps of it: nobody has to read these footers again. After a death, the file
it was at is the one to name, and the next child goes on with the others.

A reader of rows is not at risk, but who asks Arrow for what a footer says of a column in a row group is: its sizes, its
bounds. Nobody does that for files of others before `check_foreign`, which remembers those that were found harmless.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, NamedTuple

from lithify.core.disk_files import is_written_here
from lithify.errors import Corruption, InvalidRequest, LithifyError, NotFound, Unavailable
from lithify.files.addresses import is_remote
from lithify.files.local_files import at_hand, copies
from lithify.files.open_parquet import encrypted
from lithify.files.os_errors import translated
from lithify.files.read_proof import tag_at

BATCH_FILES = 512
DEATHS_MAX = 32
NUMBER_BYTES = 8
HARMLESS_MAX = 100_000
_KINDS: dict[str, type[LithifyError]] = {
    kind.code: kind for kind in (Corruption, InvalidRequest, NotFound, Unavailable)
}

# A path, and the size that the file must have, where that is known.
Named = tuple[str, int | None]

# Files of others, with their tags when they were examined.
_harmless: dict[Named, int] = {}


class Examined(NamedTuple):
    """Some of the files, what an index keeps of them (None: of none), and what is wrong with the others, by path."""

    files: Sequence[Named]
    entries: bytes | None
    problems: dict[str, LithifyError]


def examine(files: Sequence[Named], folder: str = "") -> dict[str, LithifyError]:
    """What is wrong with which of these files, by path. `folder`: what paths are relative to."""
    return {path: problem for some in read_by_child(files, folder) for path, problem in some.problems.items()}


def check_foreign(files: Iterable[Named]) -> None:
    """Raises what is wrong with the first of these files, if somebody else wrote it; those that Lithify wrote are not
    looked at. One child for all that were not examined before.
    """
    tags = {file: _tag(file[0]) for file in files if not is_written_here(file[0])}
    unknown = [file for file, tag in tags.items() if _harmless.get(file) != tag]
    for problem in examine(unknown).values():
        raise problem
    if len(_harmless) + len(unknown) > HARMLESS_MAX:
        _harmless.clear()
    _harmless.update((file, tags[file]) for file in unknown)


def _tag(path: str) -> int:
    """Of an object that is not here, nothing is known; but objects of data never change."""
    return 0 if at_hand(path) is None else tag_at(path)


def read_by_child(files: Sequence[Named], folder: str = "") -> Iterator[Examined]:
    """What there is to know of these files, batch by batch, found without putting this process at risk."""
    rest, deadly = list(files), list[str]()
    while rest:
        done = 0
        for some in _read_by_one(rest, folder):
            done += len(some.files)
            yield some
            if any(problem.details.get("died") for problem in some.problems.values()):
                # The child was reading a batch, of which the others are read again.
                deadly += some.problems
                rest.remove(some.files[0])
                done -= 1
        rest = rest[done:]
        if len(deadly) >= DEATHS_MAX and rest:
            raise Corruption(
                f"{len(deadly)} files end whoever reads them, {min(deadly)} and others: remove or repair them; "
                f"{len(rest)} more were not looked at"
            )


def _read_by_one(files: Sequence[Named], folder: str) -> Iterator[Examined]:
    """Batch by batch, in order, up to a file that it died of, which comes alone."""
    with (
        translated(tempfile.gettempdir()),
        tempfile.TemporaryFile("w+") as asked,
        tempfile.TemporaryFile("w+", errors="replace") as said,
        tempfile.TemporaryFile("w+b") as number,
    ):
        asked.writelines(json.dumps(file) + "\n" for file in files)
        asked.seek(0)
        number.truncate(NUMBER_BYTES)
        try:
            child = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "lithify.index.examine_main",
                    folder,
                    str(number.fileno()),
                    *_copies(files),
                ],
                stdin=asked,
                stdout=subprocess.PIPE,
                stderr=said,
                pass_fds=[number.fileno()],
            )
        except OSError as error:
            raise Unavailable(f"no process could be started to look at files: {error}") from error
        answered = 0
        with child:
            assert child.stdout is not None
            while (some := _answer(child.stdout, files[answered:])) is not None:
                answered += len(some.files)
                yield some
        if answered < len(files):
            died_of = files[int.from_bytes(number.read(), "little")]
            problem = _death(f"{folder}/{died_of[0]}" if folder else died_of[0], child.returncode, said)
            yield Examined([died_of], None, {died_of[0]: problem})


def _copies(files: Sequence[Named]) -> list[str]:
    """Where the child finds and keeps copies of objects, if it is to look at some."""
    return [str(copies().folder)] if any(is_remote(path) for path, _ in files) else []


def _answer(answers: IO[bytes], files: Sequence[Named]) -> Examined | None:
    """For the first of these files; None where there is no whole answer any more."""
    line = answers.readline()
    if not line.endswith(b"\n"):
        return None
    answer = json.loads(line)
    entries = answers.read(answer["bytes"])
    if len(entries) < answer["bytes"]:
        return None
    problems = {
        path: _KINDS[problem["code"]](problem["message"], path=problem["path"])
        for path, problem in answer["problems"].items()
    }
    return Examined(files[: answer["files"]], entries or None, problems)


def _death(path: str, code: int, said: IO[str]) -> LithifyError:
    said.seek(0)
    words = said.read().strip().splitlines() or [""]
    if code >= 0:
        raise Unavailable(f"files could not be looked at before they are read: {words[-1] or f'exit {code}'}")
    if any("decrypt" in line.lower() or "encrypt" in line.lower() for line in words):
        return encrypted(path, died=True)
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    why = f"{name}: {words[-1].strip()}" if words[-1] else name
    return Corruption(
        f"{path} ends whoever reads its footer ({why}): restore this file from a copy, or remove it",
        path=path,
        died=True,
    )
