"""Reading files into typed rows on Spark, with every record that does not fit kept and explained.

Text is read by Lithify itself, in tasks, exactly as a small write reads it (`text/text_rows.py`): Spark's own readers
replace what does not decode, and cannot say which line a record was on. First all pieces are read to see that they fit;
only bad records and counts come back. Then they are read again, as rows. Parquet is read by Spark.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lithify.errors import InvalidRequest
from lithify.files.addresses import path_of
from lithify.files.open_storage import storage_of
from lithify.files.text_files import (
    EXAMPLES_MAX,
    Look,
    Piece,
    Range,
    gathered,
    look,
    plan,
    present,
    text_batches,
)
from lithify.files.text_tasks import Checked, Task, check, found_columns, kinds, names_in, types, write_bad
from lithify.spark.parquet import whole_files
from lithify.spark.paths import literal
from lithify.spark.remote_files import TaskCopies
from lithify.spark.schemas import arrow_schema, column_named, spark_schema
from lithify.spark.tasks import SPARK_ERRORS, compute_failed, run_tasks
from lithify.text.text_rows import BadRecord, Target

FILE, MODIFIED = "_lithify_file", "_lithify_modified"
# Less than this is read at once, without a task.
SMALL_BYTES = 8 * 2**20
TASK_BYTES = 32 * 2**20


class TextFiles:
    """CSV or JSON files that are to become rows."""

    def __init__(
        self, spark: SparkSession, files: Sequence[str], kind: str, target: Target, encoding: str | None = None
    ) -> None:
        self._spark, self._target, self._kind = spark, target, kind
        self.pieces = plan(files, kind, target, encoding, self._looks)
        self._tasks = [(task, target) for task in _packed(self.pieces)]

    @property
    def small(self) -> bool:
        return sum(piece.size for piece in self.pieces) <= SMALL_BYTES and not any(p.input.packed for p in self.pieces)

    def check(self) -> Checked:
        parts = [check(task) for task in self._tasks] if self.small else run_tasks(self._spark, check, self._tasks)
        examples = [record for part in parts for record in part.examples]
        return Checked(
            sum(part.records for part in parts), sum(part.bad for part in parts), tuple(examples[:EXAMPLES_MAX])
        )

    def gathered(self) -> tuple[pa.Table, list[BadRecord]]:
        """Rows and bad records, here. For small files."""
        return gathered(self.pieces, self._target)

    def rows(self, *, with_origin: bool = False) -> DataFrame:
        """Records that fit, in the order of the files. `with_origin`: with the file of each, and its time."""
        columns = present(self.pieces, self._target)
        if with_origin:
            columns = columns.append(pa.field(FILE, pa.string())).append(pa.field(MODIFIED, pa.timestamp("us", "UTC")))
        schema, copies = spark_schema(columns), TaskCopies.of(self._spark)
        pickled = [pickle.dumps(task) for task in self._tasks]
        arrow = arrow_schema(schema)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            copies.use()
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from _batches(pickle.loads(pickled[number]), arrow, with_origin)

        count = len(pickled)
        return self._spark.range(0, count, 1, max(count, 1)).mapInArrow(run, schema)

    def write_bad(self, folder: PurePath) -> list[PurePath]:
        """Records that do not fit as JSON lines: file, line, column, why, record."""
        storage_of(folder).make_folder(folder)
        tasks = [(number, str(folder), *task) for number, task in enumerate(self._tasks)]
        written = [write_bad(task) for task in tasks] if self.small else run_tasks(self._spark, write_bad, tasks)
        return [path_of(file) for file in written if file is not None]

    def _looks(self, ranges: Sequence[Range]) -> list[Look]:
        return run_tasks(self._spark, look, list(ranges))


def _packed(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Neighbours together, so that a task is worth its start."""
    tasks: list[list[Piece]] = []
    size = TASK_BYTES
    for piece in pieces:
        if size + piece.size > TASK_BYTES:
            tasks.append([])
            size = 0
        tasks[-1].append(piece)
        size += piece.size
    return tasks


def _batches(task: Task, columns: pa.Schema, with_origin: bool) -> Iterator[pa.RecordBatch]:
    pieces, target = task
    for piece in pieces:
        for batch in text_batches(piece, target):
            rows = batch.rows
            if with_origin:
                rows = rows.append_column(FILE, pa.array([piece.input.label] * rows.num_rows, pa.string()))
                moment = pa.array([piece.modified_us] * rows.num_rows, pa.int64()).cast(pa.timestamp("us", "UTC"))
                rows = rows.append_column(MODIFIED, moment)
            arrays = [
                rows.column(f.name).cast(f.type) if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type)
                for f in columns
            ]
            yield from pa.table(arrays, schema=columns).to_batches()


# -- columns


def infer(spark: SparkSession, files: Sequence[str], kind: str, encoding: str | None = None) -> pa.Schema:
    """The columns that the files have, with types that all of their values fit."""
    if kind == "parquet":
        return _parquet_columns(spark, files)
    pieces = plan(files, kind, Target(pa.schema([]), others=True), encoding)
    small, named = sum(piece.size for piece in pieces) <= SMALL_BYTES, names_in(pieces)
    tasks: list[Task] = [(task, named) for task in _packed(pieces)]
    if kind == "csv":
        seen = [kinds(task) for task in tasks] if small else run_tasks(spark, kinds, tasks)
        return found_columns(kind, seen, files[0])
    return found_columns(kind, [types(task) for task in tasks] if small else run_tasks(spark, types, tasks), files[0])


def _parquet_columns(spark: SparkSession, files: Sequence[str]) -> pa.Schema:
    try:
        return arrow_schema(whole_files(spark).option("mergeSchema", True).parquet(*map(literal, files)).schema)
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error


# -- Parquet


def parquet_rows(
    spark: SparkSession, files: Sequence[str], columns: pa.Schema, *, others: bool = False, with_origin: bool = False
) -> DataFrame:
    """`others`: the files may have further columns, which are passed over; else that is refused."""
    try:
        frame = whole_files(spark).option("mergeSchema", True).parquet(*map(literal, files))
        if not others:
            _check_names(frame.columns, columns, files[0])
        names = [column_named(name) for name in frame.columns if name in columns.names]
        return frame.select(*names, *(_origin() if with_origin else []))
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error


def _origin() -> list[Column]:
    """Which file a row is of, and when that was last written."""
    return [F.col("_metadata.file_path").alias(FILE), F.col("_metadata.file_modification_time").alias(MODIFIED)]


def _check_names(names: Iterable[str], columns: pa.Schema, file: str) -> None:
    for name in names:
        if columns.get_field_index(name) < 0:
            raise InvalidRequest(
                f"{file} has a column {name!r} that the table does not have: it has {', '.join(columns.names)}"
            )


def local_name(uri: str) -> str:
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(uri).path) if uri.startswith("file:") else uri
