"""What a run of a pipeline did, and what it would do: facts per step, with a sentence for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lithify.core.html import table_html
from lithify.core.json_out import jsonable
from lithify.core.wording import plural

Outcome = Literal["done", "idle", "failed", "stopped"]


@dataclass(frozen=True)
class StepReport:
    """`since` and `until` are seqs of the source: what came after the one, up to the other, is in the target now.

    `read`: rows of the source that the step looked at; of a step by groups, rows that changed.
    """

    step: str
    kind: str
    outcome: Outcome
    source: str
    target: str
    why: str = ""
    since: int | None = None
    until: int | None = None
    files: int = 0
    read: int = 0
    written: int = 0
    deleted: int = 0
    quarantined: int = 0
    quarantine: str | None = None
    warned: Mapping[str, int] = field(default_factory=dict)
    lookups: Mapping[str, int] = field(default_factory=dict)
    seq: int | None = None
    seconds: float = 0.0

    @property
    def lineage(self) -> str:
        return lineage(self.source, self.since, self.until, self.files)


@dataclass(frozen=True)
class PipelineReport:
    pipeline: str
    run: str
    started_ms: int
    outcome: Outcome
    steps: Sequence[StepReport]
    seconds: float
    reason: str | None = None

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = jsonable(self)
        return found

    def _repr_html_(self) -> str:
        names = ("step", "kind", "outcome", "lineage", "target", "read", "written", "deleted", "quarantined", "why")
        rows = [[getattr(step, name) for name in names] for step in self.steps]
        return table_html(names, rows, f"run of pipeline {self.pipeline}: {self.outcome}", self.reason)


@dataclass(frozen=True)
class StepPlan:
    """What a step would do now. `changed`: rows that changed since its last run; None: it is not known before a step
    before it has run, or without reading everything.
    """

    step: str
    kind: str
    source: str
    target: str
    does: str
    why: str
    since: int | None = None
    until: int | None = None
    changed: int | None = None
    files: Sequence[str] = ()
    lookups: Sequence[str] = ()
    expectations: Sequence[str] = ()
    creates: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    key: Sequence[str] = ()


@dataclass(frozen=True)
class PipelinePlan:
    pipeline: str
    steps: Sequence[StepPlan]

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
