"""How pipelines and streams of this process fare, for whoever publishes metrics: a few numbers for each name."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Tallied:
    """`failures`: in a row; `lag`: in seqs, where that is known."""

    failures: int = 0
    succeeded_ms: int | None = None
    lag: int | None = None


class RunTally:
    """One per lake and process (`Runtime.shared`)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Tallied] = {}

    def tell(self, name: str, tallied: Tallied) -> None:
        with self._lock:
            self._known[name] = tallied

    def ended(self, name: str, now_ms: int | None, lag: int | None = None) -> None:
        """A run ended well at this moment; None: it failed."""
        with self._lock:
            before = self._known.get(name, Tallied())
            if now_ms is None:
                self._known[name] = replace(before, failures=before.failures + 1, lag=lag)
            else:
                self._known[name] = Tallied(0, now_ms, lag)

    def seen(self) -> Mapping[str, Tallied]:
        with self._lock:
            return dict(self._known)
