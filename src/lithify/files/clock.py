"""The clock that all processes of a lake share: that of its file system.

Processes write on several hosts, and one of them may be an hour or a month off. Whatever decides about forgetting or
deleting compares two times: that of a file, and now. Both come from the file system here, so a process whose own clock
is wrong decides like every other. Now is what a file shows after it was touched; in between, the monotonic clock of
this process, which nobody sets, counts on: for a second at most, or some minutes where asking takes requests.

Where nothing can be touched, nothing can be deleted either, and the process's own clock will do for telling ages. A
storage that does not answer now is no such place: that is an error, or an earlier answer is counted on from.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import PurePath

from lithify.errors import LithifyError, Unavailable
from lithify.files.storage import Storage

ASKED_EVERY_S = 1.0
# Of a storage that is not this machine's. Clocks that count the same seconds drift by milliseconds in that time.
ASKED_AFAR_EVERY_S = 300.0
CLOCK_FILE = "clock"
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # which goes on while the machine sleeps


def own_clock_ms() -> int:
    return int(time.time() * 1000)


class LakeClock:
    def __init__(self, store: Storage, control: PurePath, own_ms: Callable[[], int] = own_clock_ms) -> None:
        self._store, self._path, self._own_ms = store, control / CLOCK_FILE, own_ms
        self._every_s = ASKED_EVERY_S if store.locks else ASKED_AFAR_EVERY_S
        self._asked: tuple[float, float] | None = None  # when, by the monotonic clock, and what the answer was

    def now_ms(self) -> int:
        now_s, asked = time.clock_gettime(_CLOCK), self._asked
        if asked is None or now_s - asked[0] >= self._every_s:
            try:
                asked = self._asked = now_s, self._store.touch_ms(self._path, empty=True)
            except LithifyError as error:
                if self._store.locks or not isinstance(error, Unavailable):
                    return self._own_ms()
                if asked is None:
                    raise
        return int(asked[1] + (now_s - asked[0]) * 1000)
