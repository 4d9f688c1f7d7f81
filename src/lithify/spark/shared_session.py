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
            executor_memory=settings.spark_executor_memory,
            executor_cores=settings.spark_executor_cores,
            shuffle_partitions=settings.spark_shuffle_partitions,
            extra_conf=settings.spark_conf,
        )
    )


def is_alive(session: SparkSession) -> bool:
    from lithify.spark import session as sessions

    return sessions.is_alive(session)


def release_session(session: SparkSession) -> None:
    from lithify.spark.session import release

    release(session)
