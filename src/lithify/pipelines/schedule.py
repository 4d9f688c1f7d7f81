"""When something runs by itself: every so often, at the times of a cron expression, or whenever a table has changed.

    every = "30s"             looks that often whether there is something to do
    cron = "5 * * * *"        at these times (UTC); one that was missed is made up for
    on = "shop.orders"        as soon as the table has a new seq

One of them; without any, it runs when somebody asks. Pure: what a cron expression says is looked at in `entries.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lithify.core.names import parse_table_name
from lithify.core.time_text import seconds_within
from lithify.errors import InvalidRequest

SCHEDULE_KEYS = ("every", "cron", "on")
EVERY = "1s", "168h"


@dataclass(frozen=True)
class Schedule:
    every_s: float | None = None
    cron: str | None = None
    on: str | None = None

    def __str__(self) -> str:
        if self.on is not None:
            return f"when {self.on} changes"
        return f"every {self.every_s:g} s" if self.cron is None else f"at {self.cron} (UTC)"


def parse_schedule(where: str, body: Mapping[str, Any]) -> Schedule | None:
    """`where` names what has it."""
    said = [name for name in SCHEDULE_KEYS if name in body]
    if not said:
        return None
    if len(said) > 1:
        raise InvalidRequest(f"{where}: {' and '.join(said)} are several ways to say when it runs: leave one")
    name, value = said[0], body[said[0]]
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequest(f"{where}: {name} is a text, not {value!r}")
    match name:
        case "every":
            seconds = seconds_within(value, *EVERY)
            if seconds is None:
                least, most = EVERY
                raise InvalidRequest(
                    f'{where}: every = {value!r} is no time from {least} to {most}: write "30s" or "5m"'
                )
            return Schedule(every_s=seconds)
        case "cron":
            return Schedule(cron=" ".join(value.split()))
    try:
        return Schedule(on=str(parse_table_name(value)))
    except InvalidRequest as error:
        raise InvalidRequest(f"{where}: on names a table: {error}") from None
