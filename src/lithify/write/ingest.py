"""Loading files into a table: CSV, JSON lines or Parquet. A record that does not fit is never dropped silently.

This process reads them (`ingest_here.py`), up to a size (a setting) that spares most loads the start of
Spark. Either way they are one commit, and what is refused is the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from lithify.compute.background import repeating
from lithify.core.html import Shown
from lithify.core.missing_columns import check_frame, needed_columns, refuses_missing
from lithify.core.missing_columns import refused as refused_columns
from lithify.core.optional import need
from lithify.core.results import Commit
from lithify.core.schema import TableSchema
from lithify.core.wording import plural
from lithify.errors import InvalidRequest, LithifyError
from lithify.files.open_parquet import open_file
from lithify.files.storage import Storage
from lithify.files.user_files import size_bytes
from lithify.options.table_options import MissingColumns
from lithify.tables.handles import Handles
from lithify.text.text_rows import rows_wanted
from lithify.write.batch_ids import conditions_of
from lithify.write.bulk import write_frame
from lithify.write.conditions import Write
from lithify.write.ingest_here import (
    TextRows,
    all_set_aside,
    bad_records,
    check_footers,
    no_records,
    parquet_batches,
    reads_here,
)
from lithify.write.load import load
from lithify.write.quarantine import set_aside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUFFIXES = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
FORMATS = ("csv", "json", "parquet")
PACKED = (".gz", ".zst", ".zstd", ".bz2")
LOOK_S = 0.5
Progress = Callable[[str, float | None], None]


@dataclass(frozen=True)
class IngestReport(Shown):
    table: str
    seq: int
    rows: int
    files: int
    bytes: int
    bad_records: int = 0
    quarantine: str | None = None
    seconds: float = 0.0


def format_of(files: Sequence[str], given: str | None) -> str:
    if given is not None:
        if given not in FORMATS:
            raise InvalidRequest(f"format {given!r} is not known: use {', '.join(FORMATS)}")
        return given
    kinds = {SUFFIXES.get(_suffix(file)) for file in files}
    if len(kinds) != 1 or None in kinds:
        raise InvalidRequest(
            f"the format of {files[0]} and the others cannot be told from their names: pass format (csv, json or "
            "parquet)"
        )
    return str(kinds.pop())


def _suffix(file: str) -> str:
    """That of the name without what says how it is packed: its content tells that."""
    path = PurePath(file.lower())
    return PurePath(path.stem).suffix if path.suffix in PACKED else path.suffix


def ingest(
    handles: Handles,
    files: Sequence[str],
    kind: str,
    mode: str | None,
    on_bad_record: str,
    batch_id: str | None,
    progress: Progress,
    encoding: str | None = None,
    missing: MissingColumns | None = None,
) -> IngestReport:
    started = time.monotonic()
    runtime, schema = handles.runtime, handles.schema()
    if mode not in (None, "append", "upsert"):
        raise InvalidRequest(f"mode {mode!r} is not known: use append or upsert")
    if on_bad_record not in ("fail", "quarantine"):
        raise InvalidRequest(f"on_bad_record {on_bad_record!r} is not known: use fail or quarantine")
    if mode == "upsert" and not schema.keyed:
        raise InvalidRequest(f"table {handles.name} has no key, so there is nothing to upsert by: use mode append")
    complete = refuses_missing(schema, missing)
    if kind == "parquet":
        progress(f"looking at {plural(len(files), 'file')}", None)
        check_footers(files)
        if complete or schema.column_defaults:
            check_parquet_files(files, schema, complete)
    operation = mode or ("upsert" if schema.keyed else "append")
    size = sum(map(size_bytes, files))  # after the commit nothing may fail
    write = Write(operation, {"detail": f"ingest of {plural(len(files), 'file')}"}, conditions_of(batch_id), complete)
    # What merge rules make of rows is decided by Spark, which compares all rows of a key.
    here = reads_here(files, runtime.settings) and not schema.rules
    source = _Source(handles, files, kind, on_bad_record, encoding, write, progress)
    commit, bad, quarantine = source.loaded_here() if here else source.loaded_on_spark()
    return IngestReport(
        str(handles.name),
        commit.seq,
        commit.rows,
        len(files),
        size,
        bad,
        quarantine,
        time.monotonic() - started,
    )


@dataclass(frozen=True)
class _Source:
    """Files on their way into a table. Answered is the commit, how many records did not fit, and where these are."""

    handles: Handles
    files: Sequence[str]
    kind: str
    on_bad_record: str
    encoding: str | None
    write: Write
    progress: Progress

    def loaded_here(self) -> tuple[Commit, int, str | None]:
        handles, files, write = self.handles, self.files, self.write
        schema = handles.schema()
        if self.kind == "parquet":
            names = {name for file in files for name in open_file(file).schema_arrow.names}
            with _watched(handles, self.progress):
                rows = parquet_batches(files, schema)
                return load(handles, rows, write, distinct=not schema.has_places(names)), 0, None
        target = rows_wanted(schema, write.complete)
        text = TextRows(handles, files, self.kind, target, self.encoding, self.on_bad_record)
        if write.complete:
            check_frame(text.columns.names, schema)
        with _watched(handles, self.progress):
            commit = load(handles, text, write, distinct=not schema.has_places(text.columns.names))
        return commit, text.bad, text.quarantine

    def loaded_on_spark(self) -> tuple[Commit, int, str | None]:
        need("spark")
        from lithify.spark.ingest import parquet_rows

        self.progress("starting Spark", None)
        spark = self.handles.runtime.spark()
        self.progress(f"reading {plural(len(self.files), f'{self.kind} file')}", None)
        if self.kind == "parquet":
            frame, bad, quarantine = parquet_rows(spark, self.files, self.handles.schema().columns), 0, None
        else:
            self.progress("checking records", None)
            frame, bad, quarantine = self._text_rows(spark)
        with _watched(self.handles, self.progress):
            return write_frame(self.handles, frame, self.write), bad, quarantine

    def _text_rows(self, spark: SparkSession) -> tuple[DataFrame, int, str | None]:
        """Rows that fit; how many records do not, and where they have been set aside."""
        from lithify.spark.ingest import TextFiles

        handles, files = self.handles, self.files
        text = TextFiles(spark, files, self.kind, rows_wanted(handles.schema(), self.write.complete), self.encoding)
        found = text.check()
        if not found.records:
            raise no_records(files, self.kind)
        if not found.bad:
            return text.rows(), 0, None
        if self.on_bad_record == "fail":
            raise bad_records(found.examples, found.bad, str(handles.name))
        name = handles.runtime.new_id()
        set_aside(handles, name, text.write_bad)
        folder = str(handles.folder / "quarantine" / name)
        if found.bad == found.records:
            raise all_set_aside(files, str(handles.name), found.bad, folder, found.examples[0])
        return text.rows(), found.bad, folder


def check_parquet_files(files: Sequence[str], schema: TableSchema, complete: bool) -> None:
    """Refuse a file that lacks a column which others have: all of them are read as one frame, whose columns are looked
    at as such. A column that none has may be one of folders' names. `complete`: no column that rows need may be
    missing; one with a default never, which the frame does not tell from null.
    """
    names = {file: set(open_file(file).schema_arrow.names) for file in files}
    known = set[str]().union(*names.values())
    for file, there in names.items():
        if lost := [name for name in schema.column_defaults if name in known and name not in there]:
            raise InvalidRequest(
                f"{file} lacks the column {lost[0]!r}, which other files have, and would have null in place of its "
                "default: load files that have it and files that do not by themselves"
            )
        needed = needed_columns(schema) if complete else ()
        if lacking := [name for name in needed if name in known and name not in there]:
            raise InvalidRequest(f"{file}: {refused_columns(lacking)}")


def _watched(handles: Handles, progress: Progress) -> AbstractContextManager[None]:
    """Tell how much has been written while Spark works: it does not say itself through its public interface."""
    store, folder = handles.runtime.store, handles.changes.log.path
    before = _bulks(store, folder)

    def look() -> None:
        with suppress(LithifyError):  # files come and go meanwhile
            new = _bulks(store, folder) - before
            size = sum(store.size(folder / bulk / path) for bulk in new for path in store.below(folder / bulk))
            progress(f"writing, {size / 2**20:.1f} MiB so far", None)

    progress("writing", None)
    return repeating(look, LOOK_S, f"ingest {handles.name}")


def _bulks(store: Storage, folder: PurePath) -> set[str]:
    return {name for name in store.names(folder) if name.startswith("bulk-")}
