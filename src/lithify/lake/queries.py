"""Queries within limits, as a lake runs them for its users, and a service for the callers it lets in."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lithify.core.arguments import check_text
from lithify.core.html import Listed
from lithify.core.names import TableName
from lithify.core.read_plan import PlannedTable
from lithify.core.results import TableExplanation
from lithify.lake.catalog_queries import catalog_answer
from lithify.lake.open_tables import AsOf
from lithify.sql.explain import explanation_of
from lithify.sql.isolated.cage import MayRead
from lithify.sql.limits import Answer
from lithify.sql.query_run import QueryRun

if TYPE_CHECKING:
    from lithify.lake.internals import LakeInternals


def run_query(
    lake: LakeInternals,
    query: str,
    as_of: AsOf = None,
    *,
    id: str | None = None,
    timeout_s: float | None = None,
    rows_max: int | None = None,
    memory_bytes_max: int | None = None,
    may_read: MayRead | None = None,
    only: str | None = None,
    owner: str | None = None,
) -> Answer:
    """As `Lake.query`, on behalf of somebody. `may_read(name)` is asked before a table is opened, and of other tables
    the files cannot be read there. `only`: the one table that this query may name. `owner`: at most
    `token_queries_max` of the queries that run are of one.
    """
    with lake.limited(
        query,
        id=id,
        timeout_s=timeout_s,
        rows_max=rows_max,
        memory_bytes_max=memory_bytes_max,
        may_read=may_read,
        owner=owner,
    ) as within:
        if (told := catalog_answer(lake, query, may_read)) is not None:
            return Answer(within.id, told, False, time.monotonic() - within.started_at, "answer", {})
        query, table_of = lake.planned_in(query, as_of, may_read, only)
        outcome = lake.runtime.serving.run(query, table_of, lake.names, within)
        seconds = time.monotonic() - within.started_at
        lake.runtime.activity.answered(outcome.source, outcome.rows.num_rows, seconds, cut=outcome.cut)
        return Answer(within.id, outcome.rows, outcome.cut, seconds, outcome.source, outcome.snapshots)


def explain_query(
    lake: LakeInternals,
    query: str,
    as_of: AsOf = None,
    *,
    may_read: MayRead | None = None,
    within: QueryRun | None = None,
) -> list[TableExplanation]:
    """As `Lake.explain`. `within`: the query is planned in a process of its own (`LakeInternals.limited`)."""
    lake.open_tables.check_open()
    check_text("a query", query)
    planned = lake.planned(as_of, may_read)
    resolved: dict[tuple[str, int, int], bool] = {}

    def table_of(namespace: str, name: str) -> PlannedTable | None:
        found = planned(namespace, name)
        if found is not None:
            open_table = lake.open_tables.get(TableName(namespace, name))
            resolved[found.snapshot.identity] = open_table.reader.keeps(found.snapshot)
        return found

    uses = lake.runtime.serving.explain(query, table_of, lake.names, within)
    return Listed(explanation_of(use, resolved=resolved[use.plan.snapshot.identity]) for use in uses)
