"""A read plan as a Spark DataFrame: native Parquet scans, and the overlay as a filter plus one small file.

The overlay is laid down once per snapshot where every executor sees it (`remote_files.shared_folder`). It is derived
data: what this process laid down goes when it ends, and what a dead one left behind goes with the next
overlay, or, in a bucket, with a vacuum after a day in which nobody has said that it is still needed.

What was made is kept (`spark/kept_frames.py`): a snapshot that is read again gets the same DataFrame, and of a newer
one only the overlay is new. Its files are listed and analysed once for as long as no commit has changed them.

A plan whose files were pruned by a predicate shares the overlay of its snapshot: hiding a key is right in any part of
the files. The other way round it is not: where in the files the hidden rows are is only ever looked up in all of them.
"""

from __future__ import annotations

import atexit
import logging
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lithify.compute.processes import is_gone
from lithify.core.expiry import Cutoff
from lithify.core.names import GIVEN, NTH, OP, SEQ
from lithify.core.ops import Op
from lithify.core.partial_rows import PATCH_FIELDS
from lithify.core.read_plan import ReadPlan, Source, by_constants
from lithify.core.schema import TableSchema
from lithify.errors import LithifyError
from lithify.files.addresses import is_remote
from lithify.files.read_proof import check_whole
from lithify.files.staging import UNUSED_HOURS_MAX, discard, is_staged, staged_folders, still_needed
from lithify.merge.apply import distributed_sql
from lithify.merge.late import tombstone_columns
from lithify.spark import s3a
from lithify.spark.kept_frames import KeptFrames
from lithify.spark.overlay import FilterKind, StagedOverlay, locate, merge, stage
from lithify.spark.parquet import no_rows, scan_files
from lithify.spark.remote_files import names_again, shared_folder
from lithify.spark.schemas import column_named, spark_schema
from lithify.spark.tasks import SPARK_ERRORS, compute_failed

if TYPE_CHECKING:
    from lithify.settings import S3aChoice

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Frame:
    staged: StagedOverlay
    touched: DataFrame | None
    fresh: DataFrame


_staged: OrderedDict[PurePath, StagedOverlay] = OrderedDict()
_reads: dict[PurePath, int] = {}
_frames: KeptFrames[_Frame] = KeptFrames()
_scans: KeptFrames[DataFrame] = KeptFrames()
_lock = threading.Lock()
RENEWED_S = UNUSED_HOURS_MAX * 3600 / 4
READS_BEFORE_LOCATING = 2
OVERLAYS_STAGED_MAX = 16


def frame_of(
    spark: SparkSession,
    plan: ReadPlan,
    index: PurePath,
    owner: str,
    s3a_choice: S3aChoice = "off",
    wanted: Sequence[str] | None = None,
) -> DataFrame:
    """The fresh rows of the plan's files. The same files of a snapshot that is read again get the same DataFrame: they
    are listed and analysed. `wanted`: the columns that are of use, None: all of them; others may come along.
    """
    with s3a.chosen(s3a_choice):
        frame, cutoff = _frame_of(spark, plan, index, owner, wanted), plan.snapshot.cutoff
        return frame if cutoff is None else frame.where(_shown(cutoff))


def _shown(cutoff: Cutoff) -> Column:
    """That a row has not expired, whatever the session's time zone."""
    time = column_named(cutoff.column)
    if pa.types.is_date(cutoff.kind):
        value = F.date_from_unix_date(F.lit(cutoff.value))
    elif cutoff.kind.tz is None:
        value = F.lit(f"{cutoff.scalar.as_py():%Y-%m-%d %H:%M:%S.%f}").cast("timestamp_ntz")
    else:
        value = F.timestamp_micros(F.lit(cutoff.value))
    return time.isNull() | (time > value)


