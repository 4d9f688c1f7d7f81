"""Fresh reads in Spark: base rows, minus the keys that changed, plus the rows that replace them.

The driver has resolved the changes into two Arrow tables: `dropped`, the keys of base rows to hide, and
`rows`, what to show instead. `stage` lays them down once as Parquet (shipping them with every query is what
costs), and `merge` hides the dropped rows in the cheapest exact way:

- BITMAP: one integer-like key in a narrow range. One bit per value: no join. Few bits are handed over with the query,
  which spares Spark a job that fetches them; more of them are a one-row file.
- JOIN: any other key. A broadcast anti-join; beyond some millions of keys Spark chooses the join itself.
- POSITIONS: a JOIN whose rows `locate` has looked up. Base files never change, so "row 17 of file A" stays
  true; the filter is a bitmap over positions, and the key column (dear to read, if it is text) stays unread.

No filter here rests on a hash of a key: the driver does not know the keys in base, so a collision would hide
an innocent row. Only public DataFrame calls: local mode, a cluster and Spark Connect run the same plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DateType, LongType, StructField, StructType, TimestampType

from lithify.core.column_types import Family, type_of
from lithify.files.addresses import is_remote
from lithify.files.staging import stage_folder
from lithify.spark.parquet import no_rows, staged_rows
from lithify.spark.schemas import column_named

MAX_BITS = 1 << 29  # a bitmap of 64 MB
FREE_BITS = 1 << 24  # 2 MB are broadcast in no time, however few keys they stand for
BITS_PER_KEY = 1 << 10
BROADCAST_MAX_KEYS = 4_000_000
SCALAR_MAX_WORDS = 1 << 20
HANDED_MAX_WORDS = 1 << 18
MAX_SLOT_BITS = 16
ROW_GROUP_ROWS = 131_072  # so that several tasks can share a large file of rows

_WORDS, _ROW, _FILE = "__lithify_words", "__lithify_row", "__lithify_file"
_NOWHERE = -(1 << 62)  # a position before every bit, whatever is added to it
_Ints = npt.NDArray[np.int64]


class FilterKind(StrEnum):
    NONE = "none"
    BITMAP = "bitmap"
    JOIN = "join"
    POSITIONS = "positions"


@dataclass(frozen=True)
class StagedOverlay:
    """An overlay laid down in a folder that every executor can see."""

    kind: FilterKind
    rows_path: str | None = None
    # The keys (JOIN), or one row with an array of 64-bit words; None: words that are handed over with the query.
    filter_path: str | None = None
    keys: int = 0
    null_safe: bool = False
    words: int = 0
    low: int = 0  # BITMAP: bit i stands for the value low + i * step
    high: int = 0
    step: int = 1
    slot_shift: int = 0  # POSITIONS: (hash of the file's path >>> shift) & mask is different for each file
    slot_mask: int = 0


def choose_filter(dropped: pa.Table) -> FilterKind:
    """The cheapest exact way to hide these keys, from their types, number and density alone."""
    if dropped.num_rows == 0:
        return FilterKind.NONE
    column = dropped.column(0)
    if dropped.num_columns == 1 and column.null_count == 0 and _is_ordinal(column.type):
        low, high, step = _range(_ordinals(column))
        if (high - low) // step < min(max(FREE_BITS, BITS_PER_KEY * dropped.num_rows), MAX_BITS):
            return FilterKind.BITMAP
    return FilterKind.JOIN


def stage(folder: PurePath, dropped: pa.Table, rows: pa.Table, *, null_safe: bool) -> StagedOverlay:
    """Write the overlay to `folder`, which appears whole or not at all.

    An overlay is a function of its snapshot: if the folder is there already, somebody else staged the same.
    `null_safe`: nulls in the key columns equal each other (tables without a key).
    """
    staged = StagedOverlay(choose_filter(dropped), keys=dropped.num_rows, null_safe=null_safe)
    files: dict[str, pa.Table] = {}
    if rows.num_rows:
        files["rows.parquet"] = rows
        staged = replace(staged, rows_path=_uri(folder / "rows.parquet"))
    if staged.kind is FilterKind.JOIN:
        files["filter.parquet"] = dropped
    if staged.kind is FilterKind.BITMAP:
        low, high, step = _range(_ordinals(dropped.column(0)))
        staged = replace(staged, low=low, high=high, step=step, words=(high - low) // step // 64 + 1)
        if staged.words > HANDED_MAX_WORDS:
            files["filter.parquet"] = _one_row(_words(staged, dropped))
    if "filter.parquet" in files:
        staged = replace(staged, filter_path=_uri(folder / "filter.parquet"))
    stage_folder(folder, files, ROW_GROUP_ROWS)
    return staged


def locate(
    spark: SparkSession,
    touched: DataFrame,
    staged: StagedOverlay,
    schema: StructType,
    key: Sequence[str],
    folder: PurePath,
) -> StagedOverlay:
    """Look up where in `touched` the dropped rows are, so that later reads need not look at keys.

    Costs one scan of the key columns with a join: worth it for a snapshot that is read several times. The result
    serves `touched` or any part of it, and no other file. Comes back unchanged where positions cannot win, or would
    be too large.
    """
    if staged.kind is not FilterKind.JOIN:
        return staged
    rows = _with_position(touched, key)
    sizes = rows.groupBy(_FILE).agg((F.max(_ROW) + 1).alias("rows")).toArrow()
    codes, counts = np.asarray(sizes.column(_FILE)), np.asarray(sizes.column("rows"))
    padded = (counts + 63) // 64 * 64
    slots = _slots(codes)
    # Fewer codes than files: two paths share a hash, or a file is empty. Neither is worth more than this line.
    if slots is None or len(codes) != len(set(touched.inputFiles())) or int(padded.sum()) > MAX_BITS:
        return staged
    hits = _anti_join(spark, rows, staged, schema, key, "left_semi").select(_FILE, _ROW).toArrow()
    shift, mask = slots
    order = np.argsort(codes)
    starts = np.cumsum(padded) - padded
    found = order[np.searchsorted(codes[order], np.asarray(hits.column(_FILE)))]
    # The array starts with one word per slot, the place of its file's first bit; then come the bits.
    heads = np.full(mask + 1, _NOWHERE, np.int64)
    heads[_slot(codes, shift, mask)] = starts + 64 * len(heads)
    bits = _bits(starts[found] + np.asarray(hits.column(_ROW)), int(padded.sum()))
    words = np.concatenate([heads, bits])
    stage_folder(folder, {"positions.parquet": _one_row(words)}, ROW_GROUP_ROWS)
    return replace(
        staged,
        kind=FilterKind.POSITIONS,
        filter_path=_uri(folder / "positions.parquet"),
        words=len(words),
        slot_shift=shift,
        slot_mask=mask,
    )


def merge(
    spark: SparkSession,
    clean: DataFrame | None,
    touched: DataFrame | None,
    staged: StagedOverlay,
    dropped: pa.Table,
    schema: StructType,
    key: Sequence[str],
) -> DataFrame:
    """The fresh table: `clean`, what the overlay leaves of `touched`, and the overlay's rows. `dropped`: as staged."""
    parts = [clean] if clean is not None else []
    if touched is not None:
        parts.append(_hide(spark, touched, staged, dropped, schema, key))
    if staged.rows_path is not None:
        parts.append(staged_rows(spark, staged.rows_path, schema))
    if not parts:
        return no_rows(spark, schema)
    return reduce(DataFrame.unionAll, parts)


