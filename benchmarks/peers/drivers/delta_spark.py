"""Delta Lake on Spark, with deletion vectors as new tables have them there."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.drivers.spark import COLUMNS, SparkTable, session, warehouse


class DeltaSpark(SparkTable):
    def __init__(self, folder: Path) -> None:
        self._path = folder / "orders"
        super().__init__(
            session(
                {
                    "spark.jars.packages": "io.delta:delta-spark_4.1_2.13:4.4.0",
                    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
                    "spark.sql.warehouse.dir": warehouse(folder),
                }
            )
        )
        self.name = f"delta.`{self._path}`"

    def create(self) -> object:
        return self.spark.sql(
            f"CREATE TABLE {self.name} ({COLUMNS}) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        )

    def compact(self) -> object:
        self.spark.sql(f"REORG TABLE {self.name} APPLY (PURGE)")
        return self.spark.sql(f"OPTIMIZE {self.name}")


make = DeltaSpark
