"""Flight SQL on a port of its own beside HTTP: queries, prepared statements with parameters, and metadata.

A command is answered in two steps. `GetFlightInfo` tells the columns and a ticket, `DoGet` sends the rows of a ticket:
those of a query are kept from the first to the second (`queries.py`); the ticket of metadata is its command, answered
anew. Every method goes through `_told`, which looks at the token's scope, counts, and turns errors into Flight's own.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import flight

from lithify import __version__
from lithify.core.names import TableName, parse_table_name
from lithify.errors import InvalidRequest, Unavailable
from lithify.flight import messages, metadata
from lithify.flight.errors import failure_told, flight_error
from lithify.flight.parameter_types import parameter_types
from lithify.flight.prepared import PreparedStatements, prepared
from lithify.flight.queries import READ_ONLY, Queries, check_may_read, check_reads
from lithify.flight.sign_in import CALLER, SignedInByHeader, SignIn
from lithify.http.auth import Caller
from lithify.http.response_memory import release
from lithify.http.server import listen
from lithify.http.service import Service
from lithify.lake.internals import internals

logger = logging.getLogger("lithify.flight")
BATCH_ROWS = 65_536
PARAMETER_ROWS_MAX = 1
FORGET_S = 60.0
OPTION = "--flight-port"
PREPARE, CLOSE = "CreatePreparedStatement", "ClosePreparedStatement"
CANCEL, CANCEL_EARLIER = "CancelFlightInfo", "CancelQuery"
CANCELLED = 1
ACTIONS = {
    PREPARE: "Keep a SELECT, with parameters as ? or $1.",
    CLOSE: "Forget a prepared statement.",
    CANCEL: "Forget an answer that was not fetched yet.",
    CANCEL_EARLIER: "The same, as earlier clients ask.",
}


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Answers from the moment that it is made. `port`: where it listens; `tls`: certificate chain and key, as PEM."""

    def __init__(self, service: Service, host: str, port: int, tls: tuple[bytes, bytes] | None = None) -> None:
        self._service, self._queries, self._prepared = service, Queries(service), PreparedStatements()
        self._root, self._closed = service.lake.path, threading.Event()
        if port:
            # What gRPC opens may share a port with others, who would then get half of its calls.
            listen(host, port, OPTION).close()
        try:
            super().__init__(
                location=f"{'grpc+tls' if tls else 'grpc'}://{_authority(host, port)}",
                auth_handler=SignedInByHeader(),
                tls_certificates=[tls] if tls else None,
                middleware={CALLER: SignIn(service.tokens)},
            )
        except (pa.ArrowException, OSError) as error:
            raise Unavailable(
                f"cannot listen on {host}, port {port} for Flight SQL: pass another {OPTION} (0: any free one), and "
                "check the certificate and its key if there are any"
            ) from error
        threading.Thread(target=self._forget_old, name="lithify-flight-kept", daemon=True).start()

    def _forget_old(self) -> None:
        while not self._closed.wait(FORGET_S):
            self._queries.kept.forget_old()

    @property
    def kept_bytes(self) -> int:
        """Answers that were asked for and not fetched yet."""
        return self._queries.kept.bytes

    def close(self, wait_s: float) -> None:
        """Take no further call, and give those under way this long; then their queries are cancelled."""
        self._closed.set()
        ending = threading.Thread(target=self.shutdown, name="lithify-flight-ends", daemon=True)
        ending.start()
        ending.join(wait_s)
        if ending.is_alive():
            for query in self._service.lake.queries():
                self._service.lake.cancel(query.id)
            ending.join(wait_s)

    # -- calls

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        with self._told(context, "GetFlightInfo") as caller:
            name, command = messages.opened(_command(descriptor))
            if (sql := self._sql(caller, name, command)) is not None:
                found = self._queries.answered(caller, sql, context.is_cancelled)
                ticket = messages.enveloped("TicketStatementQuery", statement_handle=found.id.encode())
                return _info(descriptor, found.rows, ticket)
            rows = self._metadata(caller, name, command)
            return _info(descriptor, rows, descriptor.command)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        with self._told(context, "GetSchema") as caller:
            name, command = messages.opened(_command(descriptor))
            if (sql := self._sql(caller, name, command)) is not None:
                return flight.SchemaResult(self._queries.columns_of(caller, sql, context.is_cancelled))
            return flight.SchemaResult(self._metadata(caller, name, command).schema)

    def do_get(self, context: Any, ticket: Any) -> Any:
        with self._told(context, "DoGet") as caller:
            name, command = messages.opened(ticket.ticket)
            if name == "TicketStatementQuery":
                handle = command.statement_handle.decode("ascii", "replace")
                rows = self._queries.kept.take(caller.token.id, handle).rows
            else:
                rows = self._metadata(caller, name, command)
            return self._sent(rows)

    def _sent(self, rows: pa.Table) -> Any:
        """The client decides how fast it reads. Until it has, or is gone, the rows count as those of other answers."""
        state: dict[str, Any] = {}
        self._service.response_memory.hold(state, rows)
        batches = (batch for batch in rows.to_batches(max_chunksize=BATCH_ROWS))
        weakref.finalize(batches, release, state)
        return flight.GeneratorStream(rows.schema, batches)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with self._told(context, "DoPut") as caller:
            name, command = messages.opened(_command(descriptor))
            if name != "CommandPreparedStatementQuery":
                raise InvalidRequest(READ_ONLY)
            handle = command.prepared_statement_handle
            values = _parameters(reader, self._prepared.get(caller.token.id, handle).count)
            self._prepared.bind(caller.token.id, handle, values)
            writer.write(messages.plain("DoPutPreparedStatementResult", prepared_statement_handle=handle))

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        with self._told(context, "DoAction") as caller:
            return iter(self._acted(context, caller, action.type, action.body.to_pybytes()))

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with self._told(context, "DoExchange"):
            raise InvalidRequest(READ_ONLY)

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        with self._told(context, "ListFlights"):
            return iter(())

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return list(ACTIONS.items())

    # -- what they answer

    def _sql(self, caller: Caller, name: str, command: Any) -> str | None:
        """The query of a command; None where it is not about one."""
        if name == "CommandStatementQuery":
            return str(command.query)
        if name == "CommandPreparedStatementQuery":
            return self._prepared.get(caller.token.id, command.prepared_statement_handle).query()
        return None

    def _metadata(self, caller: Caller, name: str, asked: Any) -> pa.Table:
        names, describe = partial(self._names, caller), self._describe
        match name:
            case "CommandGetCatalogs":
                return metadata.catalogs()
            case "CommandGetDbSchemas":
                return metadata.schemas(names(), _given(asked, "catalog"), _given(asked, "db_schema_filter_pattern"))
            case "CommandGetTables":
                return metadata.tables(
                    names(),
                    _given(asked, "catalog"),
                    _given(asked, "db_schema_filter_pattern"),
                    _given(asked, "table_name_filter_pattern"),
                    asked.table_types,
                    describe if asked.include_schema else None,
                )
            case "CommandGetTableTypes":
                return metadata.table_types()
            case "CommandGetPrimaryKeys":
                return metadata.primary_keys(
                    names(), _given(asked, "catalog"), _given(asked, "db_schema"), asked.table, describe
                )
            case "CommandGetExportedKeys" | "CommandGetImportedKeys" | "CommandGetCrossReference":
                return metadata.foreign_keys()
            case "CommandGetXdbcTypeInfo":
                return metadata.types(_given(asked, "data_type"))
            case "CommandGetSqlInfo":
                return metadata.server_info(__version__, asked.info)
        raise InvalidRequest(READ_ONLY)

    def _names(self, caller: Caller) -> list[TableName]:
        return [name for name in internals(self._service.lake).catalog.tables() if caller.may_read(str(name))]

    def _describe(self, name: TableName) -> metadata.Described:
        schema = internals(self._service.lake).table(str(name)).handles.schema()
        return metadata.Described(schema.columns, schema.key)

    def _acted(self, context: Any, caller: Caller, kind: str, body: bytes) -> list[bytes]:
        if kind == CANCEL:
            self._drop(caller, messages.read("CancelFlightInfoRequest", body).info)
            return [messages.plain("CancelFlightInfoResult", status=CANCELLED)]
        if kind not in ACTIONS:
            raise InvalidRequest(f"there is no action {kind[:100]!r} here: there are {', '.join(ACTIONS)}")
        name, asked = messages.opened(body)
        match name:
            case "ActionCreatePreparedStatementRequest":
                return [self._prepare(context, caller, asked.query)]
            case "ActionClosePreparedStatementRequest":
                self._prepared.close(caller.token.id, asked.prepared_statement_handle)
                return []
            case "ActionCancelQueryRequest":
                self._drop(caller, asked.info)
                return [messages.enveloped("ActionCancelQueryResult", result=CANCELLED)]
        raise InvalidRequest(f"the action {kind} does not take this message")

    def _drop(self, caller: Caller, info: bytes) -> None:
        """An answer that was not fetched. A query that still runs ends with the call that asked for it."""
        try:
            endpoints = flight.FlightInfo.deserialize(info).endpoints
        except pa.ArrowException as error:
            raise InvalidRequest("this is no FlightInfo that can be read") from error
        for endpoint in endpoints:
            name, ticket = messages.opened(endpoint.ticket.ticket)
            if name == "TicketStatementQuery":
                self._queries.kept.drop(caller.token.id, ticket.statement_handle.decode("ascii", "replace"))

    def _prepare(self, context: Any, caller: Caller, query: str) -> bytes:
        check_reads(query)
        statement = prepared(query)
        columns = self._queries.columns_of(caller, statement.with_nulls(), context.is_cancelled)
        names = set(map(str, self._names(caller))) if statement.count else set()
        parameters = parameter_types(
            statement.text,
            statement.count,
            lambda name: self._describe(parse_table_name(name)).columns if name in names else None,
        )
        return messages.enveloped(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=self._prepared.keep(caller.token.id, statement),
            dataset_schema=columns.serialize().to_pybytes(),
            parameter_schema=parameters.serialize().to_pybytes(),
        )

    # -- around every call

    @contextlib.contextmanager
    def _told(self, context: Any, method: str) -> Iterator[Caller]:
        caller = context.get_middleware(CALLER).caller
        begun, code = time.perf_counter(), ""
        try:
            if self._service.stopping:
                raise Unavailable("the service is stopping: connect again after a moment")
            check_may_read(caller)
            yield caller
        except Exception as error:
            failure = failure_told(error, self._root, method)
            code = failure.code
            raise flight_error(failure) from None
        finally:
            seconds = time.perf_counter() - begun
            facts = {"method": method, "ms": round(seconds * 1000, 1), "token": caller.token.id, "code": code}
            logger.info("flight", extra={"lithify_facts": facts})
            self._service.metrics.observe_flight(method, code or "ok", seconds)


