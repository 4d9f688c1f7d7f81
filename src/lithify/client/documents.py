"""JSON documents of a service as the values that a local lake answers with, and the other way round.

A dataclass is read by the types of its fields. Fields that this version does not know are left out, and a field that
is missing has its default, so that client and server need not be of one version to the day.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import types
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import pyarrow as pa

from lithify.core.json_out import dumps, jsonable
from lithify.core.json_rows import value_of
from lithify.core.results import PartitionStats, SnapshotStats
from lithify.core.schema import TableSchema, one_or_several
from lithify.core.snapshot import Snapshot
from lithify.core.type_text import parse_type, type_name
from lithify.errors import InvalidRequest, Unavailable
from lithify.maintenance.reports import CycleReport
from lithify.options.table_options import MISSING_COLUMNS, OPTIONS, parse, stored

HEADER = "x-lithify-"
T = TypeVar("T")


def rebuilt(kind: type[T], document: Any) -> T:
    """The dataclass whose `asdict` this document is."""
    if not isinstance(document, Mapping):
        raise _strange(kind)
    hints = _hints(cast("Hashable", kind))
    known = {
        field.name: _value(hints[field.name], document[field.name])
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
        if field.init and field.name in document
    }
    try:
        return kind(**known)
    except TypeError as error:
        raise _strange(kind) from error


def _strange(kind: type[Any]) -> Unavailable:
    return Unavailable(
        f"the service answered with something that is no {kind.__name__}: are client and server of one version?"
    )


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _value(next(arm for arm in inside if arm is not types.NoneType), value)
    if origin is tuple and isinstance(value, list):
        return tuple(_value(inside[0], item) for item in value)
    if origin is Sequence and isinstance(value, list):
        return [_value(inside[0], item) for item in value]
    if isinstance(hint, type):
        if dataclasses.is_dataclass(hint):
            return rebuilt(hint, value)
        if hint is int and isinstance(value, str):
            return int(value)
        if hint is float:
            return float(value)
        if hint is dt.datetime and isinstance(value, str):
            return dt.datetime.fromisoformat(value)
    return value


def field_of(document: Any, name: str) -> Any:
    """A part of an answer that must be there."""
    try:
        return document[name]
    except (KeyError, TypeError) as error:
        raise Unavailable(
            f"the service's answer has no {name!r}: is there a Lithify service of this version at this address?"
        ) from error


# -- tables


def columns_document(columns: pa.Schema) -> list[dict[str, Any]]:
    return [{"name": f.name, "type": type_name(f.type), "nullable": f.nullable} for f in columns]


def definition_of(document: Any) -> TableSchema:
    own, effective = _known_options(document.get("options")), _known_options(document.get("options_effective"))
    # One that is not told is from before, as of a table; without a key nobody says it.
    if MISSING_COLUMNS in effective and field_of(document, "key"):
        own[MISSING_COLUMNS] = effective[MISSING_COLUMNS]
    return TableSchema(
        columns_of(field_of(document, "columns")),
        tuple(field_of(document, "key")),
        _order_by(document.get("order_by")),
        document.get("time"),
        tuple(document.get("partition_by") or ()),
        stored(own),
        effective,
        merge_rules=document.get("merge_rules") or {},
        order_groups={order: tuple(names) for order, names in (document.get("order_groups") or {}).items()},
        column_defaults=document.get("defaults") or {},
    )


def _order_by(value: Any) -> str | tuple[str, ...] | None:
    return value if value is None or isinstance(value, str) else one_or_several(value)


def _known_options(values: Any) -> dict[str, Any]:
    """Those that this version knows, in its own types."""
    return {name: parse(name, value) for name, value in (values or {}).items() if name in OPTIONS}


def columns_of(document: Any) -> pa.Schema:
    return pa.schema([pa.field(c["name"], parse_type(c["type"]), bool(c.get("nullable", True))) for c in document])


def cycle_report_of(document: Mapping[str, Any]) -> CycleReport:
    """The inverse of `CycleReport.document`, as far as that is complete."""
    return rebuilt(CycleReport, {**document, "id": field_of(document, "cycle")})


def partition_of(document: Mapping[str, Any], definition: TableSchema) -> PartitionStats:
    columns = definition.base_columns
    time = None if definition.time is None else columns.field(definition.time).type
    values = {name: value_of(value, columns.field(name).type) for name, value in field_of(document, "values").items()}
    times = {name: value_of(document.get(name), time) for name in ("time_min", "time_max")} if time is not None else {}
    return rebuilt(PartitionStats, {**document, "values": values, **times})


# -- rows


def key_text(key: Mapping[str, Any]) -> str:
    """A key in an address: plain text for one column, a JSON object for several."""
    if len(key) > 1:
        return dumps(key)
    value = jsonable(next(iter(key.values())))
    return value if isinstance(value, str) else json.dumps(value)


def ipc_of(rows: pa.Table, compress_bytes_min: int) -> bytes:
    """An Arrow IPC stream. Small ones are not worth packing."""
    packed = "zstd" if rows.nbytes >= compress_bytes_min else None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression=packed)) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def rows_in(body: bytes) -> pa.Table:
    try:
        return pa.ipc.open_stream(pa.py_buffer(body)).read_all()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Unavailable("the service's answer is no Arrow stream, or was cut off on its way: try again") from error


def named_as(schema: pa.Schema, columns: pa.Schema) -> pa.Schema:
    """An answer says of no column that it is never null; those of a table may be."""
    known = {field.name: field for field in columns}
    return pa.schema([known[f.name] if f.name in known and known[f.name].type == f.type else f for f in schema])


def facts_of(headers: Mapping[str, str]) -> dict[str, str]:
    """What is said beside rows: X-Lithify-Cut and its like, by the last part of their names."""
    return {
        name.lower().removeprefix(HEADER): value for name, value in headers.items() if name.lower().startswith(HEADER)
    }


def answered_rows(body: bytes, facts: Mapping[str, str]) -> pa.Table:
    """The rows of an answer, all of them: a connection that breaks must not look like fewer rows."""
    rows = rows_in(body)
    if facts.get("row-count", str(rows.num_rows)) != str(rows.num_rows):
        raise Unavailable("the service's answer was cut off on its way: try again")
    return rows


# -- moments


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoteSnapshot(SnapshotStats):
    """One state of a table, as a number and how much is in it: which files those are is the server's business.

    `as_of=snapshot` reads the rows of this state again.
    """

    schema: TableSchema


def as_of_document(as_of: Any) -> int | str | None:
    """How a request names an earlier state: a seq, or a time."""
    match as_of:
        case None:
            return None
        case dt.datetime():
            return as_of.isoformat()
        case Snapshot() | RemoteSnapshot():
            return as_of.seq
        case bool():
            pass
        case int() | str():
            return as_of
    raise InvalidRequest(f"as_of is a seq (int) or a time (datetime or ISO text), not {type(as_of).__name__}")
