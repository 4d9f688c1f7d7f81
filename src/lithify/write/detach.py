"""A day of a table as Parquet files of its own: taken out of the table, or put into one. Each is one commit.

Detaching folds first, so that the day stands in base alone, gives its files a second name in a folder of the user's,
makes that durable, and then deletes exactly these rows in one commit that holds only if nothing was written meanwhile.
So the rows are in the table, or in both places after a crash between the two, but never in neither. The next fold drops
the files from base without rewriting any. A file that has other columns than the table, because some were added or
dropped since, is written anew with those of the table: a column that it lacks is null there, and comes back as null.

Attaching commits the rows of a folder's files as a bulk write, checked like any other row: those that are there already
are replaced, and a fold of a day that base does not hold links the files that were written.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

import pyarrow as pa

from lithify.core.arrow_rows import sort_by, strictly_ascending
from lithify.core.html import Shown
from lithify.core.names import DAY
from lithify.core.ops import Op
from lithify.core.read_plan import Source, constants_of
from lithify.core.results import Commit
from lithify.core.rows import rows_of
from lithify.core.schema import TableSchema, nullable
from lithify.core.snapshot import DataFile, Snapshot
from lithify.errors import CommitUnknown, Conflict, Corruption, InvalidRequest, LithifyError, NotFound
from lithify.files.addresses import path_of
from lithify.files.local import LocalStorage
from lithify.files.local_files import bring, copy_out
from lithify.files.open_parquet import open_file
from lithify.files.parquet import Layout, PartWriter, Written, batches_of, part_path, read
from lithify.files.read_proof import check_whole
from lithify.files.user_files import is_folder, lies_in, parquet_files, size_bytes, user_path
from lithify.write.batch_ids import conditions_of
from lithify.write.bulk import Files, write_files
from lithify.write.conditions import AtSeq, SeqMoved, Write
from lithify.write.ingest_here import check_footers
from lithify.write.small_writes import Request

if TYPE_CHECKING:
    from lithify.write.access import TableAccess

logger = logging.getLogger(__name__)

ROUNDS_MAX = 5
OUTSIDE = LocalStorage()  # the folder is the caller's own word, and no part of the lake


@dataclass(frozen=True)
class DetachReport(Shown):
    """What was taken out. `seq`: of the commit that did."""

    table: str
    day: dt.date
    folder: str
    files: int
    rows: int
    bytes: int
    seq: int


def detach(
    table: TableAccess, fold: Callable[[], object], day: dt.date | str, to: PurePath | str, info: dict[str, str]
) -> DetachReport:
    """`fold` folds the table."""
    wanted, folder = _day(day), user_path(to)
    if (time := table.handles.schema().time) is None:
        raise InvalidRequest(f"table {table.name} has no time column, and so no days: give it one when you create it")
    if OUTSIDE.exists(folder):
        raise Conflict(f"{folder} exists already: detach writes a folder of its own, give another name")
    if lies_in(folder, table.runtime.root):
        raise InvalidRequest(f"{folder} lies inside this lake: detach takes a day out of it, give a place elsewhere")
    for _ in range(ROUNDS_MAX):
        fold()
        snapshot = table.handles.snapshot()
        files = [file for file in snapshot.base if str(file.partition.get(DAY)) == wanted.isoformat()]
        if snapshot.changes:
            continue  # somebody was quicker
        if not files:
            raise NotFound(f"table {table.name} has no rows of {wanted}: lithify partitions lists the days that it has")
        _lay_out(table, files, folder, snapshot.schema)
        table.runtime.store.step("detach.laid_out")
        write = Write("detach", {**info, "detail": f"{wanted} to {folder}"}, (AtSeq(snapshot.seq),))
        try:
            rows = _keys(table, snapshot, files, time)
            commit = table.write(Request(write, {Op.DELETE: rows}))
        except SeqMoved:
            OUTSIDE.delete_folder(folder)
            continue
        except CommitUnknown:
            raise  # the only rows of the day may be in the folder
        except LithifyError:
            _give_up(folder)
            raise
        try:
            fold()
        except LithifyError as error:
            logger.warning("the files of %s stay in the base of %s until its next fold: %s", wanted, table.name, error)
        total, size = sum(file.rows for file in files), sum(file.size_bytes for file in files)
        return DetachReport(str(table.name), wanted, str(folder), len(files), total, size, commit.seq)
    raise Conflict(
        f"detaching {wanted} from {table.name} was overtaken by other writers {ROUNDS_MAX} times; nothing was taken "
        "out: try again when it is written to less"
    )


def _give_up(folder: PurePath) -> None:
    """The rows are in the table: what was laid out of them is in the way of the next attempt."""
    try:
        OUTSIDE.delete_folder(folder)
    except LithifyError as error:
        logger.warning("%s holds rows that are still in the table; remove it: %s", folder, error)


def _lay_out(table: TableAccess, files: Sequence[DataFile], folder: PurePath, schema: TableSchema) -> None:
    """The day's files under names in `folder`, which appears whole or not at all."""
    root = table.handles.base_folder
    bring((root / file.path, file.size_bytes) for file in files)
    draft = folder.with_name(f".{folder.name}-{table.runtime.new_id()}")
    OUTSIDE.make_folder(draft)
    try:
        for number, file in enumerate(files):
            source, target = root / file.path, draft / f"part-{number:05d}.parquet"
            check_whole(str(source), file.size_bytes)
            if {*open_file(source, file.size_bytes).schema_arrow.names} == {*schema.names}:
                copy_out(table.runtime.store, source, file.size_bytes, target)
                OUTSIDE.sync_file(target)
            else:
                _write_anew(source, file, schema, target)
        OUTSIDE.sync_folder(draft)
    except BaseException:
        _give_up(draft)
        raise
    try:
        OUTSIDE.move(draft, folder)
    except LithifyError:
        _give_up(draft if OUTSIDE.exists(draft) else folder)
        raise


