"""Queries read only what can matter to them, and answer as if they had read everything."""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Iterator
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import SessionContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lithify import Lake
from lithify.core.names import quoted
from lithify.core.predicates import UNKNOWN, In, Or, Predicate, Prefix
from lithify.errors import Corruption
from lithify.lake.internals import internals
from lithify.sql.engine import ServingEngine, TableUse
from lithify.sql.literals import Constants
from lithify.sql.lookup import Lookup
from lithify.sql.pin_clock import asks_the_clock, at
from lithify.sql.pushdown import IN_A_SUBQUERY, NO_FILTER, requests
from lithify.sql.query_run import QueryRun
from lithify.sql.scan_files import scanning_config
from lithify.sql.scan_memory import rows_that_may_match
from lithify.sql.spark_conditions import spark_predicate
from support.folders import memory_folder

pytestmark = pytest.mark.slow

UTC = dt.UTC
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int8()),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("price", pa.decimal128(10, 2)),
        ("data", pa.binary()),
        ("ok", pa.bool_()),
    ]
)
FILES, GROUPS, ROWS = 4, 3, 5


def predicate_of_where(where: str, schema: pa.Schema) -> Predicate:
    ctx = SessionContext(scanning_config().set("datafusion.sql_parser.parse_float_as_decimal", "true"))
    ctx.register_record_batches("t", [[pa.RecordBatch.from_pylist([], schema=schema)]])
    columns = ", ".join(map(quoted, schema.names))
    query = Constants(f"SELECT {columns} FROM t WHERE ({where}\n)").meant(ctx.sql, lambda: [schema])
    return requests(ctx.sql(query).optimized_logical_plan(), {("main", "t"): schema})["main", "t"].predicate


def row(number: int) -> dict[str, Any]:
    """Values that grow with the number, with nulls, NaN and zeros of both signs among them."""
    special = {3: math.nan, 7: -0.0, 11: 0.0, 13: math.inf, 17: None, 23: -math.nan}
    x = special.get(number % 30, float(number) - 20)
    return {
        "id": number,
        "small": number % 100 if number % 9 else None,
        "name": None if number % 8 == 5 else f"name-{number:03d}",
        "day": dt.date(2024, 1, 1) + dt.timedelta(days=number),
        "at": dt.datetime(2024, 1, 1, tzinfo=UTC) + dt.timedelta(hours=number),
        "local": None if number % 20 < 10 else dt.datetime(2024, 1, 1) + dt.timedelta(hours=number),
        "x": x,
        "f": x,
        "price": Decimal(number) / 4,
        "data": bytes([number % 256, 255]),
        "ok": number % 3 == 0 if number > 20 else None,
    }


def base_rows() -> list[list[dict[str, Any]]]:
    return [[row(file * GROUPS * ROWS + n) for n in range(GROUPS * ROWS)] for file in range(FILES)]


def write_base(folder: Path) -> None:
    folder.mkdir()
    for number, rows in enumerate(base_rows()):
        table = pa.Table.from_pylist(rows, schema=COLUMNS)
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=ROWS, write_page_checksum=True)


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    write_base(folder / "given")
    with Lake(folder / "lake") as lake:
        lake.adopt("shop.orders", folder / "given", key="id")
        lake.table("shop.orders").build_index()
        yield lake


@pytest.fixture(scope="module")
def changing() -> Iterator[tuple[Lake, SessionContext]]:
    """A lake whose table has pending changes, and an engine over the same rows in memory."""
    with memory_folder() as folder:
        write_base(folder / "given")
        with Lake(folder / "lake") as lake:
            table = lake.adopt("shop.orders", folder / "given", key="id")
            table.build_index()
            changed = [row(n) | {"name": "changed", "x": math.nan} for n in (4, 17, 59)] + [row(200)]
            table.upsert(changed)
            table.delete([8, 30])
            rows = {r["id"]: r for rows in base_rows() for r in rows} | {r["id"]: r for r in changed}
            fresh = pa.Table.from_pylist([r for key, r in rows.items() if key not in (8, 30)], schema=COLUMNS)
            yield lake, _plain_engine(fresh)


