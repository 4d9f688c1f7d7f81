"""Keys for writes that were given none, in as many lanes as writes are under way at once (`delta/batch_ids.py`)."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from lithify.delta.batch_ids import InLane
from lithify.errors import CommitUnknown


class Lanes:
    def __init__(self) -> None:
        self._free: list[InLane] = []
        self._lock = threading.Lock()

    @contextmanager
    def key(self) -> Iterator[str]:
        """The key of one write, to be used for all its attempts."""
        with self._lock:
            here = self._free.pop() if self._free else InLane(f"lane-{uuid.uuid4().hex}", 1)
        known = False
        try:
            yield str(here)
            known = True
        except Exception as error:
            known = not isinstance(error, CommitUnknown)
            raise
        finally:
            # Whoever is told that a write may have been done can still ask by its key: nobody else uses the lane.
            if known:
                with self._lock:
                    self._free.append(here._replace(number=here.number + 1))
