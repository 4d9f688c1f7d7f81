"""The scheduler: cycles at their times, one after the other, whatever happens to one of them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lithify import ComputeFailed, Conflict, InvalidRequest, Lake, Unavailable
from lithify.jobs import leases
from lithify.maintenance.cycle_lease import LEASE, Cycle
from lithify.maintenance.reports import CycleReport
from lithify.maintenance.scheduler import INTERVAL_KINDS, Scheduler, cron_trigger
from lithify.options.tiers import DEFAULT_TIERS, Tier
from lithify.settings import load_settings
from lithify.tables.runtime import Owner, Runtime
from support import cycles
from support.cycles import PlayedTable, fold
from support.waiting import eventually

WAIT_S = 60


@pytest.fixture
def runtime(folder: Path) -> Iterator[Runtime]:
    with Lake(folder, settings=cycles.SETTINGS) as lake:
        yield lake._runtime


class RecordingCycle(Cycle):
    """Notes what it was asked for; `act` may fail or wait."""

    def __init__(self, runtime: Runtime, act: Callable[[str], None] = lambda what: None) -> None:
        super().__init__(runtime, lambda: [], lambda name, lease: PlayedTable([]))
        self.asked: list[str] = []
        self.act = act
        self.changed = threading.Condition()

    def run(self, tier: str | None = None, *arguments: Any, **options: Any) -> CycleReport:
        what = "vacuum" if options.get("vacuum") else (tier or ",".join(sorted(options["only"])))
        with self.changed:
            self.asked.append(what)
            self.changed.notify_all()
        self.act(what)
        return super().run(tier, *arguments, **options)

    def wait_for(self, check: Callable[[list[str]], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: check(self.asked), WAIT_S), self.asked


def every_second(name: str, **values: Any) -> Tier:
    return dataclasses.replace(DEFAULT_TIERS[0], name=name, **values)


def with_settings(runtime: Runtime, **values: Any) -> Runtime:
    return dataclasses.replace(runtime, settings=runtime.settings.model_copy(update=values))


POLICIES = ",".join(sorted(INTERVAL_KINDS))


class TestCrons:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("5 * * * *", "2026-11-18T12:05"),
            ("0 3 * * *", "2026-11-19T03:00"),
            ("0 3 * * 0", "2026-11-22T03:00"),
            ("0 3 * * 7", "2026-11-22T03:00"),
            ("0 3 * * 1", "2026-11-23T03:00"),
            ("0 3 * * 5-7", "2026-11-20T03:00"),
            ("0 3 * * 0-5", "2026-11-19T03:00"),
            ("0 3 * * 1,6", "2026-11-21T03:00"),
            ("0 3 * * */6", "2026-11-21T03:00"),
            ("0 3 * * 5/2", "2026-11-20T03:00"),
            ("0 3 * * sat", "2026-11-21T03:00"),
            ("0 3 * * mon-fri", "2026-11-19T03:00"),
            ("0 5 1 * *", "2026-12-01T05:00"),
            ("  0  5 1 * * ", "2026-12-01T05:00"),
        ],
    )
    def test_as_cron_means_them(self, text: str, expected: str) -> None:
        wednesday = dt.datetime(2026, 11, 18, 12, 0, 1, tzinfo=dt.UTC)
        moment = cron_trigger(text, "tier x").get_next_fire_time(None, wednesday)
        assert moment == dt.datetime.fromisoformat(expected).replace(tzinfo=dt.UTC)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "often",
            "* * * *",
            "* * * * * *",
            "61 * * * *",
            "0 0 * * 8",
            "0 0 * * 5-2",
            "0 0 * * */9",
            "@daily",
            "a b c d e",
        ],
    )
    def test_what_does_not_parse_is_named(self, text: str) -> None:
        with pytest.raises(InvalidRequest, match=r"tier daily: .*no cron expression") as refused:
            cron_trigger(text, "tier daily")
        assert repr(text) in refused.value.message

    def test_a_day_that_never_comes(self) -> None:
        with pytest.raises(InvalidRequest, match=r"tier daily: .*'0 0 31 2 \*' never comes"):
            cron_trigger("0 0 31 2 *", "tier daily")


class TestStarting:
    def test_a_bad_cron_starts_nothing(self, runtime: Runtime) -> None:
        cycle = RecordingCycle(runtime)
        scheduler = Scheduler(cycle, lambda: [*DEFAULT_TIERS, every_second("odd", cron="every day")], every_s=0.05)
        with pytest.raises(InvalidRequest, match="tier odd: 'every day' is no cron expression"):
            scheduler.start()
        scheduler.stop()
        assert cycle.asked == []

    def test_a_bad_cron_of_a_tier_that_is_off_does_not_matter(self, runtime: Runtime) -> None:
        cycle = RecordingCycle(runtime)
        scheduler = Scheduler(cycle, lambda: [every_second("odd", cron="every day", enabled=False)], every_s=0.05)
        scheduler.start()
        cycle.wait_for(lambda asked: POLICIES in asked)
        scheduler.stop()

    def test_a_bad_vacuum_cron(self, runtime: Runtime) -> None:
        scheduler = Scheduler(RecordingCycle(with_settings(runtime, vacuum_cron="never")), lambda: [])
        with pytest.raises(InvalidRequest, match="setting vacuum_cron: 'never'"):
            scheduler.start()

    def test_a_node_without_the_role_is_idle_until_it_has_it(
        self, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.chdir(tmp_path)
        caplog.set_level("INFO", "lithify")
        file = tmp_path / "lithify.toml"
        file.write_text('roles = ["read", "write"]\n')
        cycle = RecordingCycle(dataclasses.replace(runtime, settings=load_settings()))
        scheduler = Scheduler(cycle, lambda: [every_second("often")], every_s=0.05)
        scheduler.start()
        try:
            eventually(lambda: scheduler.idle_because is not None)
            assert "roles is read,write" in (scheduler.idle_because or "")
            eventually(lambda: caplog.text.count("maintenance idle") == 1)
            assert cycle.asked == []

            file.write_text('roles = ["read", "write", "compact"]\n')
            cycle.wait_for(lambda asked: POLICIES in asked)
            assert scheduler.idle_because is None

            file.write_text("roles = []\n")
            eventually(lambda: scheduler.idle_because is not None)
        finally:
            scheduler.stop()

    @pytest.mark.parametrize("every_s", [0, -1, 0.04, 1e12, float("nan"), float("inf"), "5", True])
    def test_an_impossible_interval(self, runtime: Runtime, every_s: Any) -> None:
        with pytest.raises(InvalidRequest, match=r"the interval is 0\.05 to .* seconds, not") as refused:
            Scheduler(RecordingCycle(runtime), lambda: [], every_s=every_s)
        assert repr(every_s) in refused.value.message

    def test_a_tier_that_is_off(self, runtime: Runtime) -> None:
        with pytest.raises(InvalidRequest, match=r"tier weekly is off: .*enabled"):
            Scheduler(RecordingCycle(runtime), lambda: DEFAULT_TIERS, only_tier="weekly").start()

    def test_enabled_tiers_and_vacuum_have_their_times(self, runtime: Runtime) -> None:
        cycle = RecordingCycle(with_settings(runtime, vacuum_cron="0 2 * * *"))
        scheduler = Scheduler(cycle, lambda: DEFAULT_TIERS, every_s=3600)
        scheduler.start()
        try:
            assert scheduler.crons == {"hourly": "5 * * * *", "daily": "0 3 * * *", "vacuum": "0 2 * * *"}
        finally:
            scheduler.stop()

    def test_stopping_what_never_started(self, runtime: Runtime) -> None:
        Scheduler(RecordingCycle(runtime), lambda: []).stop()


@pytest.fixture
def start() -> Iterator[Callable[..., Scheduler]]:
    started: list[Scheduler] = []

    def begin(cycle: Cycle, tiers: Callable[[], list[Tier]] = list, **options: Any) -> Scheduler:
        scheduler = Scheduler(cycle, tiers, **{"every_s": 0.05, **options})
        started.append(scheduler)
        scheduler.start()
        return scheduler

    yield begin
    for scheduler in started:
        scheduler.stop()


Start = Callable[..., Scheduler]


class TestRunning:
    def test_the_interval_comes_again_and_again(self, runtime: Runtime, start: Start) -> None:
        cycle = RecordingCycle(runtime)
        start(cycle)
        cycle.wait_for(lambda asked: asked.count(POLICIES) >= 3)

    def test_an_error_is_logged_with_its_reason_and_the_scheduler_goes_on(
        self, runtime: Runtime, start: Start, caplog: pytest.LogCaptureFixture
    ) -> None:
        errors: list[Exception] = [Unavailable("no space left"), ZeroDivisionError("a bug")]

        def fail(what: str) -> None:
            if errors:
                raise errors.pop(0)

        reported = threading.Event()
        events: list[dict[str, Any]] = []
        start(RecordingCycle(runtime, fail), on_report=lambda report: reported.set(), on_event=events.append)
        assert reported.wait(WAIT_S)
        assert 'cycle failed what="policies" reason="no space left"' in caplog.text
        assert "Traceback" in caplog.text
        failed = [event for event in events if event["event"] == "cycle failed"]
        assert [(event["what"], event["reason"]) for event in failed] == [
            ("policies", "no space left"),
            ("policies", "ZeroDivisionError: a bug"),
        ]

    def test_a_listener_that_fails_stops_nothing(
        self, runtime: Runtime, start: Start, caplog: pytest.LogCaptureFixture
    ) -> None:
        def refuse(what: str) -> None:
            raise Unavailable("no space left")

        def closed(event: dict[str, Any]) -> None:
            raise BrokenPipeError

        cycle = RecordingCycle(runtime, refuse)
        start(cycle, on_event=closed)
        cycle.wait_for(lambda asked: len(asked) >= 2)
        assert "nobody could be told" in caplog.text

    def test_already_running_elsewhere_is_normal(
        self, runtime: Runtime, start: Start, caplog: pytest.LogCaptureFixture
    ) -> None:
        there = dataclasses.replace(runtime, owner=Owner("elsewhere", 1, "1"))
        _, lease = leases.acquire(there, LEASE, "theirs", 60)
        cycle = RecordingCycle(runtime)
        reported = threading.Event()
        start(cycle, on_report=lambda report: reported.set())
        cycle.wait_for(lambda asked: len(asked) >= 3)
        assert not reported.is_set()
        leases.release(there, lease)
        assert reported.wait(WAIT_S)
        assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []

    def test_a_tier_that_was_refused_is_owed(self, runtime: Runtime, start: Start) -> None:
        """Or a daily tier would wait another day."""
        refused: list[str] = []

        def refuse_once(what: str) -> None:
            if what == "daily" and not refused:
                refused.append(what)
                raise Conflict("a cycle is already running: x")

        cycle = RecordingCycle(runtime, refuse_once)
        scheduler = start(cycle, lambda: list(DEFAULT_TIERS))
        scheduler._run("daily")
        cycle.wait_for(lambda asked: asked.count("daily") == 2)

    def test_only_one_tier(self, runtime: Runtime, start: Start) -> None:
        cycle = RecordingCycle(runtime)
        scheduler = start(cycle, lambda: list(DEFAULT_TIERS), only_tier="hourly")
        assert scheduler.crons == {"hourly": "5 * * * *"}
        scheduler._run("hourly")
        assert set(cycle.asked) == {"hourly"}

    def test_only_packing_runs_on_the_interval(self, runtime: Runtime, start: Start) -> None:
        cycle = RecordingCycle(runtime)
        scheduler = start(cycle, lambda: list(DEFAULT_TIERS), only_tier="pack")
        cycle.wait_for(lambda asked: len(asked) >= 2)
        assert (set(cycle.asked), scheduler.crons) == ({"pack"}, {})

    def test_tiers_that_tables_declare_later(self, runtime: Runtime, start: Start) -> None:
        tiers = [every_second("hourly")]
        cycle = RecordingCycle(runtime)
        scheduler = start(cycle, lambda: list(tiers))
        tiers[:] = [every_second("quarterly", cron="0 0 1 */3 *"), every_second("odd", cron="every day")]
        seen = len(cycle.asked)
        cycle.wait_for(lambda asked: len(asked) >= seen + 3)
        assert scheduler.crons == {"quarterly": "0 0 1 */3 *"}

    def test_vacuum(self, runtime: Runtime, start: Start) -> None:
        cycle = RecordingCycle(with_settings(runtime, vacuum_cron="0 2 * * *"))
        start(cycle)._run("vacuum")
        assert "vacuum" in cycle.asked

    def test_two_on_one_lake_share_the_work(self, runtime: Runtime, start: Start) -> None:
        """Never at the same time."""
        running, overlaps, lock = [0], [0], threading.Lock()
        enough = threading.Event()

        def act(plan: Any) -> None:
            with lock:
                running[0] += 1
                overlaps[0] = max(overlaps[0], running[0])
            enough.wait(0.002)
            with lock:
                running[0] -= 1
                if len(table.ran) > 20:
                    enough.set()

        class Endless(PlayedTable):
            def run(self, plan: Any) -> Any:
                result = super().run(plan)
                self.due.append(fold("a.t"))
                return result

        table = Endless([fold("a.t")], act)
        one = with_settings(runtime, jobs_max=1)
        for _ in range(2):
            start(Cycle(one, lambda: ["a.t"], lambda name, lease: table))
        assert enough.wait(WAIT_S)
        assert overlaps == [1]


class TestStopping:
    def test_the_running_job_ends_first(self, runtime: Runtime) -> None:
        started, go_on = threading.Event(), threading.Event()

        def act(plan: Any) -> None:
            started.set()
            assert go_on.wait(WAIT_S)

        table = PlayedTable([fold("a.t")], act)
        reports: list[CycleReport] = []
        cycle = Cycle(runtime, lambda: ["a.t"], lambda name, lease: table)
        scheduler = Scheduler(cycle, lambda: [], every_s=0.05, on_report=reports.append)
        scheduler.start()
        assert started.wait(WAIT_S)
        stopper = threading.Thread(target=scheduler.stop)
        stopper.start()
        go_on.set()
        stopper.join(WAIT_S)
        assert not stopper.is_alive()
        assert [report.done for report in reports] == [1]
        assert leases.current(runtime, LEASE) is None

    def test_what_does_not_end_is_cancelled(self, runtime: Runtime) -> None:
        cancelled, started = threading.Event(), threading.Event()

        class Worker:
            def cancel_all(self, reason: str = "") -> None:
                cancelled.set()

        def act(plan: Any) -> None:
            started.set()
            assert cancelled.wait(WAIT_S)
            raise ComputeFailed("cancelled", cancelled=True)

        tables = {"a.t": PlayedTable([fold("a.t")], act)}
        with_worker = dataclasses.replace(runtime, compute=Worker())  # type: ignore[arg-type]
        reports: list[CycleReport] = []
        cycle = Cycle(with_worker, lambda: list(tables), lambda name, lease: tables[name])
        scheduler = Scheduler(cycle, lambda: [], every_s=0.05, on_report=reports.append)
        scheduler.start()
        assert started.wait(WAIT_S)
        scheduler.stop(grace_s=0.01)
        assert [job.outcome for job in reports[0].jobs] == ["cancelled"]

    def test_nothing_runs_afterwards(self, runtime: Runtime) -> None:
        cycle = RecordingCycle(runtime)
        scheduler = Scheduler(cycle, lambda: [], every_s=0.05)
        scheduler.start()
        cycle.wait_for(lambda asked: len(asked) >= 2)
        scheduler.stop()
        seen = len(cycle.asked)
        assert not [thread for thread in threading.enumerate() if "APScheduler" in thread.name]
        assert len(cycle.asked) == seen
