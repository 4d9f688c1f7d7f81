"""run, jobs, stats: maintenance as its operator sees it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, ClassVar

import pytest

import lithify.cli
from lithify import Lake, Settings
from lithify.cli.logs import JsonLines, TextLines
from lithify.cli.run import _Live
from lithify.jobs import jobs, leases
from lithify.maintenance.cycle_lease import LEASE
from lithify.tables.runtime import Owner

Run = Callable[..., Any]
WAIT_S = 120
HANGING = """
import threading
from lithify.maintenance.table_maintenance import TableMaintenance
def hang(self, plan):
    print("hanging", flush=True)
    threading.Event().wait()
TableMaintenance.run = hang
from lithify.cli.main import main
main()
"""

FAILING = """
from lithify.maintenance.cycle_lease import Cycle
from lithify.errors import Unavailable
def fail(self, *arguments, **options):
    raise Unavailable("no space left")
Cycle.run = fail
from lithify.cli.main import main
main()
"""


@pytest.fixture
def fold_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITHIFY_FOLD_FILES_MAX", "1")


@pytest.fixture
def start(orders: Run, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`lithify run …` on shop.orders as a process of its own."""
    started: list[subprocess.Popen[str]] = []
    source = str(Path(lithify.cli.__file__).parents[2])

    def begin(
        *arguments: str,
        program: tuple[str, ...] = ("-m", "lithify.cli"),
        stdout: int = subprocess.PIPE,
        **environment: str,
    ) -> Any:
        child = subprocess.Popen(
            [sys.executable, *program, "--lake", str(tmp_path / "lake"), "run", *arguments],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": source, "LITHIFY_FOLD_FILES_MAX": "1", **environment},
        )
        started.append(child)
        return child

    yield begin
    for child in started:
        if child.poll() is None:
            child.kill()
        child.communicate()


Start = Callable[..., "subprocess.Popen[str]"]


def lines_until(child: subprocess.Popen[str], text: str, stream: IO[str] | None = None) -> list[str]:
    """Lines of its output up to the first that holds `text`."""
    assert child.stdout is not None
    found = []
    for line in stream or child.stdout:
        found.append(line)
        if text in line:
            return found
    assert child.stderr is not None
    raise AssertionError(f"{text!r} never came: {found} {child.stderr.read()}")


