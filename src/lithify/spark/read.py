"""A read plan as a Spark DataFrame: native Parquet scans, and the overlay as a filter plus one small file.

The overlay is laid down once per snapshot in the table's `index` folder, where every executor sees it. It is
derived data: what this process laid down goes when it ends, and what a dead one left behind goes with the next
overlay.

A plan whose files were pruned by a predicate shares the overlay of its snapshot: hiding a key is right in any part of
the files. The other way round it is not: where in the files the hidden rows are is only ever looked up in all of them.
"""

from __future__ import annotations

import atexit
import socket
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from pathlib import PurePath
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lithify.compute.processes import is_gone
from lithify.core.names import OP, SEQ
from lithify.core.read_plan import ReadPlan, Source, by_constants
from lithify.files.paths import discard_tree
from lithify.files.staging import is_staged, staged_folders
from lithify.merge.apply import distributed_sql
from lithify.spark.overlay import FilterKind, StagedOverlay, locate, merge, stage
from lithify.spark.parquet import no_rows, scan_files
from lithify.spark.schemas import spark_schema
from lithify.spark.tasks import SPARK_ERRORS, compute_failed


@dataclass(frozen=True)
class _Frame:
    staged: StagedOverlay
    touched: DataFrame | None
    fresh: DataFrame
    files: int


_staged: OrderedDict[PurePath, StagedOverlay] = OrderedDict()
_reads: dict[PurePath, int] = {}
_frames: OrderedDict[tuple[Any, ...], _Frame] = OrderedDict()
_lock = threading.Lock()
READS_BEFORE_LOCATING = 2
OVERLAYS_STAGED_MAX = 16
FRAMES_CACHED_MAX = 32
FILES_CACHED_MAX = 100_000  # in all kept frames: Spark holds a status of each


def frame_of(spark: SparkSession, plan: ReadPlan, index: PurePath, owner: str) -> DataFrame:
    """The fresh rows of the plan's files. The same files of a snapshot that is read again get the same DataFrame: they
    are listed and analysed.
    """
    columns = plan.schema.columns
    try:
        if plan.overlay is None:
            return _distributed(spark, plan)
        key = (id(spark), *plan.snapshot.identity, _selected(plan))
        cached = _frames.get(key)
        touched = cached.touched if cached else scan(spark, plan.touched, columns) if plan.touched else None
        staged = _stage_once(spark, plan, touched, index, owner)
        if cached is None or cached.staged is not staged:
            clean = scan(spark, plan.clean, columns) if plan.clean else None
            fresh = merge(spark, clean, touched, staged, spark_schema(columns), plan.by)
            cached = _Frame(staged, touched, fresh, len(plan.clean) + len(plan.touched))
        _keep(key, cached)
        return cached.fresh
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error


def _keep(key: tuple[Any, ...], frame: _Frame) -> None:
    with _lock:
        _frames[key] = frame
        _frames.move_to_end(key)
        files = sum(cached.files for cached in _frames.values())
        while len(_frames) > FRAMES_CACHED_MAX or (files > FILES_CACHED_MAX and len(_frames) > 1):
            files -= _frames.popitem(last=False)[1].files


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
        parts.append(frame.select(*[F.col(f"`{name}`") for name in columns.names]))
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
            _sweep(index)
            discard_tree(folder)
            staged = stage(folder, plan.overlay.hidden, plan.overlay.rows, null_safe=not plan.schema.keyed)
        elif _worth_locating(plan, staged, folder):
            assert touched is not None
            located = folder.with_name(f"{folder.name}-located")
            discard_tree(located)
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
    a row is of. What is found must serve every choice of files, so it is looked up in all of them.
    """
    plain = bool(plan.touched) and not any(source.constants for source in plan.touched)
    often = _reads.get(folder, 0) >= READS_BEFORE_LOCATING
    return staged.kind is FilterKind.JOIN and plain and often and _is_whole(plan)


def _sweep(index: PurePath) -> None:
    """Overlays of processes that are gone. A DataFrame of a living one may still be waiting to read its own."""
    host = socket.gethostname()
    for folder in staged_folders(index, f"overlay-{host}-"):
        pid = folder.name.removeprefix(f"overlay-{host}-").split("-")[0]
        if pid.isdigit() and is_gone(int(pid)):
            discard_tree(folder)


def _remove_all() -> None:
    for folder in list(_staged):
        _remove(folder)


def _remove(folder: PurePath) -> None:
    discard_tree(folder)
    discard_tree(folder.with_name(f"{folder.name}-located"))


def _distributed(spark: SparkSession, plan: ReadPlan) -> DataFrame:
    """Changes beyond one machine's memory: the same merge as one SQL text, shuffled by Spark."""
    columns = plan.schema.columns
    standing = (*plan.clean, *plan.touched)
    base = scan(spark, standing, columns) if standing else no_rows(spark, spark_schema(columns))
    groups: dict[tuple[int, str], list[Source]] = {}
    for source in plan.changes:
        groups.setdefault((source.seq, source.op.value), []).append(source)
    parts = [
        scan(spark, group, columns).withColumn(SEQ, F.lit(seq).cast("long")).withColumn(OP, F.lit(op))
        for (seq, op), group in groups.items()
    ]
    changes = reduce(DataFrame.unionAll, parts)
    query = distributed_sql(plan.schema, "{base}", "{changes}", plan.snapshot.row_key, quote="`")
    return spark.sql(query, base=base, changes=changes)
