"""A lake behind a service: what `lithify.connect` answers. Its methods are those of `Lake`, where they make sense.

What needs the server's files or its Spark (adopt, ingest, to_spark, the index) says so, and where to do it instead.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast
from urllib.parse import quote

import pyarrow as pa

from lithify.client.documents import (
    answered_rows,
    as_of_document,
    columns_document,
    cycle_report_of,
    facts_of,
    field_of,
    rebuilt,
)
from lithify.client.erasure import RemoteErasure, keys_listed
from lithify.client.table import HISTORY_MAX, RemoteTable, check_actor, checked_batch_id, only_here, only_local
from lithify.client.transport import ARROW, TIMEOUT_S, Call, Transport
from lithify.core.arguments import check_batch_id, check_text
from lithify.core.html import Listed
from lithify.core.lake_methods import LakeMethods, Wish, counts
from lithify.core.names import TableName, parse_table_name
from lithify.core.results import CacheStats, ErasurePlan, Executed, HotTableStats, TableExplanation
from lithify.core.schema import TableSchema
from lithify.errors import InvalidRequest, LimitExceeded, NotFound, Unavailable
from lithify.maintenance.reports import CycleReport, RunningJob
from lithify.options.tiers import TierNames, tier_names
from lithify.pipelines.reports import PipelinePlan
from lithify.pipelines.status import PipelineStatus
from lithify.sql.limits import Answer, RunningQuery, Source
from lithify.sql.parameters import Parameters, bound
from lithify.sql.statements.first_word import is_definition, is_statement

if TYPE_CHECKING:
    from lithify.client.table import AsOf


CYCLE_LOOK_S = 0.5


def connect(
    address: str,
    token: str | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    verify: bool | str | Path | ssl.SSLContext = True,
) -> RemoteLake:
    """A lake behind a service: `lithify.connect("http://127.0.0.1:8080", token="lith_…")`.

    `timeout_s`: how long an answer may take; folds and other maintenance may take longer. `verify`: a file of
    certificates (PEM) to trust, or False to trust whoever answers.
    """
    return RemoteLake(Transport(address, token, timeout_s=timeout_s, verify=verify))


class RemoteLake(LakeMethods[RemoteTable]):
    """Get one from `lithify.connect`. Threads may share it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.cache = RemoteCache(transport)

    def __repr__(self) -> str:
        return f"RemoteLake({self.path!r})"

    @property
    def path(self) -> str:
        """The service's address."""
        return self._transport.address

    def close(self) -> None:
        """Give back the connections. Nothing acknowledged depends on it."""
        self._transport.close()

    # -- tables

    def _create(
        self, name: TableName, definition: TableSchema, if_not_exists: bool, options: Mapping[str, Any] | None
    ) -> RemoteTable:
        groups = {order: list(names) for order, names in definition.order_groups.items()}
        document = {
            "name": str(name),
            "columns": columns_document(definition.columns),
            "key": list(definition.key),
            "order_by": definition.order_json,
            "time": definition.time,
            "partition_by": list(definition.partition_by),
            **({"merge_rules": dict(definition.merge_rules)} if definition.merge_rules else {}),
            **({"order_groups": groups} if groups else {}),
            **({"defaults": dict(definition.column_defaults)} if definition.column_defaults else {}),
            "if_not_exists": if_not_exists,
            "options": dict(options or {}),
        }
        self._ask("POST", "/tables", json=document, again=if_not_exists)
        return self.table(str(name))

    def table(self, name: str) -> RemoteTable:
        """Open a table."""
        name = str(parse_table_name(name))
        return RemoteTable(self._transport, name, self._ask("GET", f"/tables/{quote(name)}", again=True))

    def tables(self) -> list[str]:
        return list(field_of(self._get("/tables"), "tables"))

    def drop_table(self, name: str) -> None:
        name = str(parse_table_name(name))
        self._ask("DELETE", f"/tables/{quote(name)}")

    # -- SQL

    def sql(self, query: str, as_of: AsOf = None, *, parameters: Parameters = None) -> pa.Table:
        """Run a SELECT, fresh. All its rows, or LimitExceeded: an answer is never cut without a word. Of a statement
        that writes (`execute`) the answer is one row of counts. `parameters`: values for $1, $2, … or :name.
        """
        check_text("a query", query)
        if is_statement(query):
            if as_of is not None:
                raise InvalidRequest("as_of is for reading: a statement that writes goes by the newest rows")
            return counts(self.execute(query, parameters))
        query = bound(query, parameters)
        answer = self.query(query, as_of)
        if answer.cut:
            raise LimitExceeded(
                f"the answer has more than the {answer.rows.num_rows:,} rows that this service answers with: add a "
                "LIMIT, aggregate, or raise its setting query_rows_max; in Python, query() answers with the rows up to "
                "there",
                limit="rows",
            )
        return answer.rows

    def _execute(self, statement: str, parameters: Parameters, wish: Wish) -> Executed:
        check_text("a statement", statement)
        check_actor(wish.actor)
        dry_run, batch_id = wish.dry_run, wish.batch_id
        check_batch_id(batch_id)
        document = {"sql": bound(statement, parameters), "dry_run": dry_run, "reason": wish.reason}
        if is_definition(statement) or dry_run:
            # Nothing recognises it if it is sent again.
            key = None if batch_id is None else checked_batch_id(batch_id)
            return rebuilt(Executed, self._ask("POST", "/query/execute", json=document, key=key, again=dry_run))
        given = contextlib.nullcontext(checked_batch_id(batch_id)) if batch_id is not None else None
        with given or self._transport.lanes.key() as key:
            found = self._ask("POST", "/query/execute", json=document, key=key, again=True)
        done = rebuilt(Executed, found)
        # A key of our own is no batch of the caller's, who has asked once.
        return done if batch_id is not None else replace(done, batch_id=None, replayed=False)

    def query(
        self,
        query: str,
        as_of: AsOf = None,
        *,
        id: str | None = None,
        timeout_s: float | None = None,
        rows_max: int | None = None,
    ) -> Answer:
        """Run a SELECT within limits. `cut`: the answer was longer than `rows_max`, or than the service allows.
        `id`: for `cancel`.
        """
        wishes = {"as_of": as_of_document(as_of), "id": id, "timeout_s": timeout_s, "rows_max": rows_max}
        document = {"sql": query} | {name: value for name, value in wishes.items() if value is not None}
        response = self._transport.send(Call("POST", "/query/sql", json=document, accept=ARROW, again=True))
        facts = facts_of(response.headers)
        return Answer(
            id=facts.get("id", ""),
            rows=answered_rows(response.content, facts),
            cut=facts.get("cut") == "true",
            seconds=float(facts.get("seconds", 0)),
            source=cast("Source", facts.get("source", "files")),
            snapshots=json.loads(facts.get("snapshots", "{}")),
        )

    def explain(self, query: str, as_of: AsOf = None) -> list[TableExplanation]:
        """What `sql` would read of each table that the query names, and why. Nothing is run."""
        found = self._ask("POST", "/query/explain", json={"sql": query, "as_of": as_of_document(as_of)}, again=True)
        return Listed(rebuilt(TableExplanation, table) for table in field_of(found, "tables"))

    def cancel(self, id: str) -> bool:
        """Stop a query of this token. True if one of this id ran or waited."""
        try:
            self._ask("POST", f"/query/{quote(id, safe='')}/cancel", again=True)
        except NotFound:
            return False
        return True

    def queries(self) -> list[RunningQuery]:
        """Queries that run or wait now."""
        return Listed(rebuilt(RunningQuery, query) for query in field_of(self._get("/query/running"), "queries"))

    # -- maintenance

    def trigger_maintenance(self, tier: TierNames = None, tables: Sequence[str] | None = None) -> str:
        """Start a cycle of maintenance on the server; answers its id as soon as it has begun. Raises `Conflict`
        with the running cycle's id (`details["cycle"]`) if there is one.
        """
        if tables is not None and len(tables) != 1:
            raise InvalidRequest("a service runs a cycle for one table or for all: give one table, or none")
        query = {"tier": list(tier_names(tier)) or None, "table": tables[0] if tables else None}
        return str(field_of(self._ask("POST", "/compaction/trigger", query=query), "cycle"))

    def maintain(
        self, tier: TierNames = None, tables: Sequence[str] | None = None, *, timeout_s: float = 3600
    ) -> CycleReport:
        """One cycle of maintenance on the server, now; waits for its report."""
        cycle = self.trigger_maintenance(tier, tables)
        until = time.monotonic() + timeout_s
        while True:
            found = next((past for past in self.past_cycles(20) if past.get("cycle") == cycle), None)
            if found is not None:
                return cycle_report_of(found)
            if time.monotonic() > until:
                raise Unavailable(
                    f"cycle {cycle} has not ended within {timeout_s:g} s: it goes on; past_cycles() shows it later",
                    cycle=cycle,
                )
            time.sleep(CYCLE_LOOK_S)

    def jobs(self) -> list[RunningJob]:
        """Background jobs under way, in whichever process."""
        return Listed(rebuilt(RunningJob, job) for job in field_of(self._get("/compaction/jobs"), "jobs"))

    def ended_jobs(self, limit: int | None = None, table: str | None = None) -> list[dict[str, Any]]:
        """Jobs that ended, newest first."""
        query = {"limit": _bounded(limit), "table": table}
        return list(field_of(self._get("/compaction/history", query), "jobs"))

    def cancel_job(self, id: str) -> bool:
        """End a job that is under way, in whichever process, or the cycle that runs. False: nothing of this id is.
        Raises `Conflict` where it is too late.
        """
        check_text("the id of a job", id)
        if not id.replace("-", "").isalnum():
            return False  # no job has such an id, and no route
        try:
            self._ask("POST", f"/maintenance/jobs/{quote(id, safe='')}/cancel", again=True)
        except NotFound:
            return False
        return True

    def events(self, after: str | None = None, limit: int = 100) -> dict[str, Any]:
        """What happened a moment ago: `events`, oldest first, and `last`, the id to ask `after` next. `gap`: more has
        happened than is kept. Without `after`, the newest.
        """
        return dict(self._get("/events", {"after": after, "limit": limit}))

    def doctor(self) -> dict[str, Any]:
        """How the machine of the service, its libraries and the lake are: what `lithify doctor` tells there."""
        return dict(self._get("/doctor"))

    def series(self, since: float = 0) -> dict[str, Any]:
        """What the service did over the last hours: `times`, and `lines` with a value for each of them."""
        return dict(self._get("/series", {"since": since}))

    def running_cycle(self) -> dict[str, Any] | None:
        """Who runs a cycle of maintenance on this lake now, if anybody."""
        cycle: dict[str, Any] | None = field_of(self._get("/compaction/jobs"), "cycle")
        return cycle

    def past_cycles(self, limit: int | None = None) -> list[dict[str, Any]]:
        """What earlier cycles did, newest first."""
        return list(field_of(self._get("/compaction/history", {"limit": _bounded(limit)}), "cycles"))

    def table_maintenance(self, name: str) -> dict[str, Any]:
        """A table's numbers, what is due on it, its last job, and what failed and waits to be tried again."""
        name = str(parse_table_name(name))
        document: dict[str, Any] = dict(field_of(self._get("/compaction/stats", {"table": name}), "tables")[0])
        if (problem := document.pop("error", None)) is not None:
            raise Unavailable(str(problem), table=name)
        return document

    # -- pipelines

    def pipelines(self) -> list[str]:
        """Names of the pipelines of the service's settings."""
        return [status.pipeline for status in self.pipeline_status() if status.kind == "pipeline"]

    def pipeline_status(self, name: str | None = None) -> list[PipelineStatus]:
        """How declared pipelines and streams are, or one of them: what runs, what ran, how far behind each step is."""
        if name is not None:
            return Listed([rebuilt(PipelineStatus, self._get(_pipeline(name)))])
        found, after = Listed[PipelineStatus](), None
        while True:
            page = self._get("/pipelines", {"limit": HISTORY_MAX, "after": after})
            found += [rebuilt(PipelineStatus, each) for each in field_of(page, "pipelines")]
            if not page.get("more"):
                return found
            after = found[-1].pipeline

    def pipeline_runs(self, name: str, limit: int | None = None) -> list[dict[str, Any]]:
        """What earlier runs of a declared pipeline or stream did, newest first. Those that found nothing to do are not
        among them.
        """
        return list(field_of(self._get(f"{_pipeline(name)}/runs", {"limit": _bounded(limit)}), "runs"))

    def plan_pipeline(self, name: str, *, full: bool = False, step: str | None = None) -> PipelinePlan:
        """What a run of a declared pipeline or stream would do now. Nothing is written."""
        order = {"dry_run": True, "full": full, "step": step}
        found = self._ask("POST", f"{_pipeline(name)}/run", json=order, again=True, work=True)
        return rebuilt(PipelinePlan, field_of(found, "plan"))

    def trigger_pipeline(self, name: str, *, full: bool = False, step: str | None = None) -> str:
        """Run a declared pipeline or stream now on the server, in the background; answers the run's id. Raises
        `Conflict` while it runs, wherever that is.
        """
        return str(field_of(self._ask("POST", f"{_pipeline(name)}/run", json={"full": full, "step": step}), "run"))

    # -- erasure

    def erase(
        self,
        name: str,
        keys: Any = None,
        *,
        where: str | None = None,
        history: Literal["rewrite", "cut"] = "rewrite",
        reason: str | None = None,
        actor: str | None = None,
        rows_max: int = 1000,
        break_pins: bool = False,
        dry_run: bool = False,
    ) -> RemoteErasure | ErasurePlan:
        """Erase rows from a table, its past and its files (docs/erasure.md), with a token of the scope `erase`. When it
        returns they are hidden: no read of the table shows them. The service's maintenance does the rest, which `wait`
        waits for. `salt` of what is answered is kept nowhere else.
        """
        check_actor(actor)
        order: dict[str, Any] = {
            "table": str(parse_table_name(name)),
            "history": history,
            "reason": reason,
            "rows_max": rows_max,
        }
        order |= {} if where is None else {"where": where}
        order |= {} if keys is None else {"keys": keys_listed(keys)}
        if dry_run:
            return rebuilt(ErasurePlan, self._ask("POST", "/erasures/plan", json=order, again=True, work=True))
        begun = self._ask("POST", "/erasures", json={**order, "break_pins": break_pins}, work=True)
        return RemoteErasure(self._transport, begun)

    def erasures(self) -> list[RemoteErasure]:
        """Erasures of tables that the token may erase from, oldest first; the newest thousand."""
        found = field_of(self._get("/erasures", {"limit": HISTORY_MAX}), "erasures")
        return Listed(RemoteErasure(self._transport, each) for each in found[::-1])

    def erasure(self, id: str) -> RemoteErasure:
        """One erasure by its id: to wait for it, cancel it, or read its receipt."""
        check_text("the id of an erasure", id)
        return RemoteErasure(self._transport, self._get(f"/erasures/{quote(id, safe='')}"))

    # -- what only a local lake can do

    @property
    def spark(self) -> NoReturn:
        raise only_local("Spark", "open the lake with Lake(path) where it is, or read with to_arrow or sql")

    spark_sql = only_here("spark_sql", "run statements with execute, or open the lake with Lake(path) where Spark is")
    adopt = only_here("adopt", "run `lithify adopt` where the lake is: the files to adopt must be there, too")
    ingest = only_here("ingest", "write the rows with append or upsert, or run `lithify ingest` where the lake is")
    start_maintenance = only_here(
        "start_maintenance", "`lithify serve` does this by itself; trigger_maintenance starts a cycle"
    )
    start_pipelines = only_here("start_pipelines", "`lithify serve` does this by itself; trigger_pipeline starts a run")
    # Names that they had before, and still have.
    upkeep, trigger_upkeep, table_upkeep = maintain, trigger_maintenance, table_maintenance
    start_upkeep = start_maintenance
    pipeline = only_here("pipeline", "trigger_pipeline runs a declared one; others run where the lake is")

    on_change = only_here("on_change", "ask for changes(since=…) of a table again and again")

    def _get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        return self._ask("GET", path, query=query, again=True)

    def _ask(self, method: str, path: str, **request: Any) -> Any:
        return self._transport.ask(Call(method, path, **request))