def _hide(
    spark: SparkSession,
    touched: DataFrame,
    staged: StagedOverlay,
    dropped: pa.Table,
    schema: StructType,
    key: Sequence[str],
) -> DataFrame:
    if staged.kind is FilterKind.NONE:
        return touched
    if staged.kind is FilterKind.JOIN:
        return _anti_join(spark, touched, staged, schema, key, "left_anti")
    one_row = _words_frame(spark, staged, dropped)
    words, source = one_row.scalar(), touched
    if staged.kind is FilterKind.POSITIONS:
        source = _with_position(touched, schema.names)
    # A scalar costs nothing per row, but every task deserialises it anew; a broadcast is shared by its tasks.
    if staged.words > SCALAR_MAX_WORDS:
        words, source = F.col(_WORDS), source.crossJoin(F.broadcast(one_row))
    if staged.kind is FilterKind.POSITIONS:
        code = F.shiftrightunsigned(F.col(_FILE), staged.slot_shift)
        head = F.get(words, code.bitwiseAND(F.lit(staged.slot_mask)).cast("int"))
        hidden = _bit(words, head + F.col(_ROW), 0)
    else:
        hidden = _bit_of_value(words, staged, schema[key[0]])
    left = source.filter(~F.coalesce(hidden, F.lit(False)))
    return left if source is touched else left.select(*[column_named(name) for name in schema.names])


def _words_frame(spark: SparkSession, staged: StagedOverlay, dropped: pa.Table) -> DataFrame:
    one_row = StructType([StructField(_WORDS, ArrayType(LongType()))])
    if staged.filter_path is None:
        return spark.createDataFrame(_one_row(_words(staged, dropped)), one_row)
    return staged_rows(spark, staged.filter_path, one_row)


