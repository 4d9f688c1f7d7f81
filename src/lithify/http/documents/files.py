"""Documents about a table's files and row groups."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from lithify.core.fields import Bytes, Count
from lithify.core.results import Log
from lithify.http.documents.tables import AboutTable, Document
from lithify.read.file_sizes import SizeClass


class FileDocument(Document):
    """A file of a table."""

    log: Log = Field(description="Where it stands: base, or changes that are pending.")
    path: str = Field(description="Its name, below the table's folder.", examples=["base/fold-1f…/part-0.parquet"])
    origin: str = Field(description="What wrote it: fold, hourly, pack, write, …", examples=["fold"])
    bytes: Bytes = Field(description="Its size.")
    rows: Count | None = Field(description="Its rows; null if a file of another writer does not say.")
    seq: Count | None = Field(description="The seq of a file of changes.")
    operation: str | None = Field(description="What a file of changes does: upsert, delete, …", examples=["upsert"])
    partition: dict[str, Any] = Field(description="Its partition values, of a file of base.")
    time_ms: int = Field(description="When it was committed, in milliseconds since 1970.")


class FilesDocument(AboutTable):
    """The files that a version of a table is made of."""

    seq: Count = Field(description="The version's seq.", examples=[42])
    sizes: list[SizeClass] = Field(description="All of them, by log, origin and size.")
    files: list[FileDocument] = Field(description="By log and path, at most `limit` of them.")
    more: bool = Field(description="Whether there are more: ask `after` the last path.")


class SpanDocument(Document):
    """A row group of base, or a file of pending changes, and the part of the column's range that it covers."""

    file: str = Field(description="The file's name, below base or changes.")
    origin: str = Field(description="What wrote it.", examples=["fold"])
    rows: Count = Field(description="Its rows.")
    bytes: Bytes = Field(description="Its bytes.")
    seq: Count | None = Field(description="The seq of pending changes.")
    low: Any = Field(description="The lowest value, or a bound below it; null if it is not known.")
    high: Any = Field(description="The highest value, or a bound above it; null if it is not known.")
    place: tuple[float, float] | None = Field(
        description="Where it begins and ends between the lowest bound of all, 0, and the highest, 1.",
        examples=[[0.25, 0.5]],
    )


class GroupsDocument(AboutTable):
    """Which part of a column's range each row group covers."""

    seq: Count = Field(description="The version's seq.", examples=[42])
    column: str = Field(description="The column.", examples=["id"])
    linear: bool = Field(description="Whether places go by value; if not, by rank.")
    groups: list[SpanDocument] = Field(description="Row groups of base by their lowest value, at most `limit` of them.")
    groups_total: Count = Field(description="How many there are.")
    files_unknown: Count = Field(description="Files of base that the index does not know yet; each counts as one.")
    pending: list[SpanDocument] = Field(description="Files of pending changes by seq, at most `limit` of them.")
    pending_total: Count = Field(description="How many there are.")
