"""A table behind a service. Rows are checked here, against the columns that the service told, and travel as Arrow.

What is checked here is checked again there: this side only spares a refused batch the way, and refuses it in the same
words as a local table. A write is one commit and so one request; it carries an Idempotency-Key, the batch id or one of
its own, so that an answer that was lost is asked for again without writing twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

import pyarrow as pa

from lithify.client.alter_text import alter_text
from lithify.client.documents import (
    RemoteSnapshot,
    answered_rows,
    as_of_document,
    definition_of,
    facts_of,
    field_of,
    ipc_of,
    key_text,
    named_as,
    partition_of,
    rebuilt,
)
from lithify.client.transport import ARROW, Call, Transport
from lithify.core.arguments import check_batch_id, check_count
from lithify.core.column_changes import ColumnChange
from lithify.core.html import Listed
from lithify.core.json_rows import records
from lithify.core.missing_columns import refuses_missing
from lithify.core.names import parse_table_name, quoted
from lithify.core.ordered_deletes import deletes_at
from lithify.core.partial_rows import partial_rows_of_newest
from lithify.core.results import (
    Commit,
    CompactReport,
    Executed,
    FoldPlan,
    FoldReport,
    HistoryEntry,
    PartitionStats,
    PlannedCompaction,
    RecordSetAside,
    RestorePlan,
    Retried,
    SetAside,
    TableStats,
    Tag,
    VacuumReport,
)
from lithify.core.rows import keys_of, rows_of_newest
from lithify.core.schema import TableSchema
from lithify.core.table_methods import (
    Columns,
    OnMissing,
    OnReport,
    TableMethods,
    check_keyed,
    is_spark_frame,
    keys_to_delete,
)
from lithify.core.type_text import type_name
from lithify.errors import InvalidRequest, LimitExceeded, NotFound
from lithify.options.table_options import MissingColumns
from lithify.options.tiers import TierNames, tier_names

if TYPE_CHECKING:
    import datetime as dt

    from lithify.core.snapshot import Snapshot

    AsOf = int | str | dt.datetime | Snapshot | RemoteSnapshot | None

COMPRESS_BYTES_MIN = 2**20
HISTORY_MAX = 1_000
PAGE_RECORDS_MAX = 1_000


def only_local(what: str, instead: str) -> InvalidRequest:
    return InvalidRequest(f"{what} does not work through a service: {instead}")


def only_here(what: str, instead: str) -> Callable[..., NoReturn]:
    """A method that only the lake itself has."""

    def refuse(self: object, *_: Any, **__: Any) -> NoReturn:
        raise only_local(what, instead)

    return refuse


class RemoteTable(TableMethods[PlannedCompaction]):
    """Get one from `RemoteLake.table`."""

    def __init__(self, transport: Transport, name: str, document: Mapping[str, Any]) -> None:
        self._transport, self._name = transport, name
        self._path = f"/tables/{quote(name, safe='')}"
        self._known = definition_of(document)

    def __repr__(self) -> str:
        return f"RemoteTable({self.name!r}, {self._transport.address!r})"

    @property
    def definition(self) -> TableSchema:
        """Columns, key, order_by, time and partition_by, as they are now."""
        self._known = definition_of(self._get())
        return self._known

    @property
    def name(self) -> str:
        return self._name

    @property
    def base_path(self) -> None:
        """Base is on the server."""
        return None

    # -- writing

    def _put(
        self,
        operation: str,
        data: Any,
        batch_id: str | None,
        actor: str | None,
        schema_fingerprint: str | None,
        if_changed: bool = False,
        missing: MissingColumns | None = None,
    ) -> Commit:
        check_keyed(self.name, self._known, operation)
        check_actor(actor)
        self._check_schema(batch_id, schema_fingerprint)
        rows = self._rows(data, missing, sets=operation == "replace")
        query = {"mode": operation, "if_changed": "true" if if_changed else None, "missing": missing}
        return self._send(rows, batch_id, query, schema_fingerprint)

    def _send(
        self, rows: pa.Table, batch_id: str | None, query: Mapping[str, str | None], schema_fingerprint: str | None
    ) -> Commit:
        body = ipc_of(rows, COMPRESS_BYTES_MIN)
        try:
            return self._write("/rows", batch_id, query=query, content=body, schema=schema_fingerprint)
        except LimitExceeded as error:
            if error.details.get("limit") != "size":
                raise
            raise LimitExceeded(
                f"{rows.num_rows:,} rows ({len(body):,} bytes) are too many for one request to {self.name}: write them "
                "in several batches, or load them with `lithify ingest` where the lake is",
                **error.details,
            ) from error

    def _write(self, path: str, batch_id: str | None, **request: Any) -> Commit:
        check_batch_id(batch_id)
        given = contextlib.nullcontext(checked_batch_id(batch_id)) if batch_id is not None else None
        with given or self._transport.lanes.key() as key:
            document = self._transport.ask(Call("POST", self._path + path, key=key, again=True, **request))
        if refused := isinstance(document, dict) and document.get("refused"):
            raise InvalidRequest(
                f"{len(refused)} keys were refused and the others are deleted, seq {document['seq']}; the first of "
                f"them: {refused[0]['message']}",
                refused=refused,
            )
        commit = rebuilt(Commit, document)
        # A key of our own is no batch of the caller's, who has asked once.
        return commit if batch_id is not None else replace(commit, batch_id=None, replayed=False)

    def _check_schema(self, batch_id: str | None, fingerprint: str | None) -> None:
        """Before rows are looked at, which may not fit for that very reason. What was sent before, the server knows."""
        if fingerprint is not None and batch_id is None and fingerprint != self._known.fingerprint:
            self.definition.check_fingerprint(fingerprint, self.name)

    def _rows(self, data: Any, missing: MissingColumns | None, *, sets: bool) -> pa.Table:
        """Rows of the columns that were told last; what those refuse may fit newer ones."""
        if is_spark_frame(data):
            raise InvalidRequest(
                "a Spark DataFrame cannot be written to a service: pass frame.toArrow() if it is small, or write it "
                "with a local Lake where the lake is"
            )
        known = self.definition if self._known.column_defaults else self._known  # it may have another one by now
        return rows_of_newest(
            data, known, lambda: self.definition, lambda found: refuses_missing(found, missing), sets=sets
        )

    def _update(
        self,
        data: Any,
        missing: OnMissing,
        batch_id: str | None,
        actor: str | None,
        schema_fingerprint: str | None,
        if_changed: bool,
    ) -> Commit:
        check_keyed(self.name, self._known, "update")
        check_actor(actor)
        self._check_schema(batch_id, schema_fingerprint)
        lines = partial_rows_of_newest(data, self._known, lambda: self.definition)
        query: dict[str, str | None] = {
            "mode": "update",
            "missing": missing,
            "if_changed": "true" if if_changed else None,
        }
        return self._send(lines, batch_id, query, schema_fingerprint)

    def _retract(self, data: Any, batch_id: str | None, actor: str | None, schema_fingerprint: str | None) -> Commit:
        check_keyed(self.name, self._known, "retract")
        check_actor(actor)
        self._check_schema(batch_id, schema_fingerprint)
        lines = partial_rows_of_newest(data, self._known, lambda: self.definition)
        return self._send(lines, batch_id, {"mode": "retract"}, schema_fingerprint)

    def _delete(
        self,
        keys: Any,
        at: Any,
        batch_id: str | None,
        actor: str | None,
        reason: str | None,
        schema_fingerprint: str | None,
    ) -> Commit:
        check_actor(actor)
        self._check_schema(batch_id, schema_fingerprint)
        schema = self._known
        rows = keys_to_delete(keys, schema)
        document: dict[str, Any] = {"keys": records(rows), "reason": reason}
        if at is not None:
            lines = deletes_at(self.name, rows, at, schema)
            places = records(lines.select(list(schema.order_columns)))
            document["at"] = places if len(schema.order_columns) > 1 else [next(iter(p.values())) for p in places]
        return self._write("/delete", batch_id, json=document, schema=schema_fingerprint)

    def delete_where(
        self, condition: str, batch_id: str | None = None, *, actor: str | None = None, reason: str | None = None
    ) -> Commit:
        """Delete the rows that a SQL condition holds for, as of one exact state of the table."""
        check_actor(actor)
        return self._write("/delete-where", batch_id, json={"condition": condition, "reason": reason})

    def _restore(
        self, to: Any, batch_id: str | None, actor: str | None, reason: str | None, dry_run: bool
    ) -> Commit | RestorePlan:
        check_actor(actor)
        order = {"to": as_of_document(to), "reason": reason, "dry_run": dry_run}
        if dry_run:
            call = Call("POST", f"{self._path}/restore", json=order, again=True)
            return rebuilt(RestorePlan, self._transport.ask(call))
        return self._write("/restore", batch_id, json=order)

    # -- reading

    def snapshot(self, as_of: AsOf = None) -> RemoteSnapshot:
        """Which state of the table a read sees now, or saw at a seq or a time."""
        document = self._get("/snapshot", {"as_of": as_of_document(as_of)})
        return replace(rebuilt(RemoteSnapshot, {**document, "schema": None}), schema=self._known)

    def get(self, key: Any) -> dict[str, Any] | None:
        """One row by its key, or None."""
        if not self._known.keyed:
            raise InvalidRequest(f"table {self.name} has no key: read rows with to_arrow(where=...)")
        wanted = keys_of([key], self._known).to_pylist()[0]
        try:
            rows, _ = self._read("/row", {"key": key_text(wanted)})
        except NotFound:
            self._get()  # is it the row that is not there, or the table?
            return None
        row: dict[str, Any] = rows.to_pylist()[0]
        return row

    def to_arrow(self, columns: Sequence[str] | None = None, where: str | None = None, as_of: AsOf = None) -> pa.Table:
        """Fresh rows: all of them, or LimitExceeded if the service does not answer with so many."""
        wanted = None if columns is None else ",".join(columns)
        rows, facts = self._read("/rows", {"columns": wanted, "where": where, "as_of": as_of_document(as_of)})
        if facts.get("cut") == "true":
            raise LimitExceeded(
                f"table {self.name} has more than the {rows.num_rows:,} rows that this service answers with: restrict "
                "them with where=…, aggregate with sql, or raise its setting query_rows_max",
                limit="rows",
            )
        return rows.cast(named_as(rows.schema, self._known.columns))

    def head(self, rows: int = 10, columns: Sequence[str] | None = None, where: str | None = None) -> pa.Table:
        """Some fresh rows, in no particular order: as many as asked for, where there are so many."""
        check_count("rows", rows, least=1, needed=True)
        wanted = None if columns is None else ",".join(columns)
        found, facts = self._read("/rows", {"columns": wanted, "where": where, "limit": rows})
        if found.num_rows < rows and facts.get("cut") == "true":
            raise LimitExceeded(
                f"this service answers with {found.num_rows:,} rows at most: ask for fewer than {rows:,}, or raise its "
                "setting query_rows_max",
                limit="rows",
            )
        return found.cast(named_as(found.schema, self._known.columns))

    def count(self, where: str | None = None, as_of: AsOf = None) -> int:
        """How many fresh rows there are, or how many a condition holds for."""
        name = parse_table_name(self.name)
        sql = f"SELECT count(*) AS n FROM {quoted(name.namespace)}.{quoted(name.table)}"
        if where is not None:
            sql += f" WHERE ({where}\n)"
        document = {"sql": sql, "as_of": as_of_document(as_of)}
        found = self._transport.ask(Call("POST", "/query/sql", json=document, again=True))
        return int(field_of(found, "rows")[0][0])

    def changes(self, since: int = 0) -> pa.Table:
        """Every change after the token `since` (a seq), in commit order, with `_seq` and `_op`; folds add nothing."""
        if isinstance(since, bool) or not isinstance(since, int) or since < 0:
            raise InvalidRequest(f"since is a seq of table {self.name}, a whole number from 0 on, not {since!r}")
        pages = []
        while True:
            rows, facts = self._read("/changes", {"since": since})
            pages.append(rows)
            if facts.get("more") != "true":
                return pages[0] if len(pages) == 1 else pa.concat_tables(pages, promote_options="default")
            since = int(facts["next"])

    def feed(
        self,
        since: int | str,
        until: int | str | None = None,
        columns: Sequence[str] | None = None,
        *,
        before: bool = False,
    ) -> pa.Table:
        """What each commit after the seq `since` up to `until` did to the rows, with `_seq` and `_kind` (insert, update
        or delete). `before=True`: an update is two rows, update_before as it was, then update_after.
        """
        wanted = None if columns is None else ",".join([columns] if isinstance(columns, str) else columns)
        asked = {"until": until, "columns": wanted, "before": "true" if before else None}
        pages = []
        while True:
            rows, facts = self._read("/feed", {**asked, "since": since})
            pages.append(rows)
            if facts.get("more") != "true":
                return pages[0] if len(pages) == 1 else pa.concat_tables(pages, promote_options="default")
            since = int(facts["next"])

    # -- named versions

    def tag(self, name: str, as_of: AsOf = None) -> Tag:
        """Give a version a name: `as_of=name` reads it, until `untag`."""
        order = {"as_of": as_of_document(as_of)} if as_of is not None else {}
        return rebuilt(Tag, self._transport.ask(Call("PUT", f"{self._path}/tags/{quote(name, safe='')}", json=order)))

    def tags(self) -> list[Tag]:
        return Listed(rebuilt(Tag, entry) for entry in field_of(self._get("/tags"), "tags"))

    def untag(self, name: str) -> None:
        self._transport.ask(Call("DELETE", f"{self._path}/tags/{quote(name, safe='')}"))

    # -- records that were set aside

    def quarantine(self) -> list[SetAside]:
        """Records that loads, streams and pipelines have set aside, by name, oldest first."""
        return Listed(rebuilt(SetAside, each) for each in field_of(self._get("/quarantine"), "quarantine"))

    def quarantined(self, name: str, limit: int = 100, after: int = 0) -> list[RecordSetAside]:
        """Those of one name: each as it came, where it stood, and why it is no row. `after`: pass over so many."""
        check_count("limit", limit, least=1, needed=True)
        check_count("after", after, needed=True)
        path, found, more = f"/quarantine/{quote(name, safe='')}", list[RecordSetAside](), True
        while more and len(found) < limit:
            page = {"limit": min(limit - len(found), PAGE_RECORDS_MAX), "after": after + len(found)}
            answer = self._get(path, page)
            records = [rebuilt(RecordSetAside, each) for each in field_of(answer, "records")]
            found += records
            more = bool(records) and field_of(answer, "more")
        return Listed(found)

    def retry_quarantine(
        self, name: str, *, missing: MissingColumns | None = None, actor: str | None = None
    ) -> Retried:
        """Try those of one name once more: what fits by now is written in one commit, and no longer set aside."""
        check_actor(actor)
        path = f"{self._path}/quarantine/{quote(name, safe='')}/retry"
        return rebuilt(Retried, self._transport.ask(Call("POST", path, json=_said(missing=missing))))

    def purge_quarantine(self, name: str | None = None, older_than_hours: float | None = None) -> list[SetAside]:
        """Delete those of one name, or all, or of these what was set aside so long ago; says what went."""
        order = _said(name=name, older_than_hours=older_than_hours)
        gone = self._transport.ask(Call("POST", f"{self._path}/quarantine/purge", json=order))
        return Listed(rebuilt(SetAside, each) for each in field_of(gone, "quarantine"))

    # -- looking at it

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """Writes, deletes (who, when, why), schema changes and folds, newest first."""
        found = field_of(self._get("/history", {"limit": HISTORY_MAX if limit is None else limit}), "history")
        return Listed(rebuilt(HistoryEntry, entry) for entry in found)

    def stats(self) -> TableStats:
        return rebuilt(TableStats, self._get("/stats"))

    def partitions(self, as_of: AsOf = None) -> list[PartitionStats]:
        """Files, rows, bytes and times of each partition of base."""
        found = self._get("/partitions", {"as_of": as_of_document(as_of)})
        return Listed(partition_of(part, self._known) for part in field_of(found, "partitions"))

    # -- columns

    def _add_column(self, column: pa.Field, default: Any) -> None:
        self._change_column(ColumnChange("add", column.name, type_name(column.type), default=default))

    def _change_column(self, change: ColumnChange) -> int:
        return self._alter(alter_text(change, self._known.columns))

    def _alter(self, what: str) -> int:
        table = ".".join(map(quoted, self.name.split(".")))
        call = Call("POST", "/query/execute", json={"sql": f"ALTER TABLE {table} {what}"}, work=True)
        return rebuilt(Executed, self._transport.ask(call)).seq

    # -- options

    def set_options(self, values: Mapping[str, Any]) -> None:
        """Set options of this table; None goes back to the default."""
        if not isinstance(values, Mapping) or not values:
            raise InvalidRequest(f"options of table {self.name} are given as a mapping of names to values")
        self._transport.ask(Call("PUT", f"{self._path}/options", json={"options": dict(values)}, again=True))

    # -- maintenance: done by the server, answered when it is done

    def _fold(self, dry_run: bool) -> FoldReport | FoldPlan:
        document = self._work("/fold", dry_run)
        return rebuilt(FoldPlan, document) if dry_run else rebuilt(FoldReport, document)

    def _compact(
        self, tier: TierNames, dry_run: bool, progress: OnReport
    ) -> list[CompactReport] | list[PlannedCompaction]:
        return self._compaction("/compact", dry_run, progress, {"tier": list(tier_names(tier)) or None})

    def _optimize(
        self, by: Columns, dry_run: bool, progress: OnReport
    ) -> list[CompactReport] | list[PlannedCompaction]:
        columns = [by] if isinstance(by, str) else by if by is None else list(by)
        return self._compaction("/optimize", dry_run, progress, {"by": columns})

    def vacuum(self, retain_hours: float = 168, dry_run: bool = True) -> VacuumReport:
        """Delete files that no version of the last `retain_hours` needs. Shows them only, unless `dry_run=False`."""
        return rebuilt(VacuumReport, self._work("/vacuum", dry_run, retain_hours=retain_hours))

    def _compaction(
        self, path: str, dry_run: bool, progress: OnReport, wishes: dict[str, Any]
    ) -> list[CompactReport] | list[PlannedCompaction]:
        document = self._work(path, dry_run, **wishes)
        if dry_run:
            return Listed(rebuilt(PlannedCompaction, plan) for plan in field_of(document, "planned"))
        reports = Listed(rebuilt(CompactReport, report) for report in field_of(document, "done"))
        for report in reports:
            progress(report)
        return reports

    def _work(self, path: str, dry_run: bool, **wishes: Any) -> Any:
        order = {"dry_run": dry_run, **_said(**wishes)}
        return self._transport.ask(Call("POST", self._path + path, json=order, again=dry_run, work=True))

    # -- what only a local table can do

    to_spark = only_here("to_spark", "read with to_arrow, or open the lake with Lake(path) where it is")
    position = only_here("position", "go on from the highest _seq that changes(since=…) gave")
    feed_until = only_here("feed_until", "feed(since) comes in pages already")
    latest_changes = only_here("latest_changes", "read what commits did with feed(since), or open the lake where it is")
    feed_to_spark = only_here("feed_to_spark", "open the lake with Lake(path) where it is")
    stream_writer = only_here("stream_writer", "open the lake with Lake(path) where Spark sees its folder")
    pin = only_here("pin", "open the lake with Lake(path) where it is; lake.cache.pin keeps a table in memory")
    detach = only_here("detach", "run `lithify detach` where the lake is")
    attach = only_here("attach", "run `lithify attach` where the lake is")
    build_index = only_here("build_index", "run `lithify index build` where the lake is")
    rebuild_index = only_here("rebuild_index", "run `lithify index rebuild` where the lake is")
    check_index = only_here("check_index", "run `lithify index check` where the lake is")
    inspect_index = only_here("inspect_index", "run `lithify index inspect` where the lake is")

    def _read(self, path: str, query: Mapping[str, Any]) -> tuple[pa.Table, dict[str, str]]:
        response = self._transport.send(Call("GET", self._path + path, query, accept=ARROW, again=True))
        facts = facts_of(response.headers)
        return answered_rows(response.content, facts), facts

    def _get(self, path: str = "", query: Mapping[str, Any] | None = None) -> Any:
        return self._transport.ask(Call("GET", self._path + path, query, again=True))


def _said(**wishes: Any) -> dict[str, Any]:
    """A body without what is not said."""
    return {name: value for name, value in wishes.items() if value is not None}


def checked_batch_id(batch_id: str) -> str:
    """A header holds printable ASCII only; everything else about a batch id is the server's to say."""
    if (
        not isinstance(batch_id, str)
        or not batch_id.isascii()
        or not batch_id.isprintable()
        or batch_id != batch_id.strip()
    ):
        raise InvalidRequest("through a service a batch_id holds printable ASCII only, without spaces around it")
    return batch_id


def check_actor(actor: str | None) -> None:
    if actor is not None:
        raise InvalidRequest("through a service the actor is the token's name: leave actor out, and say why in reason")
