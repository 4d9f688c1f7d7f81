"""Files as batches of rows, read by this process: CSV, JSON lines or Parquet.

They are read once, as a stream, while `load` writes; nothing is committed before the last record was seen. Records that
do not fit stop that at its end, with all of them counted, or are set aside before the commit, for which the text is
read once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

import pyarrow as pa

from lithify.core.optional import has_spark
from lithify.core.schema import TableSchema, normalise
from lithify.core.wording import file_names_have
from lithify.errors import InvalidRequest
from lithify.files.addresses import path_of
from lithify.files.examine import examine
from lithify.files.open_parquet import corrupt, open_file
from lithify.files.text_files import EXAMPLES_MAX, plan, present, refused, text_batches
from lithify.files.text_tasks import found_columns, kinds, names_in, types, write_bad
from lithify.files.user_files import size_bytes
from lithify.settings import Settings
from lithify.tables.handles import Handles
from lithify.text.text_rows import BadRecord, Target
from lithify.write.quarantine import set_aside

BATCH_ROWS = 131_072


def reads_here(files: Sequence[str], settings: Settings) -> bool:
    """Whether files are loaded by this process: up to a size, and where there is no Spark."""
    return not has_spark() or sum(map(size_bytes, files)) <= settings.local_ingest_bytes_max


def columns_in(files: Sequence[str], kind: str, encoding: str | None) -> pa.Schema:
    """The columns that the files have, with types that all of their values fit."""
    if kind == "parquet":
        return _parquet_columns(files)
    pieces = plan(files, kind, Target(pa.schema([]), others=True), encoding)
    task = (pieces, names_in(pieces))
    return found_columns(kind, [kinds(task)] if kind == "csv" else [types(task)], files[0])


def check_footers(files: Sequence[str]) -> None:
    """Before this process or Spark opens one: Arrow ends it on some of them, and of others both read a part only."""
    for problem in examine([(file, None) for file in files]).values():
        raise problem


def _parquet_columns(files: Sequence[str]) -> pa.Schema:
    check_footers(files)
    found: dict[str, pa.Field] = {}
    for file in files:
        with open_file(file) as opened:
            columns = opened.schema_arrow
        for column in columns:
            kind = normalise(column.type, column.name)
            known = found.setdefault(column.name, pa.field(column.name, kind))
            if known.type != kind:
                raise InvalidRequest(
                    f"{file}: column {column.name!r} is {kind}, but {known.type} in other files: create the table with "
                    "a schema that all of them fit, then load them"
                )
    return pa.schema(list(found.values()))


def parquet_batches(files: Sequence[str], schema: TableSchema) -> Iterator[pa.RecordBatch]:
    for file in files:
        with open_file(file) as opened:
            for name in opened.schema_arrow.names:
                if name not in schema.names:
                    raise InvalidRequest(
                        f"{file} has a column {name!r} that the table does not have: it has {', '.join(schema.names)}"
                    )
            try:
                yield from opened.iter_batches(BATCH_ROWS)
            except (pa.ArrowException, OSError) as error:
                raise corrupt(file, error) from error


class TextRows:
    """Rows of text files. `bad` and `quarantine` are known once all of them were read."""

    def __init__(
        self,
        handles: Handles,
        files: Sequence[str],
        kind: str,
        target: Target,
        encoding: str | None,
        on_bad_record: str,
    ) -> None:
        self._handles, self._files, self._kind, self._target = handles, files, kind, target
        self._aside = on_bad_record == "quarantine"
        self._pieces = plan(files, kind, target, encoding)
        self.columns = present(self._pieces, target)
        self.bad = 0
        self.quarantine: str | None = None

    def __iter__(self) -> Iterator[pa.Table]:
        records = 0
        examples: list[BadRecord] = []
        for piece in self._pieces:
            for batch in text_batches(piece, self._target):
                records += batch.rows.num_rows + len(batch.bad)
                self.bad += len(batch.bad)
                examples += batch.bad[: EXAMPLES_MAX - len(examples)]
                if batch.rows.num_rows and (self._aside or not self.bad):
                    yield self._completed(batch.rows)
        if not records:
            raise no_records(self._files, self._kind)
        if self.bad:
            self._settle(records, examples)

    def _completed(self, rows: pa.Table) -> pa.Table:
        """With all columns that some file has."""
        arrays = [
            rows.column(column.name) if column.name in rows.column_names else pa.nulls(rows.num_rows, column.type)
            for column in self.columns
        ]
        return pa.table(arrays, names=self.columns.names)

    def _settle(self, records: int, examples: Sequence[BadRecord]) -> None:
        name = str(self._handles.name)
        if not self._aside:
            raise bad_records(examples, self.bad, name)
        folder = self._handles.runtime.new_id()
        set_aside(self._handles, folder, self._write_bad)
        self.quarantine = str(self._handles.folder / "quarantine" / folder)
        if self.bad == records:
            raise all_set_aside(self._files, name, self.bad, self.quarantine, examples[0])

    def _write_bad(self, folder: PurePath) -> list[PurePath]:
        self._handles.runtime.store.make_folder(folder)
        written = write_bad((0, str(folder), self._pieces, self._target))
        return [path_of(written)] if written is not None else []


def no_records(files: Sequence[str], kind: str) -> InvalidRequest:
    names = " but column names" if kind == "csv" else ""
    return InvalidRequest(f"{file_names_have(files)} no records{names}: nothing to load")


def bad_records(examples: Sequence[BadRecord], count: int, table: str) -> InvalidRequest:
    return refused(
        examples,
        count,
        table,
        "Correct them, or pass on_bad_record='quarantine' (--on-bad-record quarantine) to set them aside",
    )


def all_set_aside(files: Sequence[str], table: str, count: int, folder: str, first: BadRecord) -> InvalidRequest:
    return InvalidRequest(
        f"{file_names_have(files)} no record that fits table {table}: all {count:,} were set aside in {folder}, "
        f"and nothing was written. The first one: {first}"
    )