def _plain_engine(rows: pa.Table) -> SessionContext:
    ctx = SessionContext()
    ctx.sql("CREATE SCHEMA shop")
    ctx.register_record_batches("rows", [rows.to_batches()])
    ctx.sql("CREATE VIEW shop.orders AS SELECT * FROM rows")
    return ctx


def use(lake: Lake, query: str) -> TableUse:
    uses = lake._serving.explain(query, lake._internals.planned(None), lake._internals.names)
    assert len(uses) == 1
    return uses[0]


def left(lake: Lake, condition: str) -> tuple[int, int]:
    """Files and row groups that a condition leaves."""
    report = use(lake, f"select * from shop.orders where {condition}").plan.pruning
    assert report is not None
    return report.files_read, report.groups_read


def ids(lake: Lake, condition: str) -> list[int]:
    answer = lake.sql(f"select id from shop.orders where {condition} order by id")
    found: list[int] = answer.column("id").to_pylist()
    return found


# -- from SQL to predicates


@pytest.mark.parametrize(
    ("where", "predicate"),
    [
        ("id = 5", "id = 5"),
        ("5 < id", "id > 5"),
        ("NOT (id < 5 OR name = 'x')", "id >= 5 AND name <> 'x'"),
        ("id BETWEEN 3 AND 9", "id >= 3 AND id <= 9"),
        ("id IN (1, 2, 3, 4, 5, NULL)", "id IN (1, 2, 3, 4, 5, NULL)"),
        ("id NOT IN (1, 2, 3, 4, 5)", "id NOT IN (1, 2, 3, 4, 5)"),
        ("name LIKE 'ab%'", "name STARTS WITH 'ab'"),
        ("name LIKE 'a_c%'", "name STARTS WITH 'a'"),
        ("starts_with(name, 'a%c')", "name STARTS WITH 'a'"),
        ("day = '2024-01-31'", "day = DATE '2024-01-31'"),
        ("day > DATE '2024-01-31' + INTERVAL '1 day'", "day > DATE '2024-02-01'"),
        ("at > '2024-01-31T00:00:00Z'", "at > TIMESTAMP '2024-01-31 00:00:00+00:00'"),
        ("local >= '2024-01-31'", "local >= TIMESTAMP '2024-01-31 00:00:00'"),
        ("small < 300", "small < 300"),
        ("f > 1.5", "f > 1.5"),
        ("price < 1.555", "price < 1.555"),
        ("data = X'00ff'", "data = x'00ff'"),
        ("ok", "ok = TRUE"),
        ("NOT ok", "ok = FALSE"),
        ("ok IS TRUE", "ok = TRUE"),
        ("name IS NULL OR id = 3", "name IS NULL OR id = 3"),
        ("id = 1 OR NULL", "id = 1"),
        ("id = 1 AND length(name) = 3", "id = 1"),
        ("id IS NOT DISTINCT FROM 5", "id = 5"),
    ],
)
def test_conditions_of_the_serving_engine(where: str, predicate: str) -> None:
    assert str(predicate_of_where(where, COLUMNS)) == predicate


@pytest.mark.parametrize(
    "where",
    [
        "id = 1 OR length(name) = 3",
        "id + 1 = 6",
        "name = 5",
        "name NOT LIKE 'ab%'",
        "name ILIKE 'ab%'",
        "ok IS NOT TRUE",
        "id IS DISTINCT FROM 5",
        "id IS NOT DISTINCT FROM NULL",
        "id = NULL",
        "id = small",
        "random() < 0.5",
        " OR ".join(f"(id = {n} AND small = {n})" for n in range(400)),
    ],
)
def test_conditions_that_are_not_understood(where: str) -> None:
    assert predicate_of_where(where, COLUMNS) == UNKNOWN