def _authority(host: str, port: int) -> str:
    return f"{f'[{host}]' if ':' in host else host or '0.0.0.0'}:{port}"


def _command(descriptor: Any) -> bytes:
    if descriptor.descriptor_type != flight.DescriptorType.CMD:
        raise InvalidRequest("Lithify speaks Flight SQL: connect with a driver for it, which sends commands, not paths")
    return bytes(descriptor.command)


def _given(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def _info(descriptor: Any, rows: pa.Table, ticket: bytes) -> Any:
    endpoint = flight.FlightEndpoint(ticket, [])
    return flight.FlightInfo(rows.schema, descriptor, [endpoint], rows.num_rows, rows.nbytes)


def _parameters(reader: Any, count: int) -> list[Any]:
    """One value for each parameter, from the one row that a client sends."""
    rows: list[list[Any]] = []
    columns = 0
    for chunk in reader:
        columns = chunk.data.num_columns
        if len(rows) + chunk.data.num_rows > PARAMETER_ROWS_MAX:
            raise InvalidRequest("a query takes one row of parameters: run it once for each row")
        rows += [[column[0].as_py() for column in chunk.data.columns]] * chunk.data.num_rows
    if columns != count or (count and not rows):
        raise InvalidRequest(f"the query has {count} parameters, and {columns if rows else 0} values were sent")
    return rows[0] if rows else []
