"""An erasure as its users hold it."""

from __future__ import annotations

import datetime as dt
import json
import time
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from lithify.core.arguments import check_seconds
from lithify.core.results import ErasurePlan, Verified
from lithify.erasure.chain import RECEIPT, broken_links, public_key
from lithify.erasure.lake_access import LakeAccess
from lithify.erasure.receipt import verified
from lithify.erasure.records import CANCELLED, HISTORIES, OPEN, Record, Records, goes_on
from lithify.erasure.request import ROWS_MAX, Asked, begin, find, plan
from lithify.erasure.sealed import forget
from lithify.erasure.steps import Erasing
from lithify.errors import Conflict, InvalidRequest, LithifyError, NotFound
from lithify.jobs import leases

LEASE, LEASE_S = "erasures", 60.0
PAUSE_S = 0.2


class Erasure:
    """One erasure: `state` is open, blocked, leftover, done or cancelled. `salt` is there for whoever asked for it,
    once.
    """

    def __init__(self, lake: LakeAccess, record: Record, salt: bytes | None = None) -> None:
        self._lake, self._record, self._records = lake, record, Records(lake.runtime)
        self.salt = None if salt is None else salt.hex()

    def __repr__(self) -> str:
        return f"Erasure({self.id!r}, table={self.table!r}, state={self.state!r})"

    @property
    def id(self) -> str:
        """What `lake.erasure` and the command line take."""
        return self._record.id

    @property
    def table(self) -> str:
        """Its name when the erasure was asked for."""
        return self._record.table

    @property
    def state(self) -> str:
        """As it is now, whoever works on it."""
        self._record = self._records.read(self.id)
        return self._record.state

    @property
    def blocked_by(self) -> tuple[str, ...]:
        """Pins and tags that keep the past readable."""
        return self._records.read(self.id).blocked_by

    @property
    def places(self) -> tuple[dict[str, str], ...]:
        """Where the last scan found something, by file, method and column."""
        return self._records.read(self.id).places

    @property
    def problems(self) -> tuple[str, ...]:
        """What the last scan could not look at."""
        return self._records.read(self.id).problems

    @property
    def receipt_path(self) -> PurePath:
        """Where its receipt lies once it is done: keep a copy elsewhere."""
        return self._records.path(self.id) / RECEIPT

    @property
    def receipt(self) -> dict[str, Any] | None:
        """None: it is not done."""
        if self.state != "done":
            return None
        found: dict[str, Any] = json.loads(self.receipt_bytes())
        return found

    def receipt_bytes(self) -> bytes:
        """The receipt as it was signed."""
        if self.state != "done":
            raise Conflict(f"erasure {self.id} has no receipt, it is {self._record.state}: resume it, or wait")
        return self._records.store.read(self.receipt_path)

    def describe(self) -> dict[str, Any]:
        """What is known of it, without values."""
        record = self._records.read(self.id)
        return {
            "id": record.id,
            "table": record.table,
            "state": record.state,
            "step": record.step,
            "requested": dt.datetime.fromtimestamp(record.requested_ms / 1000, dt.UTC),
            "reason": record.reason,
            "actor": record.actor,
            "history": record.history,
            "keys": record.keys,
            "rows": record.hidden_rows,
            "blocked_by": list(record.blocked_by),
            "places": list(record.places),
            "problems": list(record.problems),
        }

    def wait(self, timeout_s: float | None = None) -> Erasure:
        """Do what is left of it, here, or wait for the process that is at it. Ends also where it is blocked, or where
        something was left: `state` tells. Called again it goes on.
        """
        check_seconds("timeout_s", timeout_s)
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while self.state not in ("done", CANCELLED):
            if (record := run(self._lake, self.id)) is not None:
                self._record = record
                break
            if until_s is not None and time.monotonic() > until_s:
                raise Conflict(f"erasure {self.id} is still under way in another process: wait for longer")
            self._lake.runtime.pause(PAUSE_S)
        return self

    resume = wait

    def reopen(self) -> Erasure:
        """Have the next cycle of maintenance go on with it, also where the last scan has found something."""
        if self.state == OPEN:
            return self
        with leases.waited_for(self._lake.runtime, LEASE, LEASE_S, LEASE_S, "erasures"):
            record = self._records.read(self.id)
            if not record.is_open:
                raise Conflict(f"erasure {self.id} is {record.state}: there is nothing to resume", erasure=self.id)
            self._record = self._records.save(replace(record, state=OPEN))
        return self

    def cancel(self) -> Erasure:
        """Give it up, as long as nothing of the past is gone. What it has hidden stays deleted."""
        with leases.waited_for(self._lake.runtime, LEASE, LEASE_S, LEASE_S, "erasures"):
            record = self._records.read(self.id)
            if not record.is_open:
                raise InvalidRequest(f"erasure {self.id} is {record.state} already: there is nothing to cancel")
            if record.has_begun_the_past and self._is_there(record):
                raise InvalidRequest(f"erasure {self.id} has begun to change the past: resume it, there is no way back")
            forget(self._records, self.id)
            self._record = self._records.save(_cancelled(record))
        return self

    def _is_there(self, record: Record) -> bool:
        try:
            return self._lake.table(record.table).incarnation == record.table_id
        except NotFound:
            return False

    def verify(self, *, key: Any = None, salt: str | None = None) -> Verified:
        """Whether its receipt is as it was signed by this lake, in the lake's chain, and about a key."""
        if self.state != "done":
            raise NotFound(f"erasure {self.id} has no receipt, it is {self._record.state}")
        content = self._records.store.read(self.receipt_path)
        return check_receipt(self._lake, content, str(self.receipt_path), key=key, salt=salt)


