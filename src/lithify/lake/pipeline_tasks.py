"""Runs of pipelines and streams beside the Spark driver: in the lake's Spark worker, or on the session it was given.

The worker is the one that maintenance uses: it is started when there is work, and given back when there has been none
for a while. A run opens the lake there and holds its lease from there, so that the lease goes with its process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lithify.files.addresses import path_of
from lithify.lake.internals import internals
from lithify.lake.lake import Lake
from lithify.pipelines.entries import declared_entries
from lithify.pipelines.reports import PipelinePlan, PipelineReport
from lithify.pipelines.stream_declaration import StreamDeclaration
from lithify.pipelines.stream_run import run_stream
from lithify.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class RunTask:
    lake: str
    settings: Settings
    name: str
    run: str
    full: bool = False
    step: str | None = None


def run_entry(spark: SparkSession, task: RunTask) -> PipelineReport:
    with _opened(spark, task) as lake:
        declared = declared_entries(task.settings)[task.name].declared
        if isinstance(declared, StreamDeclaration):
            return run_stream(internals(lake.table(declared.target)), declared, task.run)
        return lake.pipeline(task.name).run(full=task.full, step=task.step, id=task.run)


def plan_pipeline(spark: SparkSession, task: RunTask) -> PipelinePlan:
    with _opened(spark, task) as lake:
        return lake.pipeline(task.name).plan(full=task.full, step=task.step)


def _opened(spark: SparkSession, task: RunTask) -> Lake:
    return Lake(path_of(task.lake), spark, create=False, settings=task.settings)
