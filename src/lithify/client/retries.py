"""When a request is sent again, and after how long: decided here, done by `transport`.

Waits grow from one attempt to the next and are drawn at random below their bound, so that many clients of one server
that came back do not all arrive at once. A server that says how long to wait (Retry-After) is heard, unless that is
longer than all attempts may take together.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

RETRIED_STATUSES = frozenset({429, 502, 503, 504})


@dataclass(frozen=True)
class Retries:
    """`stranger_attempts_max`: to a server that has never answered, which is rather a wrong address than a restart."""

    attempts_max: int = 10
    stranger_attempts_max: int = 4
    total_s_max: float = 30.0
    first_wait_s: float = 0.1
    wait_s_max: float = 5.0

    def wait_s(
        self, attempt: int, elapsed_s: float, asked_s: float | None, draw: float, *, known: bool = True
    ) -> float | None:
        """Seconds to wait after `attempt` (the first is 1) has failed; None: give up. `draw` is from 0 to 1; `known`:
        this server has answered before.
        """
        if attempt >= (self.attempts_max if known else self.stranger_attempts_max):
            return None
        bound_s = min(self.wait_s_max, self.first_wait_s * 2 ** (attempt - 1))
        wait_s = bound_s * (0.5 + draw / 2)
        if asked_s is not None:
            wait_s += asked_s
        return wait_s if elapsed_s + wait_s <= self.total_s_max else None


def asked_wait_s(header: str | None, now: dt.datetime) -> float | None:
    """What a Retry-After header asks for, in seconds: a number, or a date. None if it says nothing readable."""
    if header is None:
        return None
    try:
        return max(0.0, float(int(header)))
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, (when.replace(tzinfo=when.tzinfo or dt.UTC) - now).total_seconds())
