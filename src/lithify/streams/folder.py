"""Files of a folder as a stream into a table: those that are there, or whatever appears until it is told to stop.

Spark's file source tells which files are new and writes that down in the checkpoint; each micro-batch is a list of
files, read here as an ingest reads them. So a value that does not fit is seen, and its record is named or set aside.
Events of several files arrive in the order in which the files were last written, those of a file in its own order.

The checkpoint folder belongs to one stream: beside Spark's own files lies `lithify.json`, which says to which table the
files go and how. Another wish is refused before Spark is started.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.missing_columns import needed_columns, refuses_missing
from lithify.core.optional import need
from lithify.core.partial_rows import input_columns
from lithify.errors import InvalidRequest, LithifyError, NotFound, Unavailable
from lithify.files.addresses import address_of
from lithify.files.open_storage import storage_of
from lithify.files.text_files import EXAMPLES_MAX, refused
from lithify.files.text_input import check_encoding
from lithify.files.user_files import find_files, is_file, is_folder, user_path
from lithify.streams.apply import BatchMode, Checkpoint
from lithify.streams.messages import left_out_freely
from lithify.streams.sink import OnBatch, SinkOptions, StreamSink, TakenBatch
from lithify.text.debezium import envelope_of
from lithify.text.text_rows import Target, bad_line
from lithify.write.ingest import check_parquet_files, format_of
from lithify.write.ingest_here import check_footers
from lithify.write.quarantine import set_aside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from lithify.streams.apply import Portion
    from lithify.write.access import TableAccess

LABEL = "lithify.json"
FILES_MAX = 1_000
LOOK_S = 1
_THEN = (
    "Correct the file and start again, or set such records aside with null_keys='quarantine' "
    "(--on-bad-record quarantine)"
)


@dataclass(frozen=True)
class Label:
    """What a checkpoint belongs to."""

    table: str
    incarnation: str
    source: str
    mode: str
    op_column: str | None


@dataclass(frozen=True)
class StreamReport:
    table: str
    source: str
    checkpoint: str
    batches: int = 0
    rows: int = 0
    seq: int | None = None
    seconds: float = 0.0
    quarantined: int = 0


class FileSink(StreamSink):
    """Takes lists of files."""

    order = ("_lithify_modified", "_lithify_file")

    def __init__(
        self,
        table: TableAccess,
        mode: BatchMode,
        kind: str | None,
        encoding: str | None,
        on_batch: OnBatch,
        **options: Unpack[SinkOptions],
    ) -> None:
        super().__init__(table, mode, on_batch=on_batch, **options)
        self._kind, self._encoding = kind, check_encoding(encoding)
        self.stopping, self.refused = False, False

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        if self.stopping:
            self.refused = True
            raise Unavailable("the stream was told to stop: the next run begins with this batch")
        super().__call__(frame, epoch)

    def _portion(self, table: TableAccess, data: Portion, checkpoint: Checkpoint, info: dict[str, Any]) -> Portion:
        from lithify.spark.micro_batch import listed

        assert not isinstance(data, pa.Table)
        schema = table.handles.changes.schema
        columns = input_columns(schema.columns) if self.mode == "update" else schema.columns
        if self.op_column is not None:
            columns = columns.append(pa.field(self.op_column, pa.string()))
        files = listed(data)
        if not files:
            return columns.empty_table()  # Spark leaves out files of no bytes
        required = tuple(field.name for field in schema.columns if not field.nullable and field.name not in schema.key)
        name = f"{checkpoint.feed}-{checkpoint.after}-unfit"
        kind = format_of(files, self._kind)
        complete = self.mode != "update" and refuses_missing(schema, self.missing)
        named = needed_columns(schema) if complete else ()
        if kind == "parquet":
            if self.envelope is not None:
                raise InvalidRequest("messages in an envelope are JSON, one on each line, not Parquet: leave it out")
            check_footers(files)
            if (named or (schema.column_defaults and self.mode != "update")) and self.op_column is None:
                check_parquet_files(files, schema, bool(named))
            return self._parquet_rows(table, data.sparkSession, files, Target(columns, required), name, info)
        if self.envelope is not None and kind != "json":
            raise InvalidRequest(f"messages in an envelope are JSON, one on each line, not {kind}: say format json")
        optional = left_out_freely(schema) if self.mode == "update" else frozenset[str]()
        opener = envelope_of(self.envelope, schema.columns, schema.key, schema.order_columns, optional)
        target = Target(
            columns,
            required,
            op_column=self.op_column,
            envelope=opener,
            named=named,
            defaults={} if self.mode == "update" else schema.column_defaults,
        )
        return self._text_rows(table, data.sparkSession, files, kind, target, name, info)

    def _text_rows(
        self,
        table: TableAccess,
        spark: SparkSession,
        files: Sequence[str],
        kind: str,
        target: Target,
        name: str,
        info: dict[str, Any],
    ) -> Portion:
        """Few rows as they are, many as a DataFrame; bad records are refused, or set aside under `name`."""
        from lithify.spark.ingest import TextFiles

        text = TextFiles(spark, files, kind, target, self._encoding)
        rows = None
        records: Sequence[Mapping[str, Any]] | Callable[[PurePath], Sequence[PurePath]]
        if text.small:
            rows, bad = text.gathered()
            count, records = len(bad), [bad_line(record) for record in bad]
        else:
            found = text.check()
            bad, count, records = list(found.examples), found.bad, text.write_bad if found.bad else ()
        if count and self.null_keys == "fail":
            raise refused(bad, count, str(table.name), _THEN)
        info |= set_aside(table.handles, name, records)
        if rows is not None and rows.num_rows <= self.rows_max:
            return rows
        return text.rows(with_origin=True)

    def _parquet_rows(
        self,
        table: TableAccess,
        spark: SparkSession,
        files: Sequence[str],
        target: Target,
        name: str,
        info: dict[str, Any],
    ) -> Portion:
        from lithify.spark.micro_batch import WHY, bad_rows, fetched, judged_parquet, write_bad_rows

        def read(some: Sequence[str]) -> DataFrame:
            return judged_parquet(spark, some, target.columns, target.required, self.op_column)

        if self.mode == "update":
            from lithify.spark.partial_files import saying

            frame = saying(files, table.handles.changes.schema.names, read)
        else:
            frame = read(files)
        rows = fetched(frame, self.rows_max, self.order)
        some = rows is None or rows.column(WHY).null_count < rows.num_rows
        bad = bad_rows(frame, EXAMPLES_MAX) if some else []
        if bad and self.null_keys == "fail":
            lines = "\n  ".join(bad)
            raise InvalidRequest(
                f"some records do not fit table {table.name}; nothing was written. The first ones:\n  {lines}\n{_THEN}"
            )
        info |= set_aside(table.handles, name, (lambda folder: write_bad_rows(frame, folder)) if bad else ())
        if rows is not None:
            return (rows if not bad else rows.filter(pc.is_null(rows.column(WHY)))).drop_columns([WHY])
        return frame.where(f"{WHY} is null").drop(WHY)


class FileStream:
    """One run of a stream. `run` returns when there is nothing left, or after `stop`."""

    def __init__(
        self,
        table: TableAccess,
        source: str,
        *,
        format: str | None = None,
        encoding: str | None = None,
        mode: BatchMode = "upsert",
        checkpoint: str | PurePath | None = None,
        files_max: int = FILES_MAX,
        on_batch: OnBatch | None = None,
        **options: Unpack[SinkOptions],
    ) -> None:
        self._source = _source_path(source)
        self._table, self._runtime, self._files_max, self._told = table, table.runtime, files_max, on_batch
        self._sink = FileSink(table, mode, format, encoding, self._taken, **options)
        envelope = options.get("envelope")
        how = options.get("op_column") if envelope is None else f"of {envelope}"
        self._label = Label(str(table.name), table.incarnation, self._source, mode, how)
        self._store = self._runtime.store
        if checkpoint is not None and address_of(str(checkpoint)) is None:
            self.checkpoint: PurePath = user_path(checkpoint)
            if self._store.remote:
                self._store = storage_of(self.checkpoint)
            self._store.path_guard.trust(self.checkpoint)
        elif checkpoint is not None or self._store.remote:
            raise InvalidRequest(
                "a stream keeps what it has taken on this machine, not in a bucket: name a folder for that "
                "(--checkpoint DIR), and keep it"
            )
        else:
            self.checkpoint = self._runtime.control / "streams" / _folder_name(self._label)
        self._store.path_guard.check_tree(self.checkpoint)
        self._check_label()
        if format is None:
            self._check_format()
        self._stop = threading.Event()
        self._report = StreamReport(str(table.name), self._source, str(self.checkpoint))

    def run(self, every_s: float | None = None) -> StreamReport:
        """Take the files that are there, or with `every_s` look for new ones that often until `stop`."""
        need("spark")
        from lithify.spark.micro_batch import start_file_query

        started = time.monotonic()
        spark = self._runtime.session()
        self._store.make_folder(self.checkpoint)
        self._store.put(self.checkpoint / LABEL, json.dumps(asdict(self._label)).encode())
        query = start_file_query(
            spark, self._source, self.checkpoint, self._sink, every_s=every_s, files_max=self._files_max
        )
        try:
            self._wait(query)
        finally:
            query.stop()
        return StreamReport(**{**asdict(self._report), "seconds": time.monotonic() - started})

    def stop(self) -> None:
        """A batch that is under way is finished first. Where one follows on the other, the next one is refused."""
        self._sink.stopping = True
        self._stop.set()

    def _wait(self, query: StreamingQuery) -> None:
        from lithify.spark.tasks import SPARK_ERRORS, compute_failed

        while True:
            try:
                ended = query.awaitTermination(LOOK_S)
            except SPARK_ERRORS as error:
                if self._sink.refused:
                    return
                if isinstance(self._sink.error, LithifyError):
                    raise self._sink.error from error
                raise compute_failed(error) from error
            if ended or (self._stop.is_set() and not query.status["isTriggerActive"]):
                return

    def _taken(self, batch: TakenBatch) -> None:
        commit, known = batch.commit, self._report
        self._report = replace(
            known,
            batches=known.batches + 1,
            rows=known.rows + (0 if commit.replayed else commit.rows),
            seq=commit.seq,
            quarantined=known.quarantined + self._sink.quarantined,
        )
        if self._told is not None:
            self._told(batch)

    def _check_label(self) -> None:
        """Before anything is started: Spark would go on with a checkpoint wherever its rows went before."""
        path, store = self.checkpoint / LABEL, self._store
        try:
            known = Label(**json.loads(store.read(path)))
        except NotFound:
            if store.exists(self.checkpoint / "metadata"):
                raise InvalidRequest(
                    f"{self.checkpoint} is the checkpoint of another streaming query: choose a folder of its own"
                ) from None
            return
        except (ValueError, TypeError) as error:
            raise InvalidRequest(f"{path} cannot be read ({error}): choose another checkpoint folder") from error
        wanted = self._label
        if known == wanted:
            return
        if (known.table, known.incarnation) == (wanted.table, wanted.incarnation):
            how = f"from {known.source} with mode {known.mode}"
            how += f" and op_column {known.op_column}" if known.op_column else ""
        elif known.table == wanted.table:
            how = f"into a table {known.table} that was dropped since"
        else:
            how = f"into table {known.table}"
        raise InvalidRequest(
            f"the checkpoint {self.checkpoint} belongs to a stream {how}: go on with that, or choose another "
            "checkpoint folder, which begins with all files"
        )

    def _check_format(self) -> None:
        try:
            format_of(find_files(self._source), None)
        except NotFound:
            raise InvalidRequest(
                f"{self._source} holds no files yet that would tell their format: pass format (csv, json or parquet)"
            ) from None


def _source_path(source: str) -> str:
    """A folder, or a glob of files, from the root."""
    path = user_path(source)
    if "**" in source:
        raise InvalidRequest(f"{source}: give the folder instead of **, it is searched with all folders in it")
    if is_file(path):
        raise InvalidRequest(
            f"{source} is one file: give its folder, or a glob of files that appear; `lithify ingest` loads one file"
        )
    if not any(letter in source for letter in "*?[{") and not is_folder(path):
        raise NotFound(f"{source} is no folder: a stream reads the files that appear in one")
    return str(path)


def _folder_name(label: Label) -> str:
    """The same wish finds the same checkpoint again."""
    digest = blake2b(json.dumps(asdict(label)).encode(), digest_size=4).hexdigest()
    return f"{label.table}-{digest}"
