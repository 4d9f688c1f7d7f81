"""Lithify on Spark: frames are written and read, and a look-up needs no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.drivers import TOTALS, Change, Totals, totals_of
from benchmarks.peers.drivers.spark import CONF
from lithify import Lake, Settings

NAME = "shop.orders"


class LithifySpark:
    def __init__(self, folder: Path) -> None:
        self._lake = Lake(
            folder / "lake", settings=Settings(cache_bytes_max=0, spark_conf=CONF, spark_master="local[2]")
        )
        self._spark = self._lake.spark
        self._spark.range(1).count()

    def load(self, change: Change) -> object:
        self._table = self._lake.create_table(NAME, change.rows.schema, key="id")
        return self._table.upsert(self._spark.read.parquet(str(change.file)))

    def upsert(self, change: Change) -> object:
        return self._table.upsert(self._spark.read.parquet(str(change.file)))

    def delete(self, keys: Sequence[int]) -> object:
        return self._table.delete(list(keys))

    def totals(self) -> Totals:
        self._table.to_spark().createOrReplaceTempView("orders")
        return totals_of([tuple(row) for row in self._spark.sql(TOTALS.format("orders")).collect()])

    def get(self, key: int) -> int | None:
        row = self._table.get(key)
        return None if row is None else int(row["amount"])

    def compact(self) -> object:
        return self._table.fold(), self._table.compact()

    def close(self) -> object:
        return self._lake.close()


make = LithifySpark