def _cancelled(record: Record) -> Record:
    return replace(record, state=CANCELLED)


def check_receipt(lake: LakeAccess, content: bytes, name: str, *, key: Any = None, salt: str | None = None) -> Verified:
    """A receipt that should be one of this lake's."""
    records = Records(lake.runtime)
    found = verified(content, name, public_key(records), key=key, salt=salt)
    problems = list(found.problems)
    if found.known_signer is False:
        problems.append(f"it is a receipt of another lake than {lake.runtime.root}")
    else:
        own = records.path(found.id) / RECEIPT
        if not records.store.exists(own):
            problems.append("this lake has no such receipt")
        elif records.store.read(own) != content:
            problems.append("it is not the receipt that this lake has of that erasure")
        problems += broken_links(records)
    return replace(found, problems=tuple(problems))


def receipts_key(lake: LakeAccess) -> str | None:
    """The public key that this lake's receipts are signed with; None: it has none."""
    return public_key(Records(lake.runtime))


def erase(
    lake: LakeAccess,
    name: str,
    keys: Any,
    where: str | None,
    *,
    history: str,
    reason: str | None,
    actor: str | None,
    rows_max: int = ROWS_MAX,
    break_pins: bool = False,
    dry_run: bool = False,
) -> Erasure | ErasurePlan:
    check_history(history)
    asked: Asked = find(lake, name, keys, where, rows_max)
    if dry_run:
        return plan(asked, history)
    record, salt = begin(lake, asked, history, reason, actor, break_pins)
    with goes_on(record):
        Erasing(lake, record, lambda: True).hide()
    return Erasure(lake, record, salt)


def erasures(lake: LakeAccess) -> list[Erasure]:
    return [Erasure(lake, record) for record in Records(lake.runtime).all()]


def erasure(lake: LakeAccess, id: str) -> Erasure:
    return Erasure(lake, Records(lake.runtime).read(id))


def check_history(history: str) -> None:
    if history not in HISTORIES:
        raise InvalidRequest(
            f'history is "rewrite", which keeps every version without the rows, or "cut", after which nothing older '
            f"than the erasure can be read; it is not {history!r}"
        )


def run(lake: LakeAccess, id: str) -> Record | None:
    """What is left of an erasure. None: another process is at one."""
    runtime = lake.runtime
    ours, lease = leases.acquire(runtime, LEASE, runtime.new_id(), LEASE_S, "erasures")
    if not ours:
        return None
    with leases.RenewedLease(runtime, lease) as renewed:
        record = Records(runtime).read(id)
        if not record.is_open:
            return record
        return Erasing(lake, record, renewed.still_ours).run()


def resume_open(lake: LakeAccess, problem: Any) -> list[str]:
    """For maintenance: go on with what is open or blocked. Returns what was done, a line each."""
    records, done = Records(lake.runtime), list[str]()
    if not lake.runtime.store.locks:
        return done
    records.clear_cut_off()
    for record in records.all():
        if record.state not in (OPEN, "blocked"):
            continue
        try:
            after = run(lake, record.id)
        except LithifyError as error:
            problem(f"erasure {record.id} of {record.table}: {error.public}")
            continue
        if after is not None and after.state == "blocked":
            problem(f"erasure {record.id} of {record.table} is blocked by {', '.join(after.blocked_by)}")
        elif after is not None:
            done.append(f"erasure {record.id} of {record.table}: {after.state}")
    return done
