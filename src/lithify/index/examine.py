"""Files that somebody else wrote are looked at in a child process first.

Arrow ends the whole process on some footers: on encrypted columns, and on values that no writer would write. A child
that dies takes nothing with it, and the file that it was looking at is the one to name. It reads footers as an index
does, file after file, and answers a line for each; after a death the next child goes on behind that file.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO

from lithify.errors import Corruption, InvalidRequest, LithifyError, NotFound, Unavailable
from lithify.files.open_parquet import encrypted
from lithify.files.os_errors import translated

DEATHS_MAX = 32
_KINDS: dict[str, type[LithifyError]] = {
    kind.code: kind for kind in (Corruption, InvalidRequest, NotFound, Unavailable)
}


def examine(files: Sequence[tuple[str, int | None]]) -> dict[str, LithifyError]:
    """What is wrong with which of these files, by path. Each comes with the size it must have, where that is known."""
    problems: dict[str, LithifyError] = {}
    rest, deaths = list(files), 0
    while rest:
        done = 0
        for (path, _), problem in zip(rest, _looked_at(rest), strict=False):
            done += 1
            if problem is not None:
                problems[path] = problem
                deaths += problem.details.get("died", False)
        rest = rest[done:]
        if deaths >= DEATHS_MAX and rest:
            raise Corruption(
                f"{deaths} files end whoever reads them, {min(problems)} and others: remove or repair them; "
                f"{len(rest)} more were not looked at"
            )
    return problems


def _looked_at(files: Sequence[tuple[str, int | None]]) -> Iterator[LithifyError | None]:
    """By one child: an answer for each file, in order, up to one that it died of."""
    with (
        translated(tempfile.gettempdir()),
        tempfile.TemporaryFile("w+") as asked,
        tempfile.TemporaryFile("w+", errors="replace") as said,
    ):
        asked.writelines(json.dumps(file) + "\n" for file in files)
        asked.seek(0)
        try:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "lithify.index.examine_main"],
                stdin=asked,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
        except OSError as error:
            raise Unavailable(f"no process could be started to look at files: {error}") from error
        answered = 0
        with child:
            assert child.stdout is not None
            for line in child.stdout:
                answered += 1
                yield _problem(line)
        if answered < len(files):
            yield _death(files[answered][0], child.returncode, said)


def _problem(line: str) -> LithifyError | None:
    answer = json.loads(line)
    return None if answer is None else _KINDS[answer["code"]](answer["message"], path=answer["path"])


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
