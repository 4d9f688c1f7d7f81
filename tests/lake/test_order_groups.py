"""Two sources feed one row: each group of columns goes by an order of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from lithify import Conflict, InvalidRequest, Lake, NotFound, Settings, Table
from support.background import merge_changes

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("price", pa.int64()),
        ("currency", pa.string()),
        ("price_ts", pa.int64()),
        ("stock", pa.int64()),
        ("stock_ts", pa.int64()),
        ("note", pa.string()),
    ]
)
GROUPS = {"price_ts": ["price", "currency"], "stock_ts": ["stock"]}
Row = dict[str, Any]


@pytest.fixture(params=[20_000_000, 1], ids=["in memory", "by the engine"])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    with Lake(tmp_path / "lake", settings=Settings(resolve_rows_max=request.param, minor_files_min=2)) as opened:
        yield opened


@pytest.fixture
def items(lake: Lake) -> Table:
    return lake.create_table("shop.items", COLUMNS, key="id", order_groups=GROUPS, options={"missing_columns": "null"})


def priced(price: int, at: int | None, id: int = 1, currency: str = "EUR") -> Row:
    return {"id": id, "price": price, "currency": currency, "price_ts": at}


def stocked(stock: int, at: int | None, id: int = 1) -> Row:
    return {"id": id, "stock": stock, "stock_ts": at}


def seen(table: Table, id: int = 1) -> tuple[Any, ...]:
    """Price and stock with their times, the same by every way to read."""
    row = table.get(id)
    assert row is not None
    assert table.to_arrow(where=f"id = {id}").to_pylist() == [row]
    assert table.to_arrow(["price"], where=f"id = {id}").to_pylist() == [{"price": row["price"]}]
    return row["price"], row["currency"], row["price_ts"], row["stock"], row["stock_ts"]


def test_each_group_keeps_its_own_winner(items: Table) -> None:
    items.upsert([priced(10, 5)])
    items.upsert([stocked(3, 7)])
    assert seen(items) == (10, "EUR", 5, 3, 7), "who does not know a group leaves it as it is"
    items.upsert([priced(8, 4, currency="USD")])
    items.upsert([{**priced(12, 6, currency="CHF"), **stocked(99, 6)}])
    assert seen(items) == (12, "CHF", 6, 3, 7), "late in one group, newest in the other"
    for _ in range(2):
        items.fold()
        items.upsert([stocked(4, 6), priced(1, 5), stocked(5, 8)])
        assert seen(items) == (12, "CHF", 6, 5, 8)


def test_of_equal_values_the_last_one_written_wins(items: Table) -> None:
    items.upsert([priced(1, 5), priced(2, 5)])
    assert seen(items)[0] == 2
    items.upsert([priced(3, 5)])
    items.fold()
    items.upsert([priced(4, 5)])
    assert seen(items)[0] == 4


def test_null_says_nothing_of_the_group_and_a_group_is_never_mixed(items: Table) -> None:
    items.upsert([priced(1, None)])
    assert seen(items) == (None, None, None, None, None)
    items.upsert([{"id": 1, "price": 2, "currency": None, "price_ts": 3}])
    items.upsert([priced(9, None), {**priced(7, 2), **stocked(1, 1)}])
    assert seen(items) == (2, None, 3, 1, 1), "null of the newest line is a value"


def test_what_is_in_no_group_goes_by_arrival(items: Table) -> None:
    items.upsert([{**priced(1, 5), "note": "a"}])
    items.update([{"id": 1, "note": "b"}])
    items.upsert([{**priced(2, 4), "note": "c"}])
    assert (items.get(1)["note"], items.get(1)["price"]) == ("c", 1)
    items.upsert([stocked(1, 1)])
    assert items.get(1)["note"] is None, "a row that is upserted says all columns that are in no group"


def test_an_update_gives_a_group_as_a_whole_or_not_at_all(items: Table) -> None:
    items.upsert([{**priced(1, 5), "note": "a"}])
    items.update([stocked(7, 1), {"id": 2, "note": "new"}])
    items.update([priced(2, 4), priced(3, 6, id=2)])
    assert seen(items) == (1, "EUR", 5, 7, 1)
    assert items.get(1)["note"] == "a"
    assert seen(items, 2) == (3, "EUR", 6, None, None)
    before = items.snapshot().seq
    for row, said in (
        ({"id": 1, "price": 5}, r"gives 'price' and lacks 'price_ts'.*give all of price_ts, price, currency, or none"),
        ({"id": 1, "price_ts": 9, "price": 5}, "gives 'price_ts' and lacks 'currency'"),
        ({"id": 1, "stock_ts": 9}, "gives 'stock_ts' and lacks 'stock'"),
    ):
        with pytest.raises(InvalidRequest, match=said):
            items.update([row])
    assert items.snapshot().seq == before


def test_a_delete_takes_the_whole_row_and_what_comes_after_it_begins_anew(items: Table) -> None:
    for fold in (False, True):
        items.upsert([{**priced(1, 50), **stocked(1, 50)}])
        items.delete([1])
        if fold:
            items.fold()
        assert items.get(1) is None
        items.upsert([priced(2, 3)])
        assert seen(items) == (2, "EUR", 3, None, None), "late or not: a delete has no place in the orders of groups"
        items.delete([1])
    with pytest.raises(InvalidRequest, match="has no order_by"):
        items.delete([1], at=9)


def test_replace_sets_the_row_and_later_lines_are_held_against_it(items: Table) -> None:
    items.upsert([{**priced(1, 50), **stocked(1, 50)}])
    items.replace([{**priced(2, 5), "stock": 8}])
    assert seen(items) == (2, "EUR", 5, 8, None)
    items.upsert([{**priced(3, 4), **stocked(9, None)}])
    assert seen(items) == (2, "EUR", 5, 8, None)
    items.upsert([{**priced(3, 6), **stocked(9, 1)}])
    assert seen(items) == (3, "EUR", 6, 9, 1)
    items.fold()
    items.replace([{"id": 1, "price": 4}])
    items.upsert([priced(5, 0)])
    assert seen(items) == (5, "EUR", 0, None, None)


def test_time_travel_and_the_feed_show_what_was_known_then(items: Table) -> None:
    first = items.upsert([priced(1, 5)]).seq
    second = items.upsert([{**priced(2, 4), **stocked(3, 9)}]).seq
    items.fold()
    third = items.upsert([{**priced(4, 6), **stocked(5, 8)}]).seq
    known = {first: (1, None), second: (1, 3), third: (4, 3)}
    for seq, (price, stock) in known.items():
        (row,) = items.to_arrow(as_of=seq).to_pylist()
        assert (row["price"], row["stock"]) == (price, stock)
    told = [(row["_seq"], row["_kind"], row["price"], row["stock"]) for row in items.feed(since=0).to_pylist()]
    assert told == [(first, "insert", 1, None), (second, "update", 1, 3), (third, "update", 4, 3)]
    told = [(row["_seq"], row["stock"]) for row in items.feed(since=first).to_pylist()]
    assert told == [(second, 3), (third, 3)]


def test_change_files_may_be_merged_because_a_line_that_counts_twice_counts_once(items: Table) -> None:
    for at in (3, 9, 1, 9):
        items.upsert([{**priced(at * 10, at), **stocked(at, 10 - at)}])
    merge_changes(items)
    assert len(items.snapshot().changes) == 1
    assert seen(items) == (90, "EUR", 9, 1, 9)
    items.fold()
    assert seen(items) == (90, "EUR", 9, 1, 9)


@pytest.mark.parametrize("columns", [None, ["price", "stock"]], ids=["all columns", "without those that decide"])
def test_a_hot_table_takes_in_what_is_written(lake: Lake, items: Table, columns: list[str] | None) -> None:
    items.upsert([{**priced(1, 5), **stocked(2, 5)}])
    items.fold()
    lake.cache.pin("shop.items", columns)
    query = "SELECT price, stock FROM shop.items"
    assert lake.sql(query).to_pylist() == [{"price": 1, "stock": 2}]
    items.upsert([{**priced(7, 4), **stocked(8, 6)}])
    assert lake.sql(query).to_pylist() == [{"price": 1, "stock": 8}]


def test_sql_sets_rows_as_they_are(lake: Lake, items: Table) -> None:
    items.upsert([priced(1, 5)])
    lake.execute("UPDATE shop.items SET price = 2 WHERE id = 1")
    assert seen(items)[:3] == (2, "EUR", 5)
    items.upsert([priced(3, 4)])
    assert seen(items)[:3] == (2, "EUR", 5)


def test_groups_go_with_merge_rules_of_other_columns(lake: Lake) -> None:
    columns = COLUMNS.append(pa.field("views", pa.int64()))
    sparse = {"missing_columns": "null"}
    table = lake.create_table(
        "a.t", columns, key="id", merge_rules={"views": "sum"}, order_groups=GROUPS, options=sparse
    )
    table.upsert([{**priced(1, 5), "views": 2}, {**priced(2, 4), "views": 3}])
    table.fold()
    table.upsert([{**stocked(1, 1), "views": 4}])
    assert (table.get(1)["price"], table.get(1)["stock"], table.get(1)["views"]) == (1, 1, 9)


# -- what is declared


def test_a_table_says_its_groups_in_a_format_that_others_refuse(lake: Lake, items: Table, tmp_path: Path) -> None:
    properties = deltalake.DeltaTable(tmp_path / "lake/shop/items/changes").metadata().configuration
    assert properties["lithify.format"] == "8"
    with Lake(tmp_path / "lake") as again:
        found = again.table("shop.items").definition
    assert found == items.definition
    assert found.order_groups == {"price_ts": ("price", "currency"), "stock_ts": ("stock",)}
    roles = {row["column"]: row["role"] for row in lake.sql("DESCRIBE shop.items").to_pylist()}
    assert (roles["price"], roles["price_ts"], roles["note"]) == ("newest(price_ts)", "newest(price_ts)", None)
    assert lake.create_table("shop.items", COLUMNS, "id", order_groups=GROUPS, if_not_exists=True).name == "shop.items"
    with pytest.raises(
        Conflict, match="exists with other order groups: it has price_ts=price,currency; stock_ts=stock"
    ):
        lake.create_table("shop.items", COLUMNS, "id", if_not_exists=True)


@pytest.mark.parametrize(
    ("groups", "more", "said"),
    [
        ({"nix": ["price"]}, {}, "order group of 'nix' names 'nix', which is no column of the table"),
        ({"price_ts": ["prise"]}, {}, "names 'prise', which is no column of the table: did you mean 'price'"),
        ({"price_ts": ["id"]}, {}, "column 'id' is in key"),
        ({"id": ["price"]}, {}, "column 'id' is in key"),
        ({"price_ts": ["note"]}, {"partition_by": "note"}, "column 'note' is in partition_by"),
        ({"price_ts": ["day"]}, {"time": "day"}, "column 'day' is in time"),
        ({"day": ["price"]}, {"time": "day"}, "column 'day' is in time"),
        (
            {"price_ts": ["price"], "stock_ts": ["price"]},
            {},
            "the order groups of 'price_ts' and 'stock_ts'",
        ),
        ({"price_ts": ["price", "price"]}, {}, "'price' is in the order groups of 'price_ts' twice"),
        ({"price_ts": ["price", "stock_ts"], "stock_ts": ["stock"]}, {}, "'stock_ts' is in the order groups of"),
        ({"price_ts": ["price_ts"]}, {}, "'price_ts' is in the order groups of 'price_ts' twice"),
        ({"ratio": ["price"]}, {}, "order_groups column 'ratio' is floating point"),
        ({"tags": ["price"]}, {}, "order_groups column 'tags' is list"),
        ({"price_ts": ["needed"]}, {}, "column 'needed' .* may not be null"),
        ({"price_ts": []}, {}, "the order group of 'price_ts' has no columns"),
        ({"price_ts": 7}, {}, "the order group of 'price_ts' is a list of names"),
        ({7: ["price"]}, {}, "the order group of 7 is a list of names"),
        (["price_ts"], {}, "order_groups are columns by their order column"),
        ({"price_ts": ["price"]}, {"key": None}, "give the table a key"),
        ({"price_ts": ["price"]}, {"order_by": "stock_ts"}, "order_groups and order_by do not go together"),
        (
            {"price_ts": ["price"]},
            {"merge_rules": {"price": "sum"}},
            "'price' has the merge rule 'sum' and is in",
        ),
        ({"price_ts": ["price"]}, {"expires": "day + interval '1 day'"}, "with order groups do not expire"),
    ],
)
def test_groups_that_cannot_be_are_refused_and_nothing_is_created(
    lake: Lake, groups: Any, more: dict[str, Any], said: str
) -> None:
    columns = pa.schema(
        [
            *COLUMNS,
            *(pa.field("day", pa.timestamp("us", "UTC")), pa.field("ratio", pa.float64())),
            *(pa.field("tags", pa.list_(pa.int64())), pa.field("needed", pa.int64(), nullable=False)),
        ]
    )
    with pytest.raises(InvalidRequest, match=said):
        lake.create_table("a.t", columns, **{"key": "id", "order_groups": groups, **more})
    with pytest.raises(NotFound):
        lake.table("a.t")


def test_columns_of_a_group_stay_as_they_are(items: Table) -> None:
    for name in ("price", "price_ts"):
        with pytest.raises(InvalidRequest, match=rf"'{name}' cannot be dropped.*in the order group of 'price_ts'"):
            items.drop_column(name)
        with pytest.raises(InvalidRequest, match=rf"'{name}' cannot be renamed"):
            items.rename_column(name, "other")
        with pytest.raises(InvalidRequest, match="so it stays nullable"):
            items.alter_column(name, nullable=False)
    items.drop_column("note")
    items.add_column(pa.field("extra", pa.int64()))
    items.upsert([{**priced(1, 5), "extra": 1}, {**priced(2, 4), "extra": 2}])
    assert (items.get(1)["price"], items.get(1)["extra"]) == (1, 2)


def test_what_does_not_go_with_groups_says_so(items: Table) -> None:
    with pytest.raises(InvalidRequest, match="every row counts by its order groups: leave if_changed out"):
        items.upsert([priced(1, 5)], if_changed=True)
    with pytest.raises(InvalidRequest, match="'price' cannot be taken back"):
        items.retract([priced(1, 5)])
    items.add_column(pa.field("day", pa.timestamp("us")))
    with pytest.raises(InvalidRequest, match="with order groups do not expire"):
        items.set_options({"expires": "day"})
