"""A small lake to try the service on, made in a moment and without Spark: the shop of the guided demo."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import PurePath
from typing import Any

import pyarrow as pa

from lithify.lake.lake import Lake
from lithify.settings import Settings
from lithify.tools import demo_data
from lithify.tools.demo import CUSTOMERS, ORDERS, is_free, mark

CUSTOMERS_COUNT, ORDERS_COUNT = 500, 20_000
SEED = 7


def make_if_missing(folder: PurePath, settings: Settings) -> bool:
    """Whether it was made now. A folder that holds anything is left as it is."""
    if not is_free(folder):
        return False
    with Lake(folder, settings=settings) as lake:
        mark(lake, ORDERS_COUNT)
        chance = random.Random(SEED)
        customers = lake.create_table(CUSTOMERS, demo_data.CUSTOMERS, key="id")
        customers.upsert(pa.Table.from_pylist(list(_customers(chance)), schema=demo_data.CUSTOMERS))
        orders = lake.create_table(ORDERS, demo_data.ORDERS, key="id", time="ordered_at")
        orders.upsert(pa.Table.from_pylist(list(_orders(chance)), schema=demo_data.ORDERS))
    return True


def _customers(chance: random.Random) -> Iterator[dict[str, Any]]:
    for id in range(1, CUSTOMERS_COUNT + 1):
        yield {
            "id": id,
            "name": f"{chance.choice(demo_data.FIRST_NAMES)} {chance.choice(demo_data.LAST_NAMES)}",
            "email": f"customer{id}@example.com",
            "country": chance.choice(demo_data.COUNTRIES),
            "since": dt.date(2026, 9, 30) - dt.timedelta(days=chance.randrange(2_000)),
        }


def _orders(chance: random.Random) -> Iterator[dict[str, Any]]:
    step = dt.timedelta(days=demo_data.DAYS) / ORDERS_COUNT
    for id in range(1, ORDERS_COUNT + 1):
        yield {
            "id": id,
            "customer_id": chance.randrange(1, CUSTOMERS_COUNT + 1),
            "ordered_at": demo_data.FIRST_DAY + (id - 1) * step,
            "status": chance.choice(demo_data.STATUSES),
            "items": chance.randrange(1, 7),
            "amount": Decimal(chance.randrange(499, 25_499)).scaleb(-2),
            "country": chance.choice(demo_data.COUNTRIES),
            "note": "gift wrapping" if chance.random() < 0.05 else None,
        }
