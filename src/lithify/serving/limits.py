"""What a query may take, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from lithify.errors import InvalidRequest, LimitExceeded

Source = Literal["answer", "hot", "files"]
State = Literal["waiting", "running"]


@dataclass(frozen=True)
class Limits:
    """Of one query; None: no such limit. Rows beyond `rows_max` are cut, everything else stops the query."""

    timeout_s: float | None = None
    rows_max: int | None = None
    memory_bytes_max: int | None = None

    def __post_init__(self) -> None:
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise InvalidRequest(f"timeout_s is a number of seconds above 0, not {self.timeout_s}")
        if self.rows_max is not None and self.rows_max < 0:
            raise InvalidRequest(f"rows_max is a number of rows, not {self.rows_max}")
        if self.memory_bytes_max is not None and self.memory_bytes_max <= 0:
            raise InvalidRequest(f"memory_bytes_max is a number of bytes above 0, not {self.memory_bytes_max}")


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
class RunningQuery:
    """`seconds`: since it was asked."""

    id: str
    sql: str
    state: State
    seconds: float


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
