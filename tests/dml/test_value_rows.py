"""DEFAULT in each place where a value may stand, and subqueries in VALUES."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lithify import InvalidRequest, Lake
from lithify.core.ops import Op
from lithify.dml import decide
from lithify.sql import engine, guard
from lithify.sql.statements.value_rows import without_defaults

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        pa.field("country", pa.string(), nullable=False),
        ("price", pa.decimal128(10, 2)),
        ("since", pa.timestamp("us", "UTC")),
        ("note", pa.string()),
        ("default", pa.int64()),
    ]
)
SINCE = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
DEFAULTS = {"country": "de", "price": "9.90", "since": "2026-01-02T00:00:00Z"}
NEW = ("de", Decimal("9.90"), SINCE, None)


@pytest.fixture
def goods(lake: Lake) -> Lake:
    lake.create_table("shop.goods", COLUMNS, key="id", defaults=DEFAULTS)
    lake.execute("insert into shop.goods values (1, 'at', 1, '2026-05-05', 'a', 5), (2, 'ch', 2, null, 'b', 6)")
    return lake


def content(lake: Lake) -> dict[int, tuple[Any, ...]]:
    found = lake.sql("select id, country, price, since, note from shop.goods order by id").to_pylist()
    return {row["id"]: tuple(row.values())[1:] for row in found}


@pytest.mark.parametrize("lines_max", [10_000, 0], ids=["what is set", "whole rows"])
def test_update_sets_the_default_or_null(goods: Lake, monkeypatch: pytest.MonkeyPatch, lines_max: int) -> None:
    monkeypatch.setattr(decide, "LINES_MAX", lines_max)

    goods.execute(
        "update shop.goods set country = DEFAULT, price = default, since = default, note = default where country = 'at'"
    )

    assert content(goods) == {1: NEW, 2: ("ch", Decimal("2.00"), None, "b")}
    newest = goods.table("shop.goods").snapshot()
    assert {file.op for file in newest.changes if file.seq == newest.seq} == {Op.UPDATE if lines_max else Op.UPSERT}


def test_each_row_of_values_says_default_for_itself(goods: Lake) -> None:
    goods.execute(
        "insert into shop.goods values (3, DEFAULT, 5, default, 'x, default', default), "
        "(4, 'fr', default, '2026-05-05', default, 1), (5, default, default, default, default, default)"
    )

    may = dt.datetime(2026, 5, 5, tzinfo=dt.UTC)
    found = content(goods)
    assert found[3] == ("de", Decimal("5.00"), SINCE, "x, default")
    assert found[4] == ("fr", Decimal("9.90"), may, None)
    assert found[5] == NEW


def test_default_stands_among_many_rows_of_constants(goods: Lake) -> None:
    rows = [f"({number}, 'fr')" for number in range(10, 60)]
    rows.insert(40, "(99, default)")

    goods.execute(f"with unused as (select 1) insert into shop.goods (id, country) values {', '.join(rows)}")

    found = content(goods)
    assert (found[99], found[10][0], found[59][0], len(found)) == (NEW, "fr", "fr", 53)


def test_merge_and_on_conflict_take_default(goods: Lake) -> None:
    goods.execute(
        "merge into shop.goods t using (values (1, 'x'), (7, 'y')) s (id, note) on t.id = s.id "
        "when matched then update set country = default, t.note = s.note "
        "when not matched then insert (id, country, price, note) values (s.id, default, default, default)"
    )
    goods.execute(
        "insert into shop.goods (id, note) values (2, 'new') "
        "on conflict (id) do update set country = default, price = default, note = excluded.note"
    )

    found = content(goods)
    assert found[1][0::3] == ("de", "x")
    assert found[2] == ("de", Decimal("9.90"), None, "new")
    assert found[7] == NEW


def test_a_table_without_a_key_takes_default(lake: Lake) -> None:
    lake.create_table("shop.log", pa.schema([("a", pa.int64()), ("b", pa.string())]), defaults={"b": "none"})
    lake.execute("insert into shop.log values (1, 'x'), (default, default)")
    lake.execute("update shop.log set b = default where a = 1")

    found = lake.sql("select a, b from shop.log order by a").to_pylist()
    assert found == [{"a": 1, "b": "none"}, {"a": None, "b": "none"}]


def test_a_column_may_be_called_default(goods: Lake) -> None:
    goods.execute('update shop.goods set "default" = "default" + 1 where id = 1')
    goods.execute('update shop.goods set "default" = "default" where id = 2')

    assert goods.sql('select "default" from shop.goods order by id').column(0).to_pylist() == [6, 6]


def test_values_may_ask_the_table_itself(goods: Lake) -> None:
    """The engine evaluates no subquery within VALUES."""
    goods.execute(
        "insert into shop.goods (id, country, note) values (50, 'x', '1'), "
        "((select max(id) + 1 from shop.goods), default, 'sub') /* , */, "
        "(51, case when (select count(*) from shop.goods where id = 1) = 1 then 'y' else 'n' end, 'a, (b'), "
        "(52, 'z', null)"
    )

    found = {id: (row[0], row[3]) for id, row in content(goods).items() if id > 2}
    assert found == {50: ("x", "1"), 3: ("de", "sub"), 51: ("y", "a, (b"), 52: ("z", None)}


def test_values_that_are_written_alike_stand_beside_subqueries(goods: Lake) -> None:
    goods.execute(
        "insert into shop.goods values (7, 'x', 7, default, (select 'sub'), default), "
        "(8, 'y', 8, null, null, (select 8))"
    )

    assert {id: row for id, row in content(goods).items() if id > 2} == {
        7: ("x", Decimal("7.00"), SINCE, "sub"),
        8: ("y", Decimal("8.00"), None, None),
    }


def test_of_rows_with_one_key_the_first_one_stays_also_beside_subqueries(goods: Lake) -> None:
    goods.execute(
        "insert into shop.goods (id, note) values (8, (select 'first')), (8, 'second'), (9, 'first'), "
        "(9, (select 'second')) on conflict do nothing"
    )

    assert {id: row[3] for id, row in content(goods).items() if id > 2} == {8: "first", 9: "first"}


def test_a_field_of_a_struct_is_never_taken_for_a_column_of_its_name(lake: Lake) -> None:
    inside = pa.struct([("town", pa.string())])
    lake.create_table("shop.people", pa.schema([("id", pa.int64()), ("home", inside), ("town", pa.string())]), key="id")
    lake.execute("insert into shop.people values (1, named_struct('town', 'Bonn'), 'Ulm')")

    with pytest.raises(InvalidRequest, match="SET home = named_struct"):
        lake.execute("update shop.people set home.town = 'Köln'")
    lake.execute("update shop.people set people.town = 'A'")
    lake.execute("update shop.people set shop.people.town = town || 'B'")
    lake.execute("update shop.people p set p.town = town || 'C'")

    assert lake.table("shop.people").to_arrow().to_pylist() == [{"id": 1, "home": {"town": "Bonn"}, "town": "ABC"}]


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("VALUES (1, 'default')", None),
        ('VALUES (1, "default")', None),
        ("VALUES (1, f(default))", None),
        ("SELECT default", None),
        ("VALUES (1, default) ORDER BY 1", None),
        ("VALUES (1, default) UNION ALL VALUES (1, 2)", None),
        ("VALUES (1, Default /* x */), (f(2, [3, 4]), 5)", "VALUES (1, NULL, ',1,'), (f(2, [3, 4]), 5, ',')"),
    ],
)
def test_only_a_value_that_is_default_alone_is_taken_for_it(source: str, wanted: str | None) -> None:
    assert without_defaults(source) == ((source, False) if wanted is None else (wanted, True))


def test_a_union_that_begins_with_null_is_answered_in_the_type_of_its_other_parts(lake: Lake) -> None:
    assert lake.sql("select null as a union all select 'x' order by a").column("a").to_pylist() == ["x", None]


LONG = {
    "a default in each row": lambda n: f"({n}, default, 1, null, 'x', {n})",
    "a subquery in each of some rows": lambda n: f"({n}, 'at', {'(select 1)' if n % 200 == 0 else 1}, null, 'x', {n})",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("isolated", [False, True], ids=["here", "in a process of its own"])
def test_the_text_that_was_written_is_measured_and_not_what_is_made_of_it(
    goods: Lake, kind: str, isolated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, left = list[str](), guard.LENGTH_MAX - 100
    while left > 0:
        rows.append(LONG[kind](1_000 + len(rows)))
        left -= len(rows[-1]) + 1
    rows.pop()
    text = f"insert into shop.goods values {','.join(rows)}"
    made, _ = without_defaults(text.partition("goods ")[2])
    assert len(text) < guard.LENGTH_MAX < len(made)
    monkeypatch.setattr(engine, "is_cheap_to_plan", lambda words: not isolated)

    assert goods.execute(text).inserted == len(rows)
    with pytest.raises(InvalidRequest, match="the statement is longer than 256 KiB"):
        goods.execute(f"{text}, {','.join(rows[:10])}")
