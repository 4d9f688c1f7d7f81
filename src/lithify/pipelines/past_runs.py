"""What runs of pipelines and streams did: a bounded journal for each, so that a busy one leaves the others theirs.

Runs that found nothing to do are not among them. What stands in the one journal that all shared before is still read.
"""

from __future__ import annotations

import logging
from pathlib import PurePath
from typing import Any

from lithify.errors import LithifyError, NotFound
from lithify.jobs.past_jobs import Journal
from lithify.pipelines.reports import PipelineReport
from lithify.tables.runtime import Runtime

logger = logging.getLogger(__name__)

BYTES_MAX = 1 << 18
_FOLDER, _SHARED, _ENDING = "pipelines", "pipelines.jsonl", ".jsonl"


def remember(runtime: Runtime, report: PipelineReport) -> None:
    """That it cannot be written down is no failure of the run."""
    try:
        _journal(runtime, report.pipeline).append(report.document())
    except LithifyError as error:
        logger.warning("run %s of pipeline %s is not in the history: %s", report.run, report.pipeline, error)


def past_runs(runtime: Runtime, name: str | None = None, limit: int | None = None) -> list[dict[str, Any]]:
    """Of one of them, or of all, newest first."""
    names = [each for each in _names(runtime) if name in (None, each)]
    found = [record for each in names for record in _journal(runtime, each).read(limit)]
    if limit is None or len(found) < limit or name is None:
        shared = Journal(runtime.store, _history(runtime) / _SHARED).read()
        found += [record for record in shared if name in (None, record.get("pipeline"))]
    found.sort(key=_started_ms, reverse=True)
    return found[:limit]


def _started_ms(record: dict[str, Any]) -> int:
    started = record.get("started_ms")
    return started if isinstance(started, int) else 0


def _names(runtime: Runtime) -> list[str]:
    try:
        found = runtime.store.names(_history(runtime) / _FOLDER)
    except NotFound:
        return []
    return [name.removesuffix(_ENDING) for name in found if name.endswith(_ENDING)]


def _journal(runtime: Runtime, name: str) -> Journal:
    return Journal(runtime.store, _history(runtime) / _FOLDER / f"{name}{_ENDING}", BYTES_MAX)


def _history(runtime: Runtime) -> PurePath:
    return runtime.control / "history"