def _pipeline(name: str) -> str:
    check_text("the name of a pipeline", name)
    return f"/pipelines/{quote(name, safe='')}"


def _bounded(limit: int | None) -> int:
    return HISTORY_MAX if limit is None else min(limit, HISTORY_MAX)


class RemoteCache:
    """The hot cache of a service, told from afar: the methods of `Lake.cache`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def pin(self, name: str, columns: Sequence[str] | None = None) -> HotTableStats:
        """Load a table, or these columns of it, on the server now, and keep it there until it is unpinned."""
        return rebuilt(HotTableStats, self._post("pin", {"table": name, "columns": columns and list(columns)}))

    def unpin(self, name: str) -> bool:
        """Let a table go when room is needed. Whether it was pinned."""
        return bool(field_of(self._post("unpin", {"table": name}), "unpinned"))

    def evict(self, name: str | None = None) -> int:
        """Give up a table, or everything, a pin too; answers how many bytes that gave back."""
        return int(field_of(self._post("evict", {"table": name}), "bytes"))

    def stats(self) -> CacheStats:
        return rebuilt(CacheStats, self._transport.ask(Call("GET", "/query/cache/stats", again=True)))

    def _post(self, verb: str, document: dict[str, Any]) -> Any:
        return self._transport.ask(Call("POST", f"/query/cache/{verb}", json=document, again=True, work=verb == "pin"))