def test_a_long_conjunction_is_understood_in_part() -> None:
    assert predicate_of_where(" AND ".join(f"id <> {n}" for n in range(2, 900)), COLUMNS) != UNKNOWN


@pytest.mark.parametrize(
    ("where", "predicate"),
    [
        ("id = 5", "id = 5"),
        ("NOT (id < 5 OR name = 'x')", "id >= 5 AND name <> 'x'"),
        ("id IN (1, 2, NULL)", "id IN (1, 2, NULL)"),
        ("id NOT BETWEEN 3 AND 9", "id < 3 OR id > 9"),
        ("name LIKE 'ab%'", "name STARTS WITH 'ab'"),
        ("day = '2024-01-31' AND ok", "day = DATE '2024-01-31' AND ok = TRUE"),
        ("day >= DATE '2024-01-31'", "day >= DATE '2024-01-31'"),
        ("price < 1.555", "price < 1.555"),
        ("x > -0.1", "x > -0.1"),
        ("f > 1.5", "f > 1.5"),
        ("at > '2024-01-31 12:00:00'", "at >= TIMESTAMP '2024-01-30 10:00:00+00:00'"),
        ("local < TIMESTAMP '2024-01-31 12:00:00'", "local <= TIMESTAMP '2024-02-01 14:00:00'"),
        ("name IS NOT NULL", "name IS NOT NULL"),
        ("id = 3 AND upper(name) = 'X'", "id = 3"),
    ],
)
def test_conditions_of_spark(where: str, predicate: str) -> None:
    assert str(spark_predicate(where, COLUMNS)) == predicate


@pytest.mark.parametrize(
    "where",
    [
        "id < 7/2",  # 3.5 in Spark
        "id = '5'",
        "id = 5.0",
        "id = true",
        "name = 5",
        "name = 'it''s'",
        "name = 'a\\\\b'",
        'name = "x"',
        "`id` = 5",
        "id = 5 -- and more",
        "id = 5 /* and more */",
        "!ok",
        "id LIKE '5%'",
        "f = 0.1",
        "price = 0.1234567890123456789",
        "x < 1e3",
        "at <> '2024-01-31'",
        "at > 'yesterday'",
        "at IN ('2024-01-31')",
        "day = '2024-1-31'",
        "orders.id = 5",
        "nope = 5",
        "id = = 5",
    ],
)
def test_conditions_that_spark_may_read_otherwise_are_not_understood(where: str) -> None:
    assert spark_predicate(where, COLUMNS) == UNKNOWN


def test_a_field_is_not_taken_for_a_column() -> None:
    nested = pa.schema([("id", pa.int64()), ("t", pa.struct([("id", pa.int64())]))])
    assert spark_predicate("t.id = 5", nested) == UNKNOWN
    assert predicate_of_where("t['id'] = 5", nested) == UNKNOWN


# -- what is read


def test_a_point_query_reads_one_row_group(lake: Lake) -> None:
    assert left(lake, "id = 31") == (1, 1)
    assert ids(lake, "id = 31") == [31]


def test_files_that_are_ruled_out_are_not_opened(lake: Lake, folder: Path) -> None:
    for number in (0, 1, 3):
        (folder / "given" / f"{number}.parquet").write_bytes(b"")
    assert ids(lake, "id = 31") == [31]
    with pytest.raises(Corruption, match=r"0\.parquet"):
        lake.sql("select * from shop.orders where id = 3")


def test_only_the_columns_that_are_asked_for_are_read(lake: Lake, folder: Path) -> None:
    path = folder / "given" / "2.parquet"
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(COLUMNS.get_field_index("name"))
    data = bytearray(path.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start + 40 : start + 60] = bytes(20)
    path.write_bytes(bytes(data))
    assert lake.sql("select price from shop.orders where id = 31").num_rows == 1
    with pytest.raises(Corruption, match=r"2\.parquet"):
        lake.sql("select name from shop.orders where id = 31")


