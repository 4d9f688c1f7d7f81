"""Fresh reads in Spark: base rows, minus the keys that changed, plus the rows that replace them.

The driver has resolved the changes into two Arrow tables: `dropped`, the keys of base rows to hide, and
`rows`, what to show instead. A join per query would cost more than the scan, so `stage` lays the overlay
down once as Parquet and `merge` turns hiding into a filter over a one-row broadcast:

- BITMAP: one integer-like key, dense enough. One bit per value of the range: exact, one array look-up.
- BUCKETS: any other key that can be hashed. A bitmap over `xxhash64(key)` lets nearly every row pass at
  once; the rest look into `buckets[hash]`, a short list of real keys. A hash alone could hide an innocent
  row, so a key is hidden only after comparing the key itself.
- JOIN: everything larger or stranger: an anti-join.

Only public DataFrame calls, so local mode, a cluster and Spark Connect run the same plan.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DateType, LongType, StructField, StructType, TimestampType

BITMAP_MAX_BITS = 1 << 29  # 64 MB
BITMAP_FREE_BITS = 1 << 24  # 2 MB are broadcast in no time, however few keys they hold
BITMAP_BITS_PER_KEY = 1 << 10
BUCKETS_MAX_KEYS = 2_000_000
BUCKETS_MAX_BYTES = 128 << 20
BROADCAST_MAX_KEYS = 4_000_000
ROW_GROUP_ROWS = 131_072  # so that several tasks can share a large file of rows

_BITS, _BUCKETS = "__lithify_bits", "__lithify_buckets"
_U64 = npt.NDArray[np.uint64]


class FilterKind(StrEnum):
    NONE = "none"
    BITMAP = "bitmap"
    BUCKETS = "buckets"
    JOIN = "join"


@dataclass(frozen=True)
class StagedOverlay:
    """An overlay laid down in a folder that every executor can see."""

    kind: FilterKind
    rows_path: str | None = None
    filter_path: str | None = None  # the keys (JOIN) or one row with the arrays (BITMAP, BUCKETS)
    keys: int = 0
    null_safe: bool = False
    low: int = 0  # BITMAP: bit i stands for the value low + i * step
    high: int = 0
    step: int = 1
    bit_mask: int = 0  # BUCKETS: which bits of the hash address the bitmap, and which the buckets
    bucket_mask: int = 0
    as_struct: bool = False  # BUCKETS: keys are structs (composite or nullable): compared null-safe


def choose_filter(dropped: pa.Table) -> FilterKind:
    """The cheapest exact way to hide these keys, from their types, number and density alone."""
    if dropped.num_rows == 0:
        return FilterKind.NONE
    ordinal = dropped.num_columns == 1 and _is_ordinal(dropped.schema.field(0).type)
    if ordinal and dropped.column(0).null_count == 0:
        low, high, step = _range(_ordinals(dropped.column(0)))
        allowed = max(BITMAP_FREE_BITS, BITMAP_BITS_PER_KEY * dropped.num_rows)
        if (high - low) // step < min(allowed, BITMAP_MAX_BITS):
            return FilterKind.BITMAP
    small = dropped.num_rows <= BUCKETS_MAX_KEYS and dropped.nbytes <= BUCKETS_MAX_BYTES
    return FilterKind.BUCKETS if small and all(map(_is_hashable, dropped.schema.types)) else FilterKind.JOIN


def stage(folder: Path, dropped: pa.Table, rows: pa.Table, *, null_safe: bool) -> StagedOverlay:
    """Write the overlay to `folder`, which appears whole or not at all.

    An overlay is a function of its snapshot: if the folder is there already, somebody else staged the same.
    `null_safe`: nulls in the key columns equal each other (tables without a key).
    """
    kind = choose_filter(dropped)
    facts: dict[str, Any] = {"kind": kind, "keys": dropped.num_rows, "null_safe": null_safe}
    table = dropped
    if kind is FilterKind.BITMAP:
        table, layout = _bitmap(dropped)
        facts |= layout
    elif kind is FilterKind.BUCKETS:
        table, layout = _buckets(dropped)
        facts |= layout
    draft = folder.with_name(f".{folder.name}.{uuid4().hex}")
    draft.mkdir(parents=True)
    try:
        if rows.num_rows:
            facts["rows_path"] = _write(rows, draft, folder, "rows.parquet")
        if kind is not FilterKind.NONE:
            facts["filter_path"] = _write(table, draft, folder, "filter.parquet")
        if not folder.exists():
            try:
                os.rename(draft, folder)
            except OSError:
                if not folder.is_dir():
                    raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return StagedOverlay(**facts)


def merge(
    spark: SparkSession,
    clean: DataFrame | None,
    touched: DataFrame | None,
    staged: StagedOverlay,
    schema: StructType,
    key: Sequence[str],
) -> DataFrame:
    """The fresh table: `clean`, what the overlay leaves of `touched`, and the overlay's rows."""
    parts = [clean] if clean is not None else []
    if touched is not None:
        parts.append(_hide(spark, touched, staged, schema, key))
    if staged.rows_path is not None:
        parts.append(spark.read.schema(schema).parquet(staged.rows_path))
    if not parts:
        return spark.createDataFrame([], schema)
    columns = [_column(name) for name in schema.names]
    return reduce(DataFrame.unionAll, [part.select(*columns) for part in parts])


