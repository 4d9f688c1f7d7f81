"""Documents about declared pipelines and streams, where no result class says them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lithify.http.documents.tables import Document, Order, Text
from lithify.pipelines.reports import PipelinePlan, PipelineReport
from lithify.pipelines.status import PipelineStatus


class PipelinesDocument(Document):
    """Declared pipelines and streams."""

    pipelines: list[PipelineStatus] = Field(description="In the order of the settings, at most `limit` of them.")
    more: bool = Field(description="Whether there are more: ask `after` the last one.")


class PipelineRunsDocument(Document):
    """What earlier runs did."""

    pipeline: str = Field(description="The name of the pipeline or stream.", examples=["sales"])
    runs: list[PipelineReport] = Field(
        description="Newest first, at most `limit` of them. Runs that found nothing to do are not among them."
    )


class RunOrder(Order):
    """Run now, or only say what that would do."""

    dry_run: bool = Field(default=False, description="Show what would be done, and do nothing.", examples=[True])
    full: bool = Field(default=False, description="From all of the source, whatever was read before.")
    step: Annotated[Text, Field(min_length=1, max_length=48)] | None = Field(
        default=None, description="Only this step of a pipeline.", examples=["daily"]
    )


class RunBegunDocument(Document):
    """A run has been asked for, and begins as soon as there is room."""

    pipeline: str = Field(description="The name of the pipeline or stream.", examples=["sales"])
    run: str = Field(description="The run's id.", examples=["3f0c9a4e5b7d4c1e8a2b6d9f0e1c2b3a"])


class PlannedRunDocument(Document):
    """What a run would do now."""

    plan: PipelinePlan = Field(description="Step by step. Nothing was done.")
