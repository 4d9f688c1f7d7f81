"""Commits of logs in buckets that were read for what they say of the past: they never change, and each is a request.

One memory for all logs of a process, bounded in bytes; what was asked for longest ago goes first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

BODIES_BYTES_MAX = 32 * 2**20
BESIDE_BYTES = 200  # what an entry takes besides its text


class CommitBodies:
    def __init__(self, bytes_max: int = BODIES_BYTES_MAX) -> None:
        self._bytes_max, self._bytes = bytes_max, 0
        self._bodies: OrderedDict[tuple[object, int], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, log: object, version: int) -> bytes | None:
        with self._lock:
            body = self._bodies.get((log, version))
            if body is not None:
                self._bodies.move_to_end((log, version))
            return body

    def keep(self, log: object, version: int, body: bytes) -> None:
        with self._lock:
            if (log, version) not in self._bodies and _size(body) <= self._bytes_max // 8:
                self._bodies[log, version] = body
                self._bytes += _size(body)
            while self._bytes > self._bytes_max:
                self._bytes -= _size(self._bodies.popitem(last=False)[1])


def _size(body: bytes) -> int:
    return len(body) + BESIDE_BYTES
