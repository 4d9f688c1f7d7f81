"""Updates that give some columns of a row and leave the others."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from lithify import InvalidRequest, Lake, Settings, Table
from support.bags import bag

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("s", pa.string()), ("it's", pa.int32())])
ORDERED = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
REQUIRED = pa.schema([("id", pa.int64()), pa.field("n", pa.int64(), nullable=False), ("s", pa.string())])


@pytest.fixture(params=[20_000_000, 1], ids=["merged in memory", "merged by the engine"])
def lake(folder: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    with Lake(folder / "lake", settings=Settings(resolve_rows_max=request.param)) as opened:
        yield opened


@pytest.fixture
def table(lake: Lake) -> Table:
    table = lake.create_table("a.t", COLUMNS, key="id")
    table.upsert([{"id": 1, "v": 1, "s": "a", "it's": 1}, {"id": 2, "v": 2, "s": "b", "it's": 2}])
    return table


def rows(table: Table) -> Any:
    return bag(table.to_arrow().to_pylist())


def whole(id: int, v: Any, s: Any, its: Any) -> dict[str, Any]:
    return {"id": id, "v": v, "s": s, "it's": its}


@pytest.mark.parametrize("folded", [False, True], ids=["pending", "folded"])
def test_columns_that_are_not_given_stay_and_null_is_a_value(table: Table, folded: bool) -> None:
    if folded:
        table.fold()
    commit = table.update([{"id": 1, "v": 10}, {"id": 2, "s": None, "it's": 20}, {"id": 3, "s": "new"}])

    assert (commit.operation, commit.rows) == ("update", 3)
    expected = bag([whole(1, 10, "a", 1), whole(2, 2, None, 20), whole(3, None, "new", None)])
    assert rows(table) == expected
    assert [table.get(id) for id in (1, 3, 4)] == [whole(1, 10, "a", 1), whole(3, None, "new", None), None]
    assert table.to_arrow(columns=["v"], where='"it\'s" = 20').to_pylist() == [{"v": 2}]
    table.fold()
    assert rows(table) == expected
    assert table.snapshot().pending_files == 0


def test_several_updates_of_a_row_compose_in_order_within_and_between_batches(table: Table) -> None:
    table.update([{"id": 1, "v": 5}, {"id": 1, "s": "x"}, {"id": 1, "v": 6}])
    table.update([{"id": 1, "it's": 9}])
    table.delete([2])
    table.update([{"id": 2, "v": 7}])

    assert rows(table) == bag([whole(1, 6, "x", 9), whole(2, 7, None, None)])


def test_frames_give_every_column_that_they_have(table: Table) -> None:
    table.update(pd.DataFrame({"id": [1], "v": [None]}))
    table.update(pa.table({"id": [2], "s": pa.array([None], pa.string())}))

    assert rows(table) == bag([whole(1, None, "a", 1), whole(2, 2, None, 2)])


def test_with_an_order_a_late_update_loses_column_by_column_of_what_it_was_late_for(lake: Lake) -> None:
    table = lake.create_table("a.o", ORDERED, key="id", order_by="at")
    table.upsert([{"id": 1, "at": 5, "v": 1, "s": "a"}])
    table.fold()
    table.update([{"id": 1, "at": 3, "v": 30}, {"id": 1, "at": 7, "s": "z"}, {"id": 2, "at": None, "v": 1}])
    table.update([{"id": 2, "at": 1, "s": "y"}, {"id": 2, "at": None, "v": 9}])

    expected = bag([{"id": 1, "at": 7, "v": 1, "s": "z"}, {"id": 2, "at": 1, "v": 1, "s": "y"}])
    assert rows(table) == expected
    table.fold()
    assert rows(table) == expected


def test_keys_that_are_not_there_are_skipped_or_refused_by_choice(table: Table) -> None:
    commit = table.update([{"id": 1, "v": 10}, {"id": 9, "v": 90}], missing="skip")
    assert commit.rows == 1
    seq = table.snapshot().seq
    with pytest.raises(InvalidRequest, match=r"1 key is not in table a.t, the first is id 9; nothing was written"):
        table.update([{"id": 1, "v": 11}, {"id": 9, "v": 90}], missing="refuse")

    assert rows(table) == bag([whole(1, 10, "a", 1), whole(2, 2, "b", 2)])
    assert table.update([{"id": 9, "v": 1}], missing="skip").rows == 0
    assert table.snapshot().seq == seq
    assert table.update([{"id": 2, "v": 22}], missing="refuse").seq == seq + 1


def test_an_update_of_keys_that_are_there_is_decided_again_when_it_lost(table: Table) -> None:
    """Eight writers who delete and update the same key: an update never brings a deleted row back."""

    def work(number: int) -> None:
        for _ in range(4):
            if number % 2:
                table.delete([1])
                table.upsert([whole(1, number, "again", number)])
            else:
                table.update([{"id": 1, "v": 100 + number}], missing="skip")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    row = table.get(1)
    assert row is not None
    assert row["s"] == "again"
    assert row["it's"] is not None


def test_a_batch_that_comes_again_is_answered_as_the_first_time(table: Table) -> None:
    first = table.update([{"id": 1, "v": 3}], "batch-1")
    table.upsert([whole(1, 4, "x", 4)])
    again = table.update([{"id": 1, "v": 3}], "batch-1")

    assert (again.seq, again.replayed) == (first.seq, True)
    assert table.get(1) == whole(1, 4, "x", 4)


def test_a_table_with_columns_that_need_a_value_says_what_to_do(lake: Lake) -> None:
    table = lake.create_table("a.r", REQUIRED, key="id")
    table.upsert([{"id": 1, "n": 1, "s": "a"}])
    with pytest.raises(InvalidRequest, match=r"give 'n', or, in `update`, say missing='skip' or missing='refuse'"):
        table.update([{"id": 1, "s": "b"}])
    with pytest.raises(InvalidRequest, match=r"column 'n' is null in an update"):
        table.update([{"id": 1, "n": None}, {"id": 1, "n": 2}])

    table.update([{"id": 1, "s": "b"}, {"id": 2, "s": "c"}], missing="skip")
    table.update([{"id": 3, "n": 3}])
    assert rows(table) == bag([{"id": 1, "n": 1, "s": "b"}, {"id": 3, "n": 3, "s": None}])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "the batch is empty"),
        ([{"v": 1}], "lack the key column 'id'"),
        ([{"id": None, "v": 1}], "key column 'id' is null"),
        ([{"id": 1, "w": 1}], "'w'"),
        ([{"id": 1, "v": "text"}], "column 'v'"),
    ],
)
def test_what_is_no_update_is_refused_and_nothing_changes(table: Table, given: Any, said: str) -> None:
    before, seq = rows(table), table.snapshot().seq
    with pytest.raises(InvalidRequest, match=said):
        table.update(given)
    assert (rows(table), table.snapshot().seq) == (before, seq)


def test_an_update_needs_the_order_and_a_key(lake: Lake, table: Table) -> None:
    ordered = lake.create_table("a.o", ORDERED, key="id", order_by="at")
    with pytest.raises(InvalidRequest, match=r"an update lacks the column 'at', which tells what is newer"):
        ordered.update([{"id": 1, "v": 1}])
    with pytest.raises(InvalidRequest, match="has no key, so there is nothing to update"):
        lake.create_table("a.k", COLUMNS).update([{"id": 1, "v": 1}])
    with pytest.raises(InvalidRequest, match=r"missing is one of 'insert', 'skip', 'refuse', not 'ignore'"):
        table.update([{"id": 1, "v": 1}], missing="ignore")  # type: ignore[arg-type]


def test_an_update_that_meets_no_row_makes_no_commit(table: Table) -> None:
    seq = table.snapshot().seq
    done = table.update([{"id": 9, "v": 1}], missing="skip", schema_fingerprint=table.definition.fingerprint)
    assert (done.rows, done.seq, table.snapshot().seq) == (0, seq, seq)


def test_changes_tell_which_columns_were_given(table: Table) -> None:
    seq = table.snapshot().seq
    assert "_given" not in table.changes(since=0).column_names
    table.update([{"id": 1, "v": 3}, {"id": 2}])

    found = table.changes(since=seq).to_pylist()
    assert [(row["id"], row["_op"], row["_given"]) for row in found] == [(1, "update", ["v"]), (2, "update", [])]


def test_time_travel_sees_the_columns_as_they_were(table: Table) -> None:
    table.update([{"id": 1, "v": 3}])
    between = table.snapshot().seq
    table.update([{"id": 1, "s": "later"}])
    table.fold()

    assert bag(table.to_arrow(as_of=between).to_pylist()) == bag([whole(1, 3, "a", 1), whole(2, 2, "b", 2)])


def test_a_column_that_is_added_later_is_not_touched_by_earlier_updates(table: Table) -> None:
    table.update([{"id": 1, "v": 3}])
    table.add_column(pa.field("more", pa.int64()))
    table.update([{"id": 1, "more": 5}])
    table.update([{"id": 1, "s": "z"}])

    assert table.get(1) == {**whole(1, 3, "z", 1), "more": 5}


def test_a_hot_table_follows_updates(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        table = lake.create_table("a.t", COLUMNS, key="id")
        table.upsert([whole(id, id, "a", id) for id in range(100)])
        lake.cache.pin("a.t", columns=["id", "v", "s"])
        table.update([{"id": 1, "v": -1, "it's": 0}, {"id": 200, "s": "new"}])

        found = lake.sql("select v, s from a.t where id in (1, 2, 200) order by id").to_pylist()
        assert found == [{"v": -1, "s": "a"}, {"v": 2, "s": "a"}, {"v": None, "s": "new"}]
        assert lake.cache.stats().hits


def test_small_changes_are_merged_into_one_file_that_says_the_same(lake: Lake, table: Table) -> None:
    from lithify.maintenance.merge_changes import ChangeMerger
    from lithify.maintenance.plans import MinorPlan

    for number in range(5):
        table.update([{"id": 1, "v": number}, {"id": number, "s": f"s{number}"}])
    before = rows(table)
    files = table.snapshot().changes
    internals = table._internals
    report = ChangeMerger(internals.handles, internals.reader).run(MinorPlan("a.t", files[1:], "", "", 1))

    assert report.files_written < report.files_read
    assert rows(table) == before
    table.fold()
    assert rows(table) == before


# -- if_changed


def test_lines_that_change_nothing_are_not_written(table: Table) -> None:
    table.fold()
    seq = table.snapshot().seq
    done = table.update([{"id": 1, "v": 1}, {"id": 2, "s": "b", "it's": 2}], if_changed=True)
    assert (done.seq, done.rows, done.skipped, table.snapshot().seq) == (seq, 0, 2, seq)
    done = table.update([{"id": 1, "v": 1, "s": "b"}, {"id": 2, "v": 2}, {"id": 3}], if_changed=True)
    assert (done.upserted, done.skipped) == (2, 1)
    assert rows(table) == bag([whole(1, 1, "b", 1), whole(2, 2, "b", 2), whole(3, None, None, None)])
    assert {line["id"] for line in table.feed(seq).to_pylist()} == {1, 3}


def test_a_null_that_is_given_is_a_value_to_compare(table: Table) -> None:
    assert table.update([{"id": 1, "s": None}], if_changed=True).skipped == 0
    assert table.update([{"id": 1, "s": None}], if_changed=True).skipped == 1


def test_lines_of_one_key_are_left_out_together_or_not_at_all(table: Table) -> None:
    assert table.update([{"id": 1, "v": 5}, {"id": 1, "v": 1}], if_changed=True).skipped == 0
    assert table.get(1) == whole(1, 1, "a", 1)
    done = table.update([{"id": 1, "v": 1}, {"id": 1, "s": "a"}], if_changed=True)
    assert (done.skipped, done.rows) == (2, 0)


@pytest.mark.parametrize("missing", ["skip", "refuse"])
def test_lines_that_change_nothing_and_keys_that_are_not_there(table: Table, missing: Any) -> None:
    lines = [{"id": 1, "v": 1}, {"id": 2, "v": 20}, {"id": 9, "v": 9}]
    if missing == "refuse":
        with pytest.raises(InvalidRequest, match="not in table"):
            table.update(lines, missing=missing, if_changed=True)
        lines = lines[:2]
    done = table.update(lines, missing=missing, if_changed=True)
    assert (done.upserted, done.skipped) == (1, 1)
    assert rows(table) == bag([whole(1, 1, "a", 1), whole(2, 20, "b", 2)])


def test_every_line_counts_on_a_table_with_merge_rules(lake: Lake) -> None:
    ruled = lake.create_table("a.r", COLUMNS, key="id", merge_rules={"v": "sum"})
    with pytest.raises(InvalidRequest, match="leave if_changed out"):
        ruled.update([{"id": 1, "v": 1}], if_changed=True)