def test_a_file_that_is_gone_is_named(lake: Lake) -> None:
    query = "select * from shop.orders where id = 31"
    (source,) = use(lake, query).plan.clean
    Path(source.path).unlink()
    with pytest.raises(Corruption, match=Path(source.path).name):
        lake.sql(query)


@pytest.mark.parametrize(
    "query",
    [
        "select * from shop.orders a join shop.orders b on a.id = b.id where a.id = 3",
        "select id from shop.orders where id = 3 union all select id from shop.orders where id = 33",
    ],
)
def test_a_table_named_twice_is_read_for_both(lake: Lake, query: str) -> None:
    found = use(lake, query)
    report = found.plan.pruning
    assert report is not None
    assert report.groups_read < report.groups_total
    assert lake.sql(query).num_rows == (1 if "join" in query else 2)
    if "union" in query:
        assert isinstance(found.predicate, Or)


def test_one_scan_without_a_filter_reads_everything(lake: Lake) -> None:
    query = "select count(*) from shop.orders a cross join shop.orders b where a.id = 3"
    assert (use(lake, query).note, use(lake, query).predicate) == (NO_FILTER, UNKNOWN)
    assert lake.sql(query).to_pylist() == [{"count(*)": FILES * GROUPS * ROWS}]


def test_a_subquery_that_is_not_looked_into_reads_everything(lake: Lake) -> None:
    query = "select id from shop.orders where id = (select max(id) from shop.orders where id < 10)"
    assert use(lake, query).note == IN_A_SUBQUERY
    assert lake.sql(query).to_pylist() == [{"id": 9}]


def test_a_limit_below_a_filter_is_not_moved_above_it(lake: Lake) -> None:
    query = "select * from (select * from shop.orders limit 100) where id = 31"
    assert use(lake, query).predicate == UNKNOWN
    assert lake.sql(query).num_rows == 1


def test_text_that_looks_like_a_plan_rules_nothing_out(lake: Lake) -> None:
    query = "select id from shop.orders where name = 'TableScan: shop.orders' or id = 3"
    assert use(lake, query).predicate == UNKNOWN
    assert lake.sql(query).to_pylist() == [{"id": 3}]


def test_conditions_on_one_table_prune_another_that_is_joined(lake: Lake) -> None:
    lake.create_table("shop.names", pa.schema([("id", pa.int64()), ("label", pa.string())]), key="id")
    lake.table("shop.names").upsert([{"id": 31, "label": "yes"}, {"id": 99, "label": "no"}])
    query = "select label, price from shop.orders o join shop.names n on o.id = n.id where n.id = 31"
    uses = lake._serving.explain(query, lake._internals.planned(None), lake._internals.names)
    read = {found.ref[1]: found.plan.pruning for found in uses}
    assert read["orders"] is not None
    assert read["orders"].groups_read == 1
    assert lake.sql(query).column("label").to_pylist() == ["yes"]


def test_explain_reads_nothing(lake: Lake, folder: Path) -> None:
    for path in (folder / "given").iterdir():
        path.write_bytes(b"")
    assert left(lake, "id = 31") == (1, 1)


def test_columns_by_other_names(lake: Lake) -> None:
    assert lake.sql('select o.id as "The Id", o.* exclude (data) from shop.orders o where id = 31').num_rows == 1
    assert lake.sql("select count(*) as n from shop.orders where id < 31").to_pylist() == [{"n": 31}]
    assert lake.sql("select 1 as one from shop.orders where id = 31").to_pylist() == [{"one": 1}]


def test_few_rows_meet_many_hidden_keys(lake: Lake) -> None:
    table = lake.table("shop.orders")
    table.upsert([row(n) | {"name": "new"} for n in range(10, 50)])
    table.delete([31])
    query = "select id, name from shop.orders where id in (9, 10, 31, 49, 50) order by id"
    assert [(r["id"], r["name"]) for r in lake.sql(query).to_pylist()] == [
        (9, "name-009"),
        (10, "new"),
        (49, "new"),
        (50, "name-050"),
    ]