def _frame_of(
    spark: SparkSession, plan: ReadPlan, index: PurePath, owner: str, wanted: Sequence[str] | None
) -> DataFrame:
    columns, index = plan.schema.columns, shared_folder(spark, index)
    try:
        if plan.overlay is None:
            return _distributed(spark, plan)
        files = [*plan.clean, *plan.touched]
        names = "s3a" if s3a.reads(spark, files) else names_again(spark, files)
        key: tuple[Any, ...] = (id(spark), *plan.snapshot.identity, _selected(plan), names)
        if names is None and any(is_remote(file.path) for file in files):
            # Tasks are told what to read: nothing of it reaches them later on.
            columns = _needed(columns, wanted, plan)
            key += (tuple(columns.names), tuple(file.groups for file in files))
        cached = _frames.find(key)
        touched = cached.touched if cached else _scan_kept(spark, plan.touched, columns)
        staged = _stage_once(spark, plan, touched, index, owner)
        if cached is None or cached.staged is not staged:
            clean = _scan_kept(spark, plan.clean, columns)
            hidden = plan.overlay.hidden
            fresh = merge(spark, clean, touched, staged, hidden, spark_schema(columns), plan.by)
            cached = _Frame(staged, touched, fresh)
        _frames.keep(key, cached, len(files))
        return cached.fresh
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error


def _needed(columns: pa.Schema, wanted: Sequence[str] | None, plan: ReadPlan) -> pa.Schema:
    """With what tells hidden rows."""
    if wanted is None:
        return columns
    cutoff = plan.snapshot.cutoff
    needed = {*wanted, *plan.by, *(() if cutoff is None else (cutoff.column,))}
    return pa.schema([field for field in columns if field.name in needed])


def _scan_kept(spark: SparkSession, sources: Sequence[Source], columns: pa.Schema) -> DataFrame | None:
    """A scan of files that have not changed since one was made is that one, with columns of its own: frames of two
    snapshots are told apart in a join.
    """
    if not sources:
        return None
    if any(is_remote(source.path) for source in sources):  # a local copy may have another name by now
        return scan(spark, sources, columns)
    as_they_are = tuple(
        (source.path, check_whole(source.path, source.size_bytes), source.size_bytes, source.constants)
        for source in sources
    )
    key = (id(spark), columns, as_they_are)
    kept = _scans.find(key)
    if kept is None:
        kept = scan(spark, sources, columns)
        _scans.keep(key, kept, len(sources))
    return kept.toDF(*columns.names)


