"""From the moment that a commit may have landed, nothing that goes wrong deletes what it names, and the answer is
"committed", "unknown", or, after the log was read and says so, an error (invariant 2).
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lithify import CommitUnknown, Conflict, Lake, LithifyError, NotFound, Settings
from lithify.files.local import LocalStorage
from lithify.files.os_errors import translated
from lithify.lake.maintenance import Maintenance
from support import children, log_oracle
from support.effort import SOAK
from support.faults import FaultyStore, disk_full
from support.operations import OPERATIONS, Answer, expected, judge, made, made_ready, opened
from support.stopping import StoppingStore, raising
from support.trouble import write_short_of_descriptors

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
SHORT = Settings(checkpoint_every=3)
STOPS_MAX = 3  # of each operation, unless soaked


class FailsToRead(LocalStorage):
    """From the moment that a commit is tried, the next `times` reads of the log's pointer to its checkpoint fail."""

    def __init__(self, number: int, times: int) -> None:
        self._number, self._left = number, times
        self.tried = self.armed = False

    def step(self, name: str) -> None:
        self.tried = self.tried or (self.armed and name == "log.swap")

    def read(self, path: Path) -> bytes:
        if self.tried and self._left and path.name == "_last_checkpoint":
            self._left -= 1
            with translated(path):
                raise OSError(self._number, os.strerror(self._number), str(path))
        return super().read(path)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.ENOSPC, errno.EACCES, errno.ESTALE, errno.ENOMEM])
def test_a_commit_that_cannot_be_looked_at_again_keeps_its_files(folder: Path, number: int) -> None:
    store = FailsToRead(number, 1)
    with Lake(folder / "lake", settings=SHORT, store=store) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        for key in range(5):
            table.upsert([{"id": key, "v": "acknowledged"}])
        store.armed = True
        with pytest.raises(CommitUnknown, match="read the table before you retry"):
            table.upsert([{"id": 9, "v": "perhaps"}])
        assert len(table.to_arrow()) == 6
        table.fold()
    with Lake(folder / "lake") as lake:
        assert len(lake.table("a.t").to_arrow()) == 6
    log_oracle.tables(folder / "lake")


