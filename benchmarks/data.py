"""The shop's orders, made the same in every run: sorted keys, realistic columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lithify import Lake, Table

COUNTRIES = ["DE", "FR", "US", "GB", "IT", "ES", "JP", "BR"]
STATUSES = ["new", "paid", "shipped", "returned"]


def columns(key: pa.DataType) -> pa.Schema:
    return pa.schema(
        [
            ("id", key),
            ("customer", pa.int64()),
            ("amount", pa.float64()),
            ("country", pa.string()),
            ("status", pa.string()),
            ("placed", pa.timestamp("us", "UTC")),
            ("note", pa.string()),
        ]
    )


def text_key(numbers: np.ndarray) -> pa.Array:
    return pa.array([f"order-{n:012d}" for n in numbers])


def frame(spark: SparkSession, rows: int, text: bool) -> DataFrame:
    hashed = F.xxhash64("id", F.lit(7))
    unsigned = F.pmod(hashed, F.lit(1_000_000_007))
    key = F.format_string("order-%012d", "id") if text else F.col("id")
    return spark.range(0, rows, 1, max(2, rows // 500_000)).select(
        key.alias("id"),
        F.pmod(unsigned, F.lit(200_000)).alias("customer"),
        (F.pmod(F.xxhash64("id", F.lit(11)), F.lit(10_000_000)) / 997.0).alias("amount"),
        _pick(COUNTRIES, 7).alias("country"),
        _pick(STATUSES, 13).alias("status"),
        F.timestamp_seconds(F.lit(1_700_000_000) + F.col("id")).alias("placed"),
        F.concat(F.lit("note "), F.pmod(unsigned, F.lit(50_000)).cast("string")).alias("note"),
    )


def _pick(values: list[str], seed: int) -> Column:
    number = F.pmod(F.xxhash64("id", F.lit(seed)), F.lit(len(values))) + 1
    return F.element_at(F.array(*map(F.lit, values)), number.cast("int"))


def changes(numbers: np.ndarray, text: bool, seed: int = 0) -> pa.Table:
    """New versions of the orders with these numbers."""
    rng = np.random.default_rng(seed)
    count = len(numbers)
    return pa.table(
        {
            "id": text_key(numbers) if text else pa.array(numbers, pa.int64()),
            "customer": rng.integers(0, 200_000, count),
            "amount": rng.random(count) * 1000,
            "country": pa.array(np.array(COUNTRIES)[rng.integers(0, len(COUNTRIES), count)]),
            "status": pa.array(np.array(STATUSES)[rng.integers(0, len(STATUSES), count)]),
            "placed": pa.array(1_700_000_000_000_000 + numbers * 1_000_000, pa.timestamp("us", "UTC")),
            "note": pa.array([f"note {n % 50_000}" for n in numbers]),
        }
    )


def load(lake: Lake, name: str, rows: int, *, text: bool = False) -> Table:
    """A folded table of `rows` orders, written by Spark."""
    table = lake.create_table(name, columns(pa.string() if text else pa.int64()), key="id")
    table.upsert(frame(lake.spark, rows, text))
    table.fold()
    return table


def random_keys(rows: int, count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).choice(rows, count, replace=False)


def file_paths(table: Table) -> list[str]:
    return [f"{table.base_path}/{file.path}" for file in table.snapshot().base]


def folder_bytes(path: Path) -> int:
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
