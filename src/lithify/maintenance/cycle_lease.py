"""Cycles: maintenance over the whole lake, one at a time.

The lease "cycle" keeps two processes from doing the same work, and a gate does the same for the threads of this one.
Both only save double work: what a cycle does is decided by the commits of its jobs. A second trigger is answered with
the id of the cycle that runs. `cycle.py` says what a cycle does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from lithify.core.names import parse_table_name
from lithify.errors import Conflict, InvalidRequest, NotFound
from lithify.jobs import leases
from lithify.maintenance.cycle import CycleParts, CycleRun, FinishDrops, Maintained, OnEvent, Wanted, cycle_journal
from lithify.maintenance.reports import CycleReport
from lithify.metrics.counters import Counters
from lithify.options.tiers import TierNames, tier_names
from lithify.tables.runtime import Runtime

logger = logging.getLogger(__name__)

LEASE = "cycle"


class Cycle:
    """Runs cycles, one at a time. `open_table(name, token)` opens a table for jobs under the lease's token."""

    def __init__(
        self,
        runtime: Runtime,
        tables: Callable[[], Sequence[str]],
        open_table: Callable[[str, int], Maintained],
        *,
        notify: Callable[[str], None] = lambda table: None,
        counters: Counters | None = None,
        check_tier: Callable[[str], None] = lambda tier: None,
        finish_drops: FinishDrops = lambda problem, there: [],
    ) -> None:
        self.runtime, self.counters = runtime, counters or Counters()
        self._parts = CycleParts(runtime, tables, open_table, notify, self.counters, finish_drops)
        self._check_tier = check_tier
        self._gate = threading.Lock()
        self._running: CycleRun | None = None
        self._closed = False
        self._idle = threading.Event()
        self._idle.set()

    def run(
        self,
        tier: TierNames = None,
        tables: Collection[str] | None = None,
        timeout_s: float | None = None,
        on_event: OnEvent | None = None,
        *,
        only: Collection[str] | None = None,
        vacuum: bool = False,
    ) -> CycleReport:
        """Do what is due; with `tier`, what that tier, or each of several, has to do. `only`: kinds and tiers to run,
        of all that is due.

        Raises `Conflict` with the running cycle's id if there is one, `InvalidRequest` for a tier that nobody declared.
        """
        wanted = self._wanted(tier, tables, frozenset(only) if only is not None else None, vacuum)
        run = CycleRun(self._parts, wanted, timeout_s, on_event)
        with self._turn(run) as renewed:
            return run.run(renewed)

    def start(self, tier: TierNames = None, tables: Collection[str] | None = None) -> str:
        """As `run`, and refused as it is, but on a thread of its own: answers the cycle's id once it has its turn."""
        run = CycleRun(self._parts, self._wanted(tier, tables))
        turn = ExitStack()
        renewed = turn.enter_context(self._turn(run))

        def work() -> None:
            with turn:
                try:
                    run.run(renewed)
                except Exception:
                    logger.exception("cycle %s failed", run.id)

        thread = threading.Thread(target=work, name=f"lithify-cycle-{run.id[:8]}", daemon=True)
        try:
            thread.start()
        except BaseException:
            turn.close()
            raise
        return run.id

    def _wanted(
        self,
        tier: TierNames,
        tables: Collection[str] | None,
        only: frozenset[str] | None = None,
        vacuum: bool = False,
    ) -> Wanted:
        check_may_compact(self.runtime)
        tiers = tier_names(tier)
        for name in tiers:
            self._check_tier(name)
        return Wanted(self._chosen(tables), tiers, only, vacuum)

    def stop(self, grace_s: float) -> None:
        """Start nothing new; let running jobs end, then cancel those that can be."""
        self.close()
        if not self.wait(grace_s):
            self.cancel()
            self.wait()

    def close(self) -> None:
        """No further cycle, and no further job of the running one."""
        with self._gate:
            self._closed = True
            if self._running is not None:
                self._running.stop("stopped")

    def cancel(self) -> None:
        """Stop the jobs that run in a worker; the others end on their own."""
        with self._gate:
            if self._running is not None:
                self._running.cancel()

    def tables_of(self, id: str) -> Sequence[str]:
        """Those of the cycle of this id, if it runs here."""
        with self._gate:
            found = self._running
        return found.wanted.tables if found is not None and found.id == id else ()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until no cycle runs here."""
        return self._idle.wait(timeout_s)

    def _chosen(self, tables: Collection[str] | None) -> list[str]:
        present = list(self._parts.tables())
        if tables is None:
            return present
        if not isinstance(tables, Collection):
            raise InvalidRequest(f"tables is a list of names like 'shop.orders', not {tables!r}")
        chosen = {str(parse_table_name(name)) for name in ([tables] if isinstance(tables, str) else tables)}
        for name in sorted(chosen):
            if name not in present:
                raise NotFound(f"table {name} does not exist in this lake: `lithify tables` lists what does")
        return [name for name in present if name in chosen]

    @contextmanager
    def _turn(self, run: CycleRun) -> Iterator[leases.RenewedLease]:
        runtime = self.runtime
        with self._gate:
            if self._closed:
                raise Conflict("maintenance is being stopped here: no cycle is started")
            if self._running is not None:
                since = leases.shown_time(self._running.started_ms)
                raise _already_running(self._running.id, f"{runtime.owner.label} since {since}")
            self._running = run
            self._idle.clear()
        try:
            ours, lease = leases.acquire(runtime, LEASE, run.id, runtime.settings.lease_s, run.wanted.what)
            if not ours:
                raise _already_running(lease.id, lease.holder)
            with leases.RenewedLease(runtime, lease) as renewed:
                self.counters.cycle_running.set(1)
                yield renewed
        finally:
            with self._gate:
                self._running = None
                self.counters.cycle_running.set(0)
                self._idle.set()


def _already_running(cycle_id: str, holder: str) -> Conflict:
    return Conflict(f"a cycle is already running: {cycle_id} by {holder}", cycle=cycle_id)


def check_may_compact(runtime: Runtime) -> None:
    """Looks at the role again each time."""
    roles = runtime.settings.roles_now()
    if "compact" not in roles:
        raise InvalidRequest(
            f"this node may not do maintenance: its setting roles is {','.join(roles) or 'empty'}; add compact to "
            "it (lithify.toml or LITHIFY_ROLES), or run this on a node that has it"
        )


def cycle_history(runtime: Runtime, limit: int | None = None) -> list[dict[str, Any]]:
    """Reports of past cycles, newest first."""
    return cycle_journal(runtime).read(limit)
