"""`lithify doctor` for a service: one look at a time, bounded, and remembered for a moment."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from lithify.errors import Conflict
from lithify.http.documents.events import CheckDocument, DoctorDocument
from lithify.http.placeless import placeless
from lithify.tools.doctor import examine

if TYPE_CHECKING:
    from lithify.http.service import Service

SECONDS_MAX = 30.0
GOOD_S = 10.0


class Doctor:
    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._last: tuple[float, DoctorDocument] | None = None

    def look(self, service: Service) -> DoctorDocument:
        last = self._last
        if last is not None and time.monotonic() - last[0] < GOOD_S:
            return last[1]
        if not self._busy.acquire(blocking=False):
            raise Conflict("somebody else looks at this moment: ask again when that has ended")
        try:
            began_s = time.monotonic()
            found = examine(service.settings, service.lake.path, service.lake, SECONDS_MAX)
            checks = [
                CheckDocument(
                    name=check.name,
                    status=check.status.value,
                    found=placeless(service.lake, check.found),
                    advice=placeless(service.lake, check.advice),
                )
                for check in found
            ]
            statuses = [check.status for check in checks]
            document = DoctorDocument(
                checks=checks,
                failed=statuses.count("fail"),
                warned=statuses.count("warn"),
                seconds=round(time.monotonic() - began_s, 3),
                time_ms=int(time.time() * 1000),
            )
            self._last = time.monotonic(), document
            return document
        finally:
            self._busy.release()
