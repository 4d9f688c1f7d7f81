"""How large a table's files are, by what wrote them: counts per power of two, so that any number of files is one small
picture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from lithify.core.fields import Bytes, Count, Documented, Example
from lithify.core.results import Log
from lithify.core.snapshot import DataFile, Snapshot


@dataclass(frozen=True)
class SizeClass(Documented):
    """Files of one origin whose sizes lie between a power of two and the next."""

    log: Annotated[Log, "Where they stand: base, or changes that are pending."]
    origin: Annotated[str, "What wrote them: fold, hourly, pack, write, …", Example("fold")]
    bytes_min: Annotated[Bytes, "The power of two; files are at least this large, and smaller than twice that."]
    files: Annotated[Count, "How many."]
    bytes: Annotated[Bytes, "Their bytes."]


def files_of(snapshot: Snapshot) -> Iterator[tuple[Log, DataFile]]:
    """By log and path."""
    for file in sorted(snapshot.base, key=lambda each: each.path):
        yield "base", file
    for file in sorted(snapshot.changes, key=lambda each: each.path):
        yield "changes", file


def size_classes(snapshot: Snapshot) -> list[SizeClass]:
    files: Counter[tuple[Log, str, int]] = Counter()
    sizes: Counter[tuple[Log, str, int]] = Counter()
    for log, file in files_of(snapshot):
        place = (log, file.origin, 1 << max(file.size_bytes.bit_length() - 1, 0))
        files[place] += 1
        sizes[place] += file.size_bytes
    return [SizeClass(*place, files[place], sizes[place]) for place in sorted(files)]