def _hide(
    spark: SparkSession, touched: DataFrame, staged: StagedOverlay, schema: StructType, key: Sequence[str]
) -> DataFrame:
    if staged.filter_path is None:
        return touched
    fields = [schema[name] for name in key]
    if staged.kind is FilterKind.JOIN:
        return _anti_join(spark, touched, staged, fields)
    layout = [StructField(_BITS, ArrayType(LongType()))]
    if staged.kind is FilterKind.BUCKETS:
        packed = StructType([StructField(f"k{i}", field.dataType) for i, field in enumerate(fields)])
        element = packed if staged.as_struct else fields[0].dataType
        layout.append(StructField(_BUCKETS, ArrayType(ArrayType(element))))
        hidden = _in_buckets(staged, [_column(name) for name in key])
    else:
        hidden = _in_bitmap(staged, fields[0])
    one_row = spark.read.schema(StructType(layout)).parquet(staged.filter_path)
    # A scalar subquery would do as well, but every task deserialises its value again; a broadcast is shared.
    return touched.crossJoin(F.broadcast(one_row)).filter(~F.coalesce(hidden, F.lit(False)))


def _in_bitmap(staged: StagedOverlay, field: StructField) -> Column:
    value = _column(field.name)
    if isinstance(field.dataType, DateType):
        value = F.unix_date(value)
    elif isinstance(field.dataType, TimestampType):
        value = F.unix_micros(value)
    value = value.cast("long")
    index, inside = value - F.lit(staged.low), value.between(staged.low, staged.high)
    if staged.step > 1:
        inside = inside & F.when(inside, index % F.lit(staged.step) == 0)
        index = F.call_function("div", index, F.lit(staged.step))
    # CASE, not AND: out of range the subtraction may overflow, which ANSI mode turns into an error.
    return F.when(inside, _bit(index))


def _in_buckets(staged: StagedOverlay, key: list[Column]) -> Column:
    code = F.xxhash64(*key)
    sought = F.struct(*[part.alias(f"k{i}") for i, part in enumerate(key)]) if staged.as_struct else key[0]
    bucket = F.get(F.col(_BUCKETS), code.bitwiseAND(F.lit(staged.bucket_mask)).cast("int"))
    return F.when(_bit(code.bitwiseAND(F.lit(staged.bit_mask))), F.array_contains(bucket, sought))


def _bit(index: Column) -> Column:
    word = F.get(F.col(_BITS), F.shiftright(index, 6).cast("int"))
    return F.getbit(word, index.bitwiseAND(F.lit(63)).cast("int")) == 1


