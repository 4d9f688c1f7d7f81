"""What all drivers on Spark have in common: one local session of two cores, rows from Parquet files, SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.peers.drivers import TOTALS, Change, Totals, totals_of

SHUFFLE_PARTITIONS = 4
CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
    "spark.driver.memory": "4g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
}
COLUMNS = "id BIGINT, customer BIGINT, amount BIGINT, status STRING, placed TIMESTAMP, note STRING"


def session(conf: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.master("local[2]")
    for name, value in {**CONF, **conf}.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


class SparkTable:
    """A table that takes SQL: INSERT, MERGE, DELETE. Others override what they do otherwise."""

    name = "orders"

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        spark.range(1).count()  # the session is there, as it is where people work

    def create(self) -> object:
        raise NotImplementedError

    def load(self, change: Change) -> object:
        self.create()
        self._source(change)
        return self.spark.sql(f"INSERT INTO {self.name} SELECT * FROM source")

    def upsert(self, change: Change) -> object:
        self._source(change)
        return self.spark.sql(
            f"MERGE INTO {self.name} AS t USING source AS s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def delete(self, keys: Sequence[int]) -> object:
        return self.spark.sql(f"DELETE FROM {self.name} WHERE id IN ({', '.join(map(str, keys))})")

    def totals(self) -> Totals:
        return totals_of([tuple(row) for row in self.spark.sql(TOTALS.format(self.name)).collect()])

    def get(self, key: int) -> int | None:
        found = self.spark.sql(f"SELECT amount FROM {self.name} WHERE id = {key}").collect()
        return int(found[0][0]) if found else None

    def compact(self) -> object:
        raise NotImplementedError

    def close(self) -> object:
        return self.spark.stop()

    def _source(self, change: Change) -> None:
        self.spark.read.parquet(str(change.file)).createOrReplaceTempView("source")


def warehouse(folder: Path) -> str:
    return str(folder / "warehouse")
