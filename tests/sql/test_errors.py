"""What DataFusion stops at is said in the sentence that names it, whichever part of the engine found it."""

from __future__ import annotations

import pytest

from lithify import ComputeFailed, InvalidRequest, Lake


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select cast('x1' as int) from shop.orders", "Cannot cast string 'x1' to value of Int32"),
        ("select * from shop.orders where name = date '2020-13-01'", "Cannot cast string '2020-13-01'"),
        ("select * from shop.orders where regexp_like(name, '(')", "unclosed group"),
        ("select cast(9999999999 as int)", "9999999999"),
        ("select nme from shop.orders", "No field named nme.*Valid fields are .*name"),
        ("select sum(name) from shop.orders", "'sum'"),
    ],
)
def test_what_is_wrong_with_a_query_is_said(lake: Lake, query: str, said: str) -> None:
    for ask in (lake.sql, lake.query):
        with pytest.raises(InvalidRequest, match=said) as refused:
            ask(query)
        assert "Optimizer rule" not in refused.value.message
        assert "\n" not in refused.value.message
        assert len(refused.value.message) < 700


def test_what_stops_at_a_row_is_said_to_the_caller_alone(lake: Lake) -> None:
    with pytest.raises(ComputeFailed, match="'name 0'") as failed:
        lake.sql("select cast(name as int) from shop.orders")
    assert "name 0" not in failed.value.public


def test_a_condition_is_told_the_columns_by_the_names_that_it_has_for_them(lake: Lake) -> None:
    with pytest.raises(InvalidRequest, match=r"No field named idd\. Did you mean 'id'") as refused:
        lake.table("shop.orders").delete_where("idd = 1")
    assert "main.t" not in refused.value.message