def _anti_join(
    spark: SparkSession, touched: DataFrame, staged: StagedOverlay, fields: Sequence[StructField]
) -> DataFrame:
    assert staged.filter_path is not None
    keys = spark.read.schema(StructType(list(fields))).parquet(staged.filter_path)
    # Renamed, because both sides have these names and a self-made alias survives Spark Connect's plans.
    keys = keys.select(*[_column(f.name).alias(f"__lithify_k{i}") for i, f in enumerate(fields)])
    sides = [(_column(f.name), F.col(f"__lithify_k{i}")) for i, f in enumerate(fields)]
    same = [a.eqNullSafe(b) if staged.null_safe else a == b for a, b in sides]
    if staged.keys <= BROADCAST_MAX_KEYS:
        keys = F.broadcast(keys)
    return touched.join(keys, reduce(Column.__and__, same), "left_anti")


def _bitmap(dropped: pa.Table) -> tuple[pa.Table, dict[str, Any]]:
    values = _ordinals(dropped.column(0))
    low, high, step = _range(values)
    index = ((values - low) // step).astype(np.uint64)
    return pa.table({_BITS: _one_row(_bits(index, (high - low) // step + 1))}), {
        "low": low,
        "high": high,
        "step": step,
    }


def _buckets(dropped: pa.Table) -> tuple[pa.Table, dict[str, Any]]:
    keys = dropped.combine_chunks()
    columns = [_plain(column) for column in keys.columns]
    codes = np.full(keys.num_rows, 42, np.uint64)  # Spark's seed; each column's hash seeds the next
    for column in columns:
        codes = _hash(column, codes)
    bucket_mask = (1 << max(6, (keys.num_rows - 1).bit_length())) - 1
    bit_mask = (bucket_mask + 1) * 32 - 1
    as_struct = len(columns) > 1 or columns[0].null_count > 0
    values: Any = columns[0]
    if as_struct:
        values = pa.StructArray.from_arrays(columns, names=[f"k{i}" for i in range(len(columns))])
    slots = (codes & np.uint64(bucket_mask)).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(np.bincount(slots, minlength=bucket_mask + 1))])
    lists = pa.ListArray.from_arrays(
        pa.array(starts, pa.int32()), values.take(pa.array(np.argsort(slots, kind="stable")))
    )
    bits = _bits(codes & np.uint64(bit_mask), bit_mask + 1)
    table = pa.table({_BITS: _one_row(bits), _BUCKETS: _one_row(lists)})
    return table, {"bit_mask": bit_mask, "bucket_mask": bucket_mask, "as_struct": as_struct}


def _hash(column: Any, seeds: _U64) -> _U64:
    """Spark's `xxhash64` of a column of keys; a null leaves the seed as it is."""
    codes = seeds.copy()
    valid = np.asarray(column.is_valid())
    kind = column.type
    if not _is_text(kind):
        if pa.types.is_decimal(kind):
            words = np.frombuffer(column.buffers()[1], "<i8")[2 * column.offset :: 2][: len(column)]
        elif pa.types.is_boolean(kind):
            words = np.asarray(column.fill_null(False)).astype("<i4")
        else:
            wide = pa.types.is_int64(kind) or pa.types.is_timestamp(kind)
            whole = column.cast(pa.int32()) if pa.types.is_date(kind) else column
            words = np.asarray(whole.cast(pa.int64()).fill_null(0)).astype("<i8" if wide else "<i4")
        raw = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), -1)
        codes[valid] = _xxh64(raw[valid], seeds[valid])
        return codes
    starts = np.frombuffer(column.buffers()[1], "<i8")[column.offset :][: len(column) + 1]
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)
    sizes = np.where(valid, np.diff(starts), -1)
    for size in np.unique(sizes[valid]):  # equal lengths hash together
        at = np.flatnonzero(sizes == size)
        codes[at] = _xxh64(data[starts[at][:, None] + np.arange(size)], seeds[at])
    return codes


