"""Feeds: rows and how far the feed has come are in one commit, so that what comes again changes nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import InvalidRequest, Lake, Settings, Unavailable
from lithify.lake.table import Commit, Table
from lithify.streams.apply import Checkpoint, apply_batch, checkpoint_of
from lithify.streams.sink import follows
from support.bags import bag
from support.faults import FaultyStore, Gate
from support.leftovers import unsettled
from support.moments import moments
from support.streams import PORTIONS, SCHEMA, Event, applied, bring, events_of, portion, send, table_of

FIRST = Checkpoint("stream.q", 0, None)


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake", settings=Settings(checkpoint_every=2)) as opened:
        yield opened


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.create_table("a.t", SCHEMA, key="id", order_by="at")


def expected(keyed: bool) -> Any:
    """What the portions leave, whoever brought them."""
    events = [event for number in range(PORTIONS) for event in portion(number)]
    if keyed:
        return bag(applied(event for event in events if event.id is not None).values())
    return bag(event.row for event in events)


def found(table: Table) -> Any:
    return bag(table.to_arrow().to_pylist())


def set_aside(table: Table) -> list[str]:
    files = sorted((table.base_path.parent / "quarantine").rglob("*.json"))
    return [json.loads(json.loads(line)["record"])["v"] for file in files for line in file.read_text().splitlines()]


# -- once


@pytest.mark.parametrize("key", ["id", pytest.param(None, marks=pytest.mark.slow)])
def test_a_feed_that_is_killed_at_any_step_and_goes_on_brings_every_row_once(folder: Path, key: str | None) -> None:
    child = folder / "child"
    with Lake(child / "lake", create=True) as lake:
        lake.create_table("a.t", SCHEMA, key=key, order_by="at" if key else None)
    left = moments(bring, str(child / "lake"), str(child / "told"), "a.t", folder=child, copies=folder / "left")
    assert len(left) > 10
    for moment in left:
        bring(None, str(moment.path / "lake"), str(moment.path / "told"), "a.t")

        with Lake(moment.path / "lake") as lake:
            table = lake.table("a.t")
            assert found(table) == expected(key is not None), str(moment)
            assert table.snapshot().seq == PORTIONS, str(moment)
            assert set_aside(table) == (["lost 0", "lost 1", "lost 3"] if key else []), str(moment)
            assert unsettled(moment.path / "lake") == [], str(moment)
        shutil.rmtree(moment.path)


def test_a_portion_that_comes_again_answers_as_the_first_time(table: Table) -> None:
    first = send(table, 0)

    again = send(table, 0)

    assert again == replace(first, replayed=True)
    assert (table.snapshot().seq, checkpoint_of(table._internals, "stream.q")) == (1, 0)


def test_a_portion_that_two_send_at_once_is_committed_by_one(folder: Path, table: Table) -> None:
    """The slower one has written its files, and finds the portion in the log at the version it wants to swap."""
    gate = Gate()
    with (
        Lake(folder / "lake", store=FaultyStore("write.commit", gate.hold)) as slow,
        ThreadPoolExecutor(1) as background,
    ):
        late = background.submit(send, slow.table("a.t"), 0)
        gate.wait()
        send(table, 0)
        send(table, 1)
        gate.open()
        assert late.result(60).replayed

    assert table.snapshot().seq == 2
    assert unsettled(folder / "lake") == []


def test_a_portion_that_is_overtaken_by_its_successor_is_not_committed_after_it(folder: Path, table: Table) -> None:
    """Another process goes on with the feed while this one sleeps: its own next portion no longer follows."""
    send(table, 0)
    gate = Gate()
    with (
        Lake(folder / "lake", store=FaultyStore("write.commit", gate.hold)) as slow,
        ThreadPoolExecutor(1) as background,
    ):
        jump = Checkpoint("stream.q", 9, 0)
        late = background.submit(
            apply_batch,
            slow.table("a.t")._internals,
            table_of(events_of(9, 3)),
            checkpoint=jump,
            mode="upsert",
            op_column="op",
        )
        gate.wait()
        send(table, 1)
        gate.open()
        with pytest.raises(InvalidRequest, match="stands at 1, but what comes now follows 0"):
            late.result(60)

    assert table.snapshot().seq == 2


def test_progress_outlives_folds_checkpoints_and_trimmed_logs(lake: Lake, table: Table) -> None:
    for number in range(PORTIONS):
        send(table, number)
        table.upsert([{"id": 1000 + number, "at": 1, "v": "another writer"}])
    table.fold()
    with Lake(lake.path) as another:
        assert checkpoint_of(another.table("a.t")._internals, "stream.q") == PORTIONS - 1
        assert send(another.table("a.t"), PORTIONS - 1).replayed


def test_a_portion_with_no_rows_is_a_commit_that_remembers_it(table: Table) -> None:
    commit = apply_batch(table._internals, table_of([]), checkpoint=FIRST, mode="upsert", op_column="op")

    assert (commit.seq, commit.rows, checkpoint_of(table._internals, "stream.q")) == (1, 0, 0)
    assert table.snapshot().changes == ()


def test_feeds_do_not_know_of_each_other(table: Table) -> None:
    send(table, 0, "stream.one")
    send(table, 1, "stream.one")
    send(table, 0, "pipeline.daily.revenue")
    assert [
        checkpoint_of(table._internals, name) for name in ("stream.one", "pipeline.daily.revenue", "stream.two")
    ] == [
        1,
        0,
        None,
    ]


def test_the_history_says_which_portion_a_commit_brought(table: Table) -> None:
    send(table, 0)
    entry = table.history(1)[0]
    assert (entry.operation, entry.detail) == ("stream", "stream.q 0, 1 record set aside")


# -- what does not belong together


def test_a_table_created_anew_remembers_nothing_of_its_predecessor(lake: Lake, table: Table) -> None:
    send(table, 0)
    lake.drop_table("a.t")
    anew = lake.create_table("a.t", SCHEMA, key="id", order_by="at")
    assert checkpoint_of(anew._internals, "stream.q") is None

    with pytest.raises(InvalidRequest, match=r"the table remembers nothing of it.*created anew"):
        send(anew, 1)
    assert not send(anew, 0).replayed


@pytest.mark.parametrize(
    ("checkpoint", "said"),
    [
        (Checkpoint("stream.q", 2, 1), "stands at 0, but what comes now follows 1: portions in between are missing"),
        (Checkpoint("stream.q", 1, 0, settings=5), r"begun with other settings \(mode, op_column\)"),
        (Checkpoint("stream.q", 0, None, settings=5), "begun with other settings"),
        (Checkpoint("stream.q", 1, 0, origin="checkpoint 2"), "reads from something else than it did"),
        (Checkpoint("stream.new", 1, 0), r"goes on after 0, but the table remembers nothing of it"),
    ],
)
def test_what_does_not_follow_is_refused_with_a_way_on(table: Table, checkpoint: Checkpoint, said: str) -> None:
    apply_batch(
        table._internals,
        table_of(portion(2)),
        checkpoint=replace(FIRST, origin="checkpoint 1"),
        mode="upsert",
        op_column="op",
    )

    with pytest.raises(InvalidRequest, match=said):
        apply_batch(table._internals, table_of(events_of(1, 3)), checkpoint=checkpoint, mode="upsert", op_column="op")

    assert table.snapshot().seq == 1


def test_an_origin_that_is_not_told_is_not_compared(table: Table) -> None:
    apply_batch(
        table._internals, table_of([]), checkpoint=replace(FIRST, origin="checkpoint 1"), mode="upsert", op_column="op"
    )
    assert send(table, 1).seq == 2


@pytest.mark.parametrize("feed", ["stream.", "stream.a b", "q", "stream.a.seq", "other.q", f"stream.{'x' * 300}", ""])
def test_a_feed_has_a_plain_name(feed: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot name a stream"):
        Checkpoint(feed, 0, None)


@pytest.mark.parametrize(("after", "before"), [(-1, None), (1, 1), (1, 2), (0, -1)])
def test_progress_only_goes_up(after: int, before: int | None) -> None:
    with pytest.raises(InvalidRequest, match="only goes up"):
        Checkpoint("stream.q", after, before)


# -- records with no key


def test_a_null_in_a_key_fails_the_portion_and_is_shown(table: Table) -> None:
    with pytest.raises(InvalidRequest, match=r'1 records of stream\.q 0 .*"v": "lost".*null_keys=\'quarantine\''):
        apply_batch(
            table._internals,
            table_of([Event(1, 1, "x"), Event(None, 1, "lost")]),
            checkpoint=FIRST,
            mode="upsert",
            op_column="op",
        )
    assert table.snapshot().seq == 0


def test_records_set_aside_are_written_again_by_a_portion_that_is_done_again(folder: Path, table: Table) -> None:
    def stop() -> None:
        raise OSError("stopped")

    with Lake(folder / "lake", store=FaultyStore("write.files", stop)) as failing, pytest.raises(OSError, match="stop"):
        send(failing.table("a.t"), 0)
    assert set_aside(table) == ["lost 0"]

    send(table, 0)

    assert set_aside(table) == ["lost 0"]
    assert (table.base_path.parent / "quarantine" / "stream.q-0" / "part-00000.json").is_file()


def test_records_set_aside_outlive_a_rival_that_dies_with_the_same_portion(folder: Path, table: Table) -> None:
    def stop() -> None:
        raise OSError("stopped")

    def overtaken() -> pa.Table:
        send(table, 0)
        return table_of(portion(0))

    with (
        Lake(folder / "lake", store=FaultyStore("store.write", stop)) as rival,
        pytest.raises(Unavailable, match="stop"),
    ):
        apply_batch(
            rival.table("a.t")._internals,
            overtaken,
            checkpoint=FIRST,
            mode="upsert",
            op_column="op",
            null_keys="quarantine",
        )

    assert checkpoint_of(table._internals, "stream.q") == 0
    assert set_aside(table) == ["lost 0"]


# -- columns that a feed does not have


def test_a_feed_of_updates_leaves_other_columns_and_deletes_in_order(lake: Lake) -> None:
    table = lake.create_table("a.u", pa.schema([("id", pa.int64()), ("v", pa.string()), ("w", pa.int64())]), key="id")
    table.upsert([{"id": id, "v": "old", "w": id} for id in range(5)])
    table.fold()
    texts = ["a", None, "again", "x", "c", "new"]
    events = pa.table({"id": [0, 1, 1, 2, 2, 9], "v": texts, "op": ["u", "d", "u", "u", "u", "i"]})

    def send() -> Commit:
        return apply_batch(table._internals, events, checkpoint=FIRST, mode="update", op_column="op")

    assert (send().replayed, send().replayed) == (False, True)
    expected = {0: ("a", 0), 1: ("again", None), 2: ("c", 2), 3: ("old", 3), 4: ("old", 4), 9: ("new", None)}
    assert {row["id"]: (row["v"], row["w"]) for row in table.to_arrow().to_pylist()} == expected


# -- wishes that cannot be


@pytest.mark.parametrize(
    ("name", "wishes", "said"),
    [
        ("a.t", {"mode": "merge"}, "mode 'merge' is not known: use append, upsert or update"),
        ("a.t", {"null_keys": "drop"}, "null_keys 'drop' is not known"),
        ("a.t", {"mode": "append", "op_column": "op"}, "mode append only adds"),
        ("a.t", {"rows_max": -1}, "rows_max -1 is negative"),
        ("a.t", {"first_epoch": -1}, "first_epoch -1 is negative"),
        ("a.t", {"name": "my stream"}, "cannot name a stream"),
        ("a.log", {"mode": "upsert"}, "table a.log has no key, so there is nothing to upsert by: use mode append"),
    ],
)
def test_a_stream_writer_refuses_what_cannot_be_at_once(
    lake: Lake, table: Table, name: str, wishes: dict[str, Any], said: str
) -> None:
    lake.create_table("a.log", pa.schema([("v", pa.string())]))
    with pytest.raises(InvalidRequest, match=said):
        lake.table(name).stream_writer(**wishes)


@pytest.mark.parametrize(
    ("epoch", "taken", "first", "before"),
    [(0, None, 0, None), (3, 2, 0, 2), (3, 3, 0, 2), (0, 0, 0, None), (7, None, 7, None), (7, 4, 7, 4), (7, 7, 7, 6)],
)
def test_an_epoch_follows_the_last_one_or_is_that(
    epoch: int, taken: int | None, first: int, before: int | None
) -> None:
    assert follows("a query", epoch, taken, first) == before


@pytest.mark.parametrize(
    ("epoch", "taken", "first", "said"),
    [
        (5, None, 0, "a query has not begun, and now brings 5: .*another table.*first_epoch=5"),
        (5, 3, 0, "a query has come to epoch 3, and now brings 5: epochs are missing"),
        (0, 4, 0, "a query has come to epoch 4, and now brings 0: its checkpoint folder was set back"),
        (3, 4, 3, "set back or begun anew"),
        (8, None, 7, "first_epoch=8"),
    ],
)
def test_any_other_epoch_is_refused_with_a_way_on(epoch: int, taken: int | None, first: int, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        follows("a query", epoch, taken, first)
