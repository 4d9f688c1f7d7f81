"""The demo's shop: customers and orders that look like the real thing and are the same in every run.

Rows of the first load are computed by Spark from their number alone; the batches that follow come from a seeded
generator. Orders are numbered in the order of time, as they would be, and the stream touches mostly recent ones.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAYS = 30
FIRST_DAY = dt.datetime(2026, 10, 1, tzinfo=dt.UTC)
COUNTRIES = ("DE", "FR", "IT", "ES", "NL", "PL", "SE", "AT", "PT", "DK")
STATUSES = ("placed", "paid", "shipped", "delivered", "returned")
FIRST_NAMES = ("Ada", "Ben", "Chloé", "Dilan", "Emil", "Fatma", "Greta", "Hugo", "Ines", "Jonas", "Klara", "Luca")
LAST_NAMES = ("Almeida", "Bauer", "Costa", "Dubois", "Eriksson", "Fischer", "García", "Hansen", "Ivanova", "Jansen")

CUSTOMERS = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string(), nullable=False),
        pa.field("email", pa.string()),
        pa.field("country", pa.string(), nullable=False),
        pa.field("since", pa.date32()),
    ]
)
ORDERS = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("customer_id", pa.int64(), nullable=False),
        pa.field("ordered_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("items", pa.int32(), nullable=False),
        pa.field("amount", pa.decimal128(12, 2), nullable=False),
        pa.field("country", pa.string(), nullable=False),
        pa.field("note", pa.string()),
    ]
)


RECENT = "status <> 'returned' AND ordered_at >= TIMESTAMP '2026-10-28T00:00:00Z'"
# The orders of the last days, without those that came back, and what each day earned.
PIPELINE: dict[str, Any] = {
    "steps": [
        {
            "name": "clean",
            "table": "shop.orders",
            "sql": f"SELECT id, to_date(ordered_at) AS day, amount FROM source WHERE {RECENT}",
            "target": "shop.orders_clean",
            "key": "id",
            "expect": [{"name": "amount_not_negative", "that": "amount >= 0", "otherwise": "quarantine"}],
        },
        {
            "name": "daily",
            "table": "shop.orders_clean",
            "by": ["day"],
            "sql": "SELECT day, sum(amount) AS revenue, count(*) AS orders FROM source GROUP BY day",
            "target": "shop.daily_revenue",
            "key": "day",
        },
    ]
}
DAILY_REVENUE = (
    "SELECT CAST(ordered_at AS DATE) AS day, sum(amount) AS revenue, count(*) AS orders FROM shop.orders "
    f"WHERE {RECENT} GROUP BY CAST(ordered_at AS DATE) ORDER BY day"
)
DAILY_REVENUE_TABLE = "SELECT day, revenue, orders FROM shop.daily_revenue ORDER BY day"


def customer_count(orders: int) -> int:
    return max(orders // 10, 10)


def customers(spark: SparkSession, count: int) -> DataFrame:
    first, last = _pick("id", 1, FIRST_NAMES), _pick("id", 2, LAST_NAMES)
    return spark.range(1, count + 1).selectExpr(
        "id",
        f"concat({first}, ' ', {last}) as name",
        "concat('customer', id, '@example.com') as email",
        f"{_pick('id', 3, COUNTRIES)} as country",
        "date_sub(date'2026-09-30', cast(pmod(hash(id, 4), 2000) as int)) as since",
    )


def orders(spark: SparkSession, count: int, customers_known: int) -> DataFrame:
    customer = f"1 + pmod(xxhash64(id, 11), {customers_known})"
    micros = DAYS * 24 * 3600 * 1_000_000 // count
    return (
        spark.range(1, count + 1)
        .selectExpr("id", f"{customer} as customer_id")
        .selectExpr(
            "id",
            "customer_id",
            f"timestamp_micros({int(FIRST_DAY.timestamp()) * 1_000_000} + (id - 1) * {micros}) as ordered_at",
            f"{_pick('id', 12, (*STATUSES[:4], 'delivered', 'delivered', 'delivered', 'returned'))} as status",
            "cast(1 + pmod(hash(id, 13), 6) as int) as items",
            "cast((499 + pmod(xxhash64(id, 14), 25000)) / 100 as decimal(12,2)) as amount",
            f"{_pick('customer_id', 3, COUNTRIES)} as country",
            "case when pmod(hash(id, 15), 20) = 0 then 'gift wrapping' end as note",
        )
    )


def _pick(column: str, salt: int, choices: tuple[str, ...]) -> str:
    listed = ", ".join("'" + choice.replace("'", "''") + "'" for choice in choices)
    return f"element_at(array({listed}), 1 + pmod(hash({column}, {salt}), {len(choices)}))"


@dataclass(frozen=True)
class Batch:
    """What one moment of the day brings: rows to upsert, and keys to delete."""

    upserts: pa.Table
    deletes: list[int]


@dataclass
class Stream:
    """The batches after the load. `expected` follows what the table must then hold: the number of rows."""

    loaded: int
    customers_known: int
    batches: int
    batch_rows: int
    seed: int = 7

    def __iter__(self) -> Iterator[Batch]:
        chance = random.Random(self.seed)
        alive_after = self.loaded
        next_id, recent_from = self.loaded + 1, max(1, self.loaded - self.loaded // 10)
        deleted: set[int] = set()
        deletes_each = max(self.batch_rows // 50, 1)
        for number in range(self.batches):
            now = FIRST_DAY + dt.timedelta(days=DAYS, minutes=number)
            rows: dict[int, dict[str, Any]] = {}
            while len(rows) < self.batch_rows:
                if chance.random() < 0.4:
                    order, next_id = next_id, next_id + 1
                else:
                    order = chance.randrange(recent_from, next_id)
                if order not in deleted:
                    rows[order] = self._order(chance, order, now)
            keys: list[int] = []
            while len(keys) < deletes_each:
                order = chance.randrange(recent_from, next_id)
                if order not in rows and order not in deleted:
                    deleted.add(order)
                    keys.append(order)
            alive_after = next_id - 1 - len(deleted)
            yield Batch(pa.Table.from_pylist(list(rows.values()), schema=ORDERS), keys)
        self.expected = alive_after

    def _order(self, chance: random.Random, order: int, now: dt.datetime) -> dict[str, Any]:
        ordered_at = FIRST_DAY + dt.timedelta(microseconds=(order - 1) * (DAYS * 24 * 3600 * 1_000_000 // self.loaded))
        return {
            "id": order,
            "customer_id": chance.randrange(1, self.customers_known + 1),
            "ordered_at": ordered_at if order <= self.loaded else now,
            "status": chance.choice(STATUSES),
            "items": chance.randrange(1, 7),
            "amount": Decimal(chance.randrange(499, 25_499)).scaleb(-2),
            "country": chance.choice(COUNTRIES),
            "note": "changed by the stream",
        }