def test_rows_that_repeat_too_much_for_memory_are_scanned(folder: Path) -> None:
    rows = 300_000
    given = pa.table({"id": pa.array(range(rows)), "text": pa.array(["x" * 1_000] * rows)})
    (folder / "given").mkdir()
    pq.write_table(given, folder / "given" / "0.parquet", row_group_size=50_000)
    with Lake(folder / "lake") as lake:
        lake.adopt("a.b", folder / "given", key="id", verify=False)
        assert lake.sql("select sum(length(text)) as n from a.b").to_pylist() == [{"n": 1_000 * rows}]


def test_an_answer_has_the_same_types_from_memory_and_from_files(lake: Lake) -> None:
    engine = ServingEngine(2**28)
    table = lake.table("shop.orders")
    small, large = table._internals.opened.planned().plan(), internals(table).reader.plan(table.snapshot())
    assert all(source.raw_bytes is not None for source in small.clean)
    assert all(source.raw_bytes is None for source in large.clean)
    first, second = (engine.read(plan, where="id < 40").sort_by("id") for plan in (small, large))
    assert first.schema == second.schema
    assert first.drop_columns(["x", "f"]).equals(second.drop_columns(["x", "f"]))  # NaN equals nothing
    engine.close()


@pytest.mark.parametrize(
    "where",
    ["x > 5", "x >= 5000", "x < -5000", "f > 5000", "NOT x <= 5000", "x = 'NaN'", "x <> 5", "x < 0.0", "x >= -0.0"],
)
def test_nan_is_found_in_files_whose_statistics_pass_over_it(lake: Lake, where: str) -> None:
    engine = ServingEngine(2**28)
    every = pa.Table.from_pylist([r for rows in base_rows() for r in rows], schema=COLUMNS)
    expected = _plain_engine(every).sql(f"select id from shop.orders where {where} order by id").to_arrow_table()
    table = lake.table("shop.orders")
    for plan in (internals(table).reader.plan(table.snapshot()), table._internals.opened.planned()):
        assert sorted(engine.read(plan, ["id"], where).column("id").to_pylist()) == expected.column("id").to_pylist()
    engine.close()


def test_an_answer_has_no_empty_batches(lake: Lake) -> None:
    table = lake.table("shop.orders")
    table.upsert([row(4), row(17)])
    table.delete([8])
    answer = lake.sql("select * from shop.orders")
    assert all(chunk for chunk in map(len, answer.column("id").chunks))
    assert answer.num_rows == FILES * GROUPS * ROWS - 1
    nothing = lake.sql("select * from shop.orders where id < 0")
    assert (nothing.num_rows, nothing.schema) == (0, answer.schema)


def test_nan_beside_one_number_is_not_taken_for_that_number(folder: Path) -> None:
    engine = ServingEngine(2**28)
    rows = pa.table({"id": range(3), "x": [1.5, math.nan, 1.5]})
    with Lake(folder / "lake") as lake:
        table = lake.create_table("shop.readings", rows.schema, key="id")
        table.upsert(rows)
        table.fold()
        for plan in (internals(table).reader.plan(table.snapshot()), table._internals.opened.planned()):
            assert math.isnan(engine.read(plan, where="id = 1").column("x")[0].as_py())
            assert [math.isnan(x) for x in engine.read(plan).sort_by("id").column("x").to_pylist()] == [
                False,
                True,
                False,
            ]
        (source,) = internals(table).reader.plan(table.snapshot()).clean
        found = Lookup().rows(source.path, source.size_bytes, rows.schema, {"id": pa.scalar(1)})
        assert math.isnan(found.column("x")[0].as_py())
    engine.close()


def test_a_condition_that_the_engine_cannot_weigh_by_statistics_is_answered_without(lake: Lake) -> None:
    engine = ServingEngine(2**28)
    table = lake.table("shop.orders")
    for plan in (internals(table).reader.plan(table.snapshot()), table._internals.opened.planned()):
        found = engine.read(plan, ["id"], "cast(id as varchar) >= '9'").column("id").to_pylist()
        assert sorted(found) == [n for n in range(FILES * GROUPS * ROWS) if str(n) >= "9"]
    engine.close()