def _write_anew(source: PurePath, file: DataFile, schema: TableSchema, target: PurePath) -> None:
    """With the columns that the table has."""
    read_as, constants = nullable(schema.columns), dict(constants_of(file, schema))
    rows = (batch.cast(schema.columns) for batch in batches_of(source, read_as, constants, file.size_bytes))
    written = _write(rows, schema, target, target.parent)
    if written.rows != file.rows:
        raise Corruption(
            f"{source} has {written.rows} rows instead of {file.rows}: nothing was taken out; restore this file from a "
            "copy",
            path=str(source),
        )


def _keys(table: TableAccess, snapshot: Snapshot, files: Iterable[DataFile], time: str) -> pa.Table:
    """What deletes exactly these rows: their keys, or without a key the moments of the day."""
    schema = snapshot.schema
    columns, root = schema.select(schema.key or [time]), table.handles.base_folder
    parts = [read(root / file.path, columns, dict(constants_of(file, schema)), file.size_bytes) for file in files]
    rows = pa.concat_tables(parts)
    return rows if schema.keyed else rows.group_by([time]).aggregate([]).select([time])


def _day(day: dt.date | str) -> dt.date:
    if isinstance(day, dt.datetime):
        raise InvalidRequest(f"a day is a date, like 2026-11-15, not the moment {day}")
    if isinstance(day, dt.date):
        return day
    try:
        return dt.date.fromisoformat(day)
    except (TypeError, ValueError):
        raise InvalidRequest(f"{day!r} is no day: write it like 2026-11-15") from None


# -- attaching


def attach(table: TableAccess, folder: PurePath | str, batch_id: str | None, info: dict[str, str]) -> Commit:
    folder_path = user_path(folder)
    if not is_folder(folder_path):
        raise NotFound(f"{folder_path} is no folder: attach takes a folder of Parquet files")
    if not (paths := parquet_files(folder_path)):
        raise NotFound(f"{folder_path} holds no Parquet files")
    check_footers([str(path) for path in paths])
    _check_keys(table, folder_path, paths, table.handles.schema())

    def produce(schema: TableSchema, root: str, target: str) -> Files:
        return [
            (_taken(path, schema, part_path(root, target, f"part-{number:05d}.parquet"), path_of(root)), Op.UPSERT)
            for number, path in enumerate(paths)
        ]

    write = Write("attach", {**info, "detail": str(folder_path)}, conditions_of(batch_id))
    return write_files(table.handles, write, produce)


def _check_keys(table: TableAccess, folder_path: PurePath, paths: Sequence[PurePath], schema: TableSchema) -> None:
    """One row per key and commit: what stands twice would be told apart by nothing."""
    if not schema.keyed:
        return
    for path in paths:
        if missing := set(schema.key) - set(open_file(path).schema_arrow.names):
            raise InvalidRequest(f"{path} lacks column {min(missing)!r}, which is part of the key of {table.name}")
    sources = [Source(str(path), -1, size_bytes(path)) for path in paths]
    bad = table.runtime.serving.key_queries.duplicate_keys(sources, schema.select(schema.key))
    if bad.num_rows:
        examples = ", ".join(str(tuple(row[name] for name in schema.key)) for row in bad.to_pylist())
        raise InvalidRequest(
            f"{folder_path}: some values of {', '.join(schema.key)} are null or stand more than once, e.g. {examples}: "
            "attach takes one row per key; load the files with ingest instead"
        )


def _taken(path: PurePath, schema: TableSchema, target: PurePath, root: PurePath) -> Written:
    """The file's rows, checked, in the table's layout. What lies in the order of the key is never in memory whole."""
    try:
        return _write(_in_key_order(path, schema), schema, target, root)
    except _NotInOrder:
        rows = pa.concat_tables([schema.columns.empty_table(), *_rows(path, schema)])
        return _write([sort_by(rows, schema.key)], schema, target, root)


class _NotInOrder(Exception):
    """Internal: the file has to be sorted."""


def _in_key_order(path: PurePath, schema: TableSchema) -> Iterator[pa.Table]:
    last: pa.Table | None = None
    for batch in _rows(path, schema):
        if schema.keyed and batch.num_rows:
            keys = batch.select(list(schema.key))
            lines = keys if last is None else pa.concat_tables([last, keys])
            if not strictly_ascending([column.combine_chunks() for column in lines.columns]):
                raise _NotInOrder
            last = keys.slice(keys.num_rows - 1)
        yield batch


def _rows(path: PurePath, schema: TableSchema) -> Iterator[pa.Table]:
    for batch in batches_of(path, open_file(path).schema_arrow.remove_metadata()):
        try:
            yield rows_of(batch, schema)
        except InvalidRequest as error:
            raise InvalidRequest(f"{path}: {error}") from error


def _write(batches: Iterable[pa.Table], schema: TableSchema, target: PurePath, root: PurePath) -> Written:
    writer = PartWriter(target, schema.columns, Layout.of(schema))
    try:
        for batch in batches:
            writer.write(batch)
        return writer.close(root)
    except BaseException:
        writer.abandon()
        raise
