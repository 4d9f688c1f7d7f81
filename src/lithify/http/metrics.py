"""What Prometheus reads at /metrics: requests, and what `lake/lake_metrics.py` tells of the lake and this process.

Requests are counted as they end, by the template of their route and never by their path, so that no caller can make
series.
"""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lithify import __version__
from lithify.http.logs import template
from lithify.lake.lake import Lake
from lithify.lake.lake_metrics import OTHER, Joined, lake_registry

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30, 300)


class Metrics:
    """One per service, with a registry of its own."""

    def __init__(self, lake: Lake) -> None:
        self.registry, counted = lake_registry(lake, __version__), CollectorRegistry()
        by_route = "Requests by template of the route, method and status."
        self.requests = Counter("lithify_http_requests", by_route, ["route", "method", "status"], registry=counted)
        until_answered, labels = "Time until a request was answered to the end.", ["route", "method"]
        self.seconds = Histogram(
            "lithify_http_request_seconds", until_answered, labels, buckets=_SECONDS, registry=counted
        )
        self.flight_calls = Counter(
            "lithify_flight_calls", "Calls of Flight SQL by method and code.", ["method", "code"], registry=counted
        )
        self.flight_seconds = Histogram(
            "lithify_flight_call_seconds",
            "Time of a call of Flight SQL.",
            ["method"],
            buckets=_SECONDS,
            registry=counted,
        )
        self.under_way = Gauge("lithify_http_requests_under_way", "Requests being answered.", registry=counted)
        self.registry.register(Joined(counted))

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        method = method if method in _METHODS else OTHER
        self.requests.labels(route, method, str(status)).inc()
        self.seconds.labels(route, method).observe(seconds)

    def observe_flight(self, method: str, code: str, seconds: float) -> None:
        self.flight_calls.labels(method, code).inc()
        self.flight_seconds.labels(method).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class MeasureRequests:
    """ASGI middleware, around all others: what they refuse is counted too."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        started_s = time.perf_counter()
        self._metrics.under_way.inc()
        try:
            await self._app(scope, receive, noted)
        finally:
            self._metrics.under_way.dec()
            self._metrics.observe(template(scope), scope["method"], status, time.perf_counter() - started_s)