# -- the moment


def test_a_query_sees_one_moment(lake: Lake) -> None:
    assert left(lake, "at > now() - interval '1 hour'") == (0, 0)
    assert ids(lake, "at > now()") == []
    assert len(ids(lake, "at <= current_timestamp and day <= current_date")) == FILES * GROUPS * ROWS
    assert lake.sql("select now(), id from shop.orders where id = 3").column_names == ["now()", "id"]


def test_a_clock_that_is_not_understood_rules_nothing_out(lake: Lake) -> None:
    query = 'select * from shop.orders where at > "now"()'
    assert use(lake, query).predicate == UNKNOWN
    assert lake.sql(query).num_rows == 0


@pytest.mark.parametrize("query", ["select now()", "SELECT Current_Date", "select today()", "select current_timestamp"])
def test_clocks_are_stopped(query: str) -> None:
    fixed = at(query, dt.datetime(2024, 1, 31, 12, tzinfo=UTC))
    assert asks_the_clock(query)
    assert fixed is not None
    assert "2024-01-31" in fixed
    assert not asks_the_clock(fixed)


def test_text_is_no_clock() -> None:
    assert at("select 'now()' , now()", dt.datetime(2024, 1, 31, tzinfo=UTC)) == (
        "select 'now()' , arrow_cast('2024-01-31T00:00:00.000000Z', 'Timestamp(Microsecond, Some(\"UTC\"))')"
    )


@pytest.mark.parametrize("query", ['select "now" -- today', "select t.now, now.t"])
def test_columns_are_no_clocks(query: str) -> None:
    assert at(query, dt.datetime(2024, 1, 31, tzinfo=UTC)) == query


@pytest.mark.parametrize("query", ["select current_time", 'select "now"()', "select now() from $$now$$", "select now"])
def test_clocks_that_cannot_be_stopped(query: str) -> None:
    assert at(query, dt.datetime(2024, 1, 31, tzinfo=UTC)) is None


# -- answers from the index alone


def test_bounds_are_not_rounded_to_the_callers_decimal_context(folder: Path) -> None:
    rows = pa.table({"id": [1], "price": pa.array([Decimal("12345678901.2345")], pa.decimal128(18, 4))})
    with Lake(folder / "lake") as lake, localcontext(prec=6):
        table = lake.create_table("shop.prices", rows.schema, key="id")
        table.upsert(rows)
        table.fold()
        query = "select min(price) as price from shop.prices"
        assert use(lake, query).from_summary
        assert lake.sql(query).to_pylist() == [{"price": Decimal("12345678901.2345")}]


@pytest.mark.parametrize(
    "query",
    [
        "select count(*) from shop.orders",
        "select count(*) as n, min(id), max(id), count(name) from shop.orders",
        "select max(day) as latest, min(at), max(local), count(local), max(price), min(ok) from shop.orders",
    ],
)
def test_counts_and_bounds_come_from_the_index(lake: Lake, folder: Path, query: str) -> None:
    serving = lake._serving
    ran = serving._collected(
        serving._analysed(query, serving._catalog(lake._internals.planned(None), lake._internals.names)), QueryRun()
    )
    for path in (folder / "given").iterdir():
        written = path.stat()
        path.write_bytes(b"")
        os.utime(path, ns=(written.st_atime_ns, written.st_mtime_ns))  # or it would be noticed
    assert use(lake, query).from_summary
    assert lake.sql(query).equals(ran)


@pytest.mark.parametrize(
    "select",
    [
        "count(*) from shop.orders where id > 0",
        "count(distinct id) from shop.orders",
        "max(x) from shop.orders",
        "max(id) + 1 from shop.orders",
        "max(id) filter (where id > 3) from shop.orders",
        "count(*) from shop.orders group by ok",
        "sum(id) from shop.orders",
        "max(small + 1) from shop.orders",
    ],
)
def test_other_aggregates_are_run(lake: Lake, select: str) -> None:
    assert not use(lake, f"select {select}").from_summary


