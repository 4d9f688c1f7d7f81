"""What a query may take, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import pyarrow as pa

from lithify.core.arguments import check_count, check_seconds
from lithify.core.fields import Example
from lithify.core.html import Shown
from lithify.errors import LimitExceeded

Source = Literal["answer", "hot", "files"]
State = Literal["waiting", "running"]


@dataclass(frozen=True)
class Limits:
    """Of one query; None: no such limit. Rows beyond `rows_max` are cut, everything else stops the query."""

    timeout_s: float | None = None
    rows_max: int | None = None
    memory_bytes_max: int | None = None

    def __post_init__(self) -> None:
        check_seconds("timeout_s", self.timeout_s)
        check_count("rows_max", self.rows_max)
        check_count("memory_bytes_max", self.memory_bytes_max, least=1)


@dataclass(frozen=True)
class Answer:
    """`cut`: there were more rows. `source`: a kept answer, hot tables, or files. `snapshots`: the sequence number of
    each table's snapshot, by its name.
    """

    id: str
    rows: pa.Table
    cut: bool
    seconds: float
    source: Source
    snapshots: Mapping[str, int]


@dataclass(frozen=True)
class RunningQuery(Shown):
    """A query under way."""

    id: Annotated[str, "Its id, to cancel it by.", Example("report-7")]
    sql: Annotated[str, "What it asks.", Example("select count(*) from shop.orders")]
    state: Annotated[State, "waiting or running.", Example("running")]
    seconds: Annotated[float, "Since it came.", Example(1.5)]


def out_of_time(timeout_s: float) -> LimitExceeded:
    return LimitExceeded(
        f"the query was stopped after {timeout_s:g} s (timeout_s if it was given, else query_timeout_s): ask for less, "
        "or raise the limit",
        limit="time",
    )


def out_of_memory(memory_bytes_max: int) -> LimitExceeded:
    return LimitExceeded(
        f"the query needs more than {memory_bytes_max / 2**20:,.0f} MiB (query_memory_bytes_max): ask for less, or "
        "raise the limit",
        limit="memory",
    )


def out_of_disk(spill_bytes_max: int) -> LimitExceeded:
    return LimitExceeded(
        f"the query puts more than {spill_bytes_max / 2**20:,.0f} MiB onto disk (query_spill_bytes_max): ask for less, "
        "or raise the limit",
        limit="disk",
    )


def too_much_of_one(what: str, bytes_max: int, setting: str) -> LimitExceeded:
    return LimitExceeded(
        f"the queries of this token together take more than {bytes_max / 2**20:,.0f} MiB of {what} ({setting}), and "
        "this one takes most: ask for less at a time, or raise the limit",
        limit=what,
    )
