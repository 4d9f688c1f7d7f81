"""What a table is like and what happened to it: snapshot, stats, partitions, history."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from lithify.core.json_out import jsonable
from lithify.core.results import SnapshotStats, TableStats
from lithify.http.auth import Reader
from lithify.http.documents.maintenance import HISTORY_MAX, HistoryDocument, PartitionDocument, PartitionsDocument
from lithify.http.openapi import failing
from lithify.http.routes.tables import DAMAGED, AsOf, TablePath
from lithify.http.service import LakeDep
from lithify.read.history import stats_of

router = APIRouter(prefix="/tables/{name}", tags=["tables"])
FAILING = failing(_424=DAMAGED)


@router.get("/snapshot", summary="The version that a read would see", responses=FAILING)
def snapshot(name: TablePath, lake: LakeDep, _: Reader, as_of: AsOf = None) -> SnapshotStats:
    """Its `seq` is a token: `as_of` reads the same rows again, and `changes?since=` what came after them.

    404 if the table is not there, or no longer as of that moment.
    """
    return stats_of(lake.table(name).snapshot(as_of), SnapshotStats)


@router.get("/stats", summary="Size of a table and of its pending changes", responses=FAILING)
def stats(name: TablePath, lake: LakeDep, _: Reader) -> TableStats:
    """Told by the logs: no data file is opened."""
    return lake.table(name).stats()


@router.get("/partitions", summary="Partitions of base with their files, rows, bytes and times", responses=FAILING)
def partitions(name: TablePath, lake: LakeDep, _: Reader, as_of: AsOf = None) -> PartitionsDocument:
    """Told by log and index: no data file is opened. A table that is not partitioned has one, without values."""
    found = [PartitionDocument(**jsonable(part)) for part in lake.table(name).partitions(as_of)]
    return PartitionsDocument(table=name, partitions=found)


@router.get("/history", summary="What happened to a table, newest first", responses=FAILING)
def history(
    name: TablePath,
    lake: LakeDep,
    _: Reader,
    limit: Annotated[int, Query(description="Entries at most.", ge=1, le=HISTORY_MAX)] = 100,
) -> HistoryDocument:
    """Writes, deletes (who, when, why), schema changes, folds and compactions."""
    return HistoryDocument(table=name, history=lake.table(name).history(limit))