def test_with_changes_pending_aggregates_are_run(lake: Lake) -> None:
    lake.table("shop.orders").upsert([row(1_000)])
    query = "select count(*) as n, max(id) as last from shop.orders"
    assert not use(lake, query).from_summary
    assert lake.sql(query).to_pylist() == [{"n": FILES * GROUPS * ROWS + 1, "last": 1_000}]


# -- the same answers


def constants() -> st.SearchStrategy[tuple[str, str]]:
    """A column, and a constant to compare it with."""
    number = st.integers(-5, 70)
    return st.one_of(
        st.tuples(st.just("id"), number.map(str)),
        st.tuples(st.just("small"), st.integers(-300, 300).map(str)),
        st.tuples(st.just("name"), number.map(lambda n: f"'name-{n:03d}'")),
        st.tuples(st.just("name"), st.sampled_from(["''", "'changed'", "'zz'"])),
        st.tuples(st.just("day"), number.map(lambda n: f"'{dt.date(2024, 1, 1) + dt.timedelta(days=n)}'")),
        st.tuples(st.just("at"), number.map(lambda n: f"'{dt.datetime(2024, 1, 1) + dt.timedelta(hours=n)}Z'")),
        st.tuples(st.just("local"), number.map(lambda n: f"'{dt.datetime(2024, 1, 1) + dt.timedelta(hours=n)}'")),
        st.tuples(
            st.sampled_from(["x", "f"]),
            st.one_of(number.map(str), st.sampled_from(["0.0", "-0.0", "1.5", "0.1", "'NaN'", "'Infinity'"])),
        ),
        st.tuples(st.just("price"), st.sampled_from(["0", "1.25", "7.005", "-3", "1000000000"])),
        st.tuples(st.just("data"), number.map(lambda n: f"X'{n % 256:02x}ff'")),
    )


def simple() -> st.SearchStrategy[str]:
    compared = st.builds(
        lambda pair, op: f"{pair[0]} {op} {pair[1]}",
        constants(),
        st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
    )
    listed = st.builds(
        lambda pair, more, no: f"{pair[0]} {no}IN ({pair[1]}, {', '.join([pair[1]] * more)}, NULL)",
        constants(),
        st.integers(1, 5),
        st.sampled_from(["", "NOT "]),
    )
    return st.one_of(
        compared,
        listed,
        st.builds(
            lambda name, no: f"{name} IS {no}NULL", st.sampled_from(COLUMNS.names), st.sampled_from(["", "NOT "])
        ),
        st.builds(
            lambda n, end: f"name LIKE 'name-{n:02d}{end}'", st.integers(0, 9), st.sampled_from(["%", "_", "%1"])
        ),
        st.sampled_from(["ok", "NOT ok", "ok IS NOT TRUE", "length(name) = 8", "x IS NULL OR x > 3"]),
    )


def conditions() -> st.SearchStrategy[str]:
    return st.recursive(
        simple(),
        lambda inner: st.one_of(
            st.builds(lambda a, b, op: f"({a}) {op} ({b})", inner, inner, st.sampled_from(["AND", "OR"])),
            inner.map(lambda a: f"NOT ({a})"),
        ),
        max_leaves=5,
    )


@given(where=conditions())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_pruned_answers_are_those_of_all_rows(changing: tuple[Lake, SessionContext], where: str) -> None:
    lake, plain = changing
    query = f"select id, x from shop.orders where {where} order by id"
    expected = plain.sql(query).to_arrow_table().column("id").to_pylist()
    assert lake.sql(query).column("id").to_pylist() == expected
    assert lake.table("shop.orders").to_arrow(["id"], where).sort_by("id").column("id").to_pylist() == expected


