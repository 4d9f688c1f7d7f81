"""Tags: versions that stay readable under a name, whatever vacuum and the limits of the logs do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Conflict, Corruption, InvalidRequest, Lake, NotFound, Settings, Table, Unavailable
from support.bucket_steps import InterruptedBucket
from support.clocks import Clock, lake_with
from support.faults import FaultyStore
from support.folders import memory_folder

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("v", pa.string())])
SETTINGS = Settings(checkpoint_every=3, log_commits_max=100, cache_bytes_max=0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder / "lake"


@pytest.fixture
def lake(path: Path, clock: Clock) -> Iterator[Lake]:
    with lake_with(clock, path, SETTINGS) as lake:
        lake.create_table("a.t", SCHEMA, key="id", partition_by=["day"])
        yield lake


def write(table: Table, number: int, v: str) -> None:
    table.upsert([{"id": number, "day": f"d{number % 2}", "v": v}], missing="null")


def rows(table: Table, as_of: str | None = None) -> dict[int, str]:
    return {row["id"]: row["v"] for row in table.to_arrow(as_of=as_of).to_pylist()}


def go_on(lake: Lake, clock: Clock) -> None:
    """So long that neither files nor commits of the time before are left."""
    table = lake.table("a.t")
    for number in range(8):
        write(table, number % 3, f"later {number}")
        table.fold()
    clock.jump(hours=500)
    table.vacuum(1, dry_run=False)
    for log in (table._internals.handles.changes.log, table._internals.handles.base.log):
        log.trim(clock.now_ms(), 1, 100)


def test_a_tagged_version_outlives_vacuum_and_the_log(lake: Lake, clock: Clock) -> None:
    table = lake.table("a.t")
    write(table, 1, "base")
    table.fold()
    write(table, 2, "pending")
    tag = table.tag("month-end")
    assert (tag.name, tag.table, tag.seq) == ("month-end", "a.t", 2)
    go_on(lake, clock)
    with pytest.raises(NotFound):
        table.to_arrow(as_of=2)
    assert rows(table, "month-end") == {1: "base", 2: "pending"}
    assert rows(table) == {0: "later 6", 1: "later 7", 2: "later 5"}
    assert lake.sql("select count(*) n from a.t", as_of="month-end").to_pylist() == [{"n": 2}]
    with Lake(lake.path) as another:
        assert rows(another.table("a.t"), "month-end") == {1: "base", 2: "pending"}
        assert [tag.name for tag in another.table("a.t").tags()] == ["month-end"]


def test_an_earlier_version_is_tagged_by_seq_or_by_another_tag(lake: Lake, clock: Clock) -> None:
    table = lake.table("a.t")
    write(table, 1, "first")
    write(table, 1, "second")
    assert table.tag("one", as_of=1).seq == 1
    assert table.tag("same", as_of="one").seq == 1
    table.untag("one")
    go_on(lake, clock)
    assert rows(table, "same") == {1: "first"}


def test_a_name_that_was_taken_away_protects_nothing(lake: Lake, clock: Clock) -> None:
    table = lake.table("a.t")
    write(table, 1, "first")
    table.tag("x")
    table.untag("x")
    assert table.tags() == []
    with pytest.raises(NotFound, match="has no tag 'x': it has none"):
        table.to_arrow(as_of="x")
    with pytest.raises(NotFound, match="has no tag"):
        table.untag("x")
    go_on(lake, clock)
    assert list((lake.path / "_lithify" / "tags").rglob("*.parquet")) == []


def test_columns_are_those_of_that_time(lake: Lake, clock: Clock) -> None:
    table = lake.table("a.t")
    write(table, 1, "first")
    table.tag("narrow")
    table.add_column(pa.field("n", pa.int64()))
    go_on(lake, clock)
    assert table.to_arrow(as_of="narrow").column_names == ["id", "day", "v"]


@pytest.mark.parametrize("name", ["", "1st", "2026-11-15", "a b", "a/b", "../x", "é", "x" * 65, "a@b"])
def test_what_could_be_a_seq_a_time_or_a_path_is_no_name(lake: Lake, name: str) -> None:
    with pytest.raises(InvalidRequest, match="is no name of a tag"):
        lake.table("a.t").tag(name)


def test_a_name_is_given_once(lake: Lake) -> None:
    table = lake.table("a.t")
    write(table, 1, "first")
    table.tag("x")
    write(table, 1, "second")
    with pytest.raises(Conflict, match="has a tag x of seq 1"):
        table.tag("x")
    assert rows(table, "x") == {1: "first"}


def test_tags_go_with_their_table(lake: Lake) -> None:
    table = lake.table("a.t")
    write(table, 1, "first")
    table.tag("x")
    lake.drop_table("a.t")
    again = lake.create_table("a.t", SCHEMA, key="id")
    assert again.tags() == []
    assert not (lake.path / "_lithify" / "tags" / "a.t").exists()


def test_a_tag_that_was_cut_off_is_none_and_can_be_made_again(path: Path, lake: Lake) -> None:
    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    write(lake.table("a.t"), 1, "first")
    with Lake(path, store=FaultyStore("tag.kept", die)) as dying, pytest.raises(Died):
        dying.table("a.t").tag("x")
    assert lake.table("a.t").tags() == []
    lake.table("a.t").tag("x")
    assert rows(lake.table("a.t"), "x") == {1: "first"}


def test_a_tag_that_cannot_be_read_stops_vacuum_and_says_so(lake: Lake) -> None:
    table = lake.table("a.t")
    write(table, 1, "first")
    table.tag("x")
    (lake.path / "_lithify" / "tags" / "a.t" / "x" / "tag.json").write_text("{")
    with pytest.raises(Corruption, match="may protect any file"):
        table.vacuum(1, dry_run=False)


@pytest.mark.bucket
def test_who_was_taken_for_dead_while_it_tagged_makes_no_tag(address: str) -> None:
    store = InterruptedBucket()
    with Lake(address, store=store) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id", partition_by=["day"])
        write(table, 1, "first")
        pins, tags = lake._runtime.control / "pins", lake._runtime.control / "tags/a.t"
        store.actions["tag.kept"] = lambda: store.delete_folder(pins)  # as a vacuum does with those of the dead

        with pytest.raises(Unavailable, match=r"tag x of table a\.t took so long that a vacuum"):
            table.tag("x")

        assert table.tags() == []
        assert store.names(tags) == ["x"]
        table.vacuum(1, dry_run=False)
        assert store.names(tags) == []
        table.tag("x")
        table.vacuum(1, dry_run=False)
        assert rows(table, "x") == {1: "first"}
