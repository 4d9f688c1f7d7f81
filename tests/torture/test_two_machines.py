"""Two machines on one lake in a bucket, ten minutes apart by their clocks: one hangs for longer than a lease, is cut
off from the server, or dies, and comes back. Nothing is lost, nothing is doubled, and who was given up for dead finds
that out (invariants 8, 9).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Lake, NotFound
from lithify.jobs import jobs, leases, recovery
from support.clocks import lake_with
from support.effort import examples
from support.fault_proxy import Fault, FaultProxy
from support.machine_process import LATER, SETTINGS, TABLE
from support.s3_servers import S3Server
from support.shifted import shim

pytestmark = [pytest.mark.bucket, pytest.mark.slow]

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])
TESTS = Path(__file__).parents[1]
AHEAD_S = 600
WAIT_S = 90


class Machine:
    """A process that thinks to be somewhere else, at another time."""

    def __init__(
        self, library: Path, folder: Path, what: str, name: str, address: str, *more: object, through: str | None = None
    ) -> None:
        ahead_s = -AHEAD_S if name == "behind" else AHEAD_S
        own = {
            "LD_PRELOAD": str(library),
            "LITHIFY_CLOCK_AHEAD_S": str(ahead_s),
            "LITHIFY_CACHE_FOLDER": str(folder / f"copies-{name}"),
            "PYTHONPATH": str(TESTS),
        }
        if through is not None:
            own["AWS_ENDPOINT_URL"] = through
        command = [sys.executable, "-m", "support.machine_process", what, name, address, *map(str, more)]
        self._told = open(folder / f"told-{uuid.uuid4().hex}", "w+")  # noqa: SIM115 (closed in the end)
        self.process = subprocess.Popen(command, env={**os.environ, **own}, stdout=self._told)

    def hangs(self) -> None:
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"it ended before it came there: {self._all()}"

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def says(self) -> str:
        """Once it was let go on, and until its end."""
        self.go_on()
        self.process.wait(WAIT_S)
        return self._all()

    def _all(self) -> str:
        self._told.seek(0)
        return self._told.read().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._told.close()


@pytest.fixture
def machine(tmp_path: Path, address: str) -> Iterator[Callable[..., Machine]]:
    library, started = shim(tmp_path), list[Machine]()

    def start(what: str, *more: object, name: str = "elsewhere", through: str | None = None) -> Machine:
        started.append(Machine(library, tmp_path, what, name, address, *more, through=through))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.fixture
def lake(address: str) -> Iterator[Lake]:
    with Lake(address, settings=SETTINGS) as lake:
        table = lake.create_table(TABLE, SCHEMA, key="id")
        table.upsert([{"id": 1, "n": 1}])
        table.upsert([{"id": 2, "n": 2}])
        yield lake


def until(found: Callable[[], object]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not found():
        assert time.monotonic() < until_s
        time.sleep(0.1)


def ids(lake: Lake) -> list[int]:
    return sorted(lake.table(TABLE).to_arrow().column("id").to_pylist())


@pytest.mark.parametrize("step", ["fold.commit", "fold.manifest"][: examples(1, 2)])
def test_a_job_whose_machine_hangs_is_given_up_and_its_owner_finds_the_fence(
    machine: Callable[..., Machine], lake: Lake, step: str
) -> None:
    other = machine("fold", step)
    other.hangs()
    assert len(jobs.under_way(lake._runtime)) == 1
    assert recovery.recover(lake._runtime) == []

    until(lambda: recovery.recover(lake._runtime))
    lake.table(TABLE).upsert([{"id": 3, "n": 3}])
    lake.table(TABLE).fold()

    assert "took this one for dead: run it again" in other.says()
    assert ids(lake) == [1, 2, 3]
    assert jobs.unfinished(lake._runtime) == []


def test_a_job_of_a_machine_that_lives_is_left_alone(machine: Callable[..., Machine], lake: Lake) -> None:
    """As long as it gives signs of life, and once it was seen to."""
    other = machine("fold", "fold.manifest")
    other.hangs()
    (job,) = jobs.under_way(lake._runtime)
    assert other.says() == "done fold"
    assert jobs.under_way(lake._runtime) == []
    assert job.owner.host == "elsewhere"
    assert ids(lake) == [1, 2]


def test_a_lease_whose_holder_hangs_is_taken_over(machine: Callable[..., Machine], lake: Lake) -> None:
    other = machine("leading")
    other.hangs()
    taken: list[leases.Lease] = []

    def take() -> bool:
        ours, lease = leases.acquire(lake._runtime, "cycle", "ours", 60)
        taken.append(lease)
        return ours

    assert not take()
    until(take)
    assert taken[-1].token == taken[0].token + 1
    assert other.says() == "ours False"


def test_what_a_hanging_vacuum_is_about_to_delete_can_be_pinned_by_nobody(
    machine: Callable[..., Machine], lake: Lake, address: str
) -> None:
    lake.table(TABLE).fold()
    lake.table(TABLE).upsert([{"id": 1, "n": 5}])
    lake.table(TABLE).fold()
    other = machine("vacuum", "vacuum.spared")
    other.hangs()
    with pytest.raises(NotFound, match="is removing files of this version"), lake.table(TABLE).pin(as_of=1):
        pass
    with lake.table(TABLE).pin() as head:
        with lake_with(LATER, address, SETTINGS) as later:  # type: ignore[arg-type]
            assert later.table(TABLE).vacuum(1, dry_run=False).files > 0
        assert other.says() == "done vacuum"
        assert lake.table(TABLE).to_arrow(as_of=head).num_rows == 2
    assert lake._runtime.store.names(lake._runtime.control / "doomed") == []


def test_what_a_hanging_reader_has_pinned_stays(machine: Callable[..., Machine], lake: Lake, address: str) -> None:
    other = machine("reading")
    other.hangs()
    lake.table(TABLE).fold()
    with lake_with(LATER, address, SETTINGS) as later:  # type: ignore[arg-type]
        assert later.table(TABLE).vacuum(1, dry_run=False).kept_by_pins > 0
    assert other.says() == "rows 1"


class TestCutOff:
    """The line of one machine is cut in the middle of its work, for longer than a lease, while the other goes on; then
    it is back. Where only what it puts or deletes is stopped, that may come late. What it is told in the end is true.
    """

    FAULTS: tuple[Fault, ...] = ("drop before", "hang before")

    @pytest.fixture(params=FAULTS[: examples(1, 2)])
    def cut(self, request: pytest.FixtureRequest, s3: S3Server) -> Iterator[Callable[[Machine, str], None]]:
        with FaultProxy(s3) as line:
            self.line = line

            def cut(other: Machine, on: str) -> None:
                """The machine stands at its step, and goes on without a line."""
                rule = line.fail(request.param, on, times=None)
                other.go_on()
                until(lambda: rule.hits or other.process.poll() is not None)
                assert rule.hits, f"it ended before it asked: {other._all()}"

            yield cut

    @pytest.mark.parametrize("on", ["PUT", ""][: examples(1, 2)])
    @pytest.mark.parametrize("step", ["fold.commit", "fold.manifest"][: examples(1, 2)])
    def test_a_fold_is_given_up_and_comes_too_late(
        self, machine: Callable[..., Machine], lake: Lake, cut: Callable[[Machine, str], None], step: str, on: str
    ) -> None:
        other = machine("fold", step, through=self.line.server.url)
        other.hangs()
        cut(other, on)
        table = lake.table(TABLE)

        until(lambda: recovery.recover(lake._runtime))
        table.upsert([{"id": 3, "n": 3}])
        table.delete([2])
        table.fold()
        self.line.heal()

        said = other.says()
        assert "took this one for dead: run it again" in said or "does not answer" in said
        assert ids(lake) == [1, 3]
        assert jobs.unfinished(lake._runtime) == []
        table.fold()
        assert ids(lake) == [1, 3]

    @pytest.mark.parametrize("on", ["PUT", ""][: examples(1, 2)])
    def test_a_write_is_there_once_or_refused(
        self, machine: Callable[..., Machine], lake: Lake, cut: Callable[[Machine, str], None], on: str
    ) -> None:
        other = machine("write", "write.commit", through=self.line.server.url)
        other.hangs()
        cut(other, on)
        table, cut_s = lake.table(TABLE), time.monotonic()

        table.upsert([{"id": 1, "n": 7}])
        table.fold()
        with lake_with(LATER, lake.path, SETTINGS) as later:
            later.table(TABLE).vacuum(1, dry_run=False)
        until(lambda: time.monotonic() - cut_s > SETTINGS.lease_s * 5)
        self.line.heal()

        said, found = other.says(), {row["id"]: row["n"] for row in table.to_arrow().to_pylist()}
        done, refused = {1: 100, 2: 2, 50: 50}, {1: 7, 2: 2}
        if said.startswith("CommitUnknown"):
            assert found in (done, refused)
        else:
            assert found == (done if said == "done write" else refused), said
        table.fold()
        assert {row["id"]: row["n"] for row in table.to_arrow().to_pylist()} == found

    @pytest.mark.parametrize("on", ["DELETE", ""][: examples(1, 2)])
    def test_a_vacuum_that_comes_back_deletes_nothing_that_is_needed(
        self, machine: Callable[..., Machine], lake: Lake, cut: Callable[[Machine, str], None], on: str
    ) -> None:
        table = lake.table(TABLE)
        table.fold()
        table.upsert([{"id": 1, "n": 5}])
        table.fold()
        other = machine("vacuum", "vacuum.spared", through=self.line.server.url)
        other.hangs()
        cut(other, on)

        with table.pin() as head:
            table.upsert([{"id": 9, "n": 9}])
            table.fold()
            self.line.heal()
            said = other.says()
            assert said == "done vacuum" or "does not answer" in said
            assert table.to_arrow(as_of=head).num_rows == 2
        with lake_with(LATER, lake.path, SETTINGS) as later:
            later.table(TABLE).vacuum(1, dry_run=False)
        assert {row["id"]: row["n"] for row in table.to_arrow().to_pylist()} == {1: 5, 2: 2, 9: 9}
        assert lake._runtime.store.names(lake._runtime.control / "doomed") == []


def test_machines_that_hang_and_die_lose_nothing(machine: Callable[..., Machine], lake: Lake, tmp_path: Path) -> None:
    """Both write, fold, vacuum and read all the time; the notes of what was acknowledged lie outside."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng, names = random.Random(seed), ("ahead", "behind")
    notes = [tmp_path / f"notes-{name}" for name in names]
    running = [machine("working", 10 + each, notes[each], name=names[each]) for each in range(2)]
    until_s = time.monotonic() + examples(12, 1800)
    while time.monotonic() < until_s:
        until(lambda: all(path.exists() and "done" in path.read_text() for path in notes))
        each, written = rng.randrange(2), [len(path.read_text()) for path in notes]
        if rng.random() < 0.5:
            running[each].end()
            running[each] = machine("working", 10 + each, notes[each], name=names[each])
        else:
            running[each].process.send_signal(signal.SIGSTOP)
            time.sleep(rng.choice([0.2, 7.0]))
            running[each].process.send_signal(signal.SIGCONT)
        until(lambda each=each, size=written[1 - each]: len(notes[1 - each].read_text()) > size)
    for each in running:
        each.end()

    found = {row["id"]: row["n"] for row in lake.table(TABLE).to_arrow().to_pylist()}
    assert len(found) == lake.table(TABLE).to_arrow().num_rows
    for each, path in enumerate(notes):
        lines = [line.split() for line in path.read_text().splitlines()]
        begun, done = ({int(n) for what, n in lines if what == wanted} for wanted in ("begun", "done"))
        there = {id - (10 + each) * 1_000_000 for id in found if id // 1_000_000 == 10 + each}
        assert done <= there <= begun
        assert found[10 + each] == max(there)
    until(lambda: recovery.recover(lake._runtime) or not jobs.unfinished(lake._runtime))
    lake.table(TABLE).fold()
    assert {row["id"]: row["n"] for row in lake.table(TABLE).to_arrow().to_pylist()} == found
