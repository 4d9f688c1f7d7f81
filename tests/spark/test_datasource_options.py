"""Options of the data source: every one is understood or refused, and what is refused says what was meant."""

from __future__ import annotations

import pytest

from lithify.errors import InvalidRequest
from lithify.spark.datasource.options import Use, as_remembered, check_use, parse, remembered


def test_the_data_source_is_one_class_wherever_it_is_looked_for() -> None:
    import lithify.spark
    import pyspark_lithify

    assert lithify.spark.LithifyDataSource is lithify.LithifyDataSource
    assert pyspark_lithify.DefaultSource is lithify.LithifyDataSource
    assert lithify.LithifyDataSource.name() == "lithify"


@pytest.mark.parametrize(
    ("path", "lake", "table"),
    [
        ("lake/shop/orders", "lake", "shop.orders"),
        ("/data/lake/shop/orders/", "/data/lake", "shop.orders"),
        ("file:///data/lake/shop/orders", "file:///data/lake", "shop.orders"),
        ("/shop/orders", "/", "shop.orders"),
        ("shop/orders", ".", "shop.orders"),
        ("/data/orders/shop/orders", "/data/orders", "shop.orders"),
    ],
)
def test_a_path_is_a_lake_a_namespace_and_a_table(path: str, lake: str, table: str) -> None:
    found = parse({"path": path})

    assert (found.lake, found.table) == (lake, table)


def test_a_lake_and_a_table_may_be_named_apart() -> None:
    found = parse({"lake": "/data/lake", "table": "shop.orders"})

    assert (found.lake, found.table) == ("/data/lake", "shop.orders")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "which table"),
        ({"lake": "/l"}, "which table"),
        ({"path": "/l/s/t", "table": "s.t"}, "either a path"),
        ({"path": "orders"}, "names no table"),
        ({"path": "/l/Shop/orders"}, "try 'shop'"),
        ({"path": "/l/s/t", "asOff": "1"}, "did you mean 'asOf'"),
        ({"path": "/l/s/t", "rows_per_batch": "1"}, "did you mean 'rowsPerBatch'"),
        ({"path": "/l/s/t", "zzz": "1"}, "there are asOf, "),
        ({"path": "/l/s/t", "mode": "merge"}, "one of append, upsert, not 'merge'"),
        ({"path": "/l/s/t", "nullKeys": "drop"}, "one of fail, quarantine"),
        ({"path": "/l/s/t", "changes": "yes"}, "true or false"),
        ({"path": "/l/s/t", "rowsPerBatch": "0"}, "a number from 1"),
        ({"path": "/l/s/t", "columns": "a,,b"}, "list of different columns"),
        ({"path": "/l/s/t", "asOf": "1", "since": "1"}, "exclude each other"),
        ({"path": "/l/s/t", "until": "3"}, "say with 'since'"),
    ],
)
def test_what_cannot_be_understood_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        parse(given)


def test_names_of_options_come_in_any_case_and_sparks_own_pass() -> None:
    given = {"PATH": "/l/s/t", "asof": "4", "checkpointLocation": "/c", "queryName": "q"}

    found = parse(given)

    assert (found.as_of, found.checkpoint) == ("4", "/c")
    check_use(given, Use.READ)


@pytest.mark.parametrize("option", ["since", "startingPosition", "rowsPerBatch"])
def test_whoever_says_where_changes_begin_wants_changes(option: str) -> None:
    assert parse({"path": "/l/s/t", option: "1"}).changes
    assert not parse({"path": "/l/s/t"}).changes


@pytest.mark.parametrize(
    ("option", "use"),
    [
        ("asOf", Use.WRITE),
        ("asOf", Use.STREAM_IN),
        ("mode", Use.READ),
        ("rowsPerBatch", Use.READ),
        ("opColumn", Use.WRITE),
        ("since", Use.STREAM_IN),
    ],
)
def test_an_option_of_another_use_is_refused(option: str, use: Use) -> None:
    with pytest.raises(InvalidRequest, match=f"{option!r} is for .*, not for {use.value}"):
        check_use({"path": "/l/s/t", option: "1"}, use)


def test_what_spark_writes_down_of_a_table_of_its_catalog_passes() -> None:
    own = {"owner": "me", "provider": "lithify", "comment": "hello", "theirs": "property"}
    by_location = {**own, "location": "file:/data/lake/shop/orders", "path": "file:/data/lake/shop/orders"}
    by_options = {**own, "lake": "/l", "table": "a.b", "option.lake": "/l", "option.table": "a.b"}

    assert (parse(by_location).lake, parse(by_location).table) == ("file:///data/lake", "shop.orders")
    assert (parse(by_options).lake, parse(by_options).table) == ("/l", "a.b")
    assert remembered(as_remembered(by_options)) == {"lake": "/l", "table": "a.b"}
    assert remembered({}) == {}
    check_use(by_location, Use.READ)
    with pytest.raises(InvalidRequest, match="did you mean 'table'"):
        parse({**own, "lake": "/l", "tabel": "a.b", "option.lake": "/l", "option.tabel": "a.b"})
    with pytest.raises(InvalidRequest, match="no option 'owner'"):
        parse({"path": "/l/s/t", "owner": "me"})


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("versionAsOf", "asOf with a seq"),
        ("timestampAsOf", "asOf with a time"),
        ("readChangeFeed", "changes, or since"),
        ("mergeSchema", "add_column"),
        ("replaceWhere", "lake.spark_sql"),
        ("key", "lake.create_table"),
    ],
)
def test_what_others_call_it_is_answered_with_the_word_that_is_used_here(option: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        parse({"path": "/l/s/t", option: "1"})
