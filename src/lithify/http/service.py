"""What every route works with: the lake, its settings and its tokens."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends, Request

from lithify.http.console.sign_in import SignIn
from lithify.http.doctor import Doctor
from lithify.http.metrics import Metrics
from lithify.http.paging import PagedAnswers
from lithify.http.response_memory import ResponseMemory
from lithify.http.series import Series
from lithify.http.table_states import TableStates
from lithify.http.tokens import Tokens
from lithify.lake.internals import internals
from lithify.lake.lake import Lake
from lithify.metrics.recent_events import RecentEvents
from lithify.settings import Settings

# Answers on their way out, in multiples of what one query may take.
ANSWERS_AT_ONCE = 2


@dataclass
class Service:
    lake: Lake
    settings: Settings
    tokens: Tokens
    metrics: Metrics
    # From the moment that the service was told to stop: what is under way ends, nothing new is ready.
    stopping: bool = False
    # Answers of which further pages may be asked for, and how many requests are at a query now, by token.
    answers: PagedAnswers = field(default_factory=PagedAnswers)
    asking: Counter[str] = field(default_factory=Counter)
    asking_lock: threading.Lock = field(default_factory=threading.Lock)
    series: Series = field(default_factory=Series)
    states: TableStates = field(default_factory=TableStates)
    # Streams of events that are open, by token.
    streams: Counter[str] = field(default_factory=Counter)
    doctor: Doctor = field(default_factory=Doctor)
    response_memory: ResponseMemory = field(init=False)
    sign_in: SignIn = field(init=False)

    def __post_init__(self) -> None:
        self.response_memory = ResponseMemory(ANSWERS_AT_ONCE * self.settings.query_memory_bytes_max)
        self.sign_in = SignIn(self.tokens)

    @property
    def events(self) -> RecentEvents:
        return internals(self.lake).runtime.shared(RecentEvents)


async def service_of(request: Request) -> Service:
    return cast("Service", request.app.state.service)


async def lake_of(request: Request) -> Lake:
    return cast("Service", request.app.state.service).lake


ServiceDep = Annotated[Service, Depends(service_of)]
LakeDep = Annotated[Lake, Depends(lake_of)]