def _xxh64(data: npt.NDArray[np.uint8], seed: _U64) -> _U64:
    """XXH64 of every row of a byte matrix (github.com/Cyan4973/xxHash, doc/xxhash_spec.md)."""
    p1, p2, p3, p4, p5 = (np.uint64(p) for p in _PRIMES)
    size, at = data.shape[1], 0

    def lane(width: int) -> _U64:
        nonlocal at
        at += width
        return np.ascontiguousarray(data[:, at - width : at]).view(f"<u{width}")[:, 0].astype(np.uint64)

    def rotl(x: _U64, by: int) -> _U64:
        return (x << np.uint64(by)) | (x >> np.uint64(64 - by))

    def mix(acc: Any, word: _U64) -> _U64:
        return rotl(acc + word * p2, 31) * p1

    with np.errstate(over="ignore"):
        if size >= 32:
            accs = [seed + p1 + p2, seed + p2, seed, seed - p1]
            while size - at >= 32:
                accs = [mix(acc, lane(8)) for acc in accs]
            code = rotl(accs[0], 1) + rotl(accs[1], 7) + rotl(accs[2], 12) + rotl(accs[3], 18)
            for acc in accs:
                code = (code ^ mix(np.uint64(0), acc)) * p1 + p4
        else:
            code = seed + p5
        code = code + np.uint64(size)
        while size - at >= 8:
            code = rotl(code ^ mix(np.uint64(0), lane(8)), 27) * p1 + p4
        if size - at >= 4:
            code = rotl(code ^ (lane(4) * p1), 23) * p2 + p3
        while at < size:
            code = rotl(code ^ (lane(1) * p5), 11) * p1
        code = (code ^ (code >> np.uint64(33))) * p2
        code = (code ^ (code >> np.uint64(29))) * p3
        return code ^ (code >> np.uint64(32))


_PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def _is_ordinal(kind: pa.DataType) -> bool:
    # Not a timestamp without zone: Spark turns those into a number only through the session's zone.
    aware = pa.types.is_timestamp(kind) and kind.tz is not None
    return pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) or aware


def _is_hashable(kind: pa.DataType) -> bool:
    number = pa.types.is_signed_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind)
    # Wider decimals are hashed by their BigInteger bytes; not worth a second algorithm.
    decimal = pa.types.is_decimal128(kind) and kind.precision <= 18
    return number or decimal or pa.types.is_timestamp(kind) or _is_text(kind)


def _is_text(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
        )
    )


def _plain(column: pa.ChunkedArray) -> Any:
    """One array, with 64-bit offsets and microseconds: one layout to read bytes from."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.large_string())
    elif _is_text(kind):
        column = column.cast(pa.large_binary())
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz))
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)


def _ordinals(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    array = _plain(column)
    array = array.cast(pa.int32()) if pa.types.is_date(array.type) else array
    return np.asarray(array.cast(pa.int64()))


def _range(values: npt.NDArray[np.int64]) -> tuple[int, int, int]:
    """Lowest, highest, and the step that all distances share (whole seconds in microseconds, say)."""
    low, high = int(values.min()), int(values.max())
    if high - low >= 1 << 62:  # the distances themselves would not fit
        return low, high, 1
    return low, high, max(1, int(np.gcd.reduce(values - low)))


def _bits(index: _U64, size: int) -> pa.Array:
    flags = np.zeros((size + 63) // 64 * 64, np.bool_)
    flags[index] = True
    return pa.array(np.packbits(flags, bitorder="little").view("<i8"))


def _one_row(values: Any) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


def _write(table: pa.Table, draft: Path, folder: Path, name: str) -> str:
    pq.write_table(table, draft / name, coerce_timestamps="us", row_group_size=ROW_GROUP_ROWS)
    return f"file://{folder.absolute() / name}"


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")
