"""Many at once: no row is lost, none is doubled, and whoever slept through a change finds out before its commit. In a
folder and, where it takes no processes of its own, in a bucket.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pytest

from lithify import Conflict, Lake, NotFound, Settings
from lithify.files.addresses import is_remote
from lithify.files.storage import Storage
from lithify.lake.internals import internals
from support import children, racers
from support.bucket_steps import InterruptedBucket
from support.faults import FaultyStore, Gate
from support.leftovers import unsettled

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


def rows(*ids: int, v: str = "x") -> list[dict[str, Any]]:
    return [{"id": i, "v": v} for i in ids]


def ids(lake: Lake) -> list[int]:
    return sorted(lake.table("a.t").to_arrow(columns=["id"]).column("id").to_pylist())


# -- processes


def race(path: Path, worker: Any, writers: int, batches: int, folds: int) -> list[tuple[int, int, bool]]:
    """Let the writers loose at once while the folds run in a loop; the answers of all writes."""
    go, stop, results = children.event(), children.event(), children.queue()
    folding = [children.start(racers.fold_until, str(path), stop, go, scratch=path.parent) for _ in range(folds)]
    writing = [
        children.start(worker, str(path), number, batches, go, results, scratch=path.parent)
        for number in range(writers)
    ]
    go.set()
    answers = [results.get(timeout=children.WAIT_S_MAX) for _ in range(writers * batches)]
    assert [children.finish(child) for child in writing] == [0] * writers
    stop.set()
    assert [children.finish(child) for child in folding] == [0] * folds
    return answers


@pytest.mark.parametrize("key", ["id", None])
@pytest.mark.parametrize("folds", [1, 2])
def test_eight_writers_and_folds_lose_and_double_nothing(folder: Path, key: str | None, folds: int) -> None:
    writers, batches = 8, 6
    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", SCHEMA, key=key).append(rows(99_999))

    answers = race(folder / "lake", racers.write_batches, writers, batches, folds)

    expected = sorted([99_999, *(i for w in range(writers) for b in range(batches) for i in racers.ids_of(w, b))])
    assert sorted(seq for seq, _, _ in answers) == list(range(2, 2 + writers * batches))
    with Lake(folder / "lake") as lake:
        assert ids(lake) == expected
        assert sorted(lake.table("a.t").changes(since=0).column("id").to_pylist()) == expected
        lake.table("a.t").fold()
        assert ids(lake) == expected
        assert unsettled(folder / "lake") == []


def test_a_batch_id_sent_by_two_processes_is_written_once(folder: Path) -> None:
    batches = 8
    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", SCHEMA)

    answers = race(folder / "lake", racers.write_same_batches, 2, batches, folds=1)

    with Lake(folder / "lake") as lake:
        assert ids(lake) == sorted(i for b in range(batches) for i in racers.ids_of(0, b))
    for batch in range(batches):
        seqs = [(seq, replayed) for seq, number, replayed in answers if number == batch]
        assert len({seq for seq, _ in seqs}) == 1
        assert sorted(replayed for _, replayed in seqs) == [False, True]


# -- one asleep at the worst moment


def stopping(path: PurePath, at: str, action: Callable[[], None]) -> Storage:
    if not is_remote(path):
        return FaultyStore(at, action)
    store = InterruptedBucket()
    store.actions[at] = action
    return store


class Asleep:
    """A second handle on the lake that stops at a point until it is woken."""

    def __init__(self, path: PurePath, at: str, **settings: Any) -> None:
        self.gate = Gate()
        self.lake = Lake(path, settings=Settings(**settings), store=stopping(path, at, self.gate.hold))
        self._pool = ThreadPoolExecutor(1)

    def start(self, action: Any) -> Future[Any]:
        future = self._pool.submit(action)
        self.gate.wait()
        return future

    def wake(self, future: Future[Any]) -> Any:
        self.gate.open()
        return future.result(60)

    def __enter__(self) -> Asleep:
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.open()
        self._pool.shutdown()
        self.lake.close()


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.bucket)])
def lake(request: pytest.FixtureRequest) -> Any:
    where = request.getfixturevalue("folder") / "lake" if request.param == "folder" else None
    with Lake(where or request.getfixturevalue("address")) as lake:
        lake.create_table("a.t", SCHEMA, key="id").upsert(rows(1, 2, 3))
        yield lake


def changes_of(lake: Lake) -> list[str]:
    store = internals(lake).runtime.store
    return [name for name in store.below(lake.path / "a/t/changes") if name.endswith(".parquet")]


def manifests(lake: Lake) -> list[PurePath]:
    folder = lake.path / "_lithify/jobs"
    return [folder / name for name in internals(lake).runtime.store.names(folder) if name.endswith(".json")]


def is_settled(lake: Lake) -> bool:
    return not manifests(lake) and (is_remote(lake.path) or unsettled(Path(lake.path)) == [])


def test_a_writer_that_lost_the_race_takes_the_next_seq(lake: Lake) -> None:
    with Asleep(lake.path, "write.commit") as other:
        writing = other.start(lambda: other.lake.table("a.t").upsert(rows(1, v="later")))
        assert lake.table("a.t").upsert(rows(1, v="sooner")).seq == 2

        assert other.wake(writing).seq == 3

    assert lake.table("a.t").get(1) == {"id": 1, "v": "later"}


def test_a_batch_that_a_rival_has_written_meanwhile_is_not_written_again(lake: Lake) -> None:
    with Asleep(lake.path, "write.commit") as other:
        writing = other.start(lambda: other.lake.table("a.t").upsert(rows(9, v="mine"), batch_id="b"))
        first = lake.table("a.t").upsert(rows(9, v="first"), batch_id="b")

        second = other.wake(writing)

    assert (second.seq, second.replayed) == (first.seq, True)
    assert lake.table("a.t").get(9) == {"id": 9, "v": "first"}
    assert len(changes_of(lake)) == 2


def test_a_writer_that_may_not_retry_is_refused_and_leaves_nothing(lake: Lake) -> None:
    with Asleep(lake.path, "write.commit", commit_attempts_max=1) as other:
        writing = other.start(lambda: other.lake.table("a.t").upsert(rows(9)))
        lake.table("a.t").upsert(rows(4))
        files = len(changes_of(lake))

        with pytest.raises(Conflict, match=r"upsert on a\.t lost the race"):
            other.wake(writing)

    assert ids(lake) == [1, 2, 3, 4]
    assert len(changes_of(lake)) == files - 1


@pytest.mark.parametrize("again", [False, True])
def test_a_writer_that_slept_through_a_drop_is_refused(lake: Lake, again: bool) -> None:
    with Asleep(lake.path, "write.commit") as other:
        writing = other.start(lambda: other.lake.table("a.t").upsert(rows(9)))
        lake.drop_table("a.t")
        if again:
            lake.create_table("a.t", SCHEMA, key="id")

        with pytest.raises(NotFound, match=r"a\.t was dropped"):
            other.wake(writing)

    assert lake.tables() == (["a.t"] if again else [])
    if again:
        assert ids(lake) == []


def test_a_fold_that_slept_through_a_drop_is_refused(lake: Lake) -> None:
    with Asleep(lake.path, "fold.commit") as other:
        folding = other.start(lambda: other.lake.table("a.t").fold())
        lake.drop_table("a.t")
        lake.create_table("a.t", SCHEMA, key="id").upsert(rows(7))

        with pytest.raises(NotFound, match=r"a\.t was dropped"):
            other.wake(folding)

    assert ids(lake) == [7]
    lake.table("a.t").fold()
    assert ids(lake) == [7]


def test_delete_where_is_evaluated_again_when_it_lost_the_race(lake: Lake) -> None:
    with Asleep(lake.path, "write.commit") as other:
        deleting = other.start(lambda: other.lake.table("a.t").delete_where("v = 'x'"))
        lake.table("a.t").upsert([*rows(1, v="kept"), *rows(4, v="x")])

        assert other.wake(deleting).deleted == 3

    assert ids(lake) == [1]


def test_delete_where_that_is_overtaken_each_time_gives_up_with_nothing_deleted(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lithify.write.decided.ROUNDS_MAX", 3)
    table, serving = lake.table("a.t"), internals(lake).runtime.serving
    found = serving.read_where

    def overtaken(*arguments: Any) -> pa.Table:
        keys = found(*arguments)
        table.upsert(rows(4))
        return keys

    monkeypatch.setattr(serving, "read_where", overtaken)
    with pytest.raises(
        Conflict, match=r"delete_where on a\.t was overtaken .* 3 times; nothing was deleted: try again"
    ):
        table.delete_where("id = 1")
    assert ids(lake) == [1, 2, 3, 4]


def test_a_second_fold_overtakes_the_first(lake: Lake) -> None:
    with Asleep(lake.path, "fold.commit") as other:
        folding = other.start(lambda: other.lake.table("a.t").fold())
        lake.table("a.t").fold()

        assert other.wake(folding).final_rows == 3

    assert ids(lake) == [1, 2, 3]
    assert pa.table(lake.table("a.t").to_arrow()).num_rows == 3
    assert is_settled(lake)


def test_writes_that_arrive_during_a_fold_stay_pending(lake: Lake) -> None:
    with Asleep(lake.path, "fold.commit") as other:
        folding = other.start(lambda: other.lake.table("a.t").fold())
        lake.table("a.t").upsert(rows(1, v="new"))
        lake.table("a.t").delete([2])

        assert other.wake(folding).seq == 1

    assert lake.table("a.t").to_arrow().sort_by("id").to_pylist() == [{"id": 1, "v": "new"}, {"id": 3, "v": "x"}]
    assert lake.table("a.t").stats().pending_rows == 2


def test_a_fold_plans_again_when_a_column_was_added(lake: Lake) -> None:
    with Asleep(lake.path, "fold.commit") as other:
        folding = other.start(lambda: other.lake.table("a.t").fold())
        lake.table("a.t").add_column(pa.field("w", pa.int64()))
        lake.table("a.t").upsert([{"id": 4, "v": "x", "w": 1}])

        other.wake(folding)

    lake.table("a.t").fold()
    assert lake.table("a.t").to_arrow(columns=["id", "w"]).sort_by("id").to_pylist() == [
        {"id": 1, "w": None},
        {"id": 2, "w": None},
        {"id": 3, "w": None},
        {"id": 4, "w": 1},
    ]


@pytest.mark.parametrize("at", ["fold.manifest", "fold.written", "fold.commit"])
def test_a_fold_that_was_given_up_for_dead_finds_the_fence(lake: Lake, at: str) -> None:
    lake.table("a.t").fold()
    lake.table("a.t").upsert(rows(2, 5, v="new"))
    with Asleep(lake.path, at) as other:
        folding = other.start(lambda: other.lake.table("a.t").fold())
        take_for_dead(lake)
        lake.table("a.t").fold()
        assert is_settled(lake)

        with pytest.raises(Conflict, match="given up by another process"):
            other.wake(folding)

    assert ids(lake) == [1, 2, 3, 5]
    assert lake.table("a.t").get(2) == {"id": 2, "v": "new"}


def take_for_dead(lake: Lake) -> None:
    """Let the running job look like one whose process is gone."""
    (manifest,), store = manifests(lake), internals(lake).runtime.store
    job = json.loads(store.read(manifest))
    job["owner"]["started"] = "long ago"
    store.put(manifest, json.dumps(job).encode())


def test_a_snapshot_sees_every_row_once_when_a_fold_commits_between_its_two_reads(lake: Lake) -> None:
    with Asleep(lake.path, "snapshot.between") as other:
        table = other.lake.table("a.t")
        lake.table("a.t").upsert(rows(3))  # or in a bucket, where both are looked at together, there is no between
        reading = other.start(table.to_arrow)
        lake.table("a.t").fold()

        assert sorted(other.wake(reading).column("id").to_pylist()) == [1, 2, 3]


def test_a_snapshot_that_slept_shows_one_exact_state(lake: Lake) -> None:
    with Asleep(lake.path, "snapshot.between") as other:
        table = other.lake.table("a.t")
        lake.table("a.t").upsert(rows(3))  # or in a bucket, where both are looked at together, there is no between
        reading = other.start(table.to_arrow)
        lake.table("a.t").fold()
        lake.table("a.t").delete([1])
        lake.table("a.t").fold()

        seen = sorted(other.wake(reading).column("id").to_pylist())

    assert seen == [2, 3], "base is newer than the changes that were read, and holds all of them"


def test_two_processes_may_create_the_same_lake(folder: Path) -> None:
    gate = Gate()
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(lambda: Lake(folder / "new", store=FaultyStore("store.rename", gate.hold)))
        gate.wait()
        first = Lake(folder / "new")
        gate.open()
        second = opening.result(60)

    first.create_table("a.t", SCHEMA)
    assert second.tables() == ["a.t"]
    first.close()
    second.close()