class TestOnce:
    def test_folds_what_is_due_and_reports(self, orders: Run, fold_at_once: None) -> None:
        answer = orders("run", "--once", "--json")
        assert answer.code == 0, answer.out + answer.err
        assert (answer.json["done"], answer.json["failed"], answer.json["what"]) == (1, 0, "policies")
        job = answer.json["jobs"][0]
        assert (job["table"], job["kind"], job["outcome"]) == ("shop.orders", "fold", "done")
        found = orders("stats", "shop.orders", "--json").json
        assert (found["pending_rows"], found["base_rows"]) == (0, 3)

    def test_text(self, orders: Run, fold_at_once: None) -> None:
        answer = orders("run", "--once")
        assert answer.code == 0, answer.err
        assert "shop.orders" in answer.out
        assert "1 job done" in answer.out

    def test_nothing_due(self, orders: Run) -> None:
        answer = orders("run", "--once")
        assert answer.code == 0
        assert "nothing was due" in answer.out
        assert "0 jobs done" in answer.out

    def test_one_tier(self, orders: Run, fold_at_once: None) -> None:
        answer = orders("run", "--once", "--tier", "hourly", "--json")
        assert (answer.code, answer.json["what"], answer.json["done"]) == (0, "hourly", 0)

    def test_an_unknown_tier(self, orders: Run) -> None:
        answer = orders("run", "--once", "--tier", "yearly", "--json")
        assert answer.code == 1
        assert "there is no tier 'yearly'" in answer.json["error"]["message"]

    def test_without_the_role(self, orders: Run, fold_at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LITHIFY_ROLES", "read,write")
        for arguments in (("run", "--once"), ("run",)):
            answer = orders(*arguments, "--json")
            assert answer.code == 1
            assert answer.json["error"]["code"] == "invalid_request"
            assert "roles is read,write" in answer.json["error"]["message"]
        assert orders("stats", "shop.orders", "--json").json["pending_rows"] == 3

    def test_a_damaged_table_is_told_and_the_others_are_done(
        self, orders: Run, fold_at_once: None, tmp_path: Path
    ) -> None:
        orders("create", "shop.bad", "-c", "id:int64", "--key", "id")
        orders("write", "shop.bad", "--row", '{"id": 1}')
        log = tmp_path / "lake" / "shop" / "bad" / "changes" / "_delta_log" / "00000000000000000000.json"
        log.write_text("{torn")
        answer = orders("run", "--once")
        assert answer.code == 1
        assert "shop.bad was skipped" in answer.out
        assert "1 table skipped" in answer.out
        assert "✓" not in answer.out
        assert orders("stats", "shop.orders", "--json").json["pending_rows"] == 0

    def test_already_running(self, orders: Run, tmp_path: Path) -> None:
        with Lake(tmp_path / "lake") as lake:
            leases.acquire(lake._runtime, LEASE, "its-id", 60)
            answer = orders("run", "--once", "--json")
            assert answer.code == 1
            assert answer.json["error"]["code"] == "conflict"
            assert "already running: its-id by" in answer.json["error"]["message"]

    def test_every_needs_more_than_one_cycle(self, orders: Run) -> None:
        answer = orders("run", "--once", "--every", "5", "--json")
        assert (answer.code, answer.json["error"]["code"]) == (1, "invalid_request")

    @pytest.mark.parametrize("every", ["0", "-1", "0.01", "nan", "169h"])
    def test_an_interval_that_makes_no_sense(self, orders: Run, every: str) -> None:
        answer = orders("run", "--every", every, "--json")
        assert (answer.code, answer.json["error"]["code"]) == (1, "invalid_request")
        assert f"--every {every!r} is no time from 20ms to 168h" in answer.json["error"]["message"]

    def test_tiers_that_do_not_fit_the_lake_are_told(
        self, orders: Run, fold_at_once: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        yearly = {"name": "yearly", "window": "366d", "age_min_s": 0, "files_min": 2, "target_bytes": 2**30}
        monkeypatch.setenv("LITHIFY_TIERS", json.dumps([{**yearly, "cron": "0 0 1 1 *"}]))
        assert orders("set", "shop.orders", 'tiers=[{"name": "yearly", "files_min": 3}]').code == 0
        monkeypatch.delenv("LITHIFY_TIERS")
        answer = orders("run", "--once", "--json")
        assert (answer.code, answer.json["done"]) == (0, 1)
        assert "a table changes tier yearly" in answer.err
        compacted = orders("compact", "shop.orders", "--dry-run")
        assert compacted.err.count("a table changes tier yearly") == 1

    def test_handlers_are_given_back(self, orders: Run) -> None:
        before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        orders("run", "--once")
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


class TestCrons:
    def test_a_vacuum_cron_that_does_not_parse(self, orders: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LITHIFY_VACUUM_CRON", "at night")
        answer = orders("run", "--json")
        assert answer.code == 1
        assert "vacuum_cron" in answer.json["error"]["message"]
        assert "at night" in answer.json["error"]["message"]

    def test_a_tier_whose_cron_does_not_parse(self, orders: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LITHIFY_TIERS", '[{"name": "daily", "cron": "at night"}]')
        answer = orders("run", "--json")
        assert answer.code == 1
        for part in ("daily", "at night"):
            assert part in answer.json["error"]["message"]

    def test_a_tier_that_is_off(self, orders: Run) -> None:
        refused = [orders("run", *once, "--tier", "weekly", "--json") for once in ((), ("--once",))]
        assert [answer.code for answer in refused] == [1, 1]
        assert refused[0].json == refused[1].json
        assert "tier weekly is off: " in refused[0].json["error"]["message"]
        assert "lithify.toml" in refused[0].json["error"]["message"]


@pytest.mark.slow
class TestUntilStopped:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_events_as_json_lines_and_a_clean_end(self, start: Start, orders: Run, number: signal.Signals) -> None:
        child = start("--json", "--every", "0.2")
        events = [json.loads(line) for line in lines_until(child, '"cycle done"')]
        child.send_signal(number)
        rest, errors = child.communicate(timeout=WAIT_S)
        assert child.returncode == 0, errors
        events += [json.loads(line) for line in rest.splitlines()]
        names = [event["event"] for event in events]
        assert names[:5] == ["started", "cycle started", "job started", "job done", "cycle done"]
        assert names[-2:] == ["stopping", "stopped"]
        done = events[3]
        assert (done["table"], done["kind"]) == ("shop.orders", "fold")
        assert {"why", "seconds", "time", "cycle", "bytes_in", "bytes_out"} <= set(done)
        assert orders("stats", "shop.orders", "--json").json["pending_rows"] == 0

    def test_into_a_pipe_each_event_is_a_log_line(self, start: Start) -> None:
        child = start("--every", "0.2")
        line = lines_until(child, "job done")[-1]
        assert " INFO job done " in line
        assert "table=shop.orders kind=fold" in line
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=WAIT_S)
        assert child.returncode == 0

    def test_log_lines_as_json(self, start: Start) -> None:
        child = start("--every", "0.2", LITHIFY_LOG_FORMAT="json")
        line = json.loads(lines_until(child, "job done")[-1])
        assert (line["message"], line["table"], line["level"]) == ("job done", "shop.orders", "info")
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=WAIT_S)
        assert child.returncode == 0

    def test_a_reader_that_goes_away_ends_it(self, start: Start) -> None:
        child = start("--json", "--every", "0.05")
        lines_until(child, '"cycle done"')
        assert child.stdout is not None
        child.stdout.close()
        assert child.wait(WAIT_S) == 0

    def test_an_idle_run_is_silent(self, start: Start) -> None:
        child = start("--every", "0.05")
        lines_until(child, "cycle done")
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.5)
        child.send_signal(signal.SIGTERM)
        rest, errors = child.communicate(timeout=WAIT_S)
        # A cycle may be under way when it is told to stop, and is told of; before that, nothing was.
        shown = [line.split()[2] for line in rest.splitlines()]
        assert (shown[0], shown[-1]) == ("stopping", "stopped")
        assert all(" INFO fold done " in line for line in errors.splitlines()), errors

    def test_a_cycle_that_fails_is_an_event(self, start: Start) -> None:
        child = start("--json", program=("-c", FAILING))
        failed = json.loads(lines_until(child, '"cycle failed"')[-1])
        assert (failed["what"], failed["reason"]) == ("policies", "no space left")
        child.send_signal(signal.SIGTERM)
        _, errors = child.communicate(timeout=WAIT_S)
        assert child.returncode == 0
        assert 'ERROR cycle failed what=policies reason="no space left"' in errors

    @pytest.mark.parametrize("once", [True, False])
    def test_a_second_signal_ends_it_at_once(self, start: Start, orders: Run, once: bool) -> None:
        child = start(*(["--once"] if once else ["--json"]), program=("-c", HANGING))
        lines_until(child, "hanging")
        child.send_signal(signal.SIGINT)
        lines_until(child, "stopping", child.stderr if once else None)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=WAIT_S)
        assert child.returncode == 130
        assert not (once and out)
        assert orders("run", "--once", "--json").code == 0

    @pytest.mark.parametrize("arguments", [("--once",), ()])
    def test_in_a_terminal(self, start: Start, arguments: tuple[str, ...]) -> None:
        """Progress while it works, a line for each thing done."""
        ours, theirs = os.openpty()
        child = start(*arguments, stdout=theirs, TERM="xterm-256color", COLUMNS="160")
        os.close(theirs)
        shown, stopped = b"", bool(arguments)
        with contextlib.suppress(OSError):  # the terminal ends with its last process
            while more := os.read(ours, 4096):
                shown += more
                if b"change file" in shown and not stopped:
                    child.send_signal(signal.SIGTERM)
                    stopped = True
        os.close(ours)
        assert child.wait(WAIT_S) == 0
        assert b"\x1b[" in shown
        assert b"shop.orders" in shown
        for part in [b"1 job done"] if arguments else [b"Ctrl-C stops", b"next look in 60 s", b"stopped"]:
            assert part in shown

    def test_two_on_one_lake(self, start: Start, orders: Run, tmp_path: Path) -> None:
        children = [start("--json", "--every", "0.1") for _ in range(2)]
        with Lake(tmp_path / "lake", settings=Settings()) as lake:
            table = lake.table("shop.orders")
            for child in children:
                lines_until(child, '"started"')
                table.upsert([{"id": 7, "status": f"{child.pid}"}])
            for child in children:
                child.send_signal(signal.SIGTERM)
                child.communicate(timeout=WAIT_S)
                if child is children[0]:  # what is left is the other's
                    table.upsert([{"id": 7, "status": "last"}])
                    lines_until(children[1], '"job done"')
        assert [child.returncode for child in children] == [0, 0]
        assert orders("sql", "select count(*) as n from shop.orders", "--json").json["rows"] == [{"n": 4}]


