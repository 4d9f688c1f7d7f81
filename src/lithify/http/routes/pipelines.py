"""Declared pipelines and streams: how they are, what they did, and a run on demand.

A token for some tables sees those whose tables it may all read or maintain, and runs those whose targets it may all
write. What it may not see is not there for it. Texts are told without the lake's place on disk.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import TypeAdapter
from starlette.responses import JSONResponse

from lithify.core.json_out import jsonable
from lithify.errors import Forbidden, NotFound
from lithify.http.auth import Caller, Watcher, needs
from lithify.http.documents.maintenance import HISTORY_MAX, known
from lithify.http.documents.pipelines import (
    PipelineRunsDocument,
    PipelinesDocument,
    PlannedRunDocument,
    RunBegunDocument,
    RunOrder,
)
from lithify.http.json_route import JsonRoute
from lithify.http.openapi import NO_JSON, body_like, failing
from lithify.http.placeless import placeless
from lithify.http.routes.table_maintenance import JsonIfAny
from lithify.http.service import LakeDep
from lithify.lake.lake import Lake
from lithify.pipelines.entries import Entry
from lithify.pipelines.reports import PipelineReport
from lithify.pipelines.status import PipelineStatus

LIST_MAX, NAME_MAX = 1_000, 64
PipelinePath = Annotated[
    str, Path(description="The pipeline or stream, as the list tells it.", max_length=NAME_MAX, examples=["sales"])
]
EXAMPLES = {"Do it": {}, "Only look": {"dry_run": True}, "One step, from the start": {"step": "daily", "full": True}}
_STATUS: TypeAdapter[PipelineStatus] = TypeAdapter(PipelineStatus)

router = APIRouter(prefix="/pipelines", tags=["pipelines"], route_class=JsonRoute)


@router.get("", summary="Declared pipelines and streams, and how they are")
def pipelines(
    lake: LakeDep,
    caller: Watcher,
    after: Annotated[str | None, Query(description="Only those after this one.", min_length=1, max_length=64)] = None,
    limit: Annotated[int, Query(description="How many at most.", ge=1, le=LIST_MAX)] = 100,
) -> PipelinesDocument:
    """What runs now and what ran last, in whichever process; when the next run is due here; how far each step is behind
    its source. Looks at the logs of their tables and lists their files, and starts nothing.
    """
    entries = lake.pipeline_runner.entries
    names = [name for name, entry in entries.items() if _sees(caller, entry)]
    if after is not None:
        names = names[names.index(after) + 1 :] if after in names else []
    return PipelinesDocument(pipelines=[_status(lake, name) for name in names[:limit]], more=len(names) > limit)


@router.get("/{pipeline}", summary="How one of them is")
def pipeline(lake: LakeDep, caller: Watcher, pipeline: PipelinePath) -> PipelineStatus:
    """The same of one."""
    return _status(lake, _seen(lake, caller, pipeline).name)


@router.get("/{pipeline}/runs", summary="What its earlier runs did, newest first")
def pipeline_runs(
    lake: LakeDep,
    caller: Watcher,
    pipeline: PipelinePath,
    limit: Annotated[int, Query(description="Runs at most.", ge=1, le=HISTORY_MAX)] = 20,
) -> PipelineRunsDocument:
    """Step by step: where rows came from, how many were written, deleted and set aside, which expectations did not
    hold, and why a run failed. What is kept is bounded: a quarter of a megabyte for each.
    """
    entry = _seen(lake, caller, pipeline)
    found = known(PipelineReport, placeless(lake, lake.pipeline_runs(entry.name, limit)))
    return PipelineRunsDocument(pipeline=entry.name, runs=found)


@router.post(
    "/{pipeline}/run",
    status_code=202,
    summary="Run it now, in the background",
    responses={
        200: {"model": PlannedRunDocument, "description": "With `dry_run`: what would be done."},
        **failing(
            _409="It is running already, and `details.run` is the run's id.",
            _415=NO_JSON,
            _503="Spark could not be used for the dry run.",
        ),
    },
    dependencies=[JsonIfAny],
    response_model=RunBegunDocument,
)
def run_pipeline(
    lake: LakeDep,
    caller: Annotated[Caller, needs("write", per_table=True)],
    pipeline: PipelinePath,
    order: Annotated[RunOrder | None, body_like(EXAMPLES)] = None,
) -> RunBegunDocument | JSONResponse:
    """Answers at once with the run's id: `GET /v1/pipelines/{pipeline}` shows it in `running`, then in `last`. A dry
    run answers when it is done, and asks Spark only if there is something to do. 400 for a step that it does not have.
    """
    entry, order = _writable(lake, caller, pipeline), order or RunOrder()
    if order.dry_run:
        plan = lake.plan_pipeline(entry.name, full=order.full, step=order.step)
        return JSONResponse(placeless(lake, {"plan": jsonable(plan)}), 200)
    run = lake.trigger_pipeline(entry.name, full=order.full, step=order.step)
    return RunBegunDocument(pipeline=entry.name, run=run)


def _status(lake: Lake, name: str) -> PipelineStatus:
    (found,) = lake.pipeline_status(name)
    return _STATUS.validate_python(placeless(lake, jsonable(found)))


# -- what a caller may see


def _sees(caller: Caller, entry: Entry) -> bool:
    """All of its tables: what it tells of a run says something of each of them."""
    return all(caller.may("read", table) or caller.may("maintain", table) for table in (*entry.sources, *entry.targets))


def _seen(lake: Lake, caller: Caller, name: str) -> Entry:
    entry = lake.pipeline_runner.entry(name) if caller.may("read") or caller.may("maintain") else _if_any(lake, name)
    if entry is None or not _sees(caller, entry):
        raise _not_there(name)
    return entry


def _writable(lake: Lake, caller: Caller, name: str) -> Entry:
    entry = lake.pipeline_runner.entry(name) if caller.may("write") else _if_any(lake, name)
    if entry is None or not any(caller.may("write", table) for table in entry.targets):
        raise _not_there(name)
    if not all(caller.may("write", table) for table in entry.targets):
        raise Forbidden(f"token {caller.token.name} does not have the scope write for every table that {entry} keeps")
    return entry


def _if_any(lake: Lake, name: str) -> Entry | None:
    return lake.pipeline_runner.entries.get(name)


def _not_there(name: str) -> NotFound:
    return NotFound(f"there is no pipeline and no stream {name!r} that this token may see")
