"""Files of JSON lines that tasks write side by side into one folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePath

from lithify.files.os_errors import translated


def json_files(folder: PurePath, *, empty: bool = True) -> list[PurePath]:
    """Those in a folder, sorted; without those that hold nothing, if so asked."""
    with translated(folder):
        return sorted(file for file in Path(folder).glob("*.json") if empty or file.stat().st_size)


def write_lines(path: str, lines: Iterable[bytes]) -> bool:
    """Whether there are any; without, there is no file either."""
    file = None
    with translated(path):
        try:
            for line in lines:
                file = file or open(path, "wb")  # noqa: SIM115 (closed below)
                file.write(line + b"\n")
        finally:
            if file is not None:
                file.close()
    return file is not None
