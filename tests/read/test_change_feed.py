"""The feed of a table: what each commit did to its rows, between two positions. Random programs: test_feed_model.py."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import InvalidRequest, Lake, NotFound, Settings, Table
from lithify.lake.internals import internals
from support.clocks import Clock, lake_with

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("v", pa.string())])


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as lake:
        yield lake


def row(key: int, v: str, at: int | None = 0) -> dict[str, Any]:
    return {"id": key, "at": at, "v": v}


def effects(feed: pa.Table) -> list[tuple[int, str, Any, Any]]:
    return [(r["_seq"], r["_kind"], r["id"], r["v"]) for r in feed.to_pylist()]


def busy(lake: Lake) -> Table:
    """Seqs 1 to 5, the first two of them folded."""
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.upsert([row(1, "one"), row(2, "two")])
    table.delete([1, 7])
    table.fold()
    table.upsert([row(1, "again"), row(2, "newer")])
    table.delete([2, 8])
    table.upsert([row(3, "three")])
    return table


# -- what a commit did


def test_each_row_says_what_became_of_it(lake: Lake) -> None:
    assert effects(busy(lake).feed(0)) == [
        (1, "insert", 1, "one"),
        (1, "insert", 2, "two"),
        (2, "delete", 1, "one"),
        (3, "insert", 1, "again"),
        (3, "update", 2, "newer"),
        (4, "delete", 2, "newer"),
        (5, "insert", 3, "three"),
    ]


def test_what_was_there_before_counts_and_is_shown_when_it_is_deleted(lake: Lake) -> None:
    table = busy(lake)
    table.fold()
    position = table.position()
    table.upsert([row(1, "changed"), row(9, "new")])
    table.delete([3])
    assert table.feed(position).to_pylist() == [
        {**row(1, "changed"), "_seq": 6, "_kind": "update"},
        {**row(9, "new"), "_seq": 6, "_kind": "insert"},
        {**row(3, "three"), "_seq": 7, "_kind": "delete"},
    ]


def test_a_feed_can_end_anywhere(lake: Lake) -> None:
    table = busy(lake)
    assert [seq for seq, *_ in effects(table.feed(2, 4))] == [3, 3, 4]
    assert table.feed(3, 3).num_rows == 0
    assert table.feed(5).num_rows == 0
    assert table.feed(5).schema == table.feed(0).schema


def test_an_update_comes_with_the_row_before_it(lake: Lake) -> None:
    table = busy(lake)
    table.upsert([row(3, "3"), row(1, "1")])
    assert effects(table.feed(2, before=True)) == [
        (3, "insert", 1, "again"),
        (3, "update_before", 2, "two"),
        (3, "update_after", 2, "newer"),
        (4, "delete", 2, "newer"),
        (5, "insert", 3, "three"),
        (6, "update_before", 1, "again"),
        (6, "update_after", 1, "1"),
        (6, "update_before", 3, "three"),
        (6, "update_after", 3, "3"),
    ]
    assert table.feed(5, columns=["v"], before=True).column("v").to_pylist() == ["again", "1", "three", "3"]


def test_the_row_before_an_update_is_the_one_that_won(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id", order_by="at")
    table.upsert([row(1, "first", 5)])
    table.fold()
    position = table.position()
    table.upsert([row(1, "late", 4)])
    table.upsert([row(1, "newer", 6)])
    assert effects(table.feed(position, before=True)) == [
        (3, "update_before", 1, "first"),
        (3, "update_after", 1, "newer"),
    ]


def test_a_late_update_that_lost_changed_nothing(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id", order_by="at")
    table.upsert([row(1, "first", 5)])
    table.fold()
    position = table.position()
    for v, at in (("late", 4), ("no time", None), ("equal", 5), ("late again", 4), ("newer", 6)):
        table.upsert([row(1, v, at)])
    table.replace([row(1, "replaced", 1)])
    table.upsert([row(1, "after", 2)])
    table.delete([1])
    table.upsert([row(1, "late, but alone", None)])
    assert effects(table.feed(position)) == [
        (4, "update", 1, "equal"),
        (6, "update", 1, "newer"),
        (7, "update", 1, "replaced"),
        (8, "update", 1, "after"),
        (9, "delete", 1, "after"),
        (10, "insert", 1, "late, but alone"),
    ]


def test_a_delete_shows_the_row_that_late_updates_did_not_beat(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id", order_by="at")
    table.upsert([row(1, "first", 5)])
    table.fold()
    position = table.position()
    table.upsert([row(1, "late", 4)])
    table.delete([1])
    assert effects(table.feed(position)) == [(3, "delete", 1, "first")]


def test_without_a_key_a_delete_shows_every_row_that_it_removed(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA)
    table.append([row(1, "a"), row(1, "a"), row(2, "b"), {"id": None, "at": 0, "v": "c"}])
    table.fold()
    position = table.position()
    table.append([row(1, "d"), row(3, "e")])
    table.delete([{"id": 1}, {"id": None}])
    table.append([row(1, "f")])
    table.fold()
    table.delete([{"v": "f"}, {"v": "b"}])
    found = effects(table.feed(position))
    assert sorted(found, key=repr) == sorted(
        [
            (2, "insert", 1, "d"),
            (2, "insert", 3, "e"),
            (3, "delete", 1, "a"),
            (3, "delete", 1, "a"),
            (3, "delete", 1, "d"),
            (3, "delete", None, "c"),
            (4, "insert", 1, "f"),
            (5, "delete", 1, "f"),
            (5, "delete", 2, "b"),
        ],
        key=repr,
    )


def test_without_a_key_a_delete_by_two_columns_meets_both(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA)
    table.append([row(1, "a"), row(1, "b"), {"id": None, "at": 0, "v": "a"}, {"id": None, "at": 0, "v": None}])
    table.fold()
    table.delete([{"id": 1, "v": "b"}, {"id": None, "v": None}, {"id": 1, "v": None}])
    assert [(key, v) for *_, key, v in effects(table.feed(1))] == [(1, "b"), (None, None)]


def test_a_row_that_two_kinds_of_tombstones_match_is_deleted_once(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA)
    table.append([row(1, "a"), row(2, "a")])
    table.fold()
    table.delete([{"id": 1}])
    table.fold()
    table.delete([{"v": "a"}])
    assert effects(table.feed(1)) == [(2, "delete", 1, "a"), (3, "delete", 2, "a")]


def test_tombstones_of_one_kind_do_not_take_rows_for_those_of_another(lake: Lake) -> None:
    """A tombstone by `v` says nothing of `id`, which is not the same as a null."""
    table = lake.create_table("a.t", SCHEMA)
    table.append([{"id": None, "at": 0, "v": "kept"}, row(1, "a")])
    table.delete([{"id": 1}])
    table.fold()
    table.delete([{"v": "nobody"}])
    assert effects(table.feed(1)) == [(2, "delete", 1, "a")]


def test_older_rows_are_null_in_a_column_that_was_added(lake: Lake) -> None:
    table = busy(lake)
    position = table.position()
    table.add_column(pa.field("more", pa.int32()))
    table.delete([1])
    table.upsert([{**row(3, "three"), "more": 3}])
    assert [r["more"] for r in table.feed(position).to_pylist()] == [None, 3]
    assert table.feed(0).column("more").to_pylist()[:-1] == [None] * 8


def test_without_a_key_a_delete_by_an_added_column_meets_older_rows_where_it_is_null(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA)
    table.append([row(1, "a"), row(2, "b")])
    table.fold()
    position = table.position()
    table.add_column(pa.field("more", pa.int32()))
    table.append([{**row(3, "c"), "more": 3}])
    table.delete([{"more": 3}])
    assert [seq for seq, kind, *_ in effects(table.feed(position)) if kind == "delete"] == [3]
    table.delete([{"more": None}])
    assert [(kind, key) for _, kind, key, _ in effects(table.feed(3))] == [("delete", 1), ("delete", 2)]


def test_rows_of_an_adopted_base_were_there_before(lake: Lake, folder: Path) -> None:
    with Lake(folder / "other") as other:
        source = other.create_table("a.t", SCHEMA, key="id")
        source.upsert([row(1, "one"), row(2, "two")])
        source.fold()
        path = shutil.copytree(source.base_path, folder / "theirs")
    lake.adopt("a.t", path, key="id")
    table = lake.table("a.t")
    position = table.position()
    table.upsert([row(1, "changed")])
    table.delete([2])
    assert [(kind, key, v) for _, kind, key, v in effects(table.feed(position))] == [
        ("update", 1, "changed"),
        ("delete", 2, "two"),
    ]


@pytest.mark.parametrize("resolve_rows_max", [20_000_000, 1])
def test_pending_rows_count_as_much_as_folded_ones(folder: Path, resolve_rows_max: int) -> None:
    with Lake(folder / "lake", settings=Settings(resolve_rows_max=resolve_rows_max)) as lake:
        table = busy(lake)
        table.upsert([row(1, "x"), row(4, "four")])
        table.delete([3])
        assert effects(table.feed(5)) == [(6, "update", 1, "x"), (6, "insert", 4, "four"), (7, "delete", 3, "three")]


@pytest.mark.parametrize(
    "values",
    [
        (pa.int8(), [-1, 0, 1]),
        (pa.string(), ["", "é", "z" * 80]),
        (pa.binary(), [b"", b"\x00", b"\xff\xfe"]),
        (pa.bool_(), [False, True]),
        (pa.date32(), [dt.date(1, 1, 1), dt.date(2026, 11, 15)]),
        (pa.timestamp("us"), [dt.datetime(1970, 1, 1), dt.datetime(2026, 11, 15, 1, 2, 3, 4)]),
        (pa.timestamp("us", "UTC"), [dt.datetime(2026, 11, 15, hour, tzinfo=dt.UTC) for hour in (0, 1)]),
        (pa.decimal128(38, 4), [Decimal("-1.5"), Decimal("12345678901234567890.1234")]),
    ],
    ids=lambda values: str(values[0]),
)
def test_keys_and_order_values_of_every_type(lake: Lake, values: tuple[pa.DataType, list[Any]]) -> None:
    kind, members = values
    low, high = members[0], members[-1]
    keyed = lake.create_table("a.keyed", pa.schema([("k", kind), ("n", pa.int64()), ("v", pa.int64())]), key=["k", "n"])
    keyed.upsert([{"k": member, "n": 1, "v": 1} for member in members])
    keyed.fold()
    keyed.upsert([{"k": low, "n": 1, "v": 2}, {"k": low, "n": 2, "v": 2}])
    keyed.delete([(high, 1), (high, 2)])
    assert [(r["_kind"], r["k"], r["n"], r["v"]) for r in keyed.feed(1).to_pylist()] == [
        ("update", low, 1, 2),
        ("insert", low, 2, 2),
        ("delete", high, 1, 1),
    ]
    ordered = lake.create_table("a.ordered", pa.schema([("k", pa.int64()), ("o", kind)]), key="k", order_by="o")
    ordered.upsert([{"k": 1, "o": high}])
    ordered.fold()
    for value in (low, None, high):
        ordered.upsert([{"k": 1, "o": value}])
    assert [(r["_seq"], r["_kind"]) for r in ordered.feed(1).to_pylist()] == [(4, "update")]


@pytest.mark.parametrize("key", ["b", "k", "e"])
def test_a_key_may_have_any_name(lake: Lake, key: str) -> None:
    table = lake.create_table("a.t", pa.schema([(key, pa.int64()), ("v", pa.string())]), key=key)
    table.upsert([{key: 1, "v": "one"}, {key: 2, "v": "two"}])
    table.fold()
    table.delete([1])
    table.upsert([{key: 2, "v": "newer"}])

    found = [(r["_kind"], r[key], r["v"]) for r in table.feed(1).to_pylist()]

    assert found == [("delete", 1, "one"), ("update", 2, "newer")]


def test_nested_values_come_through(lake: Lake) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("list", pa.list_(pa.int32())),
            ("struct", pa.struct([("a", pa.string())])),
            ("map", pa.map_(pa.string(), pa.int64())),
        ]
    )
    table = lake.create_table("a.t", schema, key="id")
    table.upsert([{"id": 1, "list": [1, None], "struct": {"a": "x"}, "map": [("k", 1)]}])
    table.fold()
    table.delete([1])
    (shown,) = table.feed(1).to_pylist()
    assert (shown["list"], shown["struct"], shown["map"]) == ([1, None], {"a": "x"}, [("k", 1)])


def test_only_the_wanted_columns(lake: Lake) -> None:
    feed = busy(lake).feed(2, columns=["v"])
    assert feed.column_names == ["v", "_seq", "_kind"]
    assert feed.column("v").to_pylist() == ["again", "newer", "newer", "three"]
    with pytest.raises(InvalidRequest, match=r"column 'colour' is not in table a\.t"):
        lake.table("a.t").feed(0, columns=["colour"])
    with pytest.raises(InvalidRequest, match="columns names none"):
        lake.table("a.t").feed(0, columns=[])


def test_only_deleted_rows_are_read_whole(lake: Lake, folder: Path) -> None:
    """The first write has files of its own key range; a later one that meets none of them reads none of them."""
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.upsert([row(1, "one")])
    table.fold()
    for path in table.base_path.rglob("part-*.parquet"):
        path.write_bytes(b"no Parquet".ljust(path.stat().st_size, b"."))
    table.upsert([row(100, "far away")])
    assert effects(table.feed(1)) == [(2, "insert", 100, "far away")]


# -- batches


def test_a_batch_is_some_whole_commits(lake: Lake) -> None:
    table = busy(lake)
    assert [internals(table).feed.until(0, rows_max) for rows_max in (1, 2, 3, 4, 5, 6, 100)] == [1, 1, 2, 2, 3, 3, 5]
    assert internals(table).feed.until(table.position(as_of=4), 1) == 5
    assert internals(table).feed.until(5, 1) == 5


def test_batches_together_are_the_feed(lake: Lake) -> None:
    table = busy(lake)
    since, parts = 0, []
    while (until := internals(table).feed.until(since, 1)) > since:
        parts.append(table.feed(since, until))
        since = until
    assert pa.concat_tables(parts).to_pylist() == table.feed(0).to_pylist()


def test_commits_without_rows_are_passed(lake: Lake) -> None:
    table = busy(lake)
    table.delete_where("id = 99", batch_id="nothing")
    assert internals(table).feed.until(5, 1) == table.snapshot().seq == 6
    assert table.feed(5).num_rows == 0


@pytest.mark.parametrize("rows_max", [0, -1, True, "5", None])
def test_a_batch_of_no_rows_is_refused(lake: Lake, rows_max: Any) -> None:
    with pytest.raises(InvalidRequest, match="rows_max"):
        internals(busy(lake)).feed.until(0, rows_max)


def test_the_earlier_way_to_a_batch_says_that_it_will_go(lake: Lake) -> None:
    table = busy(lake)
    with pytest.warns(DeprecationWarning, match="give feed a seq as until"):
        assert table.feed_until(0, 3) == 2
    assert "feed_until" not in dir(table)


# -- net


def test_the_net_effect_has_each_key_once(lake: Lake) -> None:
    net = busy(lake).latest_changes(0)
    assert net.rows.sort_by("id").to_pylist() == [row(1, "again"), row(3, "three")]
    assert sorted(net.deleted.column("id").to_pylist()) == [2, 7, 8]
    assert net.deleted.column_names == ["id"]
    assert net.until == 5


def test_the_net_effect_needs_no_rows_from_before(lake: Lake) -> None:
    table = busy(lake)
    for path in table.base_path.rglob("part-*.parquet"):
        path.unlink()
    assert lake.table("a.t").latest_changes(2).rows.num_rows == 2


def test_the_net_effect_of_late_rows_is_none(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id", order_by="at")
    table.upsert([row(1, "first", 5), row(2, "second", 5)])
    table.upsert([row(1, "late", 4), row(2, "newer", 6)])
    net = table.latest_changes(1)
    assert (net.rows.to_pylist(), net.deleted.num_rows) == ([row(2, "newer", 6)], 0)


def test_nothing_happened(lake: Lake) -> None:
    net = busy(lake).latest_changes(5)
    assert (net.rows.num_rows, net.deleted.num_rows, net.until) == (0, 0, 5)
    assert net.rows.column_names == SCHEMA.names


def test_without_a_key_there_is_no_net_effect(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA)
    with pytest.raises(InvalidRequest, match="use feed"):
        table.latest_changes(0)


# -- positions


def test_a_full_read_as_of_a_position_then_its_feed_is_everything(lake: Lake) -> None:
    table = busy(lake)
    position = table.position()
    table.upsert([row(1, "late to the party")])
    assert sorted(table.to_arrow(as_of=position).column("id").to_pylist()) == [1, 3]
    assert effects(table.feed(position)) == [(6, "update", 1, "late to the party")]
    assert table.position(as_of=5) == position
    assert position.startswith("a.t@")
    assert position.endswith(":5")


def test_a_position_outlives_the_process(lake: Lake, folder: Path) -> None:
    position = busy(lake).position(as_of=4)
    with Lake(folder / "lake") as again:
        assert effects(again.table("a.t").feed(position)) == [(5, "insert", 3, "three")]


READS = {
    "feed": lambda table, since: table.feed(since),
    "feed_until": lambda table, since: internals(table).feed.until(since, 10),
    "net": lambda table, since: table.latest_changes(since),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("since", [6, -1, True, None, 1.0, "yesterday", "a.t@zzzzzzzz:1", "6"])
def test_a_bad_since_is_refused(lake: Lake, read: str, since: Any) -> None:
    table = busy(lake)
    with pytest.raises(InvalidRequest, match=r"table a\.t|is no position"):
        READS[read](table, since)


@pytest.mark.parametrize("until", [6, -1, True, 1.0, "yesterday"])
def test_a_bad_until_is_refused(lake: Lake, until: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"newest seq is 5|table a\.t|is no position"):
        busy(lake).feed(0, until)


def test_an_end_before_the_beginning_is_refused(lake: Lake) -> None:
    with pytest.raises(InvalidRequest, match="since 4 comes after until 2"):
        busy(lake).feed(4, 2)


@pytest.mark.parametrize("read", READS)
def test_a_position_of_another_table_is_refused(lake: Lake, read: str) -> None:
    position = busy(lake).position(as_of=1)
    other = lake.create_table("a.other", SCHEMA, key="id")
    for _ in range(3):
        other.upsert([row(1, "one")])
    with pytest.raises(InvalidRequest, match=r"is of table a\.t, not of a\.other"):
        READS[read](other, position)


@pytest.mark.parametrize("read", READS)
def test_a_position_of_a_table_that_was_created_again_is_refused(lake: Lake, read: str) -> None:
    position = busy(lake).position(as_of=1)
    lake.drop_table("a.t")
    again = busy(lake)
    with pytest.raises(InvalidRequest, match="dropped and created again since"):
        READS[read](again, position)
    assert [seq for seq, *_ in effects(again.feed(0))] == [6, 6, 7, 8, 8, 9, 10], "a seq of before is the beginning"


def test_a_table_that_was_dropped_says_so(lake: Lake) -> None:
    table = busy(lake)
    lake.drop_table("a.t")
    with pytest.raises(NotFound, match="dropped"):
        table.feed(0)


# -- what is gone


def test_what_vacuum_has_passed_says_how_to_start_again(folder: Path) -> None:
    clock = Clock()
    with lake_with(clock, folder / "lake") as lake:
        table = busy(lake)
        old = table.position(as_of=1)
        table.fold()
        assert effects(table.feed(old))[0] == (2, "delete", 1, "one")
        clock.jump(hours=200)
        table.upsert([row(5, "five")])
        table.vacuum(dry_run=False)

        for read in ("feed", "net"):
            with pytest.raises(
                NotFound, match=r"table a\.t .* no longer complete.* Start again: .* as of its position"
            ):
                READS[read](table, old)
        position = table.position()
        assert sorted(table.to_arrow(as_of=position).column("id").to_pylist()) == [1, 3, 5]
        table.upsert([row(1, "on we go")])
        assert effects(table.feed(position)) == [(7, "update", 1, "on we go")]


def test_rows_that_vacuum_took_from_before_are_missed_only_where_they_count(folder: Path) -> None:
    clock = Clock()
    with lake_with(clock, folder / "lake") as lake:
        table = busy(lake)
        table.fold()
        clock.jump(hours=200)
        table.vacuum(dry_run=False)
        table.upsert([row(1, "newest")])
        assert effects(table.feed(5)) == [(6, "update", 1, "newest")]


def test_an_idle_table_whose_log_was_trimmed_goes_on_from_its_newest_seq(folder: Path) -> None:
    clock = Clock()
    with lake_with(clock, folder / "lake", Settings(checkpoint_every=4)) as lake:
        table = busy(lake)
        position = table.position()
        for level in range(1, 9):  # commits that repeat seq 5
            table.set_options({"compression_level": level})
        clock.jump(hours=48)
        for log in (table._internals.handles.changes.log, table._internals.handles.base.log):
            log.trim(clock.now_ms(), retain_hours=24, commits_max=10_000)
        with pytest.raises(NotFound, match="no longer in its log"):
            table.to_arrow(as_of=5)

        table.upsert([row(1, "newest")])
        table.delete([3])

        assert effects(table.feed(position)) == [(6, "update", 1, "newest"), (7, "delete", 3, "three")]
        with pytest.raises(NotFound, match="Start again"):
            table.feed(3)
