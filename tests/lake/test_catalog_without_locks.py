"""Creating and dropping one table by two processes at once, in a bucket: as if one came after the other, also where no
lease held.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from lithify import Conflict, Lake, LithifyError, NotFound
from support.bucket_steps import InterruptedBucket

pytestmark = pytest.mark.bucket

OURS = pa.schema([("id", pa.int64()), ("ours", pa.string())])
THEIRS = pa.schema([("id", pa.int64()), ("theirs", pa.int64())])
CREATING = ["create.start", "create.claimed", "create.looked", "create.checked", "create.base"]
DROPPING = ["drop.changes", "drop.emptied", "drop.listed"]


class Died(BaseException):
    pass


@pytest.fixture(autouse=True)
def _slept_past_every_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lithify.lake.catalog.waited_for", lambda *args: contextlib.nullcontext())


@pytest.fixture
def rival(address: str) -> Iterator[Lake]:
    with Lake(address) as lake:
        yield lake


@contextlib.contextmanager
def interrupted(address: str, step: str, action: Callable[[], object]) -> Iterator[Lake]:
    store = InterruptedBucket()
    with Lake(address, store=store) as lake:
        store.actions[step] = action
        yield lake
    assert store.happened == [step]


def create(lake: Lake, columns: pa.Schema, **more: Any) -> None:
    lake.create_table("a.t", columns, key="id", **more)


def check_whole(lake: Lake, columns: pa.Schema, row: dict[str, Any]) -> None:
    """One schema, in both logs, that takes rows and folds them."""
    table = lake.table("a.t")
    assert table.schema.names == columns.names
    assert table._internals.handles.base.log.columns().names == columns.names
    table.upsert([row])
    table.fold()
    assert table.to_arrow().to_pylist() == [row]


@pytest.mark.parametrize("step", CREATING)
def test_of_two_who_create_a_table_one_does(address: str, rival: Lake, step: str) -> None:
    with interrupted(address, step, lambda: create(rival, THEIRS)) as lake, pytest.raises(Conflict):
        create(lake, OURS)
    with Lake(address) as another:
        check_whole(another, THEIRS, {"id": 1, "theirs": 2})


def test_who_slept_since_it_looked_creates_nothing(address: str) -> None:
    """A log that was made in the meantime may have been trimmed: then its first version is free again."""
    with pytest.MonkeyPatch.context() as clock:
        sleep = partial(clock.setattr, "lithify.lake.creation.LOOK_S_MAX", -1.0)
        with interrupted(address, "create.start", sleep) as lake, pytest.raises(Conflict):
            create(lake, OURS)
    with Lake(address) as lake:
        with pytest.raises(NotFound):
            lake.table("a.t")
        create(lake, OURS)
        check_whole(lake, OURS, {"id": 1, "ours": "a"})


@pytest.mark.parametrize("rivals", ["create.claimed", "create.base"])
@pytest.mark.parametrize("step", CREATING)
def test_who_dies_while_creating_stands_in_nobodys_way(address: str, rival: Lake, step: str, rivals: str) -> None:
    """Also while another one is at it, whose base may be below by then."""

    def die() -> None:
        raise Died

    def create_and_die() -> None:
        with interrupted(address, rivals, die) as dying, pytest.raises(Died):
            create(dying, THEIRS)

    with interrupted(address, step, create_and_die) as lake:
        try:
            create(lake, OURS)
        except Conflict:
            assert rival.tables() == []
            create(rival, OURS)
    check_whole(rival, OURS, {"id": 1, "ours": "x"})


def test_many_create_one_table_at_once(address: str, rival: Lake) -> None:
    columns = [pa.schema([("id", pa.int64()), (f"n{each}", pa.int64())]) for each in range(4)]
    barrier, outcomes = threading.Barrier(len(columns)), dict[int, object]()

    def race(number: int) -> None:
        with Lake(address) as lake:
            barrier.wait(60)
            try:
                create(lake, columns[number])
                outcomes[number] = True
            except LithifyError as error:
                outcomes[number] = error

    threads = [threading.Thread(target=race, args=(each,)) for each in range(len(columns))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    won = [number for number, outcome in outcomes.items() if outcome is True]
    assert all(isinstance(outcome, Conflict) for outcome in outcomes.values() if outcome is not True), outcomes
    if not won:  # each was overtaken by the next one's claim
        create(rival, columns[0])
        won = [0]
    assert len(won) == 1
    check_whole(rival, columns[won[0]], {"id": 1, f"n{won[0]}": 2})


@pytest.mark.parametrize("step", DROPPING)
def test_what_is_created_anew_is_not_cleared_away(address: str, rival: Lake, step: str) -> None:
    create(rival, OURS)
    rival.table("a.t").upsert([{"id": 1, "ours": "before"}])
    rival.table("a.t").fold()

    def create_anew() -> None:
        create(rival, THEIRS)
        rival.table("a.t").upsert([{"id": 7, "theirs": 8}])
        rival.table("a.t").fold()
        rival.table("a.t").upsert([{"id": 9, "theirs": 10}])
        rival.table("a.t").tag("kept")

    with interrupted(address, step, create_anew) as lake:
        lake.drop_table("a.t")
    with Lake(address) as another:
        rows = [{"id": 7, "theirs": 8}, {"id": 9, "theirs": 10}]
        assert sorted(another.table("a.t").to_arrow().to_pylist(), key=lambda row: row["id"]) == rows
        assert another.table("a.t").to_arrow(as_of="kept").num_rows == 2


@pytest.mark.parametrize("step", CREATING[1:])
def test_a_drop_ends_a_creation_that_is_under_way(address: str, rival: Lake, step: str) -> None:
    with interrupted(address, step, lambda: rival.drop_table("a.t")) as lake, pytest.raises(Conflict):
        create(lake, OURS)
    assert rival.tables() == []
    create(rival, THEIRS)
    check_whole(rival, THEIRS, {"id": 1, "theirs": 2})


def test_a_writer_that_slept_through_drop_and_create_is_refused(address: str, rival: Lake) -> None:
    create(rival, OURS)

    def anew() -> None:
        rival.drop_table("a.t")
        create(rival, OURS)

    with interrupted(address, "write.commit", anew) as lake, pytest.raises((NotFound, Conflict)):
        lake.table("a.t").upsert([{"id": 1, "ours": "late"}])
    assert rival.table("a.t").to_arrow().num_rows == 0
    with pytest.raises(Conflict, match="exists already"):
        create(rival, OURS)
    create(rival, OURS, if_not_exists=True)


def test_a_dropped_table_leaves_only_its_logs(address: str, rival: Lake) -> None:
    create(rival, OURS)
    table = rival.table("a.t")
    table.upsert([{"id": 1, "ours": "x"}])
    table.tag("x")
    table.fold()
    rival.drop_table("a.t")
    left = [
        path for path in rival._runtime.store.below(rival._runtime.root) if path.startswith(("a/", "_lithify/tags"))
    ]
    assert left
    assert all("/_delta_log/" in path and path.startswith("a/t/") for path in left)


# -- with rows

AS = "CREATE TABLE a.t (PRIMARY KEY (id)) AS SELECT 1 AS id, 'x' AS ours"


@pytest.mark.parametrize("step", [*CREATING, "write.files"])
def test_a_table_with_rows_and_another_come_one_after_the_other(address: str, rival: Lake, step: str) -> None:
    with interrupted(address, step, partial(create, rival, THEIRS)) as lake, contextlib.suppress(LithifyError):
        lake.execute(AS)
    with Lake(address) as anew:
        if anew.table("a.t").schema.names == THEIRS.names:
            assert anew.table("a.t").count() == 0
            check_whole(anew, THEIRS, {"id": 7, "theirs": 7})
        else:
            assert anew.table("a.t").to_arrow().to_pylist() == [{"id": 1, "ours": "x"}]


@pytest.mark.parametrize("step", [*CREATING, "write.files"])
def test_who_dies_creating_a_table_with_rows_leaves_none(address: str, step: str) -> None:
    def die() -> None:
        raise Died

    with contextlib.suppress(Died), interrupted(address, step, die) as lake:
        lake.execute(AS)
    with Lake(address) as anew:
        assert anew.tables() == []
        anew.execute(AS)
        assert anew.table("a.t").to_arrow().to_pylist() == [{"id": 1, "ours": "x"}]
