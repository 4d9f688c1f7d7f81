"""A lake with something of everything, for requests that a machine makes up."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from lithify import Lake

ORDERS = pa.schema([("id", pa.int64()), ("amount", pa.decimal128(10, 2)), ("status", pa.string())])
EVENTS = pa.schema([("user_id", pa.int64()), ("what", pa.string()), ("ratio", pa.float64())])
DAYS = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("tags", pa.list_(pa.string()))])


def fill(lake: Lake) -> None:
    """A keyed table with a base and changes, one without a key, and one that is partitioned by day."""
    orders = lake.create_table("shop.orders", ORDERS, key="id", options={"missing_columns": "null"})
    orders.upsert([{"id": n, "amount": f"{n}.50", "status": "paid"} for n in range(20)])
    orders.fold()
    orders.upsert([{"id": 2**60, "amount": "1.00", "status": None}])
    orders.delete([3], reason="asked for")
    events = lake.create_table("log.events", EVENTS)
    events.append([{"user_id": 1, "what": "a", "ratio": float("nan")}, {"user_id": 2, "what": "b", "ratio": None}])
    days = lake.create_table("shop.days", DAYS, key="id", time="at")
    days.upsert([{"id": n, "at": dt.datetime(2026, 11, 10 + n, tzinfo=dt.UTC), "tags": ["x"]} for n in range(3)])
    days.fold()
