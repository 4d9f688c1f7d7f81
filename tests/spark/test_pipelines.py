"""Pipelines on Spark: targets equal their queries over the whole source, whatever changed, failed or died."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from lithify import Cancelled, CommitUnknown, Conflict, InvalidRequest, Lake, NotFound, Settings
from lithify.cli.main import app
from lithify.jobs import leases
from support.faults import FaultyStore
from support.looks import looks_counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DAY = dt.date(2026, 11, 1)
ORDERS = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("customer", pa.int64()),
        ("amount", pa.decimal128(12, 2)),
        ("status", pa.string()),
    ]
)
CLEAN = {
    "name": "clean",
    "table": "shop.orders",
    "sql": """
        select source.id, day, customers.country, amount -- '{braces}' do no harm
        from source join shop.customers on customers.id = source.customer
        where status <> 'returned';""",
    "target": "shop.clean",
    "key": "id",
}
DAILY = {
    "name": "daily",
    "table": "shop.clean",
    "by": ["day"],
    "sql": "select day, sum(amount) as revenue, count(*) as orders from source group by day",
    "target": "shop.daily",
    "key": ["day"],
}
BY_COUNTRY = {
    "name": "by_country",
    "table": "shop.clean",
    "by": ["country"],
    "sql": "select country, day, max(amount) as highest from source group by country, day",
    "target": "shop.by_country",
    "key": ["country", "day"],
}
TOP = {
    "name": "top",
    "table": "shop.daily",
    "full": True,
    "sql": "select day, revenue from source order by revenue desc, day limit 3",
    "target": "shop.top",
    "key": "day",
}


def order(
    number: int, amount: float | str = 10, day: int = 0, status: str = "paid", customer: int = 1
) -> dict[str, Any]:
    when = DAY + dt.timedelta(days=day)
    return {"id": number, "day": when, "customer": customer, "amount": Decimal(str(amount)), "status": status}


@pytest.fixture
def shop(lake: Lake) -> Lake:
    lake.create_table("shop.orders", ORDERS, key="id")
    customers = lake.create_table("shop.customers", pa.schema([("id", pa.int64()), ("country", pa.string())]), key="id")
    customers.upsert([{"id": 1, "country": "DE"}, {"id": 2, "country": "FR"}])
    return lake


def rows(lake: Lake, name: str) -> list[dict[str, Any]]:
    table = lake.table(name)
    return list(table.to_arrow().sort_by([(key, "ascending") for key in table.definition.key]).to_pylist())


# -- equal to the whole


class Oracle:
    def __init__(self) -> None:
        self.orders: dict[int, dict[str, Any]] = {}

    def clean(self) -> list[dict[str, Any]]:
        country = {1: "DE", 2: "FR"}
        return [
            {"id": n, "day": row["day"], "country": country[row["customer"]], "amount": row["amount"]}
            for n, row in sorted(self.orders.items())
            if row["status"] != "returned"
        ]

    def daily(self) -> list[dict[str, Any]]:
        found: dict[Any, list[Decimal]] = defaultdict(list)
        for row in self.clean():
            found[row["day"]].append(row["amount"])
        return [{"day": d, "revenue": sum(found[d]), "orders": len(found[d])} for d in sorted(found)]

    def by_country(self) -> list[dict[str, Any]]:
        found: dict[Any, Decimal] = {}
        for row in self.clean():
            group = (row["country"], row["day"])
            found[group] = max(found.get(group, row["amount"]), row["amount"])
        return [{"country": c, "day": d, "highest": found[c, d]} for c, d in sorted(found)]

    def top(self) -> list[dict[str, Any]]:
        best = sorted(self.daily(), key=lambda row: (-row["revenue"], row["day"]))[:3]
        return sorted(({"day": row["day"], "revenue": row["revenue"]} for row in best), key=lambda row: row["day"])


def test_targets_follow_random_changes_as_if_computed_anew(shop: Lake) -> None:
    chance, oracle = random.Random(6), Oracle()
    orders = shop.table("shop.orders")
    pipeline = shop.pipeline("sales", {"steps": [TOP, DAILY, BY_COUNTRY, CLEAN]})
    for turn in range(3):
        changed = {n: order(n, chance.randint(1, 99), chance.randrange(6)) for n in chance.sample(range(60), 15)}
        for row in changed.values():
            row |= {"customer": chance.choice((1, 2)), "status": chance.choice(("paid", "paid", "returned"))}
        orders.upsert(list(changed.values()))
        oracle.orders |= changed
        gone = chance.sample(sorted(oracle.orders), 4)
        orders.delete(gone)
        for number in gone:
            del oracle.orders[number]
        if turn == 1:
            orders.fold()
            shop.table("shop.clean").fold()

        report = pipeline.run()

        assert report.steps[0].step == "sales.clean"
        assert {step.since is None for step in report.steps if step.kind != "full"} == {turn == 0}
        assert rows(shop, "shop.clean") == oracle.clean()
        assert rows(shop, "shop.daily") == oracle.daily()
        assert rows(shop, "shop.by_country") == oracle.by_country()
        assert rows(shop, "shop.top") == oracle.top()

    assert pipeline.run().outcome == "idle"
    again = pipeline.run(full=True)
    assert [(step.written, step.deleted) for step in again.steps] == [(0, 0)] * 4
    assert shop.table("shop.daily").history(1)[0].detail == "sales.daily: shop.clean → 4"


def test_a_run_looks_at_each_log_when_it_begins_and_once_in_each_step_that_needs_it(shop: Lake) -> None:
    pipeline = shop.pipeline("sales", {"steps": [CLEAN, DAILY]})
    shop.table("shop.orders").upsert([order(1), order(2, day=1)])
    pipeline.run()
    shop.table("shop.orders").upsert([order(1, 20, day=1), order(3, status="returned")])

    with looks_counted() as looks:
        report = pipeline.run()

    assert [step.outcome for step in report.steps] == ["done", "done"]
    begins_and_one_step, begins_and_both_steps = 2, 3
    assert looks == {
        "orders/changes": begins_and_one_step,
        "orders/base": begins_and_one_step,
        "customers/changes": begins_and_one_step,
        "customers/base": begins_and_one_step,
        "clean/changes": begins_and_both_steps,
        "clean/base": begins_and_both_steps,
        "daily/changes": begins_and_one_step,
        "daily/base": begins_and_one_step,
    }


def test_large_answers_are_written_by_spark_to_the_same_end(tmp_path: Path, spark: SparkSession) -> None:
    expect = [
        {"name": "some", "that": "amount >= 1", "otherwise": "quarantine"},
        {"name": "few", "that": "amount < 50", "otherwise": "warn"},
        {"name": "never", "that": "id >= 0"},
    ]
    with Lake(tmp_path / "lake", spark=spark, settings=Settings(stream_rows_max=5)) as lake:
        orders = lake.create_table("shop.orders", ORDERS, key="id")
        orders.upsert([order(n, n) for n in range(30)])
        step = {**CLEAN, "sql": "select id, amount from source where status <> 'returned'", "expect": expect}
        pipeline = lake.pipeline("sales", {"steps": [step]})
        first = pipeline.run().steps[0]
        orders.upsert([order(n, 100) for n in range(3, 12)] + [order(20, "0.5"), order(21, status="returned")])
        orders.delete([22])
        second = pipeline.run().steps[0]

        assert (first.written, first.quarantined, first.warned) == (29, 1, {})
        assert (second.since, second.written, second.deleted, second.quarantined) == (1, 9, 3, 1)
        assert second.warned == {"few": 9}
        left = [n for n in range(1, 30) if n not in (20, 21, 22)]
        assert [row["id"] for row in rows(lake, "shop.clean")] == left
        assert second.quarantine is not None
        (line,) = [json.loads(x) for file in Path(second.quarantine).glob("*.json") for x in file.open()]
        assert line["why"] == "does not hold: some"
        assert json.loads(line["record"])["id"] == 20
        before = lake.table("shop.clean").snapshot().seq
        orders.upsert([order(n, 1) for n in range(-9, 0)])
        with pytest.raises(InvalidRequest, match=r"'never'.*9 rows.*left as it was"):
            pipeline.run()
        assert lake.table("shop.clean").snapshot().seq == before


# -- failing and dying


def test_a_failing_expectation_leaves_its_target_and_what_comes_after_as_they_were(shop: Lake) -> None:
    strict = {**DAILY, "expect": [{"name": "earned", "that": "revenue > 0"}]}
    pipeline = shop.pipeline("sales", {"steps": [CLEAN, strict]})
    shop.table("shop.orders").upsert([order(1), order(2, day=1)])
    pipeline.run()
    shop.table("shop.orders").upsert([order(1, 20), order(3, -5, day=2)])
    before = rows(shop, "shop.daily"), shop.table("shop.daily").snapshot().seq

    with pytest.raises(InvalidRequest, match=r"sales\.daily.*'earned' \(revenue > 0\).*1 row.*2026-11-03"):
        pipeline.run()

    assert (rows(shop, "shop.daily"), shop.table("shop.daily").snapshot().seq) == before
    assert [row["amount"] for row in rows(shop, "shop.clean")] == [20, 10, -5]
    (record, *_) = pipeline.history()
    assert (record["outcome"], [step["outcome"] for step in record["steps"]]) == ("failed", ["done", "failed"])
    shop.table("shop.orders").upsert([order(3, 5, day=2)])
    pipeline.run()
    assert [row["revenue"] for row in rows(shop, "shop.daily")] == [20, 10, 5]


def test_quarantined_rows_leave_the_target_and_come_back_when_they_hold(shop: Lake) -> None:
    expect = [
        {"name": "positive", "that": "amount > 0", "otherwise": "quarantine"},
        {"name": "known", "that": "country is not null", "otherwise": "quarantine"},
        {"name": "small", "that": "amount < 1000", "otherwise": "warn"},
    ]
    pipeline = shop.pipeline("sales", {"steps": [{**CLEAN, "expect": expect}]})
    orders = shop.table("shop.orders")
    orders.upsert([order(1), order(2, 5000)])
    assert pipeline.run().steps[0].warned == {"small": 1}

    orders.upsert([order(1, -1)])
    step = pipeline.run().steps[0]

    assert (step.written, step.deleted, step.quarantined) == (0, 1, 1)
    assert step.quarantine is not None
    record = json.loads((Path(step.quarantine) / "part-00000.json").read_text())
    assert record["why"] == "does not hold: positive"
    assert json.loads(record["record"])["amount"] == "-1.00"
    assert [row["id"] for row in rows(shop, "shop.clean")] == [2]
    orders.upsert([order(1, 1)])
    pipeline.run()
    assert [row["id"] for row in rows(shop, "shop.clean")] == [1, 2]


class Died(Exception):
    pass


def die() -> None:
    raise Died


def write_events(folder: Path, turn: int) -> None:
    lines = [json.dumps({"user": turn * 10 + n, "day": str(DAY + dt.timedelta(days=n % 2))}) for n in range(4)]
    (folder / f"{turn}.json").write_text("\n".join(lines) + "\n")


def test_a_run_that_died_anywhere_is_taken_up_without_losing_or_doubling_a_row(
    tmp_path: Path, spark: SparkSession
) -> None:
    inbox, lake = tmp_path / "inbox", tmp_path / "lake"
    inbox.mkdir()
    steps = [
        {"name": "events", "files": f"{inbox}/*.json", "target": "log.events", "mode": "append"},
        {
            "table": "log.events",
            "by": "day",
            "sql": "select day, count(*) as events from source group by day",
            "target": "log.daily",
            "key": "day",
        },
    ]
    points = ("pipeline.ledger", "write.commit", "write.committed", "pipeline.step", "pipeline.computed")
    for turn, point in enumerate(points):
        write_events(inbox, turn)
        nth = 2 if point == "pipeline.computed" else 1  # that of the second step
        with (
            Lake(lake, spark=spark, store=FaultyStore(point, die, nth)) as broken,
            pytest.raises((Died, CommitUnknown)),
        ):
            broken.pipeline("log", {"steps": steps}).run()

        with Lake(lake, spark=spark) as healed:
            healed.pipeline("log", {"steps": steps}).run()
            users = sorted(row["user"] for row in healed.table("log.events").to_arrow().to_pylist())
            assert users == [t * 10 + n for t in range(turn + 1) for n in range(4)], point
            assert [row["events"] for row in rows(healed, "log.daily")] == [2 * turn + 2] * 2, point
    assert len(list((lake / "_lithify" / "pipelines" / "log" / "events").iterdir())) == 1


def test_a_second_run_at_the_same_time_is_refused(shop: Lake) -> None:
    pipeline = shop.pipeline("sales", {"steps": [CLEAN]})
    _, lease = leases.acquire(shop._runtime, "pipeline-sales", "other", 60)

    with pytest.raises(Conflict, match="pipeline sales is being run by"):
        pipeline.run()

    leases.release(shop._runtime, lease)


# -- what makes a step begin again


def test_a_changed_declaration_or_another_source_means_the_whole_source(shop: Lake) -> None:
    orders = shop.table("shop.orders")
    orders.upsert([order(1), order(2, status="returned"), order(3)])
    shop.pipeline("sales", {"steps": [CLEAN]}).run()

    everything = {**CLEAN, "sql": CLEAN["sql"].replace("status <> 'returned'", "source.id <> 3")}
    step = shop.pipeline("sales", {"steps": [everything]}).run().steps[0]

    assert (step.since, step.written, step.deleted) == (None, 1, 1)
    assert "another one" in step.why
    assert [row["id"] for row in rows(shop, "shop.clean")] == [1, 2]
    shop.drop_table("shop.orders")
    shop.create_table("shop.orders", ORDERS, key="id").upsert([order(7)])
    shop.pipeline("sales", {"steps": [everything]}).run()
    assert [row["id"] for row in rows(shop, "shop.clean")] == [7]


def test_what_vacuum_has_removed_means_the_whole_source(shop: Lake) -> None:
    orders = shop.table("shop.orders")
    orders.upsert([order(1), order(2)])
    pipeline = shop.pipeline("sales", {"steps": [CLEAN]})
    pipeline.run()
    orders.upsert([order(2, 7)])
    orders.delete([1])
    orders.fold()
    for file in (orders._internals.handles.folder / "changes").glob("write-*.parquet"):
        file.unlink()  # as a vacuum would when its time has come

    step = pipeline.run().steps[0]

    assert (step.since, step.written, step.deleted) == (None, 1, 1)
    assert "no longer all there" in step.why
    assert [(row["id"], row["amount"]) for row in rows(shop, "shop.clean")] == [(2, 7)]


def test_a_table_without_a_key_arrives_row_by_row_and_by_groups(shop: Lake) -> None:
    events = shop.create_table("log.events", pa.schema([("user", pa.int64()), ("n", pa.int64())]))
    steps = [
        {"name": "latest", "table": "log.events", "target": "log.latest", "key": "user", "order_by": "n"},
        {
            "name": "count",
            "table": "log.events",
            "by": "user",
            "sql": "select user, count(*) as n from source group by user",
            "target": "log.counts",
            "key": "user",
        },
    ]
    pipeline = shop.pipeline("log", {"steps": steps})
    events.append([{"user": 1, "n": 5}, {"user": 2, "n": 1}, {"user": None, "n": 0}])
    with pytest.raises(InvalidRequest, match="null"):
        pipeline.run(step="count")
    events.delete([{"user": None}])
    events.append([{"user": 1, "n": 3}])
    pipeline.run()
    events.append([{"user": 2, "n": 9}])
    pipeline.run()
    assert [row["n"] for row in rows(shop, "log.latest")] == [5, 9]
    assert [row["n"] for row in rows(shop, "log.counts")] == [2, 2]

    events.delete([{"user": 1}])

    with pytest.raises(InvalidRequest, match="were deleted, and it has no key"):
        pipeline.run()
    pipeline.run(step="count")
    assert [row["user"] for row in rows(shop, "log.counts")] == [2]


# -- files


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    return folder


def put(path: Path, text: str, second: int) -> None:
    path.write_text(text)
    os.utime(path, (1_700_000_000 + second,) * 2)


def test_each_file_is_read_once_the_younger_one_wins_and_a_changed_one_is_read_again(lake: Lake, inbox: Path) -> None:
    put(inbox / "b.csv", "id,name,more\n1,old,x\n2,two,x\n", 1)
    put(inbox / "a.csv", "id,name\n1,new\n", 2)
    (inbox / "_hidden.csv").write_text("id,name\n9,no\n")
    step = {"files": f"{inbox}/*.csv", "schema": "id BIGINT, name STRING", "target": "s.t", "key": "id"}
    pipeline = lake.pipeline("in", {"steps": [step]})

    first = pipeline.run().steps[0]

    assert (first.files, first.read, first.written) == (2, 3, 2)
    assert [(row["id"], row["name"]) for row in rows(lake, "s.t")] == [(1, "new"), (2, "two")]
    assert pipeline.run().outcome == "idle"
    put(inbox / "c.csv", "id,name\n3,3\n", 3)
    put(inbox / "a.csv", "id,name\n1,newest\n", 4)
    second = pipeline.run().steps[0]
    assert (second.files, second.written) == (2, 2)
    assert [row["name"] for row in rows(lake, "s.t")] == ["newest", "two", "3"]
    assert lake.table("s.t").history(1)[0].operation == "pipeline"


def test_records_that_cannot_be_read_fail_the_step_or_are_set_aside(lake: Lake, inbox: Path) -> None:
    (inbox / "a.json").write_text('{"id": 1, "n": "x"}\n{"id": 2, "n": 5, "extra": 1}\n{torn\n')
    step = {"files": str(inbox), "schema": "id BIGINT, n INT", "target": "s.t", "key": "id"}
    with pytest.raises(InvalidRequest, match=r"(?s)2 records.*left as it was.*a\.json, line 1.*does not fit int"):
        lake.pipeline("in", {"steps": [step]}).run()
    with pytest.raises(NotFound):
        lake.table("s.t")

    found = lake.pipeline("in", {"steps": [{**step, "bad_records": "quarantine"}]}).run().steps[0]

    assert (found.read, found.written, found.quarantined) == (3, 1, 2)
    assert found.quarantine is not None
    aside = [json.loads(line) for file in Path(found.quarantine).glob("*.json") for line in file.open()]
    assert [(line["line"], line["column"], line["record"]) for line in aside] == [
        (1, "n", '{"id": 1, "n": "x"}'),
        (3, None, "{torn"),
    ]
    assert rows(lake, "s.t") == [{"id": 2, "n": 5}]


def test_appended_files_are_neither_read_again_nor_replaced(lake: Lake, inbox: Path) -> None:
    put(inbox / "a.json", '{"id": 1}\n', 1)
    pipeline = lake.pipeline("in", {"steps": [{"files": f"{inbox}/*", "target": "s.t"}]})
    pipeline.run()
    with pytest.raises(InvalidRequest, match="would add all rows once more"):
        pipeline.run(full=True)
    put(inbox / "a.json", '{"id": 7}\n', 2)

    with pytest.raises(InvalidRequest, match=r"a\.json has changed after it was read"):
        pipeline.run()

    assert lake.table("s.t").to_arrow().to_pylist() == [{"id": 1}]


# -- plans and mistakes


def test_a_plan_tells_what_each_step_would_read_and_writes_nothing(shop: Lake, inbox: Path) -> None:
    (inbox / "a.json").write_text('{"id": 4}\n')
    expect = [{"name": "positive", "that": "amount > 0", "otherwise": "warn"}]
    files = {"files": f"{inbox}/*.json", "target": "shop.more", "key": "id"}
    pipeline = shop.pipeline("sales", {"steps": [DAILY, {**CLEAN, "expect": expect}, files]})
    shop.table("shop.orders").upsert([order(1), order(2)])
    pipeline.run(step="clean")
    shop.table("shop.orders").upsert([order(2, 3), order(3)])
    tables = shop.tables()

    clean, daily, more = pipeline.plan().steps

    assert (clean.step, clean.does, clean.since, clean.until, clean.changed) == ("sales.clean", "rows", 1, 2, 2)
    assert list(clean.lookups) == ["shop.customers"]
    assert list(clean.expectations) == ["positive: amount > 0, otherwise warn"]
    assert (daily.does, daily.why, daily.changed) == ("everything", "what sales.clean writes", None)
    assert (daily.creates, list(daily.key), daily.columns["orders"]) == (True, ["day"], "int64")
    assert (more.kind, more.changed, list(more.files)) == ("files", 1, [str(inbox / "a.json")])
    assert shop.tables() == tables
    assert pipeline.plan(full=True, step="clean").steps[0].does == "everything"


@pytest.fixture
def bad(shop: Lake) -> Iterator[Any]:
    def run(**changes: Any) -> None:
        shop.pipeline("sales", {"steps": [{**CLEAN, **changes}]}).run()

    shop.table("shop.orders").upsert([order(1), order(2)])
    yield run
    assert shop.tables() == ["shop.customers", "shop.orders"]


def test_mistakes_are_found_before_anything_is_done(bad: Any) -> None:
    mistakes: list[tuple[dict[str, Any], str]] = [
        (
            {"sql": "select id,\n  amount form source where from source"},
            r"sales\.clean: Syntax error at or near '[^']*' \(line 2, column",
        ),
        ({"sql": "select id, amout from source"}, r"`amout` cannot be resolved.*`amount`.*\(line 1, column 12\)"),
        ({"sql": "select source.id from source join shop.nobody n using (id)"}, r"`shop`\.`nobody` cannot be found"),
        ({"sql": "select amount from source"}, r"key column 'id' is not in the schema: it has amount"),
        ({"sql": "select id, id from source"}, r"'id' comes out twice"),
        ({"sql": "delete from source"}, r"Syntax error"),
        ({"sql": "select day, sum(amount) s from source group by day"}, r"key column 'id'"),
        ({"sql": "select id, count(*) n from source group by id"}, r"has GROUP BY.*does not go row by row"),
        ({"sql": "select max(id) as id from source"}, r"answers with rows where the source has none"),
        (
            {"sql": "select cast(id as string) as id from source"},
            r"'id' is int64 in shop.orders and comes out as string",
        ),
        ({"key": "customer", "sql": "select customer from source"}, r"the key of shop.orders \(id\), not customer"),
        ({"key": []}, r"needs a key"),
        ({"by": ["dya"]}, r"by names 'dya', which is no column of shop.orders"),
        ({"by": ["status"]}, r"by names 'status', which does not come out"),
        ({"target": "shop.customers", "sql": "select id, day from source"}, r"column 'day' is not in the table"),
        (
            {"target": "shop.customers", "sql": "select id, status as country from source", "time": "day"},
            "another time",
        ),
        ({"expect": [{"that": "amout > 0"}]}, r"expectation 'amout > 0': .*`amout` cannot be resolved"),
        ({"table": "shop.nobody"}, r"reads table shop.nobody, which there is not"),
        ({"sql": "select source.* from source join shop.clean c using (id)"}, r"circle"),
    ]
    for changes, message in mistakes:
        with pytest.raises((InvalidRequest, NotFound), match=message):
            bad(**changes)


def test_a_query_whose_rows_belong_to_no_row_that_went_in_is_refused(shop: Lake) -> None:
    shop.table("shop.orders").upsert([order(1)])
    moved = {**CLEAN, "sql": "select id + 1 as id, amount from source"}
    twice = {
        **CLEAN,
        "target": "shop.twice",
        "name": "twice",
        "sql": "select id, explode(array(1, 2)) as n from source",
    }
    shop.pipeline("sales", {"steps": [moved]}).run()
    shop.table("shop.orders").upsert([order(5)])

    with pytest.raises(InvalidRequest, match=r"a row comes out whose id none of the rows that went in has.*6"):
        shop.pipeline("sales", {"steps": [moved]}).run()
    with pytest.raises(InvalidRequest, match=r'more than one row comes out for a key.*\{"id": 1\}'):
        shop.pipeline("sales", {"steps": [twice]}).run()
    assert "shop.twice" not in shop.tables()


# -- from outside


def test_a_run_that_is_stopped_starts_no_further_step(shop: Lake) -> None:
    shop.table("shop.orders").upsert([order(1)])
    pipeline = shop.pipeline("sales", {"steps": [CLEAN, DAILY]})

    report = pipeline.run(on_event=lambda event: pipeline.stop() if event["event"] == "step done" else None)

    assert (report.outcome, [step.step for step in report.steps]) == ("stopped", ["sales.clean"])
    assert shop.pipeline("sales", {"steps": [CLEAN, DAILY]}).run().steps[1].written == 1


def test_a_run_that_is_cancelled_leaves_what_spark_computes_and_writes_nothing(
    tmp_path: Path, spark: SparkSession
) -> None:
    endless = "select source.id, count(*) as n from source, range(0, 100000000000000) r group by source.id"
    step = {"name": "endless", "table": "shop.orders", "by": "id", "sql": endless, "target": "shop.counts", "key": "id"}
    ended = threading.Event()
    with Lake(tmp_path / "lake") as lake:  # with a session of its own, as far as it knows
        lake.create_table("shop.orders", ORDERS, key="id").upsert([order(1)])
        pipeline = lake.pipeline("sales", {"steps": [step]})

        def cancel_until_ended() -> None:
            while not ended.wait(0.2):
                pipeline.cancel()

        canceller = threading.Thread(target=cancel_until_ended)
        with pytest.raises(Cancelled, match="pipeline sales was cancelled"):
            pipeline.run(on_event=lambda event: canceller.start() if event.get("stage") == "computing" else None)
        ended.set()
        canceller.join()

        assert lake.tables() == ["shop.orders"]
        assert pipeline.history(1)[0]["outcome"] == "failed"


def test_the_command_plans_runs_and_tells_what_it_did(
    shop: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lithify.toml").write_text(
        """
        [[pipelines.sales.steps]]
        name = "clean"
        table = "shop.orders"
        sql = "select id, amount from source where status <> 'returned'"
        target = "shop.clean"
        key = "id"
        expect = [{ name = "small", that = "amount < 50", otherwise = "warn" }]
        """
    )
    monkeypatch.chdir(tmp_path)
    shop.table("shop.orders").upsert([order(1), order(2, 99), order(3, status="returned")])

    def lithify(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["--lake", str(shop.path), "pipeline", *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    plan = lithify("run", "sales", "--dry-run")
    assert "it has not run yet" in plan
    assert "sales.clean: shop.clean creates id int64, amount decimal128(12, 2); key id" in plan
    (run,) = json.loads(lithify("run", "--json"))["runs"]
    assert (run["outcome"], run["steps"][0]["read"], run["steps"][0]["written"]) == ("done", 3, 2)
    shop.table("shop.orders").delete([1])
    text = lithify("run", "sales", "--once")
    assert "shop.orders 1 → 2" in text
    assert "1 step done" in text
    assert "shop.orders → 1" in lithify("history")
