"""What the service did over the last hours."""

from __future__ import annotations

from typing import Any

from starlette.testclient import TestClient

from lithify import Lake
from lithify.http.series import SAMPLES_MAX, Sample, Series, lines_of
from lithify.http.service import Service
from support.waiting import eventually

from .conftest import Served


def lines(client: TestClient, **parameters: Any) -> dict[str, list[float | None]]:
    found = client.get("/v1/series", params=parameters).json()
    return {"times": found["times"]} | {line["name"]: line["values"] for line in found["lines"]}


def test_levels_and_rates_between_two_samples(client: TestClient, service: Service, lake: Lake) -> None:
    now = 100.0
    service.series.clock = lambda: now
    lake.table("shop.orders").snapshot()
    service.series.take(lake)
    now = 110.0
    lake.table("shop.orders").upsert([{"id": n, "amount": "1.00", "status": None} for n in range(20)])
    lake.table("shop.orders").snapshot()
    lake.query("select count(*) from shop.orders")
    service.series.take(lake)

    found = lines(client)

    assert found["times"] == [100.0, 110.0]
    assert found["pending_rows"] == [3.0, 23.0]
    assert found["rows_written_s"] == [None, 2.0]
    assert found["queries_s"] == [None, 0.1]
    assert found["query_seconds"][0] is None
    assert (found["query_seconds"][1] or 0) > 0
    assert lines(client, since=100)["times"] == [110.0]


def test_where_nothing_was_asked_no_time_was_taken(client: TestClient, service: Service, lake: Lake) -> None:
    service.series.take(lake)
    service.series.take(lake)
    assert lines(client)["query_seconds"] == [None, None]


def test_where_no_table_is_open_nothing_is_known(client: TestClient, service: Service, lake: Lake) -> None:
    service.series.take(lake)
    lake.table("shop.orders").snapshot()
    service.series.take(lake)
    assert lines(client)["pending_rows"] == [None, 3.0]


def test_nothing_yet(client: TestClient) -> None:
    assert lines(client)["times"] == []


def test_it_has_an_end() -> None:
    series = Series()
    assert all(line.values == [] for line in lines_of([]))
    assert series.since(0) == []
    sample = Sample(1.0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0, 0)
    series._samples.extend([sample] * (SAMPLES_MAX + 5))
    assert len(series.since(0)) == SAMPLES_MAX == 2160


def test_a_service_that_runs_takes_samples(served: Served, service: Service) -> None:
    eventually(lambda: service.series.since(0))
