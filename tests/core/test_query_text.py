"""What the text of a query tells: names of tables, and that it evidently does not go row by row."""

from __future__ import annotations

import pytest

from lithify.core.query_text import lookups, not_row_by_row, reads_source, with_relations, without_end

TABLES = {"shop.customers", "shop.orders", "crm.customers", "o.id"}


@pytest.mark.parametrize(
    ("sql", "reads"),
    [
        ("select * from source", True),
        ("SELECT a.id FROM Source a", True),
        ("select * from shop.customers c, source", True),
        ("select * from `source`", True),
        ("select * from (source join shop.customers using (id))", True),
        ("select source from shop.customers", False),
        ("select 'from source' as x", False),
        ("select 1 -- from source", False),
        ("select 1 /* from source */", False),
        ("select * from shop.source", False),
    ],
)
def test_a_query_reads_its_source_where_a_table_may_stand(sql: str, reads: bool) -> None:
    assert reads_source(sql) is reads


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("select * from source join shop.customers c on c.id = source.id", ["shop.customers"]),
        ("select * from source join Shop.`Customers` using (id)", ["shop.customers"]),
        ("select shop.customers.name from source join shop.customers using (id)", ["shop.customers"]),
        ("select * from source, shop.orders, crm.customers", ["shop.orders", "crm.customers"]),
        ("select o.id from source o", []),
        ("select 'shop.orders' from source -- shop.customers", []),
        ("select * from source join other.shop.orders", []),
        ("select * from source join shop.unknown", []),
    ],
)
def test_tables_of_the_lake_are_found(sql: str, found: list[str]) -> None:
    assert lookups(sql, TABLES.__contains__) == found


def test_the_inputs_stand_before_the_query_which_begins_at_the_second_line() -> None:
    text = with_relations(
        "select '{x}', customers.name from source join shop.customers using (id)",
        {
            "shop.customers": "f1",
        },
    )

    assert text == (
        "WITH `source` AS (SELECT * FROM {source}), `customers` AS (SELECT * FROM {f1}) SELECT * FROM (\n"
        "select '{{x}}', customers.name from source join `customers` using (id)\n)"
    )


@pytest.mark.parametrize(
    "sql",
    [
        "select * from source join shop.customers customers using (id)",
        "with customers as (select * from shop.customers) select * from source join customers using (id)",
    ],
)
def test_a_table_keeps_both_parts_where_the_last_one_is_taken(sql: str) -> None:
    text = with_relations(sql, {"shop.customers": "f1"})

    assert "`shop.customers` AS (SELECT * FROM {f1})" in text
    assert sql.replace("shop.customers", "`shop.customers`") in text


def test_two_tables_of_one_last_part_are_told_apart() -> None:
    text = with_relations(
        "select * from source, shop.customers a, crm.customers b", {"shop.customers": "f1", "crm.customers": "f2"}
    )

    assert "from source, `shop.customers` a, `crm.customers` b" in text


def test_what_comes_after_the_last_word_is_cut() -> None:
    assert without_end("select 1 ; ;\n-- done\n") == "select 1"
    assert without_end("select ';'") == "select ';'"


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("select day, sum(x) from source group by day", "GROUP BY"),
        ("select distinct id from source", "SELECT DISTINCT"),
        ("select id, row_number() over (order by id) n from source", "a window (OVER)"),
        ("select id from source limit 10", "LIMIT"),
        ("select * from (select id from source group by id) t", "GROUP BY"),
        ("select * from (select id from source) t group by id", "GROUP BY"),
        ("with t as (select id from source), u as (select id from t group by id) select * from u", "GROUP BY"),
        ("with t (a) as (select id from source) select a from t limit 5", "LIMIT"),
        ("select id, upper(name) as name from source where amount > 0", None),
        ("select id from source union all select id + 1 from source", None),
        ("select s.id, c.n from source s join (select id, count(*) n from shop.c group by id) c on c.id = s.id", None),
        (
            "with c as (select id, count(*) n from shop.c group by id) select s.id, n from source s join c using (id)",
            None,
        ),
        ("select id, (select max(d) from shop.c group by e limit 1) as m from source", None),
        ('select id, "group by" as x, `limit` from source', None),
        ("select id, t.limit, explode(array(1, 2)) as n from source t", None),
        ("select id, count(distinct x) from source", None),
    ],
)
def test_what_evidently_gathers_rows_of_the_source_is_told(sql: str, why: str | None) -> None:
    assert not_row_by_row(sql) == why