class TestJobs:
    def test_nothing_under_way(self, orders: Run) -> None:
        assert orders("jobs", "--json").json == {"jobs": [], "cycle": None}
        assert "no job is under way" in orders("jobs").out
        assert "no job has ended yet" in orders("jobs", "--history").out

    def test_ended_ones(self, orders: Run) -> None:
        orders("fold", "shop.orders")
        found = orders("jobs", "--history", "--json").json["jobs"]
        assert [(job["table"], job["kind"], job["outcome"]) for job in found] == [("shop.orders", "fold", "done")]
        assert found[0]["seconds"] >= 0
        assert (found[0]["why"], found[0].get("reason")) == ("asked for", None)
        assert "fold" in orders("jobs", "--history").out

    def test_the_newest_only(self, orders: Run) -> None:
        for number in (4, 5):
            orders("write", "shop.orders", "--row", f'{{"id": {number}}}')
            orders("fold", "shop.orders")
        assert len(orders("jobs", "--history", "--limit", "1", "--json").json["jobs"]) == 1
        assert orders("jobs", "--limit", "0").code == 2

    def test_one_under_way_and_one_whose_process_is_gone(self, orders: Run, tmp_path: Path) -> None:
        with Lake(tmp_path / "lake") as lake:
            job = jobs.begin(lake._runtime, "shop.orders", "fold", "base", ["a.parquet"], why="many changes")
            gone = Owner(lake._runtime.owner.host, lake._runtime.owner.pid, "another start")
            manifest = lake._runtime.control / "jobs" / f"{job.id}.json"
            dead = {
                **json.loads(manifest.read_text()),
                "id": "0" * 32,
                "folder": f"fold-{'0' * 32}",
                "owner": vars(gone),
            }
            (manifest.parent / f"{'0' * 32}.json").write_text(json.dumps(dead))
            found = {entry["id"]: entry for entry in orders("jobs", "--json").json["jobs"]}
            assert [found[name]["alive"] for name in (job.id, "0" * 32)] == [True, False]
            assert (found[job.id]["files"], found[job.id]["state"], found[job.id]["why"]) == (
                1,
                "writing",
                "many changes",
            )
            assert "gone" in orders("jobs").out
            jobs.finish(lake._runtime, job)

    def test_how_long_a_recovered_job_took_is_not_known(self, orders: Run, tmp_path: Path) -> None:
        with Lake(tmp_path / "lake") as lake:
            job = jobs.begin(lake._runtime, "shop.orders", "fold", "base", ["a.parquet"], why="many changes")
            jobs.finish(lake._runtime, job, "recovered", reason="its process was gone before it committed")
        (found,) = orders("jobs", "--history", "--json").json["jobs"]
        assert "seconds" not in found
        assert (found["why"], found["reason"]) == ("many changes", "its process was gone before it committed")

    def test_the_running_cycle(self, orders: Run, tmp_path: Path) -> None:
        with Lake(tmp_path / "lake") as lake:
            leases.acquire(lake._runtime, LEASE, "its-id", 60, "daily")
            cycle = orders("jobs", "--json").json["cycle"]
            owner = lake._runtime.owner
            assert (cycle["cycle"], cycle["owner"]) == ("its-id", f"{owner.host}-{owner.pid}")
            assert cycle["since"].endswith("UTC")
            assert "a cycle is running (daily): its-id" in orders("jobs").out