@given(where=conditions())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_row_that_matches_is_left_out(changing: tuple[Lake, SessionContext], where: str) -> None:
    plain = changing[1]
    rows = plain.sql("select * from shop.orders order by id").to_arrow_table().cast(COLUMNS)
    mask = rows_that_may_match(predicate_of_where(where, COLUMNS), rows)
    matching = set(plain.sql(f"select id from shop.orders where {where}").to_arrow_table().column("id").to_pylist())
    left = set((rows if mask is None else rows.filter(mask)).column("id").to_pylist())
    assert matching <= left


def test_rows_are_told_apart_by_what_can_be_told() -> None:
    rows = pa.Table.from_pylist([row(n) for n in range(10)], schema=COLUMNS)

    def left(predicate: Any) -> list[int] | None:
        mask = rows_that_may_match(predicate, rows)
        return None if mask is None else rows.filter(mask).column("id").to_pylist()

    assert left(In("id", (3, 4, None))) == [3, 4]
    assert left(In("id", (3, 4), negated=True)) is None
    assert left(Prefix("name", "name-00")) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert left(predicate_of_where("x > 100", COLUMNS)) == [3]
    assert left(predicate_of_where("price = 1.5", COLUMNS)) == [6]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT s['a'] AS a, name FROM (SELECT s, upper(name) AS name, ok FROM t) q WHERE ok",
            [{"a": "x", "name": "N"}],
        ),
        ("SELECT s['a'] AS a, id + 1 AS id FROM (SELECT s, -id AS id, ok FROM t) q WHERE ok", [{"a": "x", "id": -4}]),
        (
            "SELECT q.s['a'] AS a FROM (SELECT s, -id AS id, ok FROM t) q JOIN t ON t.id = -q.id WHERE q.ok",
            [{"a": "x"}],
        ),
    ],
)
def test_a_name_given_in_a_subquery_is_not_taken_for_the_column(
    folder: Path, query: str, expected: list[dict[str, Any]]
) -> None:
    inside = pa.struct([("a", pa.string())])
    with Lake(folder / "lake") as lake:
        table = lake.create_table(
            "main.t",
            pa.schema([("id", pa.int64()), ("s", inside), ("ok", pa.bool_()), ("name", pa.string())]),
            key="id",
        )
        table.upsert([{"id": 5, "s": {"a": "x"}, "ok": True, "name": "n"}])
        assert lake.sql(query).to_pylist() == expected


@pytest.mark.parametrize("condition", ["reverse(x.name) <> '-'", "length(x.name) > 0", "nullif(x.name, '-') <> ''"])
def test_a_condition_on_the_optional_side_of_a_right_join_stays_there(folder: Path, condition: str) -> None:
    columns = pa.schema([("id", pa.int64()), ("name", pa.string())])
    with Lake(folder / "lake") as lake:
        lake.create_table("main.x", columns, key="id").upsert([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
        lake.create_table("main.y", columns, key="id").upsert([{"id": 1, "name": "a"}, {"id": 2, "name": "c"}])
        found = lake.sql(f"SELECT y.name FROM x RIGHT JOIN y ON x.name = y.name WHERE {condition}")
        assert found.to_pylist() == [{"name": "a"}]


@pytest.mark.parametrize("condition", ["id > 0", "id < 0"])
def test_the_types_of_an_answer_are_those_of_the_query_whatever_is_found(folder: Path, condition: str) -> None:
    columns = pa.schema([("id", pa.int64()), ("kind", pa.string()), ("price", pa.decimal128(10, 2))])
    with Lake(folder / "lake") as lake:
        table = lake.create_table("main.t", columns, key="id")
        table.upsert([{"id": n, "kind": "a", "price": Decimal(n)} for n in range(1, 4)])
        query = f"SELECT kind, count(DISTINCT id) AS n, sum(price) AS p FROM t WHERE {condition} GROUP BY kind"
        assert lake.query(query).rows.schema.field("p").type == pa.decimal128(20, 2)
