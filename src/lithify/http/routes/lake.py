"""The lake as a whole: what it is, which service answers, and what the caller may do."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from lithify import __version__
from lithify.errors import LithifyError
from lithify.files.disk_space import disk_space
from lithify.http.auth import Caller, needs
from lithify.http.documents.lake import (
    DiskDocument,
    LakeDocument,
    LineDocument,
    SchemaDocument,
    SeriesDocument,
    TableColumns,
    caller_document,
)
from lithify.http.documents.tables import answer_columns
from lithify.http.series import INTERVAL_S, lines_of
from lithify.http.service import LakeDep, ServiceDep
from lithify.http.tokens import SCOPES
from lithify.lake.internals import internals

TABLES_MAX = 1_000

router = APIRouter(tags=["lake"])


@router.get("/lake", summary="The lake, this service, and who asks")
def lake(lake: LakeDep, caller: Annotated[Caller, needs(*SCOPES, per_table=True)]) -> LakeDocument:
    """Any valid token may ask. It tells no path and no name of a table, and looks at none."""
    store = internals(lake).runtime.store
    space = None if store.remote else disk_space(lake.path)
    return LakeDocument(
        name=lake.path.name,
        version=__version__,
        storage="bucket" if store.remote else "folder",
        disk=None if space is None else DiskDocument(bytes=space.bytes, free_bytes=space.free_bytes),
        caller=caller_document(caller.token),
    )


@router.get("/schema", summary="Tables with their columns")
def schema(
    lake: LakeDep,
    caller: Annotated[Caller, needs("read", per_table=True)],
    after: Annotated[
        str | None, Query(description="Only tables after this one, by name.", min_length=1, max_length=262)
    ] = None,
    limit: Annotated[int, Query(description="Tables at most.", ge=1, le=TABLES_MAX)] = 100,
) -> SchemaDocument:
    """Those that the token may read: enough to complete what somebody types. One that cannot be looked at is named in
    `unreadable`, and the others go on.
    """
    names = [name for name in lake.tables() if (after is None or name > after) and caller.may("read", name)]
    found, unreadable = [], []
    for name in names[:limit]:
        try:
            columns = answer_columns(lake.table(name).definition.columns)
            found.append(TableColumns.model_validate({"table": name, "columns": columns}))
        except LithifyError:
            unreadable.append(name)
    return SchemaDocument(tables=found, more=len(names) > limit, unreadable=unreadable)


@router.get("/series", summary="What the service did over the last hours")
def series(
    service: ServiceDep,
    _: Annotated[Caller, needs("read", "maintain")],
    since: Annotated[float, Query(description="Only samples after this, in seconds since 1970.", ge=0, le=1e11)] = 0,
) -> SeriesDocument:
    """A point every ten seconds, of six hours; of the time before, and before the service began, one a minute, while
    anything happened. Of years, /metrics tells Prometheus.
    """
    points = service.series.since(since)
    return SeriesDocument(
        interval_s=INTERVAL_S,
        times=[point.time_s for point in points],
        lines=[LineDocument.model_validate(line) for line in lines_of(points)],
    )
