"""How declared pipelines and streams are: what runs, what ran, when the next run is, how far behind each step is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from lithify.core.fields import Count, Example
from lithify.core.html import Shown
from lithify.pipelines.reports import PipelineReport

State = Literal["running", "failing", "waiting", "on request"]


@dataclass(frozen=True)
class StepStatus(Shown):
    """One step, and how far behind its source its target is."""

    step: Annotated[str, "The pipeline and the step.", Example("sales.daily")]
    kind: Annotated[str, "files, rows, groups, full, or stream.", Example("groups")]
    source: Annotated[str, "The table or the files that it reads.", Example("shop.orders")]
    target: Annotated[str, "The table that it keeps.", Example("shop.daily")]
    table: Annotated[str | None, "The source, if that is a table of the lake.", Example("shop.orders")] = None
    why: Annotated[str, "What calls for it now, or why there is nothing to do.", Example("up to date")] = ""
    idle: Annotated[bool, "Whether there is nothing to do."] = True
    since: Annotated[int | None, "The seq of the source up to which the target holds everything."] = None
    until: Annotated[int | None, "The newest seq of the source; null of files, or if it is not there."] = None
    lag: Annotated[int | None, "How many seqs it is behind; null of files.", Example(0)] = None
    files: Annotated[int | None, "Files that it has not read yet; null of tables, or if that is not known."] = None
    expectations: Annotated[Sequence[str], "What is expected of its rows, and what happens otherwise."] = ()


@dataclass(frozen=True)
class PipelineStatus(Shown):
    """A declared pipeline or stream, and how it is."""

    pipeline: Annotated[str, "Its name.", Example("sales")]
    kind: Annotated[Literal["pipeline", "stream"], "What it is."]
    state: Annotated[
        State, "running; failing: the last run failed; waiting for its next run; on request: it never runs by itself."
    ]
    schedule: Annotated[str | None, "When it runs by itself, in words.", Example("every 30 s")]
    every_s: Annotated[float | None, "Seconds between two runs, if it says `every`."]
    cron: Annotated[str | None, "Its cron expression, in UTC."]
    on: Annotated[str | None, "The table on whose changes it runs."]
    here: Annotated[bool, "Whether this process runs it by itself."]
    running: Annotated[str | None, "The id of the run that is under way, in whichever process."]
    running_by: Annotated[str | None, "Who runs it, and since when."]
    next_ms: Annotated[int | None, "When the next run is due here, in milliseconds since 1970; null: nobody knows."]
    failures: Annotated[Count, "How often in a row it failed."]
    error: Annotated[str | None, "Why it failed the last time, or why it cannot be looked at."]
    lag: Annotated[int | None, "How many seqs its steps are behind their sources, where that is the most."]
    files: Annotated[int | None, "Files that its steps have not read yet."]
    last: Annotated[PipelineReport | None, "Its last run, in whichever process."]
    succeeded_ms: Annotated[int | None, "When a run last ended well, in milliseconds since 1970."]
    steps: Annotated[Sequence[StepStatus], "In the order in which they run."]
