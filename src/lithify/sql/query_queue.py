"""The queries under way: so many run at once, the others wait in line for a bounded time.

A query holds its slot from `running` until that context ends, however it ends. Whoever is first in line is handed a
slot that becomes free, unless its owner has as many as one owner may: then the next is. A query is cancelled by its
id, in line or under way: in line it leaves, and under way it stops by the means it has named with `stop_with`.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator

from lithify.errors import Cancelled, Conflict, InvalidRequest, LimitExceeded
from lithify.sql.limits import RunningQuery, State

ID_LENGTH_MAX = 128


class Run:
    """One query under way. `cancel` may be called by any thread, at any time and more than once."""

    def __init__(self, id: str, sql: str, owner: str | None = None) -> None:
        self.id, self.sql, self.owner = id, sql, owner
        self.asked_at = time.monotonic()
        self.state: State = "waiting"
        self.turn = threading.Event()
        self._lock = threading.Lock()
        self._cancelled = False
        self._stop: Callable[[], object] | None = None

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            stop = self._stop
        self.turn.set()
        if stop is not None:
            stop()

    @contextlib.contextmanager
    def stop_with(self, stop: Callable[[], object]) -> Iterator[None]:
        """What ends the work that is done meanwhile. It is called at once if the query was cancelled before."""
        with self._lock:
            self._stop = stop
            late = self._cancelled
        try:
            if late:
                stop()
            yield
        finally:
            with self._lock:
                self._stop = None

    def check(self) -> None:
        if self._cancelled:
            raise Cancelled(f"query {self.id} was cancelled", id=self.id)


class RunningQueries:
    """`owner_max`: slots that one owner can have at the same time; queries of nobody in particular know no such
    limit.
    """

    def __init__(self, slots_max: int, wait_s_max: float, owner_max: int | None = None) -> None:
        self._slots_max, self._wait_s_max = slots_max, wait_s_max
        self._owner_max = slots_max if owner_max is None else owner_max
        self._lock = threading.Lock()
        self._runs: dict[str, Run] = {}
        self._line: OrderedDict[str, Run] = OrderedDict()
        self._taken = 0

    @contextlib.contextmanager
    def running(self, sql: str, id: str | None = None, owner: str | None = None) -> Iterator[Run]:
        run = self._enter(sql, id, owner)
        try:
            self._wait(run)
            yield run
        finally:
            self._leave(run)

    def cancel(self, id: str) -> bool:
        with self._lock:
            run = self._runs.get(id)
        if run is None:
            return False
        run.cancel()
        return True

    def cancel_all(self) -> None:
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            run.cancel()

    def list(self) -> list[RunningQuery]:
        now = time.monotonic()
        with self._lock:
            return [RunningQuery(run.id, run.sql, run.state, now - run.asked_at) for run in self._runs.values()]

    def _enter(self, sql: str, id: str | None, owner: str | None) -> Run:
        if id is not None and not 0 < len(id) <= ID_LENGTH_MAX:
            raise InvalidRequest(f"the id of a query has 1 to {ID_LENGTH_MAX} characters, not {len(id)}")
        run = Run(id or uuid.uuid4().hex, sql, owner)
        with self._lock:
            if run.id in self._runs:
                raise Conflict(f"query {run.id} is under way already: use another id, or none", id=run.id)
            self._runs[run.id] = self._line[run.id] = run
            self._hand_out()
        return run

    def _wait(self, run: Run) -> None:
        run.turn.wait(self._wait_s_max)
        run.check()
        with self._lock:
            if run.state == "running":
                return
            full = self._running_of(run.owner) >= self._owner_max
        which = (
            f"{self._owner_max} queries of this token run already (token_queries_max)"
            if full and run.owner is not None
            else f"{self._slots_max} queries run already (queries_max)"
        )
        raise LimitExceeded(
            f"{which} and no slot came free within {self._wait_s_max:g} s (query_wait_s_max): try again later",
            limit="queue",
        )

    def _running_of(self, owner: str | None) -> int:
        return sum(run.owner == owner and run.state == "running" for run in self._runs.values())

    def _hand_out(self) -> None:
        """Give free slots to whoever waits longest and may have one."""
        for run in list(self._line.values()):
            if self._taken >= self._slots_max:
                return
            if run.owner is None or self._running_of(run.owner) < self._owner_max:
                del self._line[run.id]
                self._give_slot(run)

    def _give_slot(self, run: Run) -> None:
        self._taken += 1
        run.state = "running"
        run.turn.set()

    def _leave(self, run: Run) -> None:
        with self._lock:
            del self._runs[run.id]
            self._line.pop(run.id, None)
            if run.state != "running":
                return
            self._taken -= 1
            self._hand_out()
