"""One service for many tests that only knock on its doors: making a lake for each would take most of their time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import FastAPI
from starlette.testclient import TestClient

from lithify import Lake, Settings
from lithify.http.app import create_app
from lithify.http.tokens import Tokens
from support.folders import memory_folder
from support.served_lake import fill

BASE_URL = "http://127.0.0.1"
SETTINGS = Settings(port=0, cache_bytes_max=2**26, query_timeout_s=2, queries_max=2, query_wait_s_max=30)


class SharedService:
    """`client("read", table="shop.orders")`: a client whose token may do no more than that; without a scope, none."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self._tokens = lake, Tokens(lake.path)
        self.app: FastAPI = create_app(lake, SETTINGS, self._tokens)
        self._headers: dict[tuple[tuple[str, ...], str | None], dict[str, str]] = {}

    def headers(self, *scopes: str, table: str | None = None) -> dict[str, str]:
        if not scopes:
            return {}
        if (scopes, table) not in self._headers:
            _, secret = self._tokens.create(f"t{len(self._headers)}", scopes, (table,) if table else ())
            self._headers[scopes, table] = {"Authorization": f"Bearer {secret}"}
        return self._headers[scopes, table]

    def client(self, *scopes: str, table: str | None = None) -> TestClient:
        return TestClient(self.app, BASE_URL, headers=self.headers(*scopes, table=table))


@contextmanager
def shared_service() -> Iterator[SharedService]:
    with memory_folder() as folder, Lake(folder / "lake", settings=SETTINGS) as lake:
        fill(lake)
        yield SharedService(lake)
