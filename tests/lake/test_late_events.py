"""Events that come late, after a delete that says when: they stay dead for `late_hours` after the fold, and what was
kept out once does not come back.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from lithify import Conflict, InvalidRequest, Lake, Settings, Table
from lithify.core.schema import ORDERED_DELETES_FORMAT
from lithify.jobs.jobs import forget_folded
from lithify.lake.internals import internals
from support.background import merge_changes

COLUMNS = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("v", pa.string())])
Row = dict[str, Any]
FORMAT = "lithify.format"


@pytest.fixture(params=[20_000_000, 1], ids=["in memory", "by the engine"])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    with Lake(tmp_path / "lake", settings=Settings(resolve_rows_max=request.param)) as opened:
        yield opened


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.create_table("a.t", COLUMNS, key="id", order_by="at")


def row(id: int, at: int | None, v: str = "") -> Row:
    return {"id": id, "at": at, "v": v}


def rows(table: Table) -> list[Row]:
    return sorted(table.to_arrow().to_pylist(), key=lambda found: found["id"])


def test_a_late_insert_after_a_delete_that_survived_compaction_stays_dead(table: Table) -> None:
    """Published elsewhere as: a late insert after a delete survives, once the tombstone was compacted away."""
    table.upsert([row(1, 3)])
    table.delete([1], at=5)
    table.fold()
    table.upsert([row(1, 4, "late")])
    table.update([{"id": 1, "at": 4, "v": "late"}])
    assert (rows(table), table.get(1)) == ([], None)
    table.fold()
    table.compact()
    assert rows(table) == []
    assert deltalake.DeltaTable(str(table.base_path)).to_pyarrow_table().num_rows == 0, "base is a plain table"


def test_equal_times_are_decided_by_arrival_and_never_at_random(table: Table) -> None:
    """Published elsewhere as: events with equal timestamps, and a random winner after compaction."""
    table.upsert([row(1, 5, "first")])
    table.delete([1, 2], at=5)
    table.upsert([row(2, 5, "after the delete")])
    expected = [row(2, 5, "after the delete")]
    assert rows(table) == expected
    merge_changes(table)
    assert rows(table) == expected
    table.fold()
    assert rows(table) == expected
    table.upsert([row(2, 4, "late")])
    table.fold()
    assert rows(table) == expected


def test_deletes_are_not_lost_between_a_buffer_and_its_file(table: Table) -> None:
    """Published elsewhere as: deletes that sat in the buffer of small writes were gone after its flush."""
    table.upsert([row(n, 1) for n in range(20)])
    table.fold()
    for n in range(0, 20, 2):
        table.delete([n], at=2)
        table.upsert([row(n, 1, "late")])
    merge_changes(table)
    left = [row(n, 1) for n in range(1, 20, 2)]
    assert rows(table) == left
    table.fold()
    assert rows(table) == left


def test_a_late_delete_of_something_newer_loses(table: Table) -> None:
    table.upsert([row(1, 7, "new")])
    table.fold()
    table.delete([1], at=6)
    assert rows(table) == [row(1, 7, "new")]
    table.fold()
    assert rows(table) == [row(1, 7, "new")]
    table.delete([1], at=7)
    assert rows(table) == []


def test_a_delete_without_at_forgets_what_came_before_it_also_when_all_is_folded(table: Table) -> None:
    table.delete([1], at=9)
    table.fold()
    table.delete([1])
    table.fold()
    table.upsert([row(1, 1, "anew")])
    assert rows(table) == [row(1, 1, "anew")]


def test_a_solid_load_does_not_bring_back_what_is_deleted(table: Table) -> None:
    """A first load is linked to base as it is, unless a remembered delete may keep some of it out."""
    table.delete([5], at=9)
    table.fold()
    table.upsert(pa.table({"id": range(40_000), "at": [1] * 40_000, "v": [""] * 40_000}))
    assert table.to_arrow().num_rows == 39_999
    assert table.fold().final_rows == 39_999


def test_what_is_deleted_is_forgotten_when_its_hours_are_over(table: Table) -> None:
    table.set_options({"late_hours": 0})
    table.delete([1, 2], at=5)
    table.upsert([row(1, 4, "late")])
    assert rows(table) == [], "pending deletes count as long as they are pending"
    table.fold()
    assert table.snapshot().remembered == ()
    table.upsert([row(1, 4, "later")])
    assert rows(table) == [row(1, 4, "later")]
    told = table.feed(since=0).select(["id", "v", "_kind"]).to_pylist()
    assert told == [{"id": 1, "v": "later", "_kind": "insert"}], "the feed says what the table says"


def test_what_was_kept_out_does_not_come_back_because_time_went_by(table: Table) -> None:
    table.delete([1], at=5)
    table.fold()
    table.upsert([row(1, 4, "late")])
    table.set_options({"late_hours": 0})
    seq = table.snapshot().seq
    forget_folded(internals(table).handles)
    assert rows(table) == [], "it is pending still, and was judged by that delete"
    table.fold()
    assert rows(table) == []
    assert table.to_arrow(as_of=seq).num_rows == 0


def test_the_feed_and_the_past_know_of_deletes_that_were_folded(table: Table) -> None:
    table.upsert([row(1, 1)])
    table.delete([1], at=5)
    table.fold()
    since = table.snapshot().seq
    table.upsert([row(1, 4, "late"), row(2, 1)])
    table.upsert([row(1, 6, "new")])
    told = [(line["id"], line["v"], line["_kind"]) for line in table.feed(since=since).to_pylist()]
    assert told == [(2, "", "insert"), (1, "new", "insert")]
    assert sorted(line["id"] for line in table.to_arrow(as_of=since + 1).to_pylist()) == [2]
    assert [line["_kind"] for line in table.feed(since=0).to_pylist()] == ["insert", "delete", "insert", "insert"]


def test_a_hot_table_keeps_late_events_out(lake: Lake, table: Table) -> None:
    table.upsert([row(n, 1) for n in range(3)])
    table.fold()
    lake.cache.pin("a.t")
    table.delete([1], at=5)
    assert [line["id"] for line in rows(table)] == [0, 2]
    table.upsert([row(1, 4, "late")])
    assert [line["id"] for line in rows(table)] == [0, 2]
    table.fold()
    table.upsert([row(1, 4, "late")])
    assert [line["id"] for line in rows(table)] == [0, 2]
    table.upsert([row(1, 5, "same")])
    assert [line["id"] for line in rows(table)] == [0, 1, 2]


def test_the_table_says_in_its_log_that_it_has_such_deletes(table: Table) -> None:
    def said() -> str:
        return deltalake.DeltaTable(str(Path(table.base_path).parent / "changes")).metadata().configuration[FORMAT]

    table.delete([1])
    assert said() == "1", "what an older version reads rightly it may read"
    table.delete([1], at=1)
    assert said() == str(ORDERED_DELETES_FORMAT)


@pytest.mark.parametrize("lake", [20_000_000], ids=["in memory"], indirect=True)
def test_what_is_remembered_stays_in_few_files(table: Table) -> None:
    """However many folds: those of about the same age become one, with what ends something and nothing else."""
    for number in range(24):
        table.delete([number], at=9)
        if number % 5 == 0:
            table.delete([number // 2])
            table.replace([row(number, 1, "anew")])
        table.fold()
        assert len(table.snapshot().remembered) <= 20
    before = rows(table)
    table.upsert([row(number, 8, "late") for number in range(24)])
    ended = {number // 2 for number in range(0, 24, 5)} | set(range(0, 24, 5))
    expected = dict.fromkeys(ended, "late")
    assert {found["id"]: found["v"] for found in rows(table)} == expected
    assert {found["id"] for found in before} <= ended
    table.fold()
    assert {found["id"]: found["v"] for found in rows(table)} == expected


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ("noon", "column 'at', row 0: 'noon' does not fit int64"),
        ([1], "1 values for 2 keys"),
        ([1, 2, 3], "3 values for 2 keys"),
        ([1, None], "`at` is null"),
        ({"at": 1}, "not a mapping"),
        (1.5, "does not fit int64"),
    ],
)
def test_a_delete_at_no_place_in_the_order_is_refused(table: Table, at: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        table.delete([1, 2], at=at)
    assert table.snapshot().seq == 0


def test_at_needs_order_by(lake: Lake) -> None:
    plain = lake.create_table("a.plain", COLUMNS, key="id")
    with pytest.raises(InvalidRequest, match=r"a\.plain has no order_by"):
        plain.delete([1], at=1)
    assert plain.snapshot().seq == 0


TIED = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("lsn", pa.string()), ("v", pa.string())])


def tied(id: int, at: int | None, lsn: str | None, v: str = "") -> Row:
    return {"id": id, "at": at, "lsn": lsn, "v": v}


def test_ties_are_broken_by_the_next_column_and_then_by_arrival(lake: Lake) -> None:
    table = lake.create_table("a.tied", TIED, key="id", order_by=["at", "lsn"])
    assert table.definition.order_by == ("at", "lsn")
    table.upsert([tied(1, 5, "b", "first"), tied(2, 5, "b", "first"), tied(3, 5, None, "first")])
    for fold in (False, True):
        if fold:
            table.fold()
        table.upsert([tied(1, 5, "a", "late"), tied(2, 4, "z", "late"), tied(3, 5, "", "newer")])
        assert {found["id"]: found["v"] for found in rows(table)} == {1: "first", 2: "first", 3: "newer"}
    table.upsert([tied(1, 5, "b", "same place, came later")])
    assert table.get(1)["v"] == "same place, came later"
    table.update([{"id": 1, "at": 5, "lsn": "a", "v": "late"}, {"id": 2, "at": 5, "lsn": "c", "v": "updated"}])
    assert (table.get(1)["v"], table.get(2)) == ("same place, came later", tied(2, 5, "c", "updated"))


def test_an_update_gives_every_column_that_tells_what_is_newer(lake: Lake) -> None:
    table = lake.create_table("a.tied", TIED, key="id", order_by=["at", "lsn"])
    with pytest.raises(InvalidRequest, match="an update lacks the column 'lsn', which tells what is newer"):
        table.update([{"id": 1, "at": 5, "v": "x"}])


def test_a_delete_has_a_place_among_ties_and_keeps_it_after_its_fold(lake: Lake) -> None:
    table = lake.create_table("a.tied", TIED, key="id", order_by=["at", "lsn"])
    table.upsert([tied(n, 5, "b") for n in (1, 2, 3)])
    table.delete([1, 2, 3], at=[(5, "a"), (5, "b"), {"at": 6, "lsn": ""}])
    assert [found["id"] for found in rows(table)] == [1], "of an equal place the delete came later"
    table.delete([1], at=(5, "c"))
    table.fold()
    table.upsert([tied(1, 5, "b", "late"), tied(2, 5, None, "late"), tied(3, 6, "", "same place, came later")])
    assert [found["v"] for found in rows(table)] == ["same place, came later"]
    table.fold()
    assert [found["v"] for found in rows(table)] == ["same place, came later"]


def test_a_table_with_several_order_columns_is_refused_by_those_who_know_one(lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("a.tied", TIED, key="id", order_by=("at", "lsn"))
    properties = deltalake.DeltaTable(tmp_path / "lake/a/tied/changes").metadata().configuration
    assert (properties[FORMAT], properties["lithify.order_columns"]) == ("7", '["at", "lsn"]')
    table.delete([1], at=(1, ""))
    assert deltalake.DeltaTable(tmp_path / "lake/a/tied/changes").metadata().configuration[FORMAT] == "7"
    with pytest.raises(InvalidRequest, match=r"'lsn' cannot be dropped: table a\.tied has it in its order_by"):
        table.drop_column("lsn")


def test_the_same_order_is_the_same_table(lake: Lake) -> None:
    made = lake.create_table("a.tied", TIED, key="id", order_by=["at", "lsn"])
    assert lake.create_table("a.tied", TIED, "id", ("at", "lsn"), if_not_exists=True).definition == made.definition
    for other in ("at", ["lsn", "at"]):
        with pytest.raises(Conflict, match=r"another order_by: it has at, lsn"):
            lake.create_table("a.tied", TIED, "id", other, if_not_exists=True)
    marked = {found["column"]: found["role"] for found in lake.sql("DESCRIBE a.tied").to_pylist()}
    assert (marked["at"], marked["lsn"], marked["v"]) == ("order_by", "order_by", None)