class TestStats:
    def test_one_table(self, orders: Run, fold_at_once: None) -> None:
        found = orders("stats", "shop.orders", "--json").json
        assert (found["table"], found["seq"], found["pending_rows"], found["origins"]) == ("shop.orders", 1, 3, {})
        assert len(found["due"]) == 1
        assert found["last_job"] is None
        orders("run", "--once")
        found = orders("stats", "shop.orders", "--json").json
        assert (found["pending_rows"], found["due"], found["read_overhead"]) == (0, [], 1.0)
        assert sum(count["files"] for count in found["origins"].values()) == found["base_files"] == 1
        assert found["last_job"]["kind"] == "fold"

    def test_text(self, orders: Run) -> None:
        orders("fold", "shop.orders")
        shown = orders("stats", "shop.orders").out
        for part in ("pending rows", "read overhead", "1.00×", "to compact", "last job", "fold done", "written by"):
            assert part in shown

    def test_all_tables(self, orders: Run, tmp_path: Path) -> None:
        orders("create", "shop.bad", "-c", "id:int64", "--key", "id")
        orders("write", "shop.bad", "--row", '{"id": 1}')
        (tmp_path / "lake" / "shop" / "bad" / "changes" / "_delta_log" / "00000000000000000000.json").write_text("{")
        found = orders("stats", "--json").json
        assert [table["table"] for table in found["tables"]] == ["shop.bad", "shop.orders"]
        assert "error" in found["tables"][0]
        assert found["tables"][1]["pending_rows"] == 3
        assert "shop.orders" in orders("stats").out

    def test_what_waits_after_failures(self, orders: Run, fold_at_once: None, tmp_path: Path) -> None:
        with Lake(tmp_path / "lake") as lake:
            file = lake.table("shop.orders").snapshot().changes[0].path
        path = tmp_path / "lake" / "shop" / "orders" / "changes" / file
        path.write_bytes(b"PAR1" + bytes(path.stat().st_size - 8) + b"PAR1")
        failed = orders("run", "--once")
        assert failed.code == 1
        assert "✗ 0 jobs done, 1 failed" in failed.out
        waiting = orders("stats", "shop.orders", "--json").json["waiting"]
        assert [(entry["kind"], entry["failures"]) for entry in waiting] == [("fold", 1)]
        assert file.rpartition("/")[2] in waiting[0]["reason"]
        for shown in (orders("stats").out, orders("stats", "shop.orders").out):
            assert "fold of shop.orders failed 1 time" in shown
        again = orders("run", "--once", "--json")
        assert (again.code, again.json["failed"], len(again.json["skipped"])) == (0, 0, 1)
        assert "fold failed 1 time, is tried again next time: " in again.json["skipped"][0]["why"]

    def test_work_that_is_held_back_is_named(self, orders: Run, fold_at_once: None, tmp_path: Path) -> None:
        with Lake(tmp_path / "lake") as lake:
            file = lake.table("shop.orders").snapshot().changes[0].path
        path = tmp_path / "lake" / "shop" / "orders" / "changes" / file
        path.write_bytes(b"PAR1" + bytes(path.stat().st_size - 8) + b"PAR1")
        orders("run", "--once")
        shown = orders("run", "--once").out
        assert "nothing was due" not in shown
        assert "held back: shop.orders: fold failed 1 time" in shown
        assert "0 jobs done, 1 held back" in shown


