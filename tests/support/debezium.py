"""Messages as Debezium's connectors write them, with Kafka Connect's JSON converter, with and without schemas."""

from __future__ import annotations

import json
from typing import Any

# A message of the connector for MySQL as its tutorial shows it (inventory.customers), shortened in nothing.
MYSQL_SOURCE = {
    "version": "3.0.0.Final",
    "connector": "mysql",
    "name": "dbserver1",
    "ts_ms": 1480505875000,
    "ts_us": 1480505875000000,
    "ts_ns": 1480505875000000000,
    "snapshot": "false",
    "db": "inventory",
    "sequence": None,
    "table": "customers",
    "server_id": 223344,
    "gtid": None,
    "file": "mysql-bin.000003",
    "pos": 484,
    "row": 0,
    "thread": 7,
    "query": None,
}
POSTGRES_SOURCE = {
    "version": "3.0.0.Final",
    "connector": "postgresql",
    "name": "PostgreSQL_server",
    "ts_ms": 1559033904863,
    "ts_us": 1559033904863000,
    "ts_ns": 1559033904863000000,
    "snapshot": "false",
    "db": "postgres",
    "sequence": '["24023119","24023128"]',
    "schema": "public",
    "table": "customers",
    "txId": 556,
    "lsn": 24023128,
    "xmin": None,
}
ORACLE_SOURCE = {"connector": "oracle", "ts_ms": 1520085154000, "scn": "2122185", "commit_scn": "2122185"}
SQLSERVER_SOURCE = {
    "connector": "sqlserver",
    "ts_ms": 1559729468470,
    "change_lsn": "00000027:00000758:0003",
    "commit_lsn": "00000027:00000758:0005",
    "event_serial_no": "1",
}


def message(
    op: str, before: dict[str, Any] | None = None, after: dict[str, Any] | None = None, **source: Any
) -> dict[str, Any]:
    """A change event of PostgreSQL without its schema."""
    origin = {**POSTGRES_SOURCE, **source}
    return {
        "before": before,
        "after": after,
        "source": origin,
        "transaction": None,
        "op": op,
        "ts_ms": 1559033904961,
        "ts_us": 1559033904961654,
        "ts_ns": 1559033904961654000,
    }


def wrapped(payload: dict[str, Any] | None, fields: list[dict[str, Any]]) -> dict[str, Any]:
    """With the schema of its row, as `schemas.enable=true` writes it."""
    row = {"type": "struct", "fields": fields, "optional": True, "name": "server.public.t.Value"}
    parts = [{**row, "field": "before"}, {**row, "field": "after"}, {"type": "string", "field": "op"}]
    return {"schema": {"type": "struct", "fields": parts, "name": "server.public.t.Envelope"}, "payload": payload}


def text(document: Any) -> bytes:
    return json.dumps(document).encode()
