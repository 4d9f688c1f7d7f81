"""The scheduler: cycles on time, for as long as a process lives.

An interval looks at what the pending changes, small files and files of the past call for (fold, minor, pack, vacuum);
each tier has a cron expression, and so may vacuum besides. All of them run one after the other on one thread. Another
process may run a cycle at the very moment: an interval simply comes again, but what a cron was to do is owed, and done
at the next interval, or a daily tier could starve for days. On a node without the role `compact` nothing of this runs;
the role is looked at again each time something falls due, so that it may come and go. Days of the week are those of
cron: 0 and 7 are Sunday. All times are UTC.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import math
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from lithify.compute.background import before_exit
from lithify.core.wording import plural
from lithify.errors import Conflict, InvalidRequest, LithifyError
from lithify.maintenance.compact_plan import PACK
from lithify.maintenance.cycle import VACUUM, OnEvent
from lithify.maintenance.cycle_lease import Cycle, check_may_compact
from lithify.maintenance.reports import CycleReport
from lithify.metrics.log_lines import tell
from lithify.options.tiers import Tier, TierNames, how_to_turn_on, tier_names

logger = logging.getLogger(__name__)
# The library warns whenever something falls due that already waits, which is how it should be.
_quiet = logging.getLogger(f"{__name__}.times")
_quiet.setLevel(logging.ERROR)

INTERVAL, FAILED = "policies", "cycle failed"
IDLE, WORKING = "maintenance idle", "maintenance working again"
INTERVAL_KINDS = frozenset({"fold", "minor", "pack", "vacuum"})
STOP_GRACE_S = 10.0
EVERY_S_MIN, EVERY_S_MAX = 0.05, 366 * 86_400
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_RANGE = re.compile(r"(\*|[0-7](?:-[0-7])?)(?:/([1-7]))?")


def cron_trigger(text: str, where: str) -> CronTrigger:
    """`where` names the tier or setting that a bad expression came from."""
    fields = text.split()
    try:
        if len(fields) != 5:
            raise ValueError(f"it has {plural(len(fields), 'field')}, not 5")
        fields[4] = ",".join(_days(item) for item in fields[4].split(","))
        trigger = CronTrigger.from_crontab(" ".join(fields), timezone=dt.UTC)
    except ValueError as error:
        raise InvalidRequest(
            f"{where}: {text!r} is no cron expression ({error}); write minute hour day month weekday, e.g. '5 * * * *'"
        ) from error
    if trigger.get_next_fire_time(None, dt.datetime.now(dt.UTC)) is None:
        raise InvalidRequest(f"{where}: the moment of cron expression {text!r} never comes")
    return trigger


def _days(item: str) -> str:
    """Numbers become names, because the library counts days from Monday."""
    found = _DAY_RANGE.fullmatch(item)
    if found is None or item == "*":
        return item
    first, _, last = found[1].replace("*", "0-6").partition("-")
    numbers = range(int(first), int(last or (6 if found[2] else first)) + 1, int(found[2] or 1))
    if not numbers:
        raise ValueError(f"the weekdays {item} run backwards")
    return ",".join(_DAYS[number] for number in numbers)


class Scheduler:
    """Runs cycles until it is stopped. `tiers` is asked again at each interval: tables may declare their own."""

    def __init__(
        self,
        cycle: Cycle,
        tiers: Callable[[], Sequence[Tier]],
        *,
        every_s: float | None = None,
        only_tier: TierNames = None,
        on_event: OnEvent | None = None,
        on_report: Callable[[CycleReport], None] = lambda report: None,
    ) -> None:
        settings = cycle.runtime.settings
        self._cycle, self._tiers, self._only_tiers = cycle, tiers, tier_names(only_tier)
        self._on_event, self._on_report = on_event, on_report
        self._every_s = _checked_interval(settings.policy_interval_s if every_s is None else every_s)
        self._vacuum_cron = settings.vacuum_cron if only_tier is None else None
        self._asked: dict[str, str] = {}
        self._crons: dict[str, str] = {}
        self._owed: dict[str, None] = {}
        self._lock = threading.Lock()
        self._idle_because: str | None = None
        self._scheduler: BackgroundScheduler | None = None

    def start(self) -> None:
        """Raises, and starts nothing, if a cron expression does not parse."""
        crons = self._wanted_crons()
        for name, text in crons.items():
            cron_trigger(text, _where(name))
        for name in self._only_tiers:
            if name not in (PACK, *crons):
                raise tier_is_off(name)
        self._scheduler = BackgroundScheduler(
            timezone=dt.UTC,
            # One thread: what falls due during a cycle waits for it instead of being refused.
            executors={"default": ThreadPoolExecutor(1)},
            logger=_quiet,
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        self._scheduler.add_job(
            self._interval, IntervalTrigger(seconds=self._every_s), id=INTERVAL, next_run_time=dt.datetime.now(dt.UTC)
        )
        self._follow(crons)
        self._scheduler.start()
        before_exit(self.stop)

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Start nothing new; let running jobs end, then cancel those that can be. Also done when the program ends."""
        if self._scheduler is not None and self._scheduler.running:
            self._scheduler.pause()
        self._cycle.stop(grace_s)
        if self._scheduler is not None and self._scheduler.running:
            self._scheduler.shutdown(wait=True)

    @property
    def crons(self) -> dict[str, str]:
        """What runs at which times, by tier (and vacuum)."""
        return dict(self._crons)

    @property
    def idle_because(self) -> str | None:
        """Why nothing is done here, as far as is known; None: what is due is done."""
        return self._idle_because

    # -- what runs

    def _may_run(self) -> bool:
        """Said when it changes, not each time."""
        try:
            check_may_compact(self._cycle.runtime)
        except InvalidRequest as error:
            if self._idle_because is None:
                tell(logger, IDLE, level=logging.WARNING, reason=error.message)
            self._idle_because = error.message
            return False
        if self._idle_because is not None:
            self._idle_because = None
            tell(logger, WORKING)
        return True

    def _interval(self) -> None:
        if not self._may_run():
            return
        self._follow(self._wanted_crons_or_none())
        if not self._only_tiers or PACK in self._only_tiers:
            self._run(PACK if self._only_tiers else INTERVAL)
        with self._lock:
            owed = list(self._owed)
        for name in owed:
            self._run(name)

    def _run(self, name: str) -> None:
        if not self._may_run():
            return
        with self._lock:
            self._owed.pop(name, None)
        try:
            match name:
                case "policies":
                    report = self._cycle.run(only=INTERVAL_KINDS, on_event=self._on_event)
                case "vacuum":
                    report = self._cycle.run(vacuum=True, on_event=self._on_event)
                case tier:
                    report = self._cycle.run(tier, on_event=self._on_event)
        except Conflict as error:
            logger.debug("%s waits: %s", name, error)
            if name not in (INTERVAL, PACK):
                with self._lock:
                    self._owed[name] = None
            return
        except LithifyError as error:
            self._failed(name, error.message)
            return
        except Exception as error:
            self._failed(name, f"{type(error).__name__}: {error}", crashed=True)
            return
        self._on_report(report)

    def _failed(self, name: str, reason: str, *, crashed: bool = False) -> None:
        """Told as an event, and logged: in words for any handler, and as facts for those that know them."""
        facts = {"what": name, "reason": reason}
        words = "".join(f" {fact}={json.dumps(value, ensure_ascii=False)}" for fact, value in facts.items())
        extra = {"lithify_event": FAILED, "lithify_facts": facts}
        logger.error("%s%s", FAILED, words, extra=extra, exc_info=crashed)
        if self._on_event is None:
            return
        try:
            self._on_event({"event": FAILED, "time_ms": self._cycle.runtime.now_ms(), **facts})
        except Exception:
            # Whoever listens must not decide over the cycles to come.
            logger.exception("nobody could be told that a cycle failed")

    # -- when it runs

    def _wanted_crons(self) -> dict[str, str]:
        crons = {tier.name: tier.cron for tier in self._tiers() if tier.enabled}
        if self._only_tiers:
            return {name: text for name, text in crons.items() if name in self._only_tiers}
        return {**crons, **({VACUUM: self._vacuum_cron} if self._vacuum_cron else {})}

    def _wanted_crons_or_none(self) -> dict[str, str]:
        try:
            return self._wanted_crons()
        except LithifyError as error:
            logger.warning("tiers stay as they are: %s", error)
            return self._asked

    def _follow(self, crons: dict[str, str]) -> None:
        """Make the jobs those of `crons`. One that became unusable while we run is told once, and left out."""
        scheduler = self._scheduler
        if scheduler is None or crons == self._asked:
            return
        self._asked = crons
        for name in self._crons.keys() - crons.keys():
            scheduler.remove_job(f"cron-{name}")
            del self._crons[name]
        for name, text in crons.items():
            if self._crons.get(name) == text:
                continue
            try:
                trigger = cron_trigger(text, _where(name))
            except InvalidRequest as error:
                logger.error("%s", error)
                continue
            scheduler.add_job(self._run, trigger, args=(name,), id=f"cron-{name}", replace_existing=True)
            self._crons[name] = text


def tier_is_off(name: str) -> InvalidRequest:
    return InvalidRequest(f"tier {name} is off: {how_to_turn_on(name)}")


def _checked_interval(every_s: Any) -> float:
    number = isinstance(every_s, int | float) and not isinstance(every_s, bool) and math.isfinite(every_s)
    if not number or not EVERY_S_MIN <= every_s <= EVERY_S_MAX:
        raise InvalidRequest(f"the interval is {EVERY_S_MIN} to {EVERY_S_MAX:,} seconds, not {every_s!r}")
    return float(every_s)


def _where(name: str) -> str:
    return "setting vacuum_cron" if name == VACUUM else f"tier {name}"
