"""Statements about tables, questions about them, and tables as they were."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Conflict, InvalidRequest, Lake, NotFound, Unavailable
from lithify.errors import LithifyError
from support.faults import FaultyStore, RecordingStore, Stopped


def ids(lake: Lake, query: str) -> list[Any]:
    return sorted(lake.sql(query).column(0).to_pylist())


def test_create_table_says_columns_key_and_options(lake: Lake) -> None:
    lake.execute(
        """CREATE TABLE shop.items (
               id bigint, line int, "Name" varchar(20) NOT NULL, price decimal(12, 2), seen timestamptz, at timestamp,
               tags list<string>, PRIMARY KEY (id, line)
           ) WITH (order_by = seen, partition_by = (line), sort_by = ("Name", id), row_group_rows = 32768)"""
    )

    found = lake.table("shop.items").definition
    assert (found.key, found.order_by, found.partition_by) == (("id", "line"), "seen", ("line",))
    assert [str(kind) for kind in found.columns.types] == [
        *("int64", "int32", "string", "decimal128(12, 2)", "timestamp[us, tz=UTC]", "timestamp[us]"),
        "list<element: string>",
    ]
    assert [f.name for f in found.columns if not f.nullable] == ["id", "line", "Name"]
    assert (found.options["sort_by"], found.options["row_group_rows"]) == (("Name", "id"), 32768)


@pytest.mark.parametrize("spelled", ["'seen, line'", "(seen, line)", "'seen,line'"])
def test_create_table_with_several_columns_that_say_what_is_newer(lake: Lake, spelled: str) -> None:
    lake.execute(f"create table shop.t (id bigint primary key, seen timestamp, line int) with (order_by = {spelled})")
    assert lake.table("shop.t").definition.order_by == ("seen", "line")
    lake.execute(f"create table shop.u (primary key (id)) with (order_by = {spelled}) as select * from shop.t")
    assert lake.table("shop.u").definition.order_by == ("seen", "line")


@pytest.mark.parametrize("spelled", ["'p_at=price,cur; s_at=stock'", "('p_at=price, cur', 's_at = stock')"])
def test_create_table_with_order_groups(lake: Lake, spelled: str) -> None:
    columns = "id bigint primary key, price int, cur text, p_at timestamp, stock int, s_at bigint"
    lake.execute(f"create table shop.t ({columns}) with (order_groups = {spelled})")
    groups = {"p_at": ("price", "cur"), "s_at": ("stock",)}
    assert lake.table("shop.t").definition.order_groups == groups
    lake.execute(f"create table shop.u (primary key (id)) with (order_groups = {spelled}) as select * from shop.t")
    assert lake.table("shop.u").definition.order_groups == groups
    for wrong, said in (("7", "order_groups is a text"), ("'price'", "is no order group"), ("'p_at=id'", "is in key")):
        with pytest.raises(InvalidRequest, match=said):
            lake.execute(f"create table shop.bad ({columns}) with (order_groups = {wrong})")
        assert "shop.bad" not in lake.tables()


def test_create_table_if_not_exists(lake: Lake) -> None:
    text = "create table if not exists shop.again (id bigint primary key)"
    assert [lake.execute(text).statement for _ in range(2)] == ["create table"] * 2
    with pytest.raises(Conflict, match="exists already"):
        lake.execute("create table shop.again (id bigint)")


def test_create_table_as_has_the_columns_and_rows_of_its_query(lake: Lake) -> None:
    done = lake.execute(
        "create table shop.copy (primary key (id)) with (sort_by = status) as "
        "select id, status, n + 1 as m from shop.orders"
    )

    assert (done.inserted, done.seq) == (2, 1)
    found = lake.table("shop.copy")
    assert (found.definition.names, found.definition.key) == (["id", "status", "m"], ("id",))
    assert found.get(2) == {"id": 2, "status": "paid", "m": 3}
    assert lake.execute("create table shop.empty as select id from shop.orders where false").inserted == 0
    assert lake.execute("create table if not exists shop.copy as select 1 as x").inserted == 0


def stop() -> None:
    raise Stopped


AS = (
    "create table shop.t (primary key (id)) with (partition_by = p) as select 2 as id, 'a' as p union all select 1, 'b'"
)
ROWS = [{"id": 1, "p": "b"}, {"id": 2, "p": "a"}]


def fail() -> None:
    raise Unavailable("the disk does not answer")


@pytest.mark.parametrize("trouble", [stop, fail])
def test_a_table_that_is_created_with_rows_is_never_there_without_them(
    folder: Path, trouble: Callable[[], None]
) -> None:
    points = RecordingStore()
    with Lake(folder / "recorded", store=points) as lake:
        points.points.clear()
        lake.execute(AS)
    steps = [(name, nth) for name, nth in points.occurrences() if not name.startswith("store.")]
    assert {"create.base", "write.files", "create.changes"} <= {name for name, _ in steps}
    for number, (name, nth) in enumerate(steps):
        root = folder / str(number)
        with Lake(root) as lake:
            lake.execute("create table shop.other (id bigint)")
        store = FaultyStore(name, trouble, nth=nth)
        with Lake(root, store=store) as lake, contextlib.suppress(Stopped, LithifyError):
            lake.execute(AS)
        with Lake(root) as lake:
            if "shop.t" in [str(each) for each in lake.tables()]:
                assert lake.table("shop.t").to_arrow().sort_by("id").to_pylist() == ROWS, (name, nth)
            else:
                lake.maintain()
                assert lake.execute(AS).inserted == 2, (name, nth)
                assert lake.table("shop.t").to_arrow().sort_by("id").to_pylist() == ROWS


def test_a_table_that_is_created_with_rows_begins_empty_in_its_log(lake: Lake) -> None:
    lake.execute(AS)
    table = lake.table("shop.t")
    assert (table.snapshot().seq, table.to_arrow(as_of=0).num_rows) == (1, 0)
    assert [line["_kind"] for line in table.feed(0).to_pylist()] == ["insert", "insert"]
    assert [(entry.operation, entry.seq) for entry in table.history()] == [("insert", 1), ("create table", 0)]
    table.fold()
    assert table.to_arrow().sort_by("id").to_pylist() == ROWS
    lake.drop_table("shop.t")
    again = lake.execute(AS)
    table = lake.table("shop.t")
    assert [line["id"] for line in table.feed(again.seq - 1).to_pylist()] == [1, 2]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("create table shop.bad (primary key (id)) as select 1 as id union all select 1", Conflict, "key id = 1"),
        ("create table shop.bad as select null as x", InvalidRequest, "'x' is NULL"),
        ("create table shop.bad (primary key (y)) as select 1 as x", InvalidRequest, "'y'"),
        ("create table shop.bad (primary key (x)) as select cast(null as int) as x", InvalidRequest, "'x' is null"),
        ("create table shop.bad with (nope = 1) as select 1 as x", InvalidRequest, "no table option 'nope'"),
        ("create table shop.bad (id nothing)", InvalidRequest, "nothing"),
        ("create table shop.bad (id bigint, id int)", InvalidRequest, "id"),
        ("create table shop.bad (id bigint unique)", InvalidRequest, "UNIQUE is not known"),
        ("create table shop.bad (id bigint primary key, primary key (id))", InvalidRequest, "two keys"),
        ("create table shop.bad (id bigint primary key) with (key = other)", InvalidRequest, "two keys"),
        ("create table shop.bad (id decimal)", InvalidRequest, "digits"),
        ("create table shop.bad (id bigint) with (time = id)", InvalidRequest, "time"),
        ("create table shop.bad (id bigint) with (order_by = (a, b))", InvalidRequest, "order_by column 'a'"),
        ("create table shop.bad (id bigint) with (time = (a, b))", InvalidRequest, "one column"),
        ("create table shop.bad", InvalidRequest, "the columns"),
        ("create table shop.bad (a int) as select 1", InvalidRequest, "of its query"),
        ("create table bad (a int)", InvalidRequest, "namespace.table"),
        ("create or replace table shop.bad (a int)", InvalidRequest, "OR REPLACE"),
        ("create view shop.bad as select 1", InvalidRequest, "TABLE should stand"),
        ("alter table shop.orders add column id int", Conflict, "id"),
        ("alter table shop.orders add column z int not null", InvalidRequest, "without NOT NULL"),
        ("alter table shop.orders set (nope = 1)", InvalidRequest, "nope"),
        ("alter table shop.orders rename column n to STATUS", Conflict, "has a column 'status' already"),
        ("alter table shop.orders rename column nope to m", NotFound, "'nope' is not in table shop.orders"),
        ("alter table shop.orders rename to other", InvalidRequest, "keeps its name"),
        ("alter table shop.orders rename column n m", InvalidRequest, "TO should stand"),
        ("alter table shop.orders drop column id", InvalidRequest, "'id' cannot be dropped"),
        ("alter table shop.orders drop column nope", NotFound, "'nope' is not in table shop.orders"),
        ("alter table shop.orders alter column n type varchar", InvalidRequest, "does not hold all of its values"),
        ("alter table shop.orders alter column n type smallint", InvalidRequest, "does not hold all of its values"),
        ("alter table shop.orders alter column id drop not null", InvalidRequest, "never null"),
        ("alter table shop.orders alter column n set default 1 + 1", InvalidRequest, "not accepted"),
        ("alter table shop.orders alter column n set default " + "9" * 5_000, InvalidRequest, "too many digits"),
        ("alter table shop.orders alter column n set default 1e" + "9" * 20, InvalidRequest, "too many digits"),
        ("alter table shop.orders set (row_group_rows = " + "9" * 5_000 + ")", InvalidRequest, "too many digits"),
        ("alter table shop.orders set (row_group_rows = 1e)", InvalidRequest, "no number"),
        ("alter table shop.orders modify column n bigint", InvalidRequest, "MODIFY is not known here"),
        ("alter table shop.none add column n int", NotFound, "shop.none"),
        ("drop table shop.none", NotFound, "shop.none"),
        ("drop shop.orders", InvalidRequest, "TABLE should stand"),
        ("truncate shop.none", NotFound, "shop.none"),
        ("drop table shop.orders; drop table shop.other", InvalidRequest, "one statement"),
    ],
)
def test_what_cannot_be_leaves_every_table_as_it_is(lake: Lake, text: str, kind: type[Exception], message: str) -> None:
    before = lake.table("shop.orders").definition
    with pytest.raises(kind, match=message):
        lake.execute(text)
    assert (lake.tables(), lake.table("shop.orders").definition) == (["shop.orders"], before)


def test_alter_table(lake: Lake) -> None:
    default = lake.table("shop.orders").definition.options["fold_rows_min"]
    lake.execute("alter table shop.orders add column note varchar")
    lake.execute("alter table shop.orders add column if not exists note varchar")
    lake.execute("alter table shop.orders set (sort_by = (n, id), fold_rows_min = 5)")
    lake.execute("alter table shop.orders set (fold_rows_min = null)")
    lake.execute("update shop.orders set note = 'x' where id = 1")

    found = lake.table("shop.orders")
    assert found.definition.options["sort_by"] == ("n", "id")
    assert found.definition.options["fold_rows_min"] == default
    assert ids(lake, "select note from shop.orders where note is not null") == ["x"]


def test_alter_columns(lake: Lake) -> None:
    lake.execute("create table shop.t (id bigint primary key, n int, s varchar not null, gone varchar)")
    lake.execute("insert into shop.t values (1, 10, 'a', 'x')")
    done = lake.execute("alter table shop.t rename column n to amount")
    assert (done.statement, done.table, done.seq) == ("alter table", "shop.t", 2)
    lake.execute("alter table shop.t alter column amount type bigint")
    lake.execute("alter table shop.t alter amount set data type decimal(20, 1)")
    lake.execute("alter table shop.t alter column s drop not null")
    lake.execute("alter table shop.t alter column amount set not null")
    lake.execute("alter table shop.t drop column gone")
    lake.execute("alter table shop.t drop column if exists gone")
    lake.execute("alter table shop.t alter column amount first")
    lake.execute("alter table shop.t alter column s after amount")
    lake.execute("insert into shop.t (id, amount) values (2, 3.5)")

    described = [(c["column"], c["type"], c["nullable"]) for c in lake.sql("describe shop.t").to_pylist()]
    assert described == [("amount", "decimal(20,1)", False), ("s", "string", True), ("id", "int64", False)]
    assert ids(lake, "select cast(amount as varchar) from shop.t order by id") == ["10.0", "3.5"]
    assert ids(lake, "select n from shop.t version as of 1") == [10]


def test_truncate_and_drop(lake: Lake) -> None:
    assert lake.execute("truncate table shop.orders").deleted == 2
    assert lake.table("shop.orders").count() == 0
    lake.execute("drop table shop.orders")
    lake.execute("drop table if exists shop.orders")
    assert lake.tables() == []


def test_describe_and_show(lake: Lake) -> None:
    lake.create_table("other.t", pa.schema([("a", pa.int64())]))
    lake.execute("delete from shop.orders where id = 1", actor="eva")

    assert lake.sql("show tables").to_pylist() == [
        {"namespace": "other", "table": "t"},
        {"namespace": "shop", "table": "orders"},
    ]
    assert lake.sql("SHOW TABLES IN other;").num_rows == 1
    described = lake.sql("describe shop.orders").to_pylist()
    assert described[:2] == [
        {"column": "id", "type": "int64", "nullable": False, "role": "key"},
        {"column": "status", "type": "string", "nullable": False, "role": None},
    ]
    assert lake.sql('show columns from lake.shop."orders"').to_pylist() == described
    newest = lake.sql("show history from shop.orders limit 1").to_pylist()
    assert [(entry["operation"], entry["seq"], entry["actor"]) for entry in newest] == [("delete", 2, "eva")]
    for text in ("show", "show everything", "describe", "describe orders", "show history from shop.orders limit"):
        with pytest.raises(InvalidRequest):
            lake.sql(text)
    with pytest.raises(NotFound):
        lake.sql("describe shop.none")


class TestTablesAsTheyWere:
    @pytest.fixture(autouse=True)
    def _later(self, lake: Lake) -> None:
        lake.execute("insert into shop.orders (id, status) values (3, 'late')")
        lake.execute("delete from shop.orders where id = 1")
        lake.table("shop.orders").tag("month-end")

    def test_by_seq_tag_and_time(self, lake: Lake) -> None:
        moment = lake.table("shop.orders").history(10)[1].time.isoformat()
        assert ids(lake, "select id from shop.orders version as of 1") == [1, 2]
        assert ids(lake, "select orders.id from shop.orders VERSION AS OF 2 where orders.id > 1") == [2, 3]
        assert ids(lake, "select o.id from shop.orders version as of 'month-end' o") == [2, 3]
        assert ids(lake, f"select id from shop.orders timestamp as of timestamp '{moment}'") == [1, 2, 3]
        assert ids(lake, "select id from shop.orders") == [2, 3]

    def test_two_times_in_one_query(self, lake: Lake) -> None:
        query = (
            "select b.id from shop.orders version as of 2 as b left anti join shop.orders as a on a.id = b.id "
            "union all select count(*) from lake.shop.orders version as of 1"
        )
        assert ids(lake, query) == [1, 2]

    def test_rows_that_were_there_are_inserted_again(self, lake: Lake) -> None:
        done = lake.execute("insert into shop.orders select * from shop.orders version as of 1 on conflict do nothing")
        assert done.inserted == 1
        assert ids(lake, "select id from shop.orders") == [1, 2, 3]

    @pytest.mark.parametrize(
        ("query", "kind"),
        [
            ("select id from shop.orders version as of 99", Exception),
            ("select id from shop.orders version as of", InvalidRequest),
            ("select id from shop.orders version as of x", InvalidRequest),
            ("select id from shop.orders version as of " + "9" * 5_000, InvalidRequest),
            ("select id from orders version as of 1", InvalidRequest),
            ("update shop.orders version as of 1 set n = 1", InvalidRequest),
            ("select 1 version as of 1", InvalidRequest),
        ],
    )
    def test_what_was_not_is_refused(self, lake: Lake, query: str, kind: type[Exception]) -> None:
        with pytest.raises(kind):
            lake.sql(query)

    def test_the_words_in_a_text_mean_nothing(self, lake: Lake) -> None:
        assert ids(lake, "select 'shop.orders version as of 1' as id") == ["shop.orders version as of 1"]
