"""What every route works with: the lake, its settings and its tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, TypeVar, cast

from fastapi import Depends, Request

from lithify.errors import NotFound
from lithify.http.metrics import Metrics
from lithify.http.paging import ResultCache
from lithify.http.response_memory import HeldRows
from lithify.http.tokens import Tokens
from lithify.lake.lake import Lake
from lithify.lake.table import Table
from lithify.settings import Settings

TABLES_KEPT_MAX = 1_000
# Answers on their way out, in multiples of what one query may take.
ANSWERS_AT_ONCE = 2
Result = TypeVar("Result")


@dataclass
class Service:
    lake: Lake
    settings: Settings
    tokens: Tokens
    metrics: Metrics
    # From the moment that the service was told to stop: what is under way ends, nothing new is ready.
    stopping: bool = False
    # Answers of which further pages may be asked for, and how many requests are at a query now, by token.
    answers: ResultCache = field(default_factory=ResultCache)
    asking: Counter[str] = field(default_factory=Counter)
    held: HeldRows = field(init=False)
    _tables: dict[str, Table] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.held = HeldRows(ANSWERS_AT_ONCE * self.settings.query_memory_bytes_max)

    def with_table(self, name: str, work: Callable[[Table], Result]) -> Result:
        """Do something with a table that was opened before, if it was: to look it up anew is to wait for the commit
        under way, and those who wait there cannot join it. A table that was dropped says so; then it is looked up.
        """
        if (table := self._tables.get(name)) is not None:
            try:
                return work(table)
            except NotFound:
                self._tables.pop(name, None)
        table = self.lake.table(name)
        if len(self._tables) >= TABLES_KEPT_MAX:
            self._tables.clear()
        self._tables[name] = table
        return work(table)


async def service_of(request: Request) -> Service:
    return cast("Service", request.app.state.service)


async def lake_of(request: Request) -> Lake:
    return cast("Service", request.app.state.service).lake


ServiceDep = Annotated[Service, Depends(service_of)]
LakeDep = Annotated[Lake, Depends(lake_of)]
