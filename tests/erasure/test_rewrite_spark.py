"""Spark reads every version after its past was rewritten, also through frames that were planned before."""

from __future__ import annotations

from typing import Any

import pytest

from lithify import Lake, Table
from support.erasures import told

pytestmark = pytest.mark.spark


def test_every_version_is_read_by_spark(lake: Lake, customers: Table, spark: Any) -> None:
    customers.fold()
    customers.upsert([{"id": 60, "name": "x", "mail": "60@example.org", "n": 1}])
    seq = customers.snapshot().seq
    before = told(customers, seq, 42)["rows"]
    now = customers.to_spark(spark=spark)  # planned before, of rows that stay where they are
    expected = sorted(row["id"] for row in now.collect() if row["id"] != 42)

    assert lake.erase("shop.customers", keys=[42]).wait().state == "done"

    assert isinstance(before, dict)
    for at in range(seq + 1):
        rows = [row.asDict() for row in customers.to_spark(as_of=at, spark=spark).collect()]
        assert sorted(map(repr, rows)) == before[at]
    feed = customers.feed_to_spark(0, seq, spark=spark).collect()
    assert 42 not in {row["id"] for row in feed}
    assert sorted(row["id"] for row in customers.to_spark(spark=spark).collect()) == expected
