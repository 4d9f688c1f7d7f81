"""Iceberg on Spark: format 3, merge on read, a Hadoop catalog."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.drivers.spark import COLUMNS, SparkTable, session, warehouse


class IcebergSpark(SparkTable):
    name = "peers.shop.orders"

    def __init__(self, folder: Path) -> None:
        super().__init__(
            session(
                {
                    "spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
                    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
                    "spark.sql.catalog.peers": "org.apache.iceberg.spark.SparkCatalog",
                    "spark.sql.catalog.peers.type": "hadoop",
                    "spark.sql.catalog.peers.warehouse": warehouse(folder),
                }
            )
        )

    def create(self) -> object:
        modes = ", ".join(f"'write.{kind}.mode' = 'merge-on-read'" for kind in ("merge", "update", "delete"))
        return self.spark.sql(
            f"CREATE TABLE {self.name} ({COLUMNS}) USING iceberg TBLPROPERTIES ('format-version' = '3', {modes})"
        )

    def compact(self) -> object:
        self.spark.sql(
            "CALL peers.system.rewrite_data_files(table => 'shop.orders', options => map('rewrite-all', 'true'))"
        )
        return self.spark.sql("CALL peers.system.rewrite_manifests('shop.orders')")


make = IcebergSpark
