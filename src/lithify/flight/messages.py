"""The messages of Flight SQL that are spoken here, as protocol buffers.

They are declared as rows of (name, number, kind), of which the protobuf runtime makes classes: no generated code. A
command travels inside `Any`, by the name of its message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.any_pb2 import Any as Envelope
from google.protobuf.message import DecodeError, Message

from lithify.errors import InvalidRequest

PACKAGE = "arrow.flight.protocol.sql"
_URL = f"type.googleapis.com/{PACKAGE}."
_Field = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "text": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "bool": _Field.TYPE_BOOL,
    "int": _Field.TYPE_INT32,
    "count": _Field.TYPE_UINT32,
}
# A kind that ends with ? may be absent, one that ends with * may stand there several times.
_CATALOG, _SCHEMA = ("catalog", 1, "text?"), ("db_schema", 2, "text?")
_TABLE = (_CATALOG, _SCHEMA, ("table", 3, "text"))
_TEXT, _HANDLE = (("query", 1, "text"),), (("prepared_statement_handle", 1, "bytes"),)
_SCHEMAS = (_CATALOG, ("db_schema_filter_pattern", 2, "text?"))
DECLARED: Mapping[str, tuple[tuple[str, int, str], ...]] = {
    "CommandGetSqlInfo": (("info", 1, "count*"),),
    "CommandGetXdbcTypeInfo": (("data_type", 1, "int?"),),
    "CommandGetCatalogs": (),
    "CommandGetDbSchemas": _SCHEMAS,
    "CommandGetTables": (
        *_SCHEMAS,
        ("table_name_filter_pattern", 3, "text?"),
        ("table_types", 4, "text*"),
        ("include_schema", 5, "bool"),
    ),
    "CommandGetTableTypes": (),
    "CommandGetPrimaryKeys": _TABLE,
    "CommandGetExportedKeys": _TABLE,
    "CommandGetImportedKeys": _TABLE,
    "CommandGetCrossReference": (),
    "CommandStatementQuery": _TEXT,
    "CommandStatementUpdate": _TEXT,
    "CommandStatementIngest": (),
    "CommandPreparedStatementQuery": _HANDLE,
    "CommandPreparedStatementUpdate": _HANDLE,
    "TicketStatementQuery": (("statement_handle", 1, "bytes"),),
    "ActionCreatePreparedStatementRequest": _TEXT,
    "ActionCreatePreparedStatementResult": (
        *_HANDLE,
        ("dataset_schema", 2, "bytes"),
        ("parameter_schema", 3, "bytes"),
    ),
    "ActionClosePreparedStatementRequest": _HANDLE,
    "ActionCancelQueryRequest": (("info", 1, "bytes"),),
    "ActionCancelQueryResult": (("result", 1, "int"),),
    "DoPutPreparedStatementResult": _HANDLE,
    # Of Flight itself, and never in an envelope.
    "CancelFlightInfoRequest": (("info", 1, "bytes"),),
    "CancelFlightInfoResult": (("status", 1, "int"),),
}


def _classes() -> dict[str, type[Message]]:
    file = descriptor_pb2.FileDescriptorProto(name="lithify/flight_sql.proto", package=PACKAGE, syntax="proto3")
    for name, fields in DECLARED.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            repeated, optional = kind.endswith("*"), kind.endswith("?")
            declared = message.field.add(
                name=field,
                number=number,
                type=_KINDS[kind.rstrip("*?")],
                label=_Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL,
            )
            if optional:
                declared.proto3_optional = True
                declared.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in DECLARED}


_CLASSES = _classes()


def opened(body: bytes) -> tuple[str, Any]:
    """The name of the message in an envelope, and the message."""
    envelope = Envelope()
    try:
        envelope.ParseFromString(body)
        name = envelope.type_url.removeprefix(_URL)
        if name not in _CLASSES:
            raise InvalidRequest("this is no command of Flight SQL that Lithify knows: it answers queries and metadata")
    except DecodeError as error:
        raise _unreadable() from error
    return name, read(name, envelope.value)


def read(name: str, body: bytes) -> Any:
    """A message without an envelope."""
    message = _CLASSES[name]()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise _unreadable() from error
    return message


def plain(name: str, **fields: Any) -> bytes:
    return bytes(_CLASSES[name](**fields).SerializeToString(deterministic=True))


def enveloped(name: str, **fields: Any) -> bytes:
    return bytes(Envelope(type_url=_URL + name, value=plain(name, **fields)).SerializeToString(deterministic=True))


def _unreadable() -> InvalidRequest:
    return InvalidRequest("this is no command of Flight SQL: its message cannot be read")
