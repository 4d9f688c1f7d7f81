"""A table's options, and its columns as they change: what `lithify set` and ALTER TABLE do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import pyarrow as pa
from fastapi import APIRouter

from lithify.core.column_changes import ColumnChange
from lithify.core.json_out import jsonable
from lithify.core.table_document import column_documents
from lithify.core.type_text import parse_type
from lithify.errors import InvalidRequest
from lithify.http.auth import Caller, needs
from lithify.http.documents.options import ColumnOrder, ColumnsDocument, OptionDocument, OptionsDocument, OptionsOrder
from lithify.http.documents.tables import ColumnDocument
from lithify.http.json_route import JsonRoute
from lithify.http.openapi import NO_JSON, body_like, failing
from lithify.http.routes.query import TakesJson
from lithify.http.routes.tables import DAMAGED, TablePath
from lithify.http.service import LakeDep
from lithify.lake.columns import foreseen_columns
from lithify.lake.internals import internals
from lithify.lake.lake import Lake
from lithify.lake.maintenance import maintenance_of
from lithify.lake.table import Table
from lithify.options.table_options import MISSING_COLUMNS, OPTIONS, chosen, defaults_of, effective, stored
from lithify.write.options import parsed_options

# What says which rows there are, or what becomes of them, is a matter of whoever writes them.
ABOUT_ROWS = frozenset({"expires", MISSING_COLUMNS})
TAKES = {
    "add": {"type", "default"},
    "rename": {"to"},
    "widen": {"type"},
    "move": {"to"},
    "default": {"default"},
}
NEEDED = {"add": "type", "rename": "to", "widen": "type"}
COLUMN_EXAMPLES = {
    "Add one": {"change": "add", "column": "note", "type": "string"},
    "What renaming one would do": {"change": "rename", "column": "note", "to": "remark", "dry_run": True},
    "Drop one": {"change": "drop", "column": "note"},
}

router = APIRouter(prefix="/tables/{name}", tags=["tables"], route_class=JsonRoute)


@router.get("/options", summary="The options of a table", responses=failing(_424=DAMAGED))
def options(
    name: TablePath, lake: LakeDep, _: Annotated[Caller, needs("read", "write", "maintain", table=True)]
) -> OptionsDocument:
    """Every option with the value that holds, what it does, and whether the table says so itself."""
    definition = lake.table(name).definition
    return OptionsDocument(table=name, options=_options(lake, definition.settings), dry_run=False, changed=[])


@router.put(
    "/options",
    summary="Set options of a table",
    responses=failing(_409="Others changed the table too often meanwhile.", _415=NO_JSON, _424=DAMAGED),
    dependencies=[TakesJson],
)
def set_options(
    name: TablePath,
    lake: LakeDep,
    caller: Annotated[Caller, needs("write", "maintain", table=True)],
    order: Annotated[OptionsOrder, body_like({"Fold sooner": {"options": {"fold_age_s_max": 600}}})],
) -> OptionsDocument:
    """One commit. `expires` and `missing_columns` need the scope write: they decide about rows."""
    if ABOUT_ROWS & order.options.keys():
        caller.check("write", name)
    table = lake.table(name)
    definition, settings = table.definition, internals(lake).runtime.settings
    before = effective(definition.settings, defaults_of(settings))
    after = {**definition.settings, **stored(parsed_options(order.options, definition, settings))}
    if not order.dry_run:
        table.set_options(order.options)
        after = dict(table.definition.settings)
    now = effective(after, defaults_of(settings))
    changed = sorted(name for name in now if now[name] != before[name])
    return OptionsDocument(table=name, options=_options(lake, after), dry_run=order.dry_run, changed=changed)


@router.post(
    "/columns",
    summary="Change a column of a table",
    responses=failing(
        _409="Another column has that name, or others changed the table meanwhile.", _415=NO_JSON, _424=DAMAGED
    ),
    dependencies=[TakesJson],
)
def change_column(
    name: TablePath,
    lake: LakeDep,
    _: Annotated[Caller, needs("admin", table=True)],
    order: Annotated[ColumnOrder, body_like(COLUMN_EXAMPLES)],
) -> ColumnsDocument:
    """Add, rename, drop, widen, or say something else of one. To rename or widen one, base is written anew; answers
    when it is done. Columns that rows are told apart or laid out by stay as they are.
    """
    _check_order(order)
    table = lake.table(name)
    columns, files, size_bytes = foreseen_columns(internals(table), _change_of(order))
    seq = table.snapshot().seq
    if not order.dry_run:
        changed = maintenance_of(lake).asked(name, "columns", lambda table: _changed(table, order))
        definition = table.definition
        columns, seq = definition.columns, changed
    return ColumnsDocument(
        table=name,
        columns=[ColumnDocument.model_validate(column) for column in column_documents(columns)],
        seq=seq,
        dry_run=order.dry_run,
        rewritten_files=files,
        rewritten_bytes=size_bytes,
    )


def _options(lake: Lake, properties: Mapping[str, str]) -> list[OptionDocument]:
    defaults = defaults_of(internals(lake).runtime.settings)
    values, own = effective(properties, defaults), chosen(properties)
    others = effective(dict.fromkeys(properties, ""), defaults)
    return [
        OptionDocument(
            name=name,
            help=option.help,
            allowed=option.allowed,
            value=jsonable(values[name]),
            own=name in own,
            default=jsonable(others[name]),
        )
        for name, option in OPTIONS.items()
    ]


def _check_order(order: ColumnOrder) -> None:
    given = order.model_fields_set - {"change", "column", "dry_run"}
    for name in sorted(given - TAKES.get(order.change, set())):
        raise InvalidRequest(f"to {order.change} a column takes no {name!r}: leave it out")
    needed = NEEDED.get(order.change)
    if needed is not None and getattr(order, needed) is None:
        raise InvalidRequest(f"to {order.change} a column, give {needed!r}")


def _change_of(order: ColumnOrder) -> ColumnChange:
    to = order.type if order.change in ("add", "widen") else order.to
    return ColumnChange(order.change, order.column, to or "", default=order.default)


def _changed(table: Table, order: ColumnOrder) -> int:
    match order.change:
        case "add":
            table.add_column(pa.field(order.column, parse_type(order.type or "")), order.default)
            return table.snapshot().seq
        case "rename":
            return table.rename_column(order.column, order.to or "")
        case "drop":
            return table.drop_column(order.column)
        case "widen":
            return table.alter_column(order.column, type=order.type)
        case "relax" | "require":
            return table.alter_column(order.column, nullable=order.change == "relax")
        case "default":
            return table.alter_column(order.column, default=order.default)
        case _ if order.to is None:
            return table.alter_column(order.column, first=True)
    return table.alter_column(order.column, after=order.to)
