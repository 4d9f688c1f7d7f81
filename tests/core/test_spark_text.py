"""A query in the words of `lake.sql`, spelled for Spark."""

from __future__ import annotations

import pytest

from lithify.core.query_text import lookups, with_inputs
from lithify.core.spark_text import engine_names, spark_text
from lithify.errors import InvalidRequest


@pytest.mark.parametrize(
    ("query", "spelled"),
    [
        ('select "a b" from t', "select `a b` from t"),
        ('select "a`b" from t', "select `a``b` from t"),
        ("select 'plain' -- it's", "select 'plain' -- it's"),
        ("select 'it''s'", "select CAST(X'69742773' AS STRING)"),
        (r"select '\n'", "select CAST(X'5c6e' AS STRING)"),
        ("select date '2026-01-02', x'00ff'", "select date '2026-01-02', x'00ff'"),
    ],
)
def test_names_and_texts_come_in_sparks_quotes(query: str, spelled: str) -> None:
    assert spark_text(query) == spelled


@pytest.mark.parametrize("query", ["select r'a'", "select $1", "select {x}", "select 1 # 2"])
def test_what_the_dialects_cut_otherwise_is_refused(query: str) -> None:
    with pytest.raises(InvalidRequest, match=r"lake\.spark\.sql"):
        spark_text(query)


def test_back_quotes_are_quotes_of_names_but_not_inside_of_others() -> None:
    assert engine_names('select `a"b`, `c``d`, \'`x`\', "`y`" -- `z`') == (
        'select "a""b", "c`d", \'`x`\', "`y`" -- `z`'
    )


def test_behind_from_a_name_of_two_parts_is_a_table_also_where_a_column_has_the_name_of_its_namespace() -> None:
    known = {"shop.orders"}.__contains__

    assert lookups("select shop, 1 from shop.orders", known) == ["shop.orders"]
    assert lookups("select shop.orders from t as shop", known) == []


def test_inputs_stand_before_the_query_under_the_names_that_it_calls_them_by() -> None:
    text = with_inputs(
        "select '{x}', df.id from shop.orders join df on df.id = orders.id", {"shop.orders": "a"}, {"df": "b"}
    )

    assert text == (
        "WITH `df` AS (SELECT * FROM {b}), `orders` AS (SELECT * FROM {a}) SELECT * FROM (\n"
        "select '{{x}}', df.id from `orders` join df on df.id = orders.id\n)"
    )
    assert with_inputs("select 1", {}, {}) == "SELECT * FROM (\nselect 1\n)"
