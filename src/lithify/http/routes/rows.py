"""Rows: write, delete, get one, read many, read what changed."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import orjson
import pyarrow as pa
from fastapi import APIRouter, Header, Query, Request, Response

from lithify.core.arguments import who
from lithify.core.json_rows import records
from lithify.core.names import parse_table_name, quoted
from lithify.core.partial_rows import input_columns
from lithify.core.results import Commit, RestorePlan
from lithify.core.schema import TableSchema
from lithify.core.table_methods import OnMissing
from lithify.errors import Conflict, InvalidRequest, NotFound
from lithify.http.admission import outer_id
from lithify.http.auth import Caller, Reader, Writer, needs
from lithify.http.bodies import BodyDep
from lithify.http.documents.tables import (
    COMMIT_EXAMPLE,
    SQL_LENGTH_MAX,
    ChangesDocument,
    DeleteKeys,
    DeleteWhere,
    PartlyDeleted,
    RefusedKey,
    RestoreOrder,
    RowDocument,
)
from lithify.http.formats.keys import bound, checked_keys, exact_at, exact_keys, key_of_text
from lithify.http.formats.negotiate import ARROW, CSV, JSON, NDJSON, answered, read_rows, with_new_columns
from lithify.http.json_route import JsonRoute
from lithify.http.openapi import body_like, failing
from lithify.http.queries import answer_of, facts_of, in_thread, page_answer, response_of, while_there
from lithify.http.routes.query import ROW_ANSWERS, Format, TakesJson
from lithify.http.routes.tables import DAMAGED, PAGE_FAILING, AsOf, IdempotencyKey, SchemaFingerprint, TablePath
from lithify.http.service import LakeDep, ServiceDep
from lithify.lake.internals import internals
from lithify.lake.table import Table
from lithify.options.table_options import MissingColumns
from lithify.read.history import changes_page
from lithify.write.delete_where import delete_where as rows_deleted

router = APIRouter(prefix="/tables/{name}", tags=["rows"], route_class=JsonRoute)
Mode = Literal["upsert", "append", "replace", "update", "retract"]
Missing = Literal["insert", "skip", "refuse", "null"]

_WRITING: dict[int | str, dict[str, Any]] = failing(
    _409="The Idempotency-Key was used for another write or by another token, or other writers were faster each time.",
    _412="The table has another schema than the one that Lithify-Schema names; nothing was written.",
    _413="The body is too large, or would be when it is unpacked.",
    _415="The body is in no format that this takes.",
    _424=DAMAGED,
    _503="The write could not be done, or its outcome is not known: send it again with the same Idempotency-Key.",
    _507="The disk is full; reads go on.",
)
DELETE_EXAMPLES = {
    "A key of one column": {"keys": [7, 9], "reason": "erasure request 118"},
    "A key of several columns": {"keys": [{"order": 42, "line": 1}]},
}
TEST_DATA = {"condition": "status = 'test'", "reason": "test data"}
_ROWS_EXAMPLE = [{"id": 1, "amount": "9.90", "status": "paid"}, {"id": 2, "amount": "5.00", "status": None}]
_ROWS_BODY = {
    "requestBody": {
        "required": True,
        "description": 'An array of objects, one object, {"rows": […]}; an object per line; CSV; or an Arrow stream.',
        "content": {
            JSON: {
                "schema": {"anyOf": [{"type": "array", "items": {"type": "object"}}, {"type": "object"}]},
                "example": _ROWS_EXAMPLE,
            },
            NDJSON: {
                "schema": {"type": "string"},
                "example": "".join(orjson.dumps(row).decode() + "\n" for row in _ROWS_EXAMPLE),
            },
            CSV: {"schema": {"type": "string"}, "example": "id,amount,status\n1,9.90,paid\n2,5.00,\n"},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}  # fmt: skip


@router.post(
    "/rows",
    summary="Write rows",
    responses={200: {"content": {JSON: {"example": COMMIT_EXAMPLE}}}, **_WRITING},
    openapi_extra=_ROWS_BODY,
)
def write(
    name: TablePath,
    service: ServiceDep,
    caller: Writer,
    body: BodyDep,
    mode: Annotated[
        Mode | None,
        Query(
            description="By default upsert on a table with a key, append on one without. replace beats order_by; "
            "update sets the columns that a row names and leaves the others. With merge rules, replace sets a row, the "
            "others add to it, and retract takes back what was added to sums and counts."
        ),
    ] = None,
    missing: Annotated[
        Missing | None,
        Query(
            description="For rows that lack a column of a table with a key: refuse them, or write null there; by "
            "default as the table says, which is to refuse. For update: what becomes of keys that are not there, "
            "insert (the default), skip or refuse."
        ),
    ] = None,
    if_changed: Annotated[
        bool, Query(description="Do not write rows that are there already, value for value. For upsert and update.")
    ] = False,
    evolve: Annotated[
        bool,
        Query(
            description="Add columns that the table does not have first, if the rows fit then. For upsert, append and "
            "update; it needs the scope admin too."
        ),
    ] = False,
    content_type: Annotated[str | None, Header(include_in_schema=False)] = None,
    idempotency_key: IdempotencyKey = None,
    schema_fingerprint: SchemaFingerprint = None,
) -> Commit:
    """All of them in one commit, durable when the answer comes, or none of them.

    Values are spelled as in answers: integers beyond ±2^53, decimals, dates, times and binary (base64) as texts.
    """

    def put(table: Table) -> Commit:
        known = internals(table).known_schema
        chosen: Mode = mode or ("upsert" if known.keyed else "append")
        _check_wishes(chosen, if_changed=if_changed, evolve=evolve)
        internals(table).check_schema(idempotency_key, schema_fingerprint)
        _check_missing(chosen, missing)
        # Which columns each row names; of rows of a table without a key and defaults nobody asks.
        named = known.keyed or known.column_defaults

        def shape(columns: pa.Schema) -> pa.Schema:
            columns = with_new_columns(body, content_type, columns) if evolve else columns
            return input_columns(columns) if named else columns

        try:
            rows = read_rows(body, content_type, shape(known.columns), bytes_max)
        except InvalidRequest:
            # They may fit columns that another process has added since.
            if (columns := table.schema) == known.columns:
                raise
            rows = read_rows(body, content_type, shape(columns), bytes_max)
        batch_id = bound(idempotency_key, caller, chosen, body)
        who: dict[str, Any] = {"actor": caller.token.name, "schema_fingerprint": schema_fingerprint}
        lacking: Any = missing  # of columns; an update asks about keys
        if chosen == "update":
            keys: dict[str, Any] = {"missing": lacking or "insert", "if_changed": if_changed, "evolve": evolve}
            return _committed(table.update(rows, batch_id, **keys, **who), chosen)
        if chosen == "retract":
            return _committed(table.retract(rows, batch_id, **who), chosen)
        if chosen == "upsert":
            wishes: dict[str, Any] = {"if_changed": if_changed, "missing": lacking, "evolve": evolve}
            return _committed(table.upsert(rows, batch_id, **wishes, **who), chosen)
        if chosen == "append":
            return _committed(table.append(rows, batch_id, missing=lacking, evolve=evolve, **who), chosen)
        return _committed(table.replace(rows, batch_id, missing=lacking, **who), chosen)

    bytes_max = service.settings.body_bytes_max
    parts = internals(service.lake)
    if evolve:
        caller.check("admin", str(parse_table_name(name)))
        return put(service.lake.table(name))
    # Not looked up by `lake.table`, which waits for the commit under way: those who wait there cannot join it.
    return parts.open_tables.read(parse_table_name(name), lambda opened: put(Table(parts.table_of(opened))))


def _check_wishes(mode: Mode, *, if_changed: bool, evolve: bool) -> None:
    if if_changed and mode not in ("upsert", "update"):
        raise InvalidRequest(f"if_changed goes with mode upsert or update, not with {mode}: leave it out")
    if evolve and mode in ("replace", "retract"):
        raise InvalidRequest(f"evolve goes with modes upsert, append and update, not with {mode}: leave it out")


def _check_missing(mode: Mode, missing: Missing | None) -> None:
    """An update asks about keys that are not there, the others about columns."""
    known = get_args(OnMissing) if mode == "update" else () if mode == "retract" else get_args(MissingColumns)
    if missing is not None and missing not in known:
        hint = f"it is {' or '.join(known)}" if known else "leave it out"
        raise InvalidRequest(f"missing={missing} does not go with mode {mode}: {hint}")


def _committed(commit: Commit, operation: str) -> Commit:
    if commit.replayed and commit.operation != operation:
        raise Conflict(
            f"this Idempotency-Key was used for another operation on table {commit.table} ({commit.operation}, seq "
            f"{commit.seq}); nothing was changed: use a key of its own for each write"
        )
    return commit


@router.post(
    "/delete",
    summary="Delete rows by their keys",
    responses={
        200: {"content": {JSON: {"example": {**COMMIT_EXAMPLE, "operation": "delete", "upserted": 0, "deleted": 2}}}},
        207: {"description": "Some keys were refused; the others are deleted.", "model": PartlyDeleted},
        **_WRITING,
    },
    dependencies=[TakesJson],
)
def delete(
    name: TablePath,
    order: Annotated[DeleteKeys, body_like(DELETE_EXAMPLES)],
    lake: LakeDep,
    caller: Writer,
    body: BodyDep,
    response: Response,
    idempotency_key: IdempotencyKey = None,
    schema_fingerprint: SchemaFingerprint = None,
) -> Commit | PartlyDeleted:
    """In one commit. A key that is not there is no failure. Keys that are no keys of this table are refused, each with
    its place: 207 if the others are deleted, 400 if there are no others.
    """
    table = lake.table(name)
    internals(table).check_schema(idempotency_key, schema_fingerprint)
    keys, refused = checked_keys(order.keys, internals(table).known_schema, lambda: exact_keys(body))
    if keys is None:
        first = refused[0].error.public
        raise InvalidRequest(first if len(refused) == 1 else f"none of the {len(refused)} keys is accepted: {first}")
    batch_id = bound(idempotency_key, caller, "delete", body)
    at = exact_at(body, {one.index for one in refused}, internals(table).known_schema) if order.at is not None else None
    done = table.delete(
        keys, batch_id, at=at, actor=caller.token.name, reason=order.reason, schema_fingerprint=schema_fingerprint
    )
    commit = _committed(done, "delete")
    if not refused:
        return commit
    response.status_code = 207
    shown = [RefusedKey(index=one.index, code=one.error.code, message=one.error.public) for one in refused]
    return PartlyDeleted(**vars(commit), refused=shown)


@router.post(
    "/delete-where",
    summary="Delete the rows that a condition holds for",
    responses={
        **_WRITING,
        **failing(_422="A limit (time, memory) stopped the search for the rows: nothing is deleted."),
    },
    dependencies=[TakesJson],
)
async def delete_where(
    name: TablePath,
    order: Annotated[DeleteWhere, body_like({"Test data": TEST_DATA})],
    request: Request,
    service: ServiceDep,
    caller: Annotated[Caller, needs("read", "write", table=True, every=True)],
    body: BodyDep,
    idempotency_key: IdempotencyKey = None,
) -> Commit:
    """As of one exact state of the table, in one commit. The condition stands in the history.

    It needs both scopes: what a condition deletes tells what stands in the rows.
    """
    batch_id = bound(idempotency_key, caller, "delete where", body)

    def run(id: str) -> Commit:
        lake, info = internals(service.lake), who(caller.token.name, order.reason)
        with lake.limited(order.condition, id=id, may_read=caller.may_read, owner=caller.token.id) as within:
            return rows_deleted(lake.table(name), order.condition, batch_id, info, within=within)

    return _committed(await while_there(request, service, caller, run), "delete where")


@router.post(
    "/restore",
    summary="Make the rows of an earlier version the newest ones",
    responses={**_WRITING, **failing(_422="Too much has changed since for one commit.")},
    dependencies=[TakesJson],
)
def restore(
    name: TablePath,
    order: Annotated[RestoreOrder, body_like({"Undo an import": {"to": 40, "reason": "a bad import"}})],
    lake: LakeDep,
    caller: Annotated[Caller, needs("read", "write", table=True, every=True)],
    body: BodyDep,
    idempotency_key: IdempotencyKey = None,
) -> Commit | RestorePlan:
    """One commit that undoes what changed since. The versions in between stay what they were, and can be restored too.

    It needs both scopes: what a restore writes are rows that the caller did not send.
    """
    table = lake.table(name)
    if order.dry_run:
        return table.restore(order.to, dry_run=True)
    batch_id = bound(idempotency_key, caller, "restore", body)
    done = table.restore(order.to, batch_id, actor=caller.token.name, reason=order.reason)
    return _committed(done, "restore")


@router.get("/row", summary="Get one row by its key", responses={200: {"model": RowDocument}, **failing(_424=DAMAGED)})
def get(
    name: TablePath,
    lake: LakeDep,
    _: Reader,
    kind: Format,
    key: Annotated[
        str,
        Query(
            description="The key's value as plain text; a JSON object for a key of several columns.",
            max_length=10_000,
            examples=["7", '{"order": 42, "line": 1}'],
        ),
    ],
) -> Response:
    """Fresh. 404 if there is none."""

    def key_of(definition: TableSchema) -> Any:
        if not definition.keyed:
            raise InvalidRequest(
                f"table {name} has no key: read it with a condition, GET /v1/tables/{name}/rows?where=…"
            )
        return key_of_text(key, definition)

    found = internals(lake).open_tables.read(parse_table_name(name), lambda opened: opened.row(key_of))
    if found is None:
        raise NotFound(f"table {name} has no row with this key")
    if kind != JSON:
        nullable = pa.schema([column.with_nullable(True) for column in found.schema])
        return answered(found.cast(nullable), kind, {}, {"Row-Count": "1"})
    return Response(orjson.dumps({"table": name, "row": records(found)[0]}), media_type=JSON)


@router.get("/rows", summary="Read rows", responses=ROW_ANSWERS, response_class=Response)
async def read(
    name: TablePath,
    request: Request,
    service: ServiceDep,
    caller: Reader,
    kind: Format,
    columns: Annotated[
        str | None, Query(description="Names with commas between them; by default all.", examples=["id,status"])
    ] = None,
    where: Annotated[
        str | None,
        Query(description="A SQL condition over the table's columns.", max_length=SQL_LENGTH_MAX, examples=["id > 7"]),
    ] = None,
    as_of: AsOf = None,
    limit: Annotated[
        int | None, Query(description="Rows at most; it can only lower the setting query_rows_max.", ge=1)
    ] = None,
) -> Response:
    """Fresh rows of one table, in no particular order. `cut` tells whether there would have been more."""
    parsed = parse_table_name(name)
    wanted = [column.strip() for column in columns.split(",")] if columns is not None else None
    asked = "*" if wanted is None else ", ".join(map(quoted, wanted))
    sql = f"SELECT {asked} FROM {quoted(parsed.namespace)}.{quoted(parsed.table)}"
    if where is not None:
        # A comment at its end must not swallow the bracket.
        sql += f" WHERE ({where}\n)"
    answer = await answer_of(request, service, caller, sql, as_of, rows_max=limit, only=str(parsed))
    facts = facts_of(answer, outer_id(caller, answer.id) or answer.id)
    return await in_thread(answer.rows, lambda: response_of(facts, answer.rows, kind))


@router.get(
    "/changes",
    summary="What changed since a seq",
    responses={200: {**ROW_ANSWERS[200], "model": ChangesDocument}, **PAGE_FAILING},
    response_class=Response,
)
def changes(
    name: TablePath,
    request: Request,
    lake: LakeDep,
    service: ServiceDep,
    _: Reader,
    kind: Format,
    since: Annotated[int, Query(description="`next` of the last answer; 0: from the beginning.", ge=0, le=2**62)] = 0,
    limit: Annotated[
        int | None, Query(description="About so many rows; whole commits are never divided.", ge=1)
    ] = None,
) -> Response:
    """Rows in the order of their commits, with `_seq` and `_op`; folds add nothing. Whole commits, up to about
    `query_rows_max` rows: `more` tells whether to ask again at once. 404 if vacuum has removed some of them.
    """
    rows_max = min(limit or service.settings.query_rows_max, service.settings.query_rows_max)
    service.response_memory.check()
    page = changes_page(internals(lake.table(name)).handles, since, rows_max)
    service.response_memory.hold(request.scope["state"], page.rows)
    return page_answer(name, since, page, kind)
