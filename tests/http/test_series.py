"""What the service did over the last hours."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from lithify import Lake
from lithify.http.series import SAMPLES_MAX, Point, Series, lines_of
from lithify.http.service import Service
from lithify.jobs.past_jobs import Journal
from lithify.lake.internals import internals
from lithify.metrics.latencies import bucket_of, quantile
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
    series._points.extend([Point(1.0, {})] * (SAMPLES_MAX + 5))
    assert len(series.since(0)) == SAMPLES_MAX == 2160


def test_quantiles_of_queries_between_two_samples(client: TestClient, service: Service, lake: Lake) -> None:
    activity = internals(lake).runtime.activity
    for seconds in [5.0] * 50:  # before the first sample, and of no account
        activity.answered("files", 1, seconds, cut=False)
    service.series.take(lake)
    for seconds in [0.01] * 98 + [1.0] * 2:
        activity.answered("files", 1, seconds, cut=False)
    service.series.take(lake)
    found = lines(client)
    assert found["query_p50_s"] == [None, pytest.approx(0.01, rel=0.1)]
    assert found["query_p99_s"] == [None, pytest.approx(1.0, rel=0.1)]


@pytest.mark.parametrize("seconds", [1e-7, 1e-5, 3e-4, 0.02, 7.5, 900.0])
def test_a_quantile_is_told_to_within_a_tenth(seconds: float) -> None:
    told = quantile(0.5, {bucket_of(seconds): 3}, {})
    assert told == pytest.approx(max(seconds, 1e-5), rel=0.1)


class TestAfterARestart:
    def minute(self, series: Series, lake: Lake, at_s: float) -> None:
        series.clock = lambda: at_s
        series.take(lake)

    def test_what_was_done_before_is_still_told(self, lake: Lake) -> None:
        first, second = Series(), Series()
        lake.table("shop.orders").snapshot()
        self.minute(first, lake, 1000.0)
        lake.table("shop.orders").upsert([{"id": n, "amount": "1.00", "status": None} for n in range(60)])
        lake.table("shop.orders").snapshot()
        self.minute(first, lake, 1060.0)
        self.minute(first, lake, 1120.0)  # nothing has happened since
        self.minute(second, lake, 2000.0)
        told = {line.name: line.values for line in lines_of(second.since(0))}
        assert [point.time_s for point in second.since(0)] == [1060.0, 2000.0]
        assert told["rows_written_s"] == [1.0, None]
        assert told["pending_rows"] == [63.0, 63.0]

    def test_in_between_the_points_of_the_ring_are_told(self, lake: Lake) -> None:
        series = Series()
        for number in range(20):
            lake.table("log.events").append([{"user_id": number, "what": "c"}])
            self.minute(series, lake, 1000.0 + 10 * number)
        assert [point.time_s for point in series.since(0)] == [1000.0 + 10 * number for number in range(20)]
        assert len(journal(lake).read()) == 3

    @pytest.mark.parametrize(
        "line", [{"time_s": "x"}, {"values": {}}, {"time_s": 5, "values": {"pending_rows": "<b>"}}]
    )
    def test_lines_of_another_version_are_left_out(self, lake: Lake, line: dict[str, Any]) -> None:
        journal(lake).append(line)
        series = Series()
        self.minute(series, lake, 1000.0)
        assert all(point.values.get("pending_rows") is None for point in series.since(0))


def journal(lake: Lake) -> Journal:
    runtime = internals(lake).runtime
    return Journal(runtime.store, runtime.control / "history" / "series.jsonl")


def test_a_service_that_runs_takes_samples(served: Served, service: Service) -> None:
    eventually(lambda: service.series.since(0))
