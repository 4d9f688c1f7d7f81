"""Tables: list, create, describe, drop."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Response
from pydantic import AfterValidator

from lithify.core.json_out import jsonable
from lithify.core.names import parse_table_name, plain_name
from lithify.core.table_document import definition_document, size_document
from lithify.http.auth import Caller, needs
from lithify.http.documents.tables import (
    CREATE_EXAMPLE,
    CreatedTable,
    CreateTable,
    DroppedTable,
    TableDocument,
    TablesDocument,
    schema_of,
)
from lithify.http.json_route import JsonRoute
from lithify.http.openapi import NO_JSON, body_like, failing
from lithify.http.routes.query import TakesJson
from lithify.http.service import LakeDep
from lithify.lake.lake import Lake
from lithify.options.table_options import chosen

router = APIRouter(prefix="/tables", tags=["tables"], route_class=JsonRoute)
TablePath = Annotated[
    str,
    Path(description="The table: namespace.table", max_length=262, examples=["shop.orders"]),
    AfterValidator(plain_name),
]
AsOf = Annotated[
    str | None,
    Query(
        description="A seq, a time in ISO 8601, or a tag; by default now.", min_length=1, max_length=64, examples=["42"]
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        description="A name for this write. Sent again with the same name it is not written again; the first answer is "
        "given once more, with `replayed`.",
        min_length=1,
        max_length=256,
        examples=["feed-2026-11-15"],
    ),
]
SchemaFingerprint = Annotated[
    str | None,
    Header(
        alias="Lithify-Schema",
        description="The `schema_fingerprint` that the rows were made for: 412 if the table's is another one by now.",
        min_length=1,
        max_length=64,
        examples=["5f0c1d2b3a49586776859493a2b1c0de"],
    ),
]
DAMAGED = "The table's log or files are damaged; other tables are not affected."
# Of pages of whole commits.
PAGE_FAILING = failing(
    _406="None of the formats in Accept is answered.", _422="One write is too large for an answer.", _424=DAMAGED
)


@router.get("", summary="List the tables")
def list_tables(lake: LakeDep, caller: Annotated[Caller, needs("read", per_table=True)]) -> TablesDocument:
    """Those that the token may read."""
    return TablesDocument(tables=[name for name in lake.tables() if caller.may("read", name)])


@router.post(
    "",
    summary="Create a table",
    status_code=201,
    responses={
        200: {"description": "The same table was there already.", "model": CreatedTable},
        **failing(
            _409="A table of this name is there already, or another one than the same.",
            _415=NO_JSON,
            _424=DAMAGED,
        ),
    },
    dependencies=[TakesJson],
)
def create(
    order: Annotated[CreateTable, body_like({"A table with a key": CREATE_EXAMPLE})],
    lake: LakeDep,
    caller: Annotated[Caller, needs("write", per_table=True)],
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> CreatedTable:
    """201 if it is new. With `if_not_exists` or an Idempotency-Key, 200 if the same table is there already."""
    name = str(parse_table_name(order.name))
    caller.check("write", name)
    created = name not in lake.tables()
    lake.create_table(
        name,
        schema_of(order.columns),
        order.key or None,
        order.order_by,
        order.time,
        order.partition_by,
        if_not_exists=order.if_not_exists or idempotency_key is not None,
        options=order.options,
        merge_rules=order.merge_rules,
        order_groups=order.order_groups,
        defaults=order.defaults,
    )
    response.status_code = 201 if created else 200
    return CreatedTable(created=created, **described(lake, name).model_dump())


@router.get("/{name}", summary="Describe a table", responses=failing(_424=DAMAGED))
def describe(name: TablePath, lake: LakeDep, _: Annotated[Caller, needs("read", "write", table=True)]) -> TableDocument:
    """Columns, key, options, and how much of it is folded."""
    return described(lake, name)


@router.delete(
    "/{name}", summary="Drop a table", responses=failing(_409="Somebody else creates or drops it now.", _424=DAMAGED)
)
def drop(name: TablePath, lake: LakeDep, _: Annotated[Caller, needs("admin", table=True)]) -> DroppedTable:
    """Deletes its files, and cannot be undone. An adopted base is left where it is."""
    lake.drop_table(name)
    return DroppedTable(table=name, dropped=True)


def described(lake: Lake, name: str) -> TableDocument:
    table = lake.table(name)
    definition = table.definition
    return TableDocument.model_validate(
        {
            "table": name,
            **definition_document(definition),
            "options": jsonable(chosen(definition.settings)),
            "options_effective": jsonable(definition.options),
            **size_document(table.stats()),
        }
    )
