"""Files in a bucket, for Spark, which cannot read them there by itself.

Where Spark runs on this machine, it scans local names of verified copies (`files/local_files.py: lasting_names`) as it
scans the files of a local lake. Elsewhere tasks read the objects, with the same reader as the data source, each
executor through copies of its own: what Spark finds out about a query does not reach the files then, only the columns
and the condition that the table was asked with. So it is where this machine has no room for copies of everything that
is read.

Executors take keys and endpoint from their own environment or machine. Nothing of that is ever part of a task.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Protocol

from lithify.errors import Unavailable
from lithify.files.addresses import is_remote
from lithify.files.local_files import copies, copies_known, keep_copies_in, lasting_names, room_for
from lithify.spark.target import runs_here

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class NamedFile(Protocol):
    """A file as a log names it."""

    @property
    def path(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...


def local_names(spark: SparkSession, files: Sequence[NamedFile]) -> list[str] | None:
    """Paths of these files that Spark's own scan can read. None: only tasks can read them, also where there is no room
    for copies of all of them at a time.
    """
    if not any(is_remote(file.path) for file in files):
        return [file.path for file in files]
    if not runs_here(spark):
        return None
    wanted = [(file.path, file.size_bytes) for file in files]
    if not room_for(wanted):
        return None
    try:
        return lasting_names(wanted)
    except Unavailable as error:
        if not error.details.get("disk_full"):
            raise
        return None


def names_again(spark: SparkSession, files: Sequence[NamedFile]) -> str | None:
    """Have what a DataFrame of these files reads be there once more. Another answer than before: it reads other names,
    and is of no use any more.
    """
    remote = [file for file in files if is_remote(file.path)]
    found = local_names(spark, remote) if remote else None
    return found[0] if found else None


def shared_folder(spark: SparkSession, index: PurePath) -> PurePath:
    """Where everybody finds what is laid down for the tasks of this session: a table's folder for derived data, or one
    of this machine for a table in a bucket, if they run here.
    """
    if not is_remote(index) or not runs_here(spark):
        return index
    return copies().folder / "spark" / hashlib.blake2b(str(index).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class TaskCopies:
    """Where tasks keep copies of objects. Those that run on this machine share this process's; elsewhere it is for the
    executor to say, in its environment.
    """

    folder: str | None = None
    bytes_max: int | None = None

    @classmethod
    def of(cls, spark: SparkSession) -> TaskCopies:
        known = copies_known()
        return cls(str(known.folder), known.bytes_max) if known is not None and runs_here(spark) else cls()

    def use(self) -> None:
        """In a task, before it reads or writes."""
        if (folder := self.folder or os.environ.get("LITHIFY_CACHE_FOLDER")) is not None:
            keep_copies_in(folder, self.bytes_max)


def rows_by_tasks(
    spark: SparkSession, files: Sequence[NamedFile], schema: StructType, name_as: str | None = None
) -> DataFrame:
    """Rows of these columns, read by tasks, of all row groups that can hold a wanted row; `name_as`: a column with the
    name of each row's file besides.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    from lithify.spark.datasource.plan import packed_files
    from lithify.spark.datasource.read import batches
    from lithify.spark.schemas import arrow_schema

    wanted = schema if name_as is None else StructType([*schema.fields, StructField(name_as, StringType())])
    parts = packed_files([(*_told(file), _named(file, name_as)) for file in files])
    pickled, columns, copied = [pickle.dumps(part) for part in parts], arrow_schema(wanted), TaskCopies.of(spark)

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        copied.use()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from batches(pickle.loads(pickled[number]), columns, wanted)

    return spark.range(0, len(pickled), 1, max(len(pickled), 1)).mapInArrow(run, wanted)


def _told(file: NamedFile) -> tuple[str, int, tuple[int, ...] | None]:
    """The path, the size, and the row groups that can hold a wanted row, where that is known."""
    return file.path, file.size_bytes, getattr(file, "groups", None)


def _named(file: NamedFile, name_as: str | None) -> tuple[tuple[str, str], ...]:
    return () if name_as is None else ((name_as, PurePath(file.path).name),)
