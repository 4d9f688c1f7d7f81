"""Rows that expire are hidden from that moment, by every way to read a table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from lithify import Lake, Table
from lithify.core.schema import EXPIRY_FORMAT, FORMAT, FORMAT_PROPERTY
from lithify.errors import InvalidRequest
from lithify.lake.internals import internals
from support.clocks import HOUR_MS, Stopped, lake_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
KINDS = {
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "date": pa.date32(),
}


def at(moment: dt.datetime) -> int:
    return int(moment.timestamp() * 1000)


@pytest.fixture
def clock() -> Stopped:
    return Stopped(at_ms=at(NOW))


@pytest.fixture
def lake(folder: Path, clock: Stopped) -> Iterator[Lake]:
    with lake_with(clock, folder / "lake") as lake:
        yield lake


def schema(kind: str = "timestamp") -> pa.Schema:
    return pa.schema([("id", pa.int64()), ("placed", KINDS[kind]), ("v", pa.int64())])


def value(kind: str, moment: dt.datetime | None) -> Any:
    if moment is None or kind == "timestamp":
        return moment
    return moment.replace(tzinfo=None) if kind == "timestamp_ntz" else moment.date()


def orders(lake: Lake, kind: str = "timestamp", expires: str = "placed + interval '90 days'", **more: Any) -> Table:
    return lake.create_table("shop.orders", schema(kind), **{"key": "id", **more}, expires=expires)


def row(id: int, placed: dt.datetime | None, v: int = 0, kind: str = "timestamp") -> dict[str, Any]:
    return {"id": id, "placed": value(kind, placed), "v": v}


def ids(table: Table, **how: Any) -> list[int]:
    return sorted(table.to_arrow(columns=["id"], **how).column("id").to_pylist())


SEEN: dict[str, Callable[[Lake, Table], list[int]]] = {
    "to_arrow": lambda lake, table: ids(table),
    "all columns": lambda lake, table: sorted(row["id"] for row in table.to_arrow().to_pylist()),
    "where": lambda lake, table: ids(table, where="v >= 0"),
    "sql": lambda lake, table: sorted(lake.sql("select id from shop.orders").column(0).to_pylist()),
    "a query process": lambda lake, table: sorted(
        lake.query("select id from shop.orders where v >= 0").rows.column("id").to_pylist()
    ),
    "get": lambda lake, table: [id for id in range(20) if table.get(id) is not None],
    "joined": lambda lake, table: sorted(
        lake.sql("select a.id from shop.orders a join shop.orders b on a.id = b.id").column(0).to_pylist()
    ),
}
COUNTED: dict[str, Callable[[Lake, Table], int]] = {
    "count": lambda lake, table: table.count(),
    "sql": lambda lake, table: lake.sql("select count(*) from shop.orders").column(0)[0].as_py(),
    "a query process": lambda lake, table: lake.query("select count(*) c from shop.orders").rows.column(0)[0].as_py(),
}


def check(lake: Lake, table: Table, expected: list[int]) -> None:
    for name, seen in SEEN.items():
        if name != "get" or table.definition.keyed:
            assert seen(lake, table) == expected, name
    for name, counted in COUNTED.items():
        assert counted(lake, table) == len(expected), name


LAYOUTS = ["pending", "folded", "both", "hot", "distributed"]


@pytest.mark.parametrize(("kind", "layout"), [*(("timestamp", how) for how in LAYOUTS), *((k, "both") for k in KINDS)])
def test_a_row_is_hidden_from_the_moment_that_it_expires(
    lake: Lake, clock: Stopped, kind: str, layout: str, folder: Path
) -> None:
    table = orders(lake, kind)
    early, late = NOW - 100 * DAY, NOW - 10 * DAY
    midnight = NOW.replace(hour=0) if kind == "date" else NOW
    rows = [
        row(1, early, kind=kind),
        row(2, midnight - 90 * DAY + DAY, kind=kind),
        row(3, late, kind=kind),
        row(4, None, kind=kind),
        row(5, dt.datetime(9999, 12, 31, tzinfo=dt.UTC), kind=kind),
        row(6, dt.datetime(1, 1, 1, tzinfo=dt.UTC), kind=kind),
    ]
    table.upsert(rows if layout != "both" else rows[:3])
    clock.at_ms = at(NOW - 200 * DAY)  # so that nothing is dropped yet
    if layout != "pending":
        table.fold()
    if layout == "both":
        table.upsert(rows[3:])
        table.upsert([row(7, early, kind=kind)])
    if layout == "hot":
        lake.cache.pin("shop.orders")
    if layout == "distributed":
        table.upsert([row(1, early, 5, kind=kind)])
        object.__setattr__(internals(table).runtime.settings, "resolve_rows_max", 0)
        assert internals(table).opened.planned().plan(None).overlay is None
    clock.at_ms = at(NOW)
    check(lake, table, [2, 3, 4, 5])
    clock.at_ms = at(midnight + DAY) - 1
    check(lake, table, [2, 3, 4, 5])
    clock.at_ms = at(midnight + DAY)
    check(lake, table, [3, 4, 5])
    clock.at_ms = at(NOW + 1000 * DAY)
    check(lake, table, [4, 5])


def test_an_answer_that_was_kept_does_not_outlive_a_row(lake: Lake, clock: Stopped) -> None:
    table = orders(lake, expires="placed")
    table.upsert([row(1, NOW + DAY), row(2, NOW + 2 * DAY)])
    query = "select sum(id) s from shop.orders"
    assert lake.sql(query).to_pylist() == lake.sql(query).to_pylist() == [{"s": 3}]
    clock.at_ms = at(NOW + DAY)
    assert lake.sql(query).to_pylist() == [{"s": 2}]


def test_an_old_version_does_not_come_back_when_its_successor_expires(lake: Lake, clock: Stopped) -> None:
    for options in ({}, {"order_by": "v"}):
        table = orders(lake, **options)
        table.upsert([row(1, NOW + 300 * DAY, 1), row(2, NOW, 1)])
        table.fold()
        table.upsert([row(1, NOW - 91 * DAY, 2)])
        check(lake, table, [2])
        table.upsert([row(1, NOW - 95 * DAY, 3)])  # an upsert of an expired row stays hidden
        check(lake, table, [2])
        lake.drop_table("shop.orders")


def test_the_past_shows_what_there_was_then(lake: Lake, clock: Stopped) -> None:
    table = orders(lake)
    first = table.upsert([row(1, NOW - 89 * DAY), row(2, NOW)]).seq
    clock.at_ms = at(NOW + 5 * DAY)
    second = table.upsert([row(3, NOW)]).seq
    assert ids(table) == [2, 3]
    assert ids(table, as_of=first) == [1, 2]
    assert ids(table, as_of=second) == [2, 3]
    assert ids(table, as_of=NOW + dt.timedelta(hours=23)) == [1, 2]
    assert ids(table, as_of=NOW + 2 * DAY) == [2]
    assert ids(table, as_of=NOW + 5000 * DAY) == [2, 3]  # no further than now
    with table.pin() as pinned:
        clock.at_ms = at(NOW + 500 * DAY)
        assert ids(table, as_of=pinned) == [2, 3]
    assert ids(table) == []


def test_the_expiry_can_be_changed_and_taken_away(lake: Lake, clock: Stopped) -> None:
    table = lake.create_table("shop.orders", schema(), key="id")
    properties = internals(table).handles.changes.log.properties
    assert properties[FORMAT_PROPERTY] == str(FORMAT)
    table.upsert([row(1, NOW - 100 * DAY), row(2, NOW)])
    check(lake, table, [1, 2])
    table.set_options({"expires": "PLACED_ + INTERVAL 90 day".replace("PLACED_", "placed")})
    assert table.options["expires"] == "placed + interval '90 days'"
    assert internals(table).handles.changes.log.properties[FORMAT_PROPERTY] == str(EXPIRY_FORMAT)
    check(lake, table, [2])
    table.set_options({"expires": "placed + interval '101 days'"})
    check(lake, table, [1, 2])
    lake.sql("alter table shop.orders set (expires = 'placed + interval ''24 hours''')")
    check(lake, table, [2])
    table.set_options({"expires": None})
    check(lake, table, [1, 2])


@pytest.mark.parametrize(
    ("expires", "why"),
    [
        ("placed + interval '3 months'", "month has no fixed length"),
        ("placed + interval '1 year'", "year has no fixed length"),
        ("placed + interval '3 fortnights'", "none of week, day, hour"),
        ("placed + interval '90'", "say the unit"),
        ("placed - interval '90 days'", "is a column of times"),
        ("placed + interval '-90 days'", "is a column of times"),
        ("placed + 90", "is a column of times"),
        ("now()", "is a column of times"),
        ("", "is a column of times"),
        ("placed + interval '999999999 days'", "at most 365,250 days"),
        ("plcaed", "the table has id, placed, v"),
        ("v + interval '1 day'", "no time"),
        (90, "is a column of times"),
    ],
)
def test_an_expiry_that_is_none_is_refused_and_nothing_changes(lake: Lake, expires: Any, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why.replace("(", r"\(")):
        orders(lake, expires=expires)
    assert lake.tables() == []
    table = orders(lake)
    version = internals(table).handles.changes.log.version
    with pytest.raises(InvalidRequest, match=why):
        table.set_options({"expires": expires})
    assert internals(table).handles.changes.log.version == version
    assert table.options["expires"] == "placed + interval '90 days'"


def test_an_expiry_that_is_not_understood_here_shows_nothing(lake: Lake) -> None:
    """Of another version, say: rows that are gone for everybody else must not show."""
    from dataclasses import replace

    table = orders(lake)
    broken = replace(table.definition, settings={"lithify.expires": "placed + lunar months"})
    with pytest.raises(InvalidRequest, match="lunar"):
        broken.expiry  # noqa: B018


def test_statements_do_not_see_what_has_expired(lake: Lake, clock: Stopped) -> None:
    table = orders(lake)
    table.upsert([row(1, NOW - 100 * DAY, 1), row(2, NOW, 1)])
    assert lake.execute("update shop.orders set v = 2").updated == 1
    done = lake.execute("insert into shop.orders values (1, timestamp '2026-11-18T00:00:00Z', 7)")
    assert done.inserted == 1
    check(lake, table, [1, 2])
    assert table.get(1) == {"id": 1, "placed": NOW.replace(hour=0), "v": 7}


def test_deletes_meet_rows_that_are_only_hidden(lake: Lake, clock: Stopped) -> None:
    table = orders(lake)
    table.upsert([row(id, NOW - 100 * DAY, id) for id in range(4)])
    assert table.delete_where("v = 0").deleted == 1
    assert lake.execute("delete from shop.orders where v = 1").deleted == 1
    assert lake.execute("truncate table shop.orders").deleted == 2
    table.set_options({"expires": None})
    assert ids(table) == []


def test_sql_declares_it(lake: Lake) -> None:
    lake.execute(
        "create table shop.orders (id bigint primary key, placed timestamp) "
        "with (expires = 'placed + interval ''2 weeks''')"
    )
    assert lake.table("shop.orders").options["expires"] == "placed + interval '14 days'"


def test_a_tag_shows_what_there_was_when_it_was_made(lake: Lake, clock: Stopped) -> None:
    table = orders(lake)
    table.upsert([row(1, NOW - 89 * DAY), row(2, NOW)])
    table.tag("before")
    clock.at_ms = at(NOW + 5 * DAY)
    assert ids(table, as_of="before") == [1, 2]
    table.fold()
    assert ids(table, as_of="before") == [1, 2]
    assert ids(table) == [2]


def test_a_restored_row_that_has_expired_stays_hidden(lake: Lake, clock: Stopped) -> None:
    table = orders(lake)
    seq = table.upsert([row(1, NOW - 89 * DAY), row(2, NOW)]).seq
    clock.at_ms = at(NOW + 5 * DAY)
    table.fold()
    table.upsert([row(2, NOW, 5)])
    table.restore(seq)
    check(lake, table, [2])
    assert table.get(2) == row(2, NOW)


def test_the_index_rules_out_files_of_expired_rows(lake: Lake, clock: Stopped) -> None:
    table = orders(lake)
    clock.at_ms = at(NOW - 300 * DAY)
    for start in (0, 1000, 2000):
        table.upsert([row(start + n, NOW - (2000 - start) / 10 * DAY) for n in range(100)])
        table.fold()
    clock.at_ms = at(NOW)
    [use] = lake.explain("select sum(v) from shop.orders")
    plan = internals(table).opened.planned().plan(None)
    assert plan.pruning is not None
    assert use is not None
    assert (plan.pruning.files_read, plan.pruning.files_total) == (1, 3)
    assert table.count() == 100


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_of_the_data_source_hide_the_same_rows(lake: Lake, clock: Stopped, folder: Path, kind: str) -> None:
    from lithify.spark.datasource.plan import partitions_of
    from lithify.spark.datasource.read import batches
    from lithify.spark.schemas import spark_schema

    table = orders(lake, kind)
    clock.at_ms = at(NOW - 200 * DAY)
    table.upsert([row(n, NOW - (90 - n) * DAY, kind=kind) for n in range(-2, 4)])
    table.fold()
    table.upsert([row(3, NOW - 300 * DAY, kind=kind), row(10, None, kind=kind), row(11, NOW, kind=kind)])
    wanted = spark_schema(pa.schema([("v", pa.int64())]))  # not even the column that tells
    for days in (0, 1, 50, 500):
        clock.at_ms = at(NOW + days * DAY)
        parts = partitions_of(internals(table).opened.planned().plan(None), folder)
        read = [batch for part in parts for batch in batches(part, schema(kind), wanted)]
        assert sum(batch.num_rows for batch in read) == len(ids(table))


@pytest.mark.spark
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles"])
def test_spark_hides_the_same_rows(lake: Lake, clock: Stopped, spark: SparkSession, kind: str, zone: str) -> None:
    table = orders(lake, kind)
    base = NOW.replace(hour=0) if kind == "date" else NOW
    rows = [row(n, base - (90 - n) * DAY, kind=kind) for n in range(-2, 4)]
    clock.at_ms = at(NOW - 200 * DAY)
    table.upsert([*rows[:3], row(10, None, kind=kind)])
    table.fold()
    table.upsert([*rows[3:], row(11, NOW - 300 * DAY, kind=kind)])
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        for moment, expected in (
            (base, [1, 2, 3, 10]),
            (base + DAY, [2, 3, 10]),
            (base - dt.timedelta(seconds=1), [0, 1, 2, 3, 10]),
        ):
            clock.at_ms = at(moment)
            frame = table.to_spark(spark)
            assert sorted(r.id for r in frame.select("id").collect()) == expected == ids(table)
            assert sorted(r.id for r in table.to_spark(spark, columns=["id"]).collect()) == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_duckdb_agrees(lake: Lake, clock: Stopped) -> None:
    table = orders(lake, expires="placed + interval '36 hours'")
    clock.at_ms = at(NOW - 200 * DAY)
    table.upsert([row(n, NOW - dt.timedelta(minutes=n * 7)) for n in range(1000)])
    table.fold()
    for hours in (0, 1, 35, 36, 100):
        clock.at_ms = at(NOW) + hours * HOUR_MS
        raw = duckdb.sql(f"select * from read_parquet('{table.base_path}/*/*.parquet')").arrow()
        raw = raw.read_all() if hasattr(raw, "read_all") else raw
        moment = (NOW + dt.timedelta(hours=hours)).isoformat()
        wanted = duckdb.sql(
            f"select id from raw where placed is null or placed + interval 36 hours > timestamptz '{moment}' order by 1"
        ).fetchall()
        assert ids(table) == [id for (id,) in wanted]
