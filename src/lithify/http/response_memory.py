"""Rows of answers on their way out. A client decides how fast it reads, and until then its answer stays in memory: all
answers under way together have a limit. One alone may be as large as a query's own limits allow.
"""

from __future__ import annotations

import threading
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lithify.errors import LimitExceeded

RELEASE = "release"


@dataclass
class ResponseMemory:
    bytes_max: int
    bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def check(self) -> None:
        """Before anything is computed that would be refused afterwards."""
        if self.bytes >= self.bytes_max:
            raise _too_much()

    def hold(self, state: MutableMapping[str, Any], rows: pa.Table) -> None:
        """Until the request with this state ends, however it ends: `release` is called then."""
        size_bytes = int(rows.get_total_buffer_size())
        with self._lock:
            if self.bytes and self.bytes + size_bytes > self.bytes_max:
                raise _too_much()
            self.bytes += size_bytes

        def give_back() -> None:
            with self._lock:
                self.bytes -= size_bytes

        state[RELEASE] = give_back


def release(state: MutableMapping[str, Any]) -> None:
    state.pop(RELEASE, lambda: None)()


def _too_much() -> LimitExceeded:
    return LimitExceeded(
        "too many large answers are being sent at once: send it again after a moment, or ask for less", limit="queue"
    )
