"""/metrics: what Prometheus reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from lithify import Lake, LimitExceeded, TableStats
from lithify.core.names import parse_table_name
from lithify.files.local import LocalStorage
from lithify.http.metrics import Metrics
from lithify.lake.lake_metrics import OTHER, TABLES_MAX, _pending
from lithify.lake.maintenance import maintenance_of

ClientWith = Callable[..., TestClient]
Value = Callable[..., float | None]


def samples(client: TestClient) -> Iterator[tuple[str, dict[str, str], float]]:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


@pytest.fixture
def value(client: TestClient) -> Value:
    """The value of a series, by its name and some of its labels; None if there is none."""

    def find(name: str, **labels: str) -> float | None:
        found = [number for series, has, number in samples(client) if series == name and labels.items() <= has.items()]
        return sum(found) if found else None

    return find


def test_the_format_is_that_of_prometheus(client: TestClient) -> None:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    names = {family.name for family in text_string_to_metric_families(answer.text)}
    assert names >= {"lithify_http_requests", "lithify_writes", "lithify_cache_bytes", "lithify_pending_rows"}


@pytest.mark.parametrize("series", ["process_resident_memory_bytes", "process_cpu_seconds_total"])
def test_the_process(value: Value, series: str) -> None:
    assert (value(series) or 0) > 0


class TestRequests:
    def test_by_template_method_and_status(self, client: TestClient, value: Value) -> None:
        client.get("/v1/tables/shop.orders/stats")
        client.get("/v1/tables/shop.nothing/stats")
        route = "/v1/tables/{name}/stats"
        assert value("lithify_http_requests_total", route=route, method="GET", status="200") == 1
        assert value("lithify_http_requests_total", route=route, method="GET", status="404") == 1
        assert value("lithify_http_request_seconds_count", route=route) == 2

    def test_a_route_with_two_names_is_counted_under_the_one_that_was_asked(
        self, client: TestClient, value: Value
    ) -> None:
        client.get("/v1/compaction/jobs")
        client.get("/v1/compaction/jobs")
        client.get("/v1/maintenance/jobs")
        assert value("lithify_http_requests_total", route="/v1/compaction/jobs") == 2
        assert value("lithify_http_requests_total", route="/v1/maintenance/jobs") == 1

    def test_what_is_refused_before_the_route_counts_too(self, stranger: TestClient, value: Value) -> None:
        stranger.get("/v1/tables")
        assert value("lithify_http_requests_total", status="401") == 1

    def test_no_caller_can_make_series(self, client: TestClient, value: Value) -> None:
        for number in range(20):
            client.get(f"/nowhere/{number}")
            client.get(f"/v1/tables/made.up{number}/stats")
            client.request(f"VERB{number}", "/v1/tables")
        routes = {labels["route"] for name, labels, _ in samples(client) if name == "lithify_http_requests_total"}
        methods = {labels["method"] for name, labels, _ in samples(client) if name == "lithify_http_requests_total"}
        assert not any(re.search(r"\d\d|made|nowhere", route) for route in routes)
        assert methods <= {"GET", OTHER}

    def test_a_crash_is_a_500(self, client: TestClient, lake: Lake, value: Value, monkeypatch: Any) -> None:
        monkeypatch.setattr(lake, "table", lambda name: 1 // 0)
        client.get("/v1/tables/shop.orders/stats")
        monkeypatch.undo()
        assert value("lithify_http_requests_total", status="500") == 1


class TestWrites:
    def test_rows_and_commits(self, lake: Lake, value: Value) -> None:
        rows, commits = value("lithify_written_rows_total") or 0, value("lithify_write_commits_total") or 0
        lake.table("shop.orders").delete([1, 2])
        assert (value("lithify_written_rows_total") or 0) - rows == 2
        assert (value("lithify_write_commits_total") or 0) - commits == 1


class TestQueries:
    def test_by_source(self, client: TestClient, value: Value) -> None:
        client.post("/v1/query/sql", json={"sql": "select count(*) from shop.orders"})
        assert value("lithify_queries_total") == 1
        assert value("lithify_query_rows_total") == 1

    def test_what_is_cut(self, client: TestClient, value: Value) -> None:
        client.post("/v1/query/sql", json={"sql": "select id from shop.orders", "rows_max": 1})
        assert value("lithify_queries_cut_total") == 1

    def test_what_a_limit_stopped(self, lake: Lake, value: Value) -> None:
        lake.table("log.events").append([{"user_id": n, "what": "x"} for n in range(2_000)])
        endless = "select sum(a.user_id * b.user_id * c.user_id) from log.events a, log.events b, log.events c"
        with pytest.raises(LimitExceeded):
            lake.query(endless, timeout_s=0.2)
        assert value("lithify_queries_stopped_total", limit="time") == 1

    def test_what_is_refused(self, client: TestClient, value: Value) -> None:
        client.post("/v1/query/sql", json={"sql": "drop table shop.orders"})
        assert value("lithify_queries_failed_total") == 1


class TestCache:
    def test_what_is_in_memory(self, client: TestClient, value: Value) -> None:
        size = client.post("/v1/query/cache/pin", json={"table": "shop.orders"}).json()["bytes"]
        assert value("lithify_cache_bytes") == size
        assert (value("lithify_cache_tables"), value("lithify_cache_pinned")) == (1, 1)
        assert value("lithify_cache_loads_total") == 1
        client.post("/v1/query/cache/evict")
        assert value("lithify_cache_evictions_total") == 1


class TestPending:
    def test_of_open_tables(self, client: TestClient, value: Value) -> None:
        client.get("/v1/tables/shop.orders/stats")
        assert value("lithify_pending_rows", table="shop.orders") == 3
        assert value("lithify_pending_files", table="shop.orders") == 1
        client.post("/v1/tables/shop.orders/fold")
        assert value("lithify_pending_rows", table="shop.orders") == 0

    def test_labels_are_bounded(self) -> None:
        tables = [
            TableStats(f"a.t{number}", pending_rows=1, pending_files=2, pending_bytes=3)
            for number in range(TABLES_MAX + 10)
        ]
        families = {family.name: family.samples for family in _pending(tables)}
        rows = {sample.labels["table"]: sample.value for sample in families["lithify_pending_rows"]}
        assert len(rows) == TABLES_MAX + 1
        assert rows[OTHER] == 10
        assert sum(rows.values()) == TABLES_MAX + 10


class TestBackgroundWork:
    def test_jobs_by_kind_and_outcome(self, client: TestClient, value: Value) -> None:
        client.post("/v1/tables/shop.orders/fold")
        assert value("lithify_jobs_total", kind="fold", outcome="done") == 1

    def test_cycles(self, client: TestClient, lake: Lake, value: Value) -> None:
        client.post("/v1/maintenance/trigger")
        assert maintenance_of(lake).cycle.wait(60)
        assert value("lithify_cycles_total", outcome="ended") == 1
        assert value("lithify_cycle_seconds_count", what="policies") == 1

    def test_the_spark_worker(self, value: Value) -> None:
        assert (value("lithify_worker_alive"), value("lithify_worker_starts_total")) == (0, 0)


class TestCost:
    def test_a_scrape_looks_at_no_file_of_the_lake(self, lake: Lake, client: TestClient, monkeypatch: Any) -> None:
        metrics = Metrics(lake)
        for name in lake.tables():
            lake.table(name).stats()

        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("a file was looked at")

        for name in ("read", "names", "size", "modified_ms"):
            monkeypatch.setattr(LocalStorage, name, refuse)
        monkeypatch.setattr("lithify.delta.log.DeltaLog.refresh", refuse)
        assert b'lithify_pending_rows{table="shop.orders"} 3.0' in metrics.text()

    def test_tables_that_are_not_open_are_not_opened(self, lake: Lake) -> None:
        for name in lake.tables():
            lake.table(name).stats()
            lake._loaded.forget(parse_table_name(name))
        text = Metrics(lake).text()
        assert b"lithify_tables_open 0.0" in text
        assert lake._loaded.loaded() == []


def test_services_do_not_share_counts(lake: Lake) -> None:
    first, second = Metrics(lake), Metrics(lake)
    first.observe("/v1/tables", "GET", 200, 0.01)
    assert b"lithify_http_requests_total{" in first.text()
    assert b"lithify_http_requests_total{" not in second.text()


def test_a_token_for_one_table_may_not(client_with: ClientWith) -> None:
    assert client_with("read", table="shop.orders").get("/metrics").status_code == 403
