"""What a run of a pipeline did, and what it would do: facts per step, with a sentence for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

from lithify.core.fields import Count, Documented, Example, Seconds
from lithify.core.html import table_html
from lithify.core.json_out import jsonable
from lithify.core.wording import plural

Outcome = Literal["done", "idle", "failed", "stopped"]


@dataclass(frozen=True)
class StepReport(Documented):
    """What a run did for one step.

    `since` and `until` are seqs of the source: what came after the one, up to the other, is in the target now.
    """

    step: Annotated[str, "The pipeline and the step.", Example("sales.daily")]
    kind: Annotated[str, "files, rows, groups, full, or stream.", Example("groups")]
    outcome: Annotated[Outcome, "done, idle (there was nothing to do), failed or stopped."]
    source: Annotated[str, "The table or the files that it reads.", Example("shop.orders")]
    target: Annotated[str, "The table that it keeps.", Example("shop.daily")]
    why: Annotated[str, "What called for it, or why it failed."] = ""
    since: Annotated[int | None, "The seq of the source from which it read on; null: it read everything."] = None
    until: Annotated[int | None, "The seq of the source up to which the target holds everything now."] = None
    files: Annotated[Count, "Files that it read."] = 0
    read: Annotated[Count, "Rows of the source that it looked at; of a step by groups, rows that changed."] = 0
    written: Annotated[Count, "Rows that it wrote."] = 0
    deleted: Annotated[Count, "Rows that it deleted."] = 0
    quarantined: Annotated[Count, "Records that it set aside."] = 0
    quarantine: Annotated[str | None, "Where they lie, below the target."] = None
    warned: Annotated[
        Mapping[str, int], "Rows for which an expectation that only warns does not hold, by its name."
    ] = field(default_factory=dict)
    lookups: Annotated[Mapping[str, int], "The seqs of the tables that its query looked things up in."] = field(
        default_factory=dict
    )
    seq: Annotated[int | None, "The seq of its commit."] = None
    seconds: Annotated[Seconds, "How long it took."] = 0.0

    @property
    def lineage(self) -> str:
        return lineage(self.source, self.since, self.until, self.files)


@dataclass(frozen=True)
class PipelineReport(Documented):
    """What a run did."""

    pipeline: Annotated[str, "The name of the pipeline, or of the stream.", Example("sales")]
    run: Annotated[str, "Its id.", Example("3f0c9a4e5b7d4c1e8a2b6d9f0e1c2b3a")]
    started_ms: Annotated[int, "When it began, in milliseconds since 1970."]
    outcome: Annotated[Outcome, "done, idle (there was nothing to do), failed or stopped."]
    steps: Annotated[Sequence[StepReport], "What it did, step by step, as far as it came."]
    seconds: Annotated[Seconds, "How long it took."]
    reason: Annotated[str | None, "Why it failed."] = None

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = jsonable(self)
        return found

    def _repr_html_(self) -> str:
        names = ("step", "kind", "outcome", "lineage", "target", "read", "written", "deleted", "quarantined", "why")
        rows = [[getattr(step, name) for name in names] for step in self.steps]
        return table_html(names, rows, f"run of pipeline {self.pipeline}: {self.outcome}", self.reason)


@dataclass(frozen=True)
class StepPlan(Documented):
    """What a step would do now."""

    step: Annotated[str, "The pipeline and the step.", Example("sales.daily")]
    kind: Annotated[str, "files, rows, groups, full, or stream.", Example("groups")]
    source: Annotated[str, "The table or the files that it reads.", Example("shop.orders")]
    target: Annotated[str, "The table that it keeps.", Example("shop.daily")]
    does: Annotated[str, "nothing, everything (from all of its source), or its kind.", Example("groups")]
    why: Annotated[str, "What calls for it.", Example("changes")]
    since: Annotated[int | None, "The seq of the source from which it would read on."] = None
    until: Annotated[int | None, "The seq of the source up to which it would read."] = None
    changed: Annotated[
        int | None,
        "Rows that changed since its last run, or new files; null: not known before a step before it has run, or "
        "without reading everything.",
    ] = None
    files: Annotated[Sequence[str], "The first of the files that it would read."] = ()
    lookups: Annotated[Sequence[str], "Tables that its query looks things up in."] = ()
    expectations: Annotated[Sequence[str], "What is expected of its rows, and what happens otherwise."] = ()
    creates: Annotated[bool, "Whether it would create the target."] = False
    columns: Annotated[Mapping[str, str], "Columns of the target, and their types; empty: nobody asked Spark."] = field(
        default_factory=dict
    )
    key: Annotated[Sequence[str], "Key columns of the target."] = ()


@dataclass(frozen=True)
class PipelinePlan(Documented):
    """What a run would do now."""

    pipeline: Annotated[str, "The name of the pipeline, or of the stream.", Example("sales")]
    steps: Annotated[Sequence[StepPlan], "In the order in which they would run."]

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = jsonable(self)
        return found

    def _repr_html_(self) -> str:
        names = ("step", "kind", "does", "why", "source", "changed", "target")
        rows = [[getattr(step, name) for name in names] for step in self.steps]
        return table_html(names, rows, f"plan of pipeline {self.pipeline}")


def lineage(source: str, since: int | None, until: int | None, files: int) -> str:
    """Where the rows of a commit came from."""
    if until is None:
        return f"{source} ({plural(files, 'file')})"
    return f"{source} {'' if since is None else f'{since} '}→ {until}"


def report_of(document: Mapping[str, Any]) -> PipelineReport | None:
    """The inverse of `PipelineReport.document`; None for a line of another version that does not fit."""
    try:
        steps = [StepReport(**_known(StepReport, step)) for step in document["steps"]]
        return PipelineReport(**{**_known(PipelineReport, document), "steps": steps})
    except (KeyError, TypeError, AttributeError):
        return None


def _known(kind: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    return {each.name: document[each.name] for each in fields(kind) if each.name in document}