def test_a_drop_that_cannot_clear_away_is_done_and_goes_on_with_the_next(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", SCHEMA, key="id").upsert([{"id": 1}], missing="null")
    with Lake(folder / "lake", store=FaultyStore("drop.emptied", disk_full)) as lake:
        lake.drop_table("a.t")
        assert lake.tables() == []
    assert "drop it again" in caplog.text
    assert list((folder / "lake/a/t/changes").glob("write-*"))
    with Lake(folder / "lake") as lake:
        lake.drop_table("a.t")
        assert [entry.name for entry in (folder / "lake/a/t/changes").iterdir()] == ["_delta_log"]
        with pytest.raises(NotFound):
            lake.drop_table("a.t")


@pytest.mark.parametrize("point", ["log.swap", "drop.changes", "drop.emptied", "store.delete_folder"])
def test_maintenance_finishes_a_drop_that_could_not_clear_away(folder: Path, point: str) -> None:
    """Whatever it was stopped at; a table that was created there meanwhile is left alone."""
    with Lake(folder / "lake") as lake:
        for name in ("a.t", "a.u"):
            table = lake.create_table(name, SCHEMA, key="id")
            table.upsert([{"id": 1, "v": "secret"}])
            table.fold()
            table.upsert([{"id": 2}], missing="null")
    # The first swap is the drop itself.
    store = FaultyStore(point, disk_full, nth=2 if point == "log.swap" else 1, times=None)
    with Lake(folder / "lake", store=store) as lake:
        for name in ("a.t", "a.u"):
            with contextlib.suppress(LithifyError, OSError):
                lake.drop_table(name)
            store.reached = 0
    with Lake(folder / "lake") as lake:
        assert lake.tables() == []
        lake.create_table("a.u", SCHEMA, key="id").upsert([{"id": 7, "v": "new"}])
        maintenance = Maintenance(lake)
        first, second = maintenance.cycle.run(), maintenance.cycle.run()
        assert [line for line in first.recovered if "a.t" in line]
        assert not first.problems
        assert not second.recovered
        assert lake.tables() == ["a.u"]
        assert lake.table("a.u").to_arrow().to_pylist() == [{"id": 7, "v": "new"}]
    left = {path.relative_to(folder / "lake/a/t").parts[:2] for path in (folder / "lake/a/t").rglob("*")}
    assert left <= {("changes",), ("base",), ("changes", "_delta_log"), ("base", "_delta_log")}


def test_a_drop_that_maintenance_cannot_finish_either_is_told_and_tried_again(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", SCHEMA, key="id").upsert([{"id": 1}], missing="null")
    store = FaultyStore("drop.emptied", disk_full, times=2)
    with Lake(folder / "lake", store=store) as lake:
        lake.drop_table("a.t")
        maintenance = Maintenance(lake)
        assert "a.t" in "".join(maintenance.cycle.run().problems)
        assert "a.t" in "".join(maintenance.cycle.run().recovered)
    assert not list((folder / "lake/a/t").rglob("*.parquet"))


def test_a_drop_that_could_not_give_its_base_back_does_so_with_the_next(folder: Path) -> None:
    write_deltalake(str(folder / "base"), pa.table({"id": pa.array([1], pa.int64())}))
    second_commit = FaultyStore("log.swap", disk_full, nth=2)
    with Lake(folder / "lake") as lake:
        lake.adopt("a.t", folder / "base", key="id")
    with Lake(folder / "lake", store=second_commit) as lake:
        lake.drop_table("a.t")
    with Lake(folder / "lake") as lake:
        with pytest.raises(Conflict, match=r"is the base of table a\.t"):
            lake.adopt("a.u", folder / "base", key="id")
        lake.drop_table("a.t")
        assert lake.adopt("a.u", folder / "base", key="id").to_arrow().num_rows == 1


class Unforeseen(Exception):
    """What nobody has thought of."""


@pytest.mark.slow
@pytest.mark.parametrize("lasting", [True, False], ids=["for good", "for one call"])
def test_a_process_that_runs_out_of_descriptors_at_any_moment_of_a_write(folder: Path, lasting: bool) -> None:
    """Each write is tried again with its batch id once there are descriptors again, as the documentation says."""
    with Lake(folder / "lake", settings=SHORT) as lake:
        lake.create_table("a.t", SCHEMA, key="id")
    results = children.queue()
    child = children.start(write_short_of_descriptors, str(folder / "lake"), results, lasting, scratch=folder)
    answers = results.get(timeout=120)
    assert children.finish(child) == 0
    assert {"Unavailable", "CommitUnknown"} <= set(answers), "it ran out before and after the commit"
    with Lake(folder / "lake") as lake:
        found = lake.table("a.t").to_arrow().column("id").to_pylist()
    assert sorted(found) == list(range(len(answers)))
    assert sum(log_oracle.tables(folder / "lake")["a.t"].values()) == len(answers)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_work_that_is_stopped_at_any_storage_call(folder: Path, name: str) -> None:
    """By whoever presses Ctrl-C, or by an error that nobody has thought of."""
    source = made(name, folder / "made")
    recording = StoppingStore()
    stopped(made_ready(name, source, folder / "recorded"), name, recording)
    wanted = expected(name, made_ready(name, source, folder / "wanted"))
    kinds = itertools.cycle((KeyboardInterrupt, Unforeseen))
    for number, step, verb in chosen(recording.calls):
        for kind in (KeyboardInterrupt, Unforeseen) if SOAK else (next(kinds),):
            path = made_ready(name, source, folder / f"{number}-{kind.__name__}")
            error = stopped(path, name, StoppingStore(), number, raising(kind()))
            with told(f"{name} stopped at {verb} {number} after {step}, answered {error!r}"):
                judge(name, path, Answer.of(error), wanted)


def chosen(calls: Sequence[tuple[str, str]]) -> list[tuple[int, str, str]]:
    """All of them, or some, the same in each run: of each kind the last, and rather those behind the first commit."""
    numbered = [(number, *call) for number, call in enumerate(calls, 1)]
    if SOAK:
        return numbered
    last = {call[1:]: call for call in numbered}.values()
    begun = next((number for number, step, _ in numbered if step == "log.swap" or step.startswith("create.")), 1)
    return sorted(sorted(last, key=lambda call: (call[0] < begun, call[0]))[:STOPS_MAX])


def stopped(
    path: Path, name: str, store: StoppingStore, nth: int = 0, act: Callable[[], None] | None = None
) -> BaseException | None:
    with opened(name, path, store) as lake:
        store.arm(nth, act)
        try:
            OPERATIONS[name].run(lake)
        except BaseException as error:
            return error
        finally:
            store.disarm()
    return None


@contextlib.contextmanager
def told(where: str) -> Iterator[None]:
    try:
        yield
    except Exception as wrong:
        raise AssertionError(f"{where}: {wrong!r}") from wrong
