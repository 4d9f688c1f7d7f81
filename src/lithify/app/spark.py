"""A Spark session from settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lithify.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_session(settings: Settings) -> SparkSession:
    from lithify.spark.session import SparkOptions, local_session

    return local_session(
        SparkOptions(
            master=settings.spark_master,
            remote=settings.spark_remote,
            driver_memory=settings.spark_driver_memory,
            shuffle_partitions=settings.spark_shuffle_partitions,
            extra_conf=settings.spark_conf,
        )
    )


def release_session(session: SparkSession) -> None:
    from lithify.spark.session import release

    release(session)
