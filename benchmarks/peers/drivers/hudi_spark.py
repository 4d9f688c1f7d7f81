"""Hudi on Spark: merge on read, buckets as its index, compaction when it is asked for."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.drivers import Change
from benchmarks.peers.drivers.spark import COLUMNS, SparkTable, session, warehouse


class HudiSpark(SparkTable):
    name = "orders"

    def __init__(self, folder: Path) -> None:
        self._path = folder / "orders"
        super().__init__(
            session(
                {
                    "spark.jars.packages": "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",
                    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
                    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
                    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
                    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
                    "spark.sql.warehouse.dir": warehouse(folder),
                }
            )
        )

    def create(self) -> object:
        options = {
            "type": "mor",
            "primaryKey": "id",
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": "8",
            "hoodie.compact.inline": "false",
            "hoodie.upsert.shuffle.parallelism": "4",
            "hoodie.insert.shuffle.parallelism": "4",
        }
        told = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
        return self.spark.sql(
            f"CREATE TABLE {self.name} ({COLUMNS}) USING hudi TBLPROPERTIES ({told}) LOCATION '{self._path}'"
        )

    def load(self, change: Change) -> object:
        self.create()
        self._source(change)
        self.spark.sql("SET hoodie.spark.sql.insert.into.operation = bulk_insert")
        return self.spark.sql(f"INSERT INTO {self.name} SELECT * FROM source")

    def compact(self) -> object:
        self.spark.sql(f"CALL run_compaction(op => 'schedule', table => '{self.name}')")
        return self.spark.sql(f"CALL run_compaction(op => 'run', table => '{self.name}')")


make = HudiSpark
