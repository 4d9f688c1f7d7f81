"""What a table is made of: its files by size and origin, and the ranges of its row groups."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query

from lithify.core.json_out import jsonable
from lithify.core.snapshot import DataFile
from lithify.http.auth import Reader
from lithify.http.documents.files import FileDocument, FilesDocument, GroupsDocument, SpanDocument
from lithify.http.openapi import failing
from lithify.http.routes.tables import DAMAGED, AsOf, TablePath
from lithify.http.service import LakeDep
from lithify.lake.internals import internals
from lithify.read.file_sizes import files_of, size_classes
from lithify.read.row_groups import Span, group_map

FILES_MAX, GROUPS_MAX = 10_000, 10_000

router = APIRouter(prefix="/tables/{name}", tags=["tables"])
FAILING = failing(_424=DAMAGED)


@router.get("/files", summary="The files of a table, and how large they are", responses=FAILING)
def files(
    name: TablePath,
    lake: LakeDep,
    _: Reader,
    as_of: AsOf = None,
    after: Annotated[
        str | None, Query(description="Only those after this path.", min_length=1, max_length=1000)
    ] = None,
    limit: Annotated[int, Query(description="Files at most.", ge=1, le=FILES_MAX)] = 1000,
) -> FilesDocument:
    """Told by the logs: no data file is opened. `sizes` counts all files, however few are listed."""
    snapshot = lake.table(name).snapshot(as_of)
    listed = (_file(log, file) for log, file in files_of(snapshot) if after is None or f"{log}/{file.path}" > after)
    found = list(islice(listed, limit + 1))
    return FilesDocument(
        table=name, seq=snapshot.seq, sizes=size_classes(snapshot), files=found[:limit], more=len(found) > limit
    )


@router.get("/groups", summary="The range of a column in each row group", responses=FAILING)
def groups(
    name: TablePath,
    lake: LakeDep,
    _: Reader,
    column: Annotated[
        str, Query(description="The column; a key's first one shows most.", min_length=1, max_length=255)
    ],
    as_of: AsOf = None,
    limit: Annotated[int, Query(description="Row groups, and files of changes, at most.", ge=1, le=GROUPS_MAX)] = 2000,
) -> GroupsDocument:
    """Told by log and index: no data file is opened. Row groups that cover the same range are all read by a query for
    it.
    """
    table = lake.table(name)
    snapshot = table.snapshot(as_of)
    found = group_map(internals(table).handles, snapshot, column)
    places = found.places
    return GroupsDocument(
        table=name,
        seq=snapshot.seq,
        column=column,
        linear=found.linear,
        groups=_spans(found.base, places, limit),
        groups_total=len(found.base),
        files_unknown=found.files_unknown,
        pending=_spans(found.pending, places[len(found.base) :], limit),
        pending_total=len(found.pending),
    )


def _file(log: str, file: DataFile) -> FileDocument:
    return FileDocument.model_validate(
        {
            "log": log,
            "path": f"{log}/{file.path}",
            "origin": file.origin,
            "bytes": file.size_bytes,
            "rows": file.rows if file.rows >= 0 else None,
            "seq": file.seq if log == "changes" else None,
            "operation": file.op.value if log == "changes" else None,
            "partition": jsonable(file.partition) if log == "base" else {},
            "time_ms": file.time_ms,
        }
    )


def _spans(spans: Sequence[Span], places: Sequence[tuple[float, float] | None], limit: int) -> list[SpanDocument]:
    return [
        SpanDocument(
            file=span.path,
            origin=span.origin,
            rows=span.rows,
            bytes=span.bytes,
            seq=span.seq,
            low=jsonable(span.low),
            high=jsonable(span.high),
            place=place,
        )
        for span, place in zip(spans[:limit], places, strict=False)
    ]
