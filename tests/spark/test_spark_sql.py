"""Statements on Spark: DataFrames and views as sources, the same counts and rows as `lake.execute`, one commit each."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lithify import Conflict, Executed, InvalidRequest, Lake, Settings
from support.effort import examples
from support.faults import FaultyStore, Gate
from support.statement_programs import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("status", pa.string(), nullable=False),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("placed", pa.timestamp("us", "UTC")),
        pa.field("n", pa.int32()),
    ]
)
FIRST = "insert into shop.orders (id, status, amount, n) values (1, 'new', 5, 1), (2, 'paid', 7.5, 2)"


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Lake]:
    with Lake(tmp_path / "lake", spark=spark) as lake:
        lake.create_table("shop.orders", COLUMNS, key="id")
        lake.execute(FIRST)
        yield lake


def rows(lake: Lake, columns: str = "id, status, n", table: str = "shop.orders") -> list[tuple[Any, ...]]:
    found = lake.sql(f"select {columns} from {table} order by {columns.split(',')[0]}")
    return [tuple(row.values()) for row in found.to_pylist()]


def counted(done: Any) -> tuple[int, int, int]:
    assert isinstance(done, Executed)
    return done.inserted, done.updated, done.deleted


def test_a_frame_is_merged_in_one_commit(lake: Lake, spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "gone", 0), (2, "shipped", 5), (3, "new", 7)], "id long, status string, n int")

    done = lake.spark_sql(
        """MERGE INTO shop.orders AS t USING df AS s ON t.id = s.id
           WHEN MATCHED AND s.status = 'gone' THEN DELETE
           WHEN MATCHED THEN UPDATE SET status = s.status, n = t.n + s.n
           WHEN NOT MATCHED THEN INSERT (id, status, n) VALUES (s.id, s.status, s.n)""",
        df=frame,
        reason="test",
    )

    assert (done.statement, done.table, done.seq) == ("merge", "shop.orders", 2)
    assert counted(done) == (1, 1, 1)
    assert rows(lake) == [(2, "shipped", 7), (3, "new", 7)]
    assert lake.table("shop.orders").history()[0].reason == "test"


def test_views_of_the_session_are_sources_too(lake: Lake, spark: SparkSession) -> None:
    spark.createDataFrame([(2, 10), (9, 20)], "id long, more int").createOrReplaceTempView("additions")
    try:
        done = lake.spark_sql(
            "UPDATE shop.orders SET n = n + additions.more FROM additions WHERE orders.id = additions.id"
        )
        assert counted(done) == (0, 1, 0)
        done = lake.spark_sql(
            "DELETE FROM shop.orders AS o USING additions a WHERE o.id = a.id AND a.more >= :least", {"least": 10}
        )
        assert counted(done) == (0, 0, 1)
    finally:
        spark.catalog.dropTempView("additions")
    assert rows(lake) == [(1, "new", 1)]


def test_select_reads_tables_of_the_lake_beside_frames(lake: Lake, spark: SparkSession) -> None:
    lake.execute("update shop.orders set n = 50 where id = 1")
    frame = spark.createDataFrame([(1, "Ada")], "id long, name string")

    answer = lake.spark_sql(
        "select people.name, shop.orders.n, old.n as before from shop.orders join people on people.id = orders.id "
        'join shop.orders version as of 1 as old on old.id = orders.id where "name" = $1',
        ["Ada"],
        people=frame,
    )

    assert [tuple(row) for row in answer.collect()] == [("Ada", 50, 1)]
    assert [row.id for row in lake.spark_sql("select id from shop.orders order by id desc").collect()] == [2, 1]


def test_insert_and_on_conflict(lake: Lake, spark: SparkSession) -> None:
    frame = spark.createDataFrame([(2, "b", 5), (3, "c", 6)], "id long, status string, n int")

    with pytest.raises(Conflict, match="has a row already with the key id = 2"):
        lake.spark_sql("insert into shop.orders (id, status, n) select * from df", df=frame)
    assert lake.table("shop.orders").snapshot().seq == 1
    text = "insert into shop.orders (id, status, n) select * from df on conflict"
    assert counted(lake.spark_sql(f"{text} do nothing", df=frame, dry_run=True)) == (1, 0, 0)
    done = lake.spark_sql(
        f"{text} (id) do update set n = n + excluded.n, status = orders.status || excluded.status", df=frame
    )
    assert counted(done) == (1, 1, 0)
    assert rows(lake)[1:] == [(2, "paidb", 7), (3, "c", 6)]
    done = lake.spark_sql(
        "insert into shop.orders (id, status) values (2, 'x'), (4, 'first'), (4, 'second') on conflict do nothing"
    )
    assert counted(done) == (1, 0, 0)
    assert rows(lake)[3:] == [(4, "first", None)]


def test_constants_quotes_and_parameters_mean_what_they_mean_in_execute(lake: Lake) -> None:
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
    lake.spark_sql(
        r"insert into shop.orders values (3, 'it''s \n {x}', 12, $1, 1), (4, 'ab', 0.05, null, $2)",
        [moment, 7],
    )
    lake.spark_sql('update shop.orders set "status" = "status" || :more, `n` = `n` + 1 where id = 4', {"more": "'\\"})

    assert rows(lake, "id, status, amount, placed, n")[2:] == [
        (3, "it's \\n {x}", Decimal("12.00"), moment, 1),
        (4, "ab'\\", Decimal("0.05"), None, 8),
    ]


def test_a_statement_that_is_sent_again_is_executed_once(lake: Lake) -> None:
    text = "update shop.orders set n = n + 1"
    first = lake.spark_sql(text, batch_id="b1")
    again = lake.spark_sql(text, batch_id="b1")

    assert (counted(again), again.seq, again.replayed) == ((0, 2, 0), first.seq, True)
    assert rows(lake) == [(1, "new", 2), (2, "paid", 3)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("update shop.orders set id = 3", "part of the key"),
        ("update shop.orders set nothing = 3", "column 'nothing' is not in table"),
        ("update shop.orders set n = 'many'", "column 'n'"),
        ("update shop.orders set amount = amount * 1.001", "column 'amount'"),
        ("insert into shop.orders (id, status) values (null, 'x')", "column 'id' is null"),
        ("insert into shop.orders (id, status) values (7, 'x'), (7, 'y')", "two of the rows .* have the key id = 7"),
        ("insert into shop.orders select 1", "1 values for 5 columns"),
        (
            "merge into shop.orders t using (select 1 as id union all select 1) s on t.id = s.id "
            "when matched then update set n = 0",
            "more than one row of the source matches .* id = 1",
        ),
        (
            "merge into shop.orders t using (select 1 as id) s on t.id = s.id + 100 "
            "when not matched then insert (id, status) values (s.id, 'x')",
            "ON did not match, a row that is there",
        ),
        (
            "merge into shop.orders t using (select 8 as id union all select 8) s on t.id = s.id "
            "when not matched then insert (id, status) values (s.id, 'x')",
            "two rows of the source insert",
        ),
        ("update shop.orders set n = nowhere.n from nowhere", "nowhere"),
        ("set spark.x = 1", "lake.spark.sql"),
        ("select r'a' from shop.orders", "lake.spark.sql takes all"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_is_written(lake: Lake, text: str, said: str) -> None:
    with pytest.raises((InvalidRequest, Conflict), match=said):
        lake.spark_sql(text)
    assert lake.table("shop.orders").snapshot().seq == 1


def test_a_large_effect_is_written_by_the_executors_and_wins_over_order_by(tmp_path: Path, spark: SparkSession) -> None:
    with Lake(tmp_path / "lake", spark=spark, settings=Settings(stream_rows_max=10)) as lake:
        columns = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("v", pa.string())])
        table = lake.create_table("a.t", columns, key="id", order_by="at")
        frame = spark.range(1000).selectExpr("id", "100 as at", "cast(id as string) as v")
        assert counted(lake.spark_sql("insert into a.t select * from df", df=frame)) == (1000, 0, 0)
        table.fold()

        source = spark.range(500, 1500).selectExpr("id", "id % 4 as what")
        done = lake.spark_sql(
            """merge into a.t using df on t.id = df.id
               when matched and what = 0 then delete
               when matched and what < 3 then update set v = 'merged', at = 1
               when not matched then insert values (df.id, 5, 'new')
               when not matched by source and t.id < 10 then delete""",
            df=source,
        )

        assert counted(done) == (500, 250, 135)
        assert done.seq == 2
        counts = lake.sql(
            "select v in ('merged', 'new') as fresh, at, count(*) as n from a.t group by 1, 2 order by 1, 2"
        )
        assert [tuple(row.values()) for row in counts.to_pylist()] == [
            (False, 100, 615),
            (True, 1, 250),
            (True, 5, 500),
        ]
        with pytest.raises(InvalidRequest, match="column 'at'"):
            lake.spark_sql("insert into a.t select id + 5000, 'x', 'y' from df", df=source)


def test_a_statement_that_was_overtaken_is_decided_again(tmp_path: Path, spark: SparkSession) -> None:
    for small_max in (100_000, 0):
        path = tmp_path / f"lake-{small_max}"
        with Lake(path) as other:
            other.create_table("a.t", pa.schema([("id", pa.int64()), ("n", pa.int64())]), key="id")
            other.table("a.t").upsert([{"id": 1, "n": 10}])
            gate = Gate()
            store = FaultyStore("write.files" if small_max else "bulk.written", gate.hold)
            settings = Settings(stream_rows_max=small_max)
            with Lake(path, spark=spark, settings=settings, store=store) as lake, ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(lake.spark_sql, "update a.t set n = n + 1 where n >= 10")
                gate.wait()
                other.table("a.t").upsert([{"id": 1, "n": 20}, {"id": 2, "n": 5}])
                gate.open()
                done = waiting.result(120)

            assert (counted(done), done.seq) == ((0, 1, 0), 3)
            assert rows(other, "id, n", "a.t") == [(1, 21), (2, 5)]


@pytest.mark.parametrize(("key", "order_by", "small_max"), [("id", None, 100), ("id", "seen", 0), (None, None, 0)])
@pytest.mark.parametrize("seed", range(examples(1, 20)))
def test_random_programs_are_equal_row_for_row_to_duckdb(
    tmp_path: Path, spark: SparkSession, seed: int, key: str | None, order_by: str | None, small_max: int
) -> None:
    settings = Settings(stream_rows_max=small_max)
    with Lake(tmp_path / "lake", spark=spark, settings=settings) as lake:
        accepted = run(lake, lake.spark_sql, seed, key=key, order_by=order_by, statements=15)
    assert accepted > 3


def test_a_table_is_created_with_the_rows_of_a_query(lake: Lake, spark: SparkSession) -> None:
    frame = spark.createDataFrame([(2, "b"), (1, "a")], "id long, name string")
    done = lake.spark_sql("CREATE TABLE shop.made (PRIMARY KEY (id)) AS SELECT id, upper(name) name FROM df", df=frame)
    assert (done.inserted, done.seq) == (2, 1)
    assert lake.table("shop.made").to_arrow().to_pylist() == [{"id": 1, "name": "A"}, {"id": 2, "name": "B"}]
    again = "CREATE TABLE IF NOT EXISTS shop.made AS SELECT 1 AS x"
    assert lake.spark_sql(again).inserted == 0
    with pytest.raises(Conflict, match="is there already"):
        lake.spark_sql("CREATE TABLE shop.made AS SELECT 1 AS x")
    with pytest.raises(Conflict, match="key id = 1"):
        lake.spark_sql("CREATE TABLE shop.twice (PRIMARY KEY (id)) AS SELECT 1 AS id FROM shop.made")
    assert "shop.twice" not in [str(name) for name in lake.tables()]