class TestLogLines:
    def record(self, message: str, **facts: Any) -> Any:
        import logging

        record = logging.LogRecord("lithify.x", logging.WARNING, "", 0, message, (), None)
        record.created = 0.5
        record.lithify_facts = facts
        return record

    def test_text(self) -> None:
        line = TextLines().format(self.record("job\nfailed", table="a.t", why='a "b" c', n=3, none=None, x="k=v"))
        assert line == '1970-01-01T00:00:00.500Z WARNING job failed table=a.t why="a \\"b\\" c" n=3 x="k=v"'

    def test_json(self) -> None:
        line = json.loads(JsonLines().format(self.record("job failed", table="a.t", n=3)))
        expected = {"time": "1970-01-01T00:00:00.500Z", "level": "warning", "logger": "lithify.x"}
        assert line == {**expected, "message": "job failed", "table": "a.t", "n": 3}


class TestLiveView:
    def told(self, *events: dict[str, Any]) -> tuple[list[str], list[str]]:
        """What stands in the view after each event, and the lines above it."""
        views: list[str] = []
        lines: list[str] = []

        class Out:
            def note(self, text: str) -> None:
                lines.append(text)

            def step(self, *parts: str) -> None:
                lines.append(" | ".join(parts))

            def problems(self, texts: list[str]) -> None:
                lines.extend(texts)

        class Here:
            out = Out()

        live = _Live(Here(), lambda view, share: views.append(view), "waiting")  # type: ignore[arg-type]
        for event in events:
            live(event)
        return views, lines

    JOB: ClassVar = {
        "table": "big.t",
        "kind": "compact",
        "tier": "pack",
        "partition": "",
        "why": "pack: 12 small files",
    }

    def test_what_runs_is_named_once(self) -> None:
        views, lines = self.told(
            {"event": "job started", **self.JOB},
            {"event": "job done", **self.JOB, "bytes_in": 2048, "bytes_out": 1024, "seconds": 1.0},
        )
        assert views == ["pack of big.t: 12 small files", "waiting"]
        assert lines == ["pack | big.t | 1.0 s | 2.0 KiB → 1.0 KiB, 12 small files"]

    def test_stopping_speaks_of_jobs_only_if_there_are_any(self) -> None:
        assert self.told({"event": "stopping"}, {"event": "stopped"})[1] == ["stopping", "stopped"]
        assert "running jobs end first" in self.told({"event": "job started", **self.JOB}, {"event": "stopping"})[1][0]

    def test_a_failed_cycle(self) -> None:
        _, lines = self.told({"event": "cycle failed", "what": "daily", "reason": "no space left"})
        assert lines == ["cycle failed (daily): no space left"]