def _bit_of_value(words: Column, staged: StagedOverlay, field: StructField) -> Column:
    value = column_named(field.name)
    if isinstance(field.dataType, DateType):
        value = F.unix_date(value)
    elif isinstance(field.dataType, TimestampType):
        value = F.unix_micros(value)
    value = value.cast("long")
    if staged.step == 1:
        return _bit(words, value, staged.low)
    # CASE, not AND: out of range the subtraction may overflow, which ANSI mode turns into an error.
    distance, step = value - F.lit(staged.low), F.lit(staged.step)
    inside = F.when(value.between(staged.low, staged.high), distance % step == 0)
    return F.when(inside, _bit(words, F.call_function("div", distance, step), 0))


def _bit(words: Column, index: Column, low: int) -> Column:
    """Bit `index - low`, null if there is none. `low` is a multiple of 64: words can be subtracted, which
    unlike subtracting values never overflows."""
    word = F.get(words, (F.shiftright(index, 6) - F.lit(low >> 6)).try_cast("int"))
    return F.getbit(word, index.bitwiseAND(F.lit(63)).cast("int")) == 1


def _with_position(touched: DataFrame, columns: Sequence[str]) -> DataFrame:
    metadata = touched.metadataColumn("_metadata")
    position = [F.xxhash64(metadata["file_path"]).alias(_FILE), metadata["row_index"].alias(_ROW)]
    return touched.select(*[column_named(name) for name in columns], *position)


def _anti_join(
    spark: SparkSession,
    rows: DataFrame,
    staged: StagedOverlay,
    schema: StructType,
    key: Sequence[str],
    how: str,
) -> DataFrame:
    assert staged.filter_path is not None
    keys = staged_rows(spark, staged.filter_path, StructType([schema[name] for name in key]))
    names = [f"__lithify_k{i}" for i in range(len(key))]  # no name may mean a column on both sides
    keys = keys.select(*[column_named(old).alias(new) for old, new in zip(key, names, strict=True)])
    sides = [(column_named(old), F.col(new)) for old, new in zip(key, names, strict=True)]
    same = [a.eqNullSafe(b) if staged.null_safe else a == b for a, b in sides]
    if staged.keys <= BROADCAST_MAX_KEYS:
        keys = F.broadcast(keys)
    return rows.join(keys, reduce(Column.__and__, same), how)


def _slot(codes: _Ints, shift: int, mask: int) -> _Ints:
    return ((codes.view(np.uint64) >> np.uint64(shift)) & np.uint64(mask)).astype(np.int64)


def _slots(codes: _Ints) -> tuple[int, int] | None:
    """A shift and a mask that give every hash a slot of its own: all files are known, so this is exact."""
    for width in range(max(1, (len(codes) - 1).bit_length()), MAX_SLOT_BITS + 1):
        for shift in range(64 - width):
            if len(np.unique(_slot(codes, shift, (1 << width) - 1))) == len(codes):
                return shift, (1 << width) - 1
    return None


def _is_ordinal(kind: pa.DataType) -> bool:
    # Not a timestamp without zone: Spark turns those into a number only through the session's zone.
    known = type_of(kind)
    return known.is_counted and (known.family is not Family.TIMESTAMP or kind.tz is not None)


def _ordinals(column: Any) -> _Ints:
    return np.asarray(type_of(column.type).ordered(column).cast(pa.int64()))


def _range(values: _Ints) -> tuple[int, int, int]:
    """Lowest, highest, and the step that all distances share (whole seconds in microseconds, say).

    The lowest stands in the code that Spark compiles for a query. Without a step it is rounded down, which adds an
    eighth to the range at most: after the next change it is mostly the same, and so is the code.
    """
    low, high = int(values.min()), int(values.max())
    step = 1 if high - low >= 1 << 62 else max(1, int(np.gcd.reduce(values - low)))  # beyond, it may not fit
    unit = 1 << max(6, (high - low).bit_length() - 4)
    return low // unit * unit if step == 1 else low, high, step


def _words(staged: StagedOverlay, dropped: pa.Table) -> _Ints:
    index = (_ordinals(dropped.column(0)) - staged.low) // staged.step
    return _bits(index, (staged.high - staged.low) // staged.step + 1)


def _bits(index: _Ints, size: int) -> _Ints:
    flags = np.zeros((size + 63) // 64 * 64, np.bool_)
    flags[index] = True
    return np.packbits(flags, bitorder="little").view(np.int64)


def _one_row(words: _Ints) -> pa.Table:
    return pa.table({_WORDS: pa.array([words], pa.list_(pa.int64()))})


def _uri(path: PurePath) -> str:
    return str(path) if is_remote(path) else f"file://{path}"
