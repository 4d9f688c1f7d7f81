"""Paimon on Spark: a table with a primary key and deletion vectors."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.drivers import Change
from benchmarks.peers.drivers.spark import SparkTable, session, warehouse


class PaimonSpark(SparkTable):
    name = "peers.shop.orders"

    def __init__(self, folder: Path) -> None:
        super().__init__(
            session(
                {
                    "spark.jars.packages": "org.apache.paimon:paimon-spark-3.5:0.9.0",
                    "spark.sql.extensions": "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
                    "spark.sql.catalog.peers": "org.apache.paimon.spark.SparkCatalog",
                    "spark.sql.catalog.peers.warehouse": f"file:{warehouse(folder)}",
                }
            )
        )

    def create(self) -> object:
        self.spark.sql("CREATE DATABASE IF NOT EXISTS peers.shop")
        return self.spark.sql(
            f"CREATE TABLE {self.name} (id BIGINT NOT NULL, customer BIGINT, amount BIGINT, status STRING, "
            "placed TIMESTAMP, note STRING) TBLPROPERTIES "
            "('primary-key' = 'id', 'bucket' = '4', 'deletion-vectors.enabled' = 'true')"
        )

    def upsert(self, change: Change) -> object:
        """A row of a key that is there takes its place."""
        self._source(change)
        return self.spark.sql(f"INSERT INTO {self.name} SELECT * FROM source")

    def compact(self) -> object:
        return self.spark.sql("CALL peers.sys.compact(table => 'shop.orders')")


make = PaimonSpark
