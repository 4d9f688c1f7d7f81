"""One writer per table: what waits shares a commit, each caller gets its own answer, and nobody waits for a fold."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import CommitUnknown, Conflict, InvalidRequest, Lake, NotFound, Settings, Table, Unavailable
from lithify.core.names import parse_table_name
from lithify.core.snapshot import Snapshot
from lithify.files.local import LocalStorage
from lithify.lake.open_tables import OpenTables
from support import children, grouped
from support.effort import thinned
from support.faults import FaultyStore, Gate, RecordingStore, disk_full
from support.folders import copied
from support.moments import Moment, moments

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
ORDERED = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("v", pa.string())])


def rows(*ids: int, v: str = "x") -> list[dict[str, Any]]:
    return [{"id": i, "v": v} for i in ids]


def content(table: Table) -> dict[int, str]:
    return {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}


class Gated:
    """A table whose first write waits at a gate, so that the next ones gather behind it."""

    def __init__(
        self, path: Path, at: str = "write.commit", store: Callable[[Gate], LocalStorage] | None = None, **settings: Any
    ) -> None:
        self.gate = Gate()
        made = store(self.gate) if store else FaultyStore(at, self.gate.hold)
        self.lake = Lake(path, settings=Settings(**settings), store=made)
        self._pool = ThreadPoolExecutor(32)
        self._behind = 0

    def hold(self, write: Callable[[], Any]) -> Future[Any]:
        future = self._pool.submit(write)
        self.gate.wait()
        return future

    def queue(self, write: Callable[[], Any]) -> Future[Any]:
        """Send a write and return when it waits in the queue: the order of calls is the order of arrival."""
        writes: Any = self.lake._loaded.get(parse_table_name("a.t")).writes
        future = self._pool.submit(write)
        self._behind += 1
        with writes._changed:
            assert writes._changed.wait_for(lambda: len(writes._waiting) >= self._behind or future.done(), 60)
        return future

    def __enter__(self) -> Gated:
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.open()
        self._pool.shutdown()
        self.lake.close()


@pytest.fixture
def gated(folder: Path) -> Iterator[Gated]:
    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", SCHEMA, key="id")
    with Gated(folder / "lake") as opened:
        yield opened


# -- group commit


def test_sixteen_threads_lose_nothing_and_share_commits(folder: Path) -> None:
    threads, batches = 16, 12
    with Lake(folder / "lake") as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")

        def write(writer: int) -> list[int]:
            return [table.upsert(rows(1000 * writer + n, 1, v=f"{writer} {n}")).seq for n in range(batches)]

        with ThreadPoolExecutor(threads) as pool:
            seqs = list(pool.map(write, range(threads)))

        assert all(found == sorted(set(found)) for found in seqs), "a caller's next write comes later"
        assert table.snapshot().seq == len({seq for found in seqs for seq in found})
        assert table.snapshot().seq < threads * batches
        with Lake(folder / "lake") as other:
            seen = content(other.table("a.t"))
        last = max(seqs, key=lambda found: found[-1])[-1]
        finalists = [f"{writer} {batches - 1}" for writer, found in enumerate(seqs) if found[-1] == last]
        assert seen.pop(1) in finalists
        assert seen == {1000 * w + n: f"{w} {n}" for w in range(threads) for n in range(batches) if 1000 * w + n != 1}


def test_what_waits_goes_into_one_commit_and_each_gets_its_own_answer(gated: Gated) -> None:
    table = gated.lake.table("a.t")
    first = gated.hold(lambda: table.upsert(rows(0)))
    waiting = [
        gated.queue(lambda: table.upsert(rows(1, 2), batch_id="one")),
        gated.queue(lambda: table.append(rows(3))),
        gated.queue(lambda: table.delete([0, 9], actor="ada", reason="asked to")),
        gated.queue(lambda: table.replace(rows(2, v="y"))),
    ]

    gated.gate.open()
    answers = [future.result(60) for future in (first, *waiting)]

    assert [answer.seq for answer in answers] == [1, 2, 2, 2, 2]
    assert [(a.operation, a.rows, a.upserted, a.deleted, a.batch_id) for a in answers[1:]] == [
        ("upsert", 2, 2, 0, "one"),
        ("append", 1, 1, 0, None),
        ("delete", 2, 0, 2, None),
        ("replace", 1, 1, 0, None),
    ]
    assert content(table) == {1: "x", 2: "y", 3: "x"}
    assert len(table.snapshot().changes) == 3, "one file of the first write, one per operation of the group"


def test_history_tells_every_write_of_a_group(gated: Gated) -> None:
    table = gated.lake.table("a.t")
    first = gated.hold(lambda: table.upsert(rows(0)))
    waiting = [
        gated.queue(lambda: table.upsert(rows(1, 2), batch_id="one")),
        gated.queue(lambda: table.delete([0], actor="ada", reason="asked to")),
    ]
    gated.gate.open()
    for future in (first, *waiting):
        future.result(60)

    newest = table.history(limit=2)

    assert [(e.operation, e.seq, e.rows, e.batch_id, e.reason) for e in newest] == [
        ("delete", 2, 1, None, "asked to"),
        ("upsert", 2, 2, "one", None),
    ]
    assert newest[0].actor == "ada"
    assert [e.operation for e in table.history()] == ["delete", "upsert", "upsert", "create table"]


def test_a_batch_of_a_group_is_replayed_with_its_own_numbers(gated: Gated) -> None:
    table = gated.lake.table("a.t")
    first = gated.hold(lambda: table.upsert(rows(0)))
    waiting = [
        gated.queue(lambda: table.upsert(rows(1, 2), batch_id="one")),
        gated.queue(lambda: table.delete([0], batch_id="two")),
    ]
    gated.gate.open()
    first.result(60)
    one, two = (future.result(60) for future in waiting)

    with Lake(gated.lake.path) as other:
        again = other.table("a.t").delete([7, 8, 9], batch_id="two")
        assert (again.seq, again.operation, again.rows, again.deleted) == (two.seq, "delete", 1, 1)
        assert again.replayed
        again = other.table("a.t").upsert(rows(5), batch_id="one")
        assert (again.seq, again.rows, again.upserted, again.replayed) == (one.seq, 2, 2, True)


def test_one_batch_id_twice_in_a_group_is_written_once(gated: Gated) -> None:
    table = gated.lake.table("a.t")
    gated.hold(lambda: table.upsert(rows(0)))
    waiting = [
        gated.queue(lambda: table.upsert(rows(1, v="first"), batch_id="b")),
        gated.queue(lambda: table.upsert(rows(1, 2, v="second"), batch_id="b")),
    ]
    gated.gate.open()

    first, second = (future.result(60) for future in waiting)

    assert (first.replayed, second.replayed) == (False, True)
    assert (first.seq, first.rows) == (second.seq, second.rows) == (2, 1)
    assert content(table) == {0: "x", 1: "first"}


def test_writes_of_one_lane_wait_for_each_other(gated: Gated) -> None:
    table, maintaining = gated.lake.table("a.t"), f"lane-{'a' * 32}"
    gated.hold(lambda: table.upsert(rows(0)))
    waiting = [gated.queue(lambda n=n: table.upsert(rows(n), batch_id=f"{maintaining}.{n}")) for n in (1, 3, 2)]
    gated.gate.open()

    assert [future.result(60).seq for future in waiting[:2]] == [2, 3]
    with pytest.raises(Conflict, match="only go up"):
        waiting[2].result(60)
    assert sorted(content(table)) == [0, 1, 3]


def test_a_batch_that_a_rival_wrote_meanwhile_drops_out_of_its_group(folder: Path) -> None:
    with Lake(folder / "lake") as rival:
        rival.create_table("a.t", SCHEMA, key="id")
        second = Gate()

        class Twice(LocalStorage):
            """The first write and the group behind it each wait at a gate."""

            commits = 0

            def step(self, name: str) -> None:
                if name == "write.commit":
                    self.commits += 1
                    (gate, second)[self.commits > 1].hold() if self.commits <= 2 else None

        def made(first: Gate) -> LocalStorage:
            nonlocal gate
            gate = first
            return Twice()

        gate = second
        with Gated(folder / "lake", store=made) as gated:
            table = gated.lake.table("a.t")
            gated.hold(lambda: table.upsert(rows(0)))
            waiting = [
                gated.queue(lambda: table.upsert(rows(1, v="mine"), batch_id="b")),
                gated.queue(lambda: table.upsert(rows(2, v="mine"))),
            ]
            gated.gate.open()
            second.wait()
            theirs = rival.table("a.t").upsert(rows(1, v="theirs"), batch_id="b")
            second.open()

            replayed, other = (future.result(60) for future in waiting)

        assert (replayed.seq, replayed.replayed) == (theirs.seq, True)
        assert (other.seq, other.replayed) == (theirs.seq + 1, False)
        assert content(rival.table("a.t")) == {0: "x", 1: "theirs", 2: "mine"}
        assert len(list((folder / "lake" / "a" / "t" / "changes").glob("*.parquet"))) == 3


@pytest.mark.parametrize("delete_first", [True, False])
def test_arrival_decides_between_a_delete_and_an_upsert(gated: Gated, delete_first: bool) -> None:
    table = gated.lake.table("a.t")
    gated.hold(lambda: table.upsert(rows(1, v="old")))
    writes = [lambda: table.delete([1]), lambda: table.upsert(rows(1, v="new"))]
    waiting = [gated.queue(write) for write in (writes if delete_first else reversed(writes))]
    gated.gate.open()

    assert {future.result(60).seq for future in waiting} == {2}
    assert content(table) == ({1: "new"} if delete_first else {})


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (("late", "new"), "new"),
        (("new", "late"), "new"),
        (("new", "delete", "late"), "late"),
        (("delete", "late"), "late"),
        (("late", "delete"), None),
        (("new", "replace"), "replaced"),
        (("replace", "late"), "late"),
        (("late",), "base"),
    ],
)
def test_order_by_in_a_group_is_order_by_one_by_one(folder: Path, kinds: tuple[str, ...], expected: str | None) -> None:
    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", ORDERED, key="id", order_by="at").upsert([{"id": 1, "at": 5, "v": "base"}])
        lake.table("a.t").fold()
    with Gated(folder / "lake") as gated:
        table = gated.lake.table("a.t")
        writes: dict[str, Callable[[], Any]] = {
            "late": lambda: table.upsert([{"id": 1, "at": 3, "v": "late"}]),
            "new": lambda: table.upsert([{"id": 1, "at": 9, "v": "new"}]),
            "delete": lambda: table.delete([1]),
            "replace": lambda: table.replace([{"id": 1, "at": 1, "v": "replaced"}]),
        }
        gated.hold(lambda: table.upsert([{"id": 0, "at": 0, "v": "first"}]))
        waiting = [gated.queue(writes[kind]) for kind in kinds]
        gated.gate.open()

        assert len({future.result(60).seq for future in waiting}) == 1
        for fold in (False, True):
            if fold:
                table.fold()
            found = table.get(1)
            assert (found and found["v"]) == expected


def test_appends_without_a_key_share_a_file_and_a_delete_stands_alone(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", SCHEMA)
    with Gated(folder / "lake") as gated:
        table = gated.lake.table("a.t")
        gated.hold(lambda: table.append(rows(1)))
        waiting = [
            gated.queue(lambda: table.append(rows(1, 2))),
            gated.queue(lambda: table.append(rows(1))),
            gated.queue(lambda: table.delete([{"id": 1}])),
            gated.queue(lambda: table.append(rows(1, v="again"))),
        ]
        gated.gate.open()

        assert [future.result(60).seq for future in waiting] == [2, 2, 3, 4]
        assert sorted(row["v"] for row in table.to_arrow().to_pylist()) == ["again", "x"]


# -- one fails alone


def test_one_that_no_longer_holds_fails_alone(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", SCHEMA).append(rows(1, 2, 3))
    with Gated(folder / "lake") as gated:
        table = gated.lake.table("a.t")
        gated.hold(lambda: table.delete([{"v": "none"}]))
        good = [gated.queue(lambda: table.append(rows(4)))]
        bad = gated.queue(lambda: table.delete([{"id": 1}]))
        good.append(gated.queue(lambda: table.append(rows(5))))
        gated.gate.open()

        with pytest.raises(InvalidRequest, match="pending deletes by v"):
            bad.result(60)
        assert [future.result(60).rows for future in good] == [1, 1]
        assert sorted(content(table)) == [1, 2, 3, 4, 5]


def test_rows_that_do_not_fit_are_refused_beside_those_that_do(gated: Gated) -> None:
    table = gated.lake.table("a.t")
    gated.hold(lambda: table.upsert(rows(0)))
    good = gated.queue(lambda: table.upsert(rows(1)))
    bad = gated._pool.submit(lambda: table.upsert([{"id": 2, "nope": 1}]))
    gated.gate.open()

    with pytest.raises(InvalidRequest, match="'nope' is not in the table"):
        bad.result(60)
    assert good.result(60).seq == 2
    assert sorted(content(table)) == [0, 1]


def test_rows_of_older_columns_share_a_commit_with_rows_of_newer_ones(gated: Gated) -> None:
    table = gated.lake.table("a.t")
    gated.hold(lambda: table.upsert(rows(0), missing="null"))
    old = gated.queue(lambda: table.upsert(rows(1), missing="null"))
    with Lake(gated.lake.path) as other:
        other.table("a.t").add_column(pa.field("w", pa.int64()))
    gated.gate.open()

    assert old.result(60).rows == 1
    assert table.upsert([{"id": 2, "v": "x", "w": 7}]).rows == 1
    assert {row["id"]: row["w"] for row in table.to_arrow().to_pylist()} == {0: None, 1: None, 2: 7}


def test_a_group_that_cannot_be_staged_is_tried_one_by_one(folder: Path) -> None:
    class FullOnce(FaultyStore):
        """Holds the first write, then has no space for the next file."""

        files = 0

        def step(self, name: str) -> None:
            super().step(name)
            if name == "store.write":
                self.files += 1
                if self.files == 3:  # after the first write's file and commit
                    disk_full()

    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", SCHEMA, key="id")
    with Gated(folder / "lake", store=lambda gate: FullOnce("write.commit", gate.hold)) as gated:
        table = gated.lake.table("a.t")
        gated.hold(lambda: table.upsert(rows(0)))
        waiting = [gated.queue(lambda i=i: table.upsert(rows(i))) for i in (1, 2, 3)]
        gated.gate.open()

        assert [future.result(60).seq for future in waiting] == [2, 3, 4]
        assert sorted(content(table)) == [0, 1, 2, 3]
        assert len(list((folder / "lake" / "a" / "t" / "changes").glob("*.parquet"))) == 4


def test_an_unforeseen_error_reaches_all_of_its_group_and_the_next_write_works(folder: Path) -> None:
    class Bug(BaseException):
        pass

    class Broken(FaultyStore):
        commits = 0

        def step(self, name: str) -> None:
            super().step(name)
            if name == "write.commit":
                self.commits += 1
                if self.commits == 2:
                    raise Bug

    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", SCHEMA, key="id")
    with Gated(folder / "lake", store=lambda gate: Broken("write.commit", gate.hold)) as gated:
        table = gated.lake.table("a.t")
        gated.hold(lambda: table.upsert(rows(0)))
        waiting = [gated.queue(lambda i=i: table.upsert(rows(i))) for i in (1, 2)]
        gated.gate.open()

        for future in waiting:
            with pytest.raises(Bug):
                future.result(60)
        assert table.upsert(rows(3)).seq == 2
        assert sorted(content(table)) == [0, 3]


def test_a_commit_that_cannot_be_made_durable_is_unknown_to_all_of_its_group(folder: Path) -> None:
    class NoSync(FaultyStore):
        commits = 0

        def step(self, name: str) -> None:
            super().step(name)
            self.commits += name == "write.committed"
            if self.commits == 2 and name == "store.sync":
                self.commits += 1
                disk_full()

    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", SCHEMA, key="id")
    with Gated(folder / "lake", store=lambda gate: NoSync("write.commit", gate.hold)) as gated:
        table = gated.lake.table("a.t")
        gated.hold(lambda: table.upsert(rows(0)))
        waiting = [gated.queue(lambda i=i: table.upsert(rows(i))) for i in (1, 2)]
        gated.gate.open()

        for future in waiting:
            with pytest.raises(CommitUnknown, match="could not be made durable"):
                future.result(60)
        assert sorted(content(table)) == [0, 1, 2]
        assert table.upsert(rows(3)).seq == 3


def test_a_dropped_table_refuses_everybody_who_waits(gated: Gated) -> None:
    table = gated.lake.table("a.t")
    first = gated.hold(lambda: table.upsert(rows(0)))
    waiting = [gated.queue(lambda i=i: table.upsert(rows(i))) for i in (1, 2)]
    with Lake(gated.lake.path) as other:
        other.drop_table("a.t")
    gated.gate.open()

    for future in (first, *waiting):
        with pytest.raises(NotFound, match=r"a\.t was dropped"):
            future.result(60)


# -- a bounded queue


def test_a_full_queue_pushes_back(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", SCHEMA, key="id")
    with Gated(folder / "lake", queue_commands_max=2, queue_wait_s_max=0.05) as gated:
        table = gated.lake.table("a.t")
        first = gated.hold(lambda: table.upsert(rows(0)))
        waiting = [gated.queue(lambda i=i: table.upsert(rows(i))) for i in (1, 2)]

        with pytest.raises(Unavailable, match=r"a\.t has 2 writes waiting.*queue_commands_max"):
            table.upsert(rows(3))

        gated.gate.open()
        assert [future.result(60).seq for future in (first, *waiting)] == [1, 2, 2]
        assert sorted(content(table)) == [0, 1, 2]


def test_a_caller_waits_for_room_in_a_full_queue(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", SCHEMA, key="id")
    with Gated(folder / "lake", queue_commands_max=1) as gated:
        table = gated.lake.table("a.t")
        gated.hold(lambda: table.upsert(rows(0)))
        gated.queue(lambda: table.upsert(rows(1)))
        late = gated._pool.submit(lambda: table.upsert(rows(2)))
        gated.gate.open()

        late.result(60)
        assert sorted(content(table)) == [0, 1, 2]


def test_a_caller_that_is_interrupted_takes_its_request_back(gated: Gated) -> None:
    table = gated.lake.table("a.t")
    first = gated.hold(lambda: table.upsert(rows(0)))
    previous = signal.getsignal(signal.SIGALRM)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            table.upsert(rows(1))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    gated.gate.open()

    assert first.result(60).seq == 1
    assert table.upsert(rows(2)).seq == 2
    assert sorted(content(table)) == [0, 2]


# -- killed


@pytest.mark.parametrize("key", ["id", None])
def test_a_kill_by_a_real_signal_leaves_all_of_a_group_or_nothing(folder: Path, key: str | None) -> None:
    prepared = folder / "prepared"
    grouped.prepare(prepared, key)
    store = RecordingStore()
    grouped.write(str(copied(prepared, folder / "rehearsal")), store)
    points = store.occurrences()
    assert ("write.commit", 2) in points
    assert ("write.commit", 3) not in points, "one commit took all that waited"
    second = points.index(("store.write", 2))
    chosen = [(point, nth) for point, nth in points[second:] if not point.startswith("store.")]
    assert chosen
    for point, nth in chosen[:: len(chosen) // 2]:
        path = copied(prepared, folder / f"{point}-{nth}")
        acknowledged = folder / f"{point}-{nth}.acknowledged"
        child = children.start(grouped.write_until_killed, str(path), str(acknowledged), point, nth, scratch=folder)
        assert children.finish(child) == -signal.SIGKILL, f"never came to {point} {nth}"
        assert_all_or_nothing(path, acknowledged, f"killed at {point} {nth}")


@pytest.mark.slow
@pytest.mark.parametrize("key", ["id", None])
def test_a_kill_at_every_step_of_a_group_leaves_all_of_it_or_nothing(folder: Path, key: str | None) -> None:
    path, acknowledged = folder / "child" / "lake", folder / "child" / "acknowledged"
    path.parent.mkdir()
    grouped.prepare(path, key)
    left = moments(grouped.write_with, str(path), str(acknowledged), folder=folder / "child", copies=folder / "left")
    assert sum(moment.points.count("write.commit") for moment in left) == 2, "one commit took all that waited"
    for moment in thinned(left, Moment.classes):
        assert_all_or_nothing(moment.path / "lake", moment.path / "acknowledged", str(moment))


def assert_all_or_nothing(path: Path, acknowledged: Path, what: str) -> None:
    told = {int(line) for line in acknowledged.read_text().split()} if acknowledged.exists() else set()
    with Lake(path) as lake:
        found = {i for i in content(lake.table("a.t")) if i > 0}
        assert told <= found, what
        assert found in (set(), grouped.IDS), what
        assert lake.table("a.t").append(rows(99)).rows == 1
        lake.table("a.t").fold()
        assert {i for i in content(lake.table("a.t")) if i > 0} == {*found, 99}, what


# -- maintenance


@pytest.mark.parametrize("at", ["fold.staged", "fold.commit"])
def test_nobody_waits_for_a_fold(folder: Path, at: str) -> None:
    with Lake(folder / "lake") as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        table.upsert(rows(1, 2))
        table.fold()
        table.upsert(rows(2, 3, v="y"))
    with Gated(folder / "lake", at=at) as gated:
        table = gated.lake.table("a.t")
        folding = gated.hold(table.fold)

        assert table.upsert(rows(4)).seq == 3
        assert table.delete_where("id = 1").deleted == 1
        assert content(table) == {2: "y", 3: "y", 4: "x"}

        gated.gate.open()
        assert folding.result(60).final_rows == 3
        assert content(table) == {2: "y", 3: "y", 4: "x"}


def test_a_second_fold_of_the_same_table_waits_for_the_first(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", SCHEMA, key="id").upsert(rows(1))
    recorder: list[str] = []

    class Watched(FaultyStore):
        def step(self, name: str) -> None:
            recorder.append(name)
            super().step(name)

    with Gated(folder / "lake", store=lambda gate: Watched("fold.commit", gate.hold)) as gated:
        table = gated.lake.table("a.t")
        first = gated.hold(table.fold)
        second = gated._pool.submit(table.fold)
        table.upsert(rows(2))
        gated.gate.open()

        assert first.result(60).seq == 1
        assert second.result(60).seq == 2
        assert recorder.index("fold.done") < len(recorder) - 1 - recorder[::-1].index("fold.manifest")


# -- loaded tables


def make_tables(lake: Lake, count: int) -> list[Table]:
    return [lake.create_table(f"a.t{n}", SCHEMA, key="id") for n in range(count)]


def test_the_least_recently_used_table_is_unloaded_and_loaded_again(folder: Path) -> None:
    with Lake(folder / "lake", settings=Settings(loaded_tables_max=2)) as lake:
        first, second, third = make_tables(lake, 3)
        assert lake._loaded.loaded() == ["a.t1", "a.t2"]

        first.upsert(rows(1))
        third.upsert(rows(3))

        assert lake._loaded.loaded() == ["a.t0", "a.t2"]
        second.upsert(rows(2))
        assert [content(table) for table in (first, second, third)] == [{1: "x"}, {2: "x"}, {3: "x"}]
        assert len(lake._loaded.loaded()) == 2
        assert lake.table("a.t1") is second


def test_a_busy_table_is_not_unloaded(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", SCHEMA, key="id")
        make_tables(lake, 2)
    with Gated(folder / "lake", loaded_tables_max=1, queue_wait_s_max=0.05) as gated:
        table = gated.lake.table("a.t")
        writing = gated.hold(lambda: table.upsert(rows(1)))

        with pytest.raises(Unavailable, match=r"1 tables are open.*loaded_tables_max"):
            gated.lake.table("a.t0")

        gated.gate.open()
        assert writing.result(60).seq == 1
        assert content(gated.lake.table("a.t0")) == {}
        assert gated.lake._loaded.loaded() == ["a.t0"]
        assert content(table) == {1: "x"}


def test_a_table_that_was_created_anew_while_unloaded_is_another_one(folder: Path) -> None:
    with Lake(folder / "lake", settings=Settings(loaded_tables_max=1)) as lake, Lake(folder / "lake") as other:
        first, second = make_tables(lake, 2)
        assert lake._loaded.loaded() == ["a.t1"]
        other.drop_table("a.t0")
        with pytest.raises(NotFound, match=r"a\.t0 was dropped"):
            first.to_arrow()
        other.create_table("a.t0", SCHEMA, key="id").upsert(rows(7))

        for use in (first.to_arrow, first.fold, lambda: first.upsert(rows(1)), first.stats):
            with pytest.raises(NotFound, match=r"a\.t0 was dropped"):
                use()
        assert content(lake.table("a.t0")) == {7: "x"}
        assert content(second) == {}


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clocked(folder: Path) -> Iterator[tuple[Lake, OpenTables, Clock]]:
    with Lake(folder / "lake") as lake:
        clock = Clock()
        tables = OpenTables(lake._runtime, clock)
        yield lake, tables, clock
        tables.close()


def test_an_idle_table_is_unloaded(clocked: tuple[Lake, OpenTables, Clock]) -> None:
    lake, tables, clock = clocked
    used, unused = parse_table_name("a.t0"), parse_table_name("a.t1")
    make_tables(lake, 2)
    for name in (used, unused):
        tables.get(name)
    clock.now_s = 1799
    tables.refresh()
    assert tables.loaded() == ["a.t0", "a.t1"]
    tables.get(used)

    clock.now_s = 1801
    tables.refresh()

    assert tables.loaded() == ["a.t0"]
    assert tables.get(unused).handles.snapshot().seq == 0


def test_an_idle_table_with_a_fold_under_way_stays(clocked: tuple[Lake, OpenTables, Clock]) -> None:
    lake, tables, clock = clocked
    make_tables(lake, 1)
    with tables.maintaining(tables.get(parse_table_name("a.t0")).handles):
        clock.now_s = 10_000
        tables.refresh()
        assert tables.loaded() == ["a.t0"]
    tables.refresh()
    assert tables.loaded() == []


def test_a_failed_refresh_is_told_once_until_it_works_again(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Moody(LocalStorage):
        broken = False

        def step(self, name: str) -> None:
            if self.broken and name == "snapshot.between":
                disk_full()

    store = Moody()
    with Lake(folder / "lake", store=store) as lake, caplog.at_level(logging.INFO, "lithify.lake.open_tables"):
        make_tables(lake, 1)
        for broken in (True, True, False, True):
            store.broken = broken
            lake._loaded.refresh()

        told = [record.message for record in caplog.records if record.name == "lithify.lake.open_tables"]
    assert [("cannot be refreshed" in text, "again" in text) for text in told] == [
        (True, False),
        (False, True),
        (True, False),
    ]


# -- noticing


def test_a_commit_of_another_process_is_noticed(folder: Path) -> None:
    noticed: list[tuple[str, int]] = []
    came = threading.Event()

    def listen(name: str, snapshot: Snapshot) -> None:
        noticed.append((name, snapshot.seq))
        came.set()

    with Lake(folder / "lake", settings=Settings(refresh_s=1)) as lake:
        make_tables(lake, 2)
        lake.on_change(listen)
        child = children.start(grouped.write_one, str(folder / "lake"), "a.t1", scratch=folder)
        assert children.finish(child) == 0

        assert came.wait(60)
        assert noticed == [("a.t1", 1)]


def test_listeners_hear_of_a_fold_at_once_and_not_of_nothing(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        (table,) = make_tables(lake, 1)
        heard: list[tuple[str, int]] = []
        stop = lake.on_change(lambda name, snapshot: heard.append((name, snapshot.watermark)))
        table.upsert(rows(1))
        table.fold()
        assert heard == [("a.t0", 1)]

        lake._loaded.refresh()
        assert heard == [("a.t0", 1)]
        table.upsert(rows(2))
        lake._loaded.notify(parse_table_name("a.t0"))
        assert heard == [("a.t0", 1), ("a.t0", 1)]

        stop()
        table.upsert(rows(3))
        lake._loaded.notify(parse_table_name("a.t0"))
        assert len(heard) == 2


def test_a_listener_that_fails_is_logged_and_stops_nobody(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    def broken(name: str, snapshot: Snapshot) -> None:
        raise RuntimeError("no")

    with Lake(folder / "lake") as lake:
        (table,) = make_tables(lake, 1)
        lake.on_change(broken)
        lake.on_change(lambda name, snapshot: heard.append(name))
        table.upsert(rows(1))
        assert table.fold().final_rows == 1
    assert heard == ["a.t0"]
    assert "a listener to changes of table a.t0 failed" in caplog.text


# -- closing


def test_close_commits_and_answers_what_waits(gated: Gated) -> None:
    table = gated.lake.table("a.t")
    first = gated.hold(lambda: table.upsert(rows(0)))
    waiting = [gated.queue(lambda i=i: table.upsert(rows(i))) for i in (1, 2)]
    closing = gated._pool.submit(gated.lake.close)
    with gated.lake._loaded._changed:
        assert gated.lake._loaded._changed.wait_for(lambda: gated.lake._loaded._closed, 60)

    with pytest.raises(InvalidRequest, match="this lake is closed"):
        table.upsert(rows(3))
    gated.gate.open()
    closing.result(60)

    assert [future.result(60).seq for future in (first, *waiting)] == [1, 2, 2]
    with Lake(gated.lake.path) as other:
        assert sorted(content(other.table("a.t"))) == [0, 1, 2]


def test_close_ends_every_thread_and_may_be_called_twice(folder: Path) -> None:
    before = set(threading.enumerate())
    with Lake(folder / "lake", settings=Settings(loaded_tables_max=2)) as lake:
        for table in make_tables(lake, 3):
            table.upsert(rows(1))
        assert any(thread.name.startswith("lithify") for thread in threading.enumerate())
        lake.close()
    assert [thread for thread in threading.enumerate() if thread not in before] == []


def test_a_process_that_forgets_to_close_still_ends(folder: Path) -> None:
    child = children.start(grouped.forget_to_close, str(folder / "lake"), scratch=folder)
    assert children.finish(child) == 0
    with Lake(folder / "lake") as lake:
        assert content(lake.table("a.t")) == {1: "x"}


def test_creating_and_reading_start_no_writer(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        (table,) = make_tables(lake, 1)
        table.to_arrow()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("lithify-writer")]


def test_a_write_that_waits_while_a_column_is_added_is_refused_at_its_commit(gated: Gated) -> None:
    table = gated.lake.table("a.t")
    gated.hold(lambda: table.upsert(rows(0), missing="null"))
    old = gated.queue(lambda: table.upsert(rows(1)))
    with Lake(gated.lake.path) as other:
        other.table("a.t").add_column(pa.field("w", pa.int64()))
    gated.gate.open()

    with pytest.raises(InvalidRequest, match="lack the column 'w'"):
        old.result(60)
    assert sorted(content(table)) == [0]