def only(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    return frame.select(*[column_named(name) for name in columns])


def _is_whole(plan: ReadPlan) -> bool:
    return plan.pruning is None or plan.pruning.files_read == plan.pruning.files_total


def _selected(plan: ReadPlan) -> tuple[str, ...] | None:
    """What tells the files of this plan from another choice of the same snapshot; None: all of them."""
    return None if _is_whole(plan) else tuple(source.path for source in (*plan.clean, *plan.touched))


def scan(spark: SparkSession, sources: Iterable[Source], columns: pa.Schema) -> DataFrame:
    parts = []
    for constants, group in by_constants(sources).items():
        fixed = dict(constants)
        inside = pa.schema([f for f in columns if f.name not in fixed])
        frame = scan_files(spark, group, spark_schema(inside))
        for name, value in fixed.items():
            frame = frame.withColumn(name, F.lit(value).cast(spark_schema(columns)[name].dataType))
        parts.append(frame.select(*[column_named(name) for name in columns.names]) if fixed else frame)
    return reduce(DataFrame.unionAll, parts)


def _stage_once(
    spark: SparkSession, plan: ReadPlan, touched: DataFrame | None, index: PurePath, owner: str
) -> StagedOverlay:
    """Lay the overlay down at the first read of a snapshot; a snapshot that is read often also gets positions."""
    assert plan.overlay is not None
    snapshot = plan.snapshot
    folder = index / f"overlay-{owner}-{snapshot.changes_version}-{snapshot.base_version}"
    with _lock:
        staged = _staged.get(folder)
        if staged is None or not is_staged(folder):
            if not _staged:
                atexit.register(_remove_all)
            if is_remote(folder):
                _keep_alive()
            _sweep(index)
            discard(folder)
            staged = stage(folder, plan.overlay.hidden, plan.overlay.rows, null_safe=not plan.schema.keyed)
        elif _worth_locating(plan, staged, folder):
            assert touched is not None
            located = folder.with_name(f"{folder.name}-located")
            discard(located)
            staged = locate(spark, touched, staged, spark_schema(plan.schema.columns), plan.by, located)
        _staged[folder] = staged
        _staged.move_to_end(folder)
        _forget_old(index)
        if _is_whole(plan):
            _reads[folder] = _reads.get(folder, 0) + 1
        return staged


def _forget_old(index: PurePath) -> None:
    """DataFrames of older snapshots may still wait to be run; beyond this many, they are asked for anew."""
    of_table = [folder for folder in _staged if folder.parent == index]
    for folder in of_table[:-OVERLAYS_STAGED_MAX]:
        _remove(folder)
        del _staged[folder]
        _reads.pop(folder, None)


def _worth_locating(plan: ReadPlan, staged: StagedOverlay, folder: PurePath) -> bool:
    """Looking the rows up costs about what it saves in a few reads of everything, and needs scans that say which file
    a row is of, by names that stay for ever. What is found must serve every choice of files, so it is looked up in all
    of them.
    """
    plain = bool(plan.touched) and not any(source.constants or is_remote(source.path) for source in plan.touched)
    often = _reads.get(folder, 0) >= READS_BEFORE_LOCATING
    return staged.kind is FilterKind.JOIN and plain and often and _is_whole(plan)


@cache
def _keep_alive() -> None:
    """A DataFrame may wait for days before it is run, and no vacuum can tell from elsewhere that this process lives."""

    def work() -> None:
        while True:
            time.sleep(RENEWED_S)
            renew()

    threading.Thread(target=work, name="lithify-overlays", daemon=True).start()


def renew() -> None:
    """Say of all overlays of this process in buckets that they are still needed."""
    with _lock:
        folders = [folder for folder in _staged if is_remote(folder)]
    for folder in folders:
        try:
            still_needed(folder)
        except LithifyError as error:
            logger.warning("%s may be taken away by a vacuum: %s", folder, error)


def _sweep(index: PurePath) -> None:
    """Overlays of processes that are gone. A DataFrame of a living one may still be waiting to read its own."""
    host = socket.gethostname()
    for folder in staged_folders(index, f"overlay-{host}-"):
        pid = folder.name.removeprefix(f"overlay-{host}-").split("-")[0]
        if pid.isdigit() and is_gone(int(pid)):
            discard(folder)


def _remove_all() -> None:
    for folder in list(_staged):
        _remove(folder)


def _remove(folder: PurePath) -> None:
    discard(folder)
    discard(folder.with_name(f"{folder.name}-located"))


def _distributed(spark: SparkSession, plan: ReadPlan) -> DataFrame:
    """Changes beyond one machine's memory: the same merge as one SQL text, shuffled by Spark."""
    columns = plan.schema.columns
    standing = (*plan.clean, *plan.touched)
    base = scan(spark, standing, columns) if standing else no_rows(spark, spark_schema(columns))
    groups: dict[tuple[int, str], list[Source]] = {}
    for source in plan.changes:
        groups.setdefault((source.seq, source.op.value), []).append(source)
    partial = any(op == Op.UPDATE for _, op in groups)
    parts = []
    for (seq, op), group in groups.items():
        given = op == Op.UPDATE
        part = scan(spark, group, pa.schema([*columns, *PATCH_FIELDS]) if given else columns)
        beside = {SEQ: F.lit(seq).cast("long"), OP: F.lit(op)}
        if partial and not given:
            beside |= {GIVEN: F.lit(None).cast("string"), NTH: F.lit(0).cast("int")}
        part = part.withColumns(beside)
        names = [*columns.names, SEQ, OP, *((GIVEN, NTH) if partial else ())]
        parts.append(part.select(*[column_named(name) for name in names]))
    changes = reduce(DataFrame.unionAll, parts)
    late: str | None = None
    more: dict[str, Any] = {}
    if plan.remembered is not None and plan.remembered.num_rows:
        late, more = "{remembered}", {"remembered": tombstones_frame(spark, plan.schema, plan.remembered)}
    query = distributed_sql(
        plan.schema, "{base}", "{changes}", plan.snapshot.row_key, quote="`", partial=partial, remembered=late
    )
    return spark.sql(query, base=base, changes=changes, **more)


def tombstones_frame(spark: SparkSession, schema: TableSchema, tombstones: pa.Table) -> DataFrame:
    """Remembered deletes, under names that no column of a table has."""
    renamed = tombstones.rename_columns(tombstone_columns(schema)).combine_chunks()
    return spark.createDataFrame(renamed, spark_schema(renamed.schema))
