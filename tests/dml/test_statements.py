"""What each statement does, and what it answers."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Conflict, Executed, InvalidRequest, Lake, LimitExceeded, NotFound, Settings
from lithify.core.ops import Op
from lithify.core.schema import define
from lithify.dml import decide
from lithify.sql.statements.grammar import parse
from lithify.sql.statements.model import Merge


def rows(lake: Lake, columns: str = "id, status, n", table: str = "shop.orders") -> list[tuple[Any, ...]]:
    found = lake.sql(f"select {columns} from {table} order by {columns.split(',')[0]}")
    return [tuple(row.values()) for row in found.to_pylist()]


def counted(done: Executed) -> tuple[int, int, int]:
    return done.inserted, done.updated, done.deleted


def test_insert_writes_values_into_the_named_columns_and_null_into_the_others(lake: Lake) -> None:
    done = lake.execute("INSERT INTO shop.orders (status, id) VALUES ('new', 3), ('new', 4)")

    assert (done.statement, done.table, done.seq, counted(done)) == ("insert", "shop.orders", 2, (2, 0, 0))
    assert rows(lake)[2:] == [(3, "new", None), (4, "new", None)]


def test_insert_takes_the_rows_of_a_query(lake: Lake) -> None:
    lake.execute(
        "insert into shop.orders with more as (select id + 10 as id from shop.orders) "
        "select id, 'copied', 1.5, null, 0 from more"
    )

    assert rows(lake)[2:] == [(11, "copied", 0), (12, "copied", 0)]


def test_constants_become_values_of_their_column(lake: Lake) -> None:
    lake.execute("insert into shop.orders values (3, 'x', 12, '2026-01-02 03:04:05', 1), (4, 'x', 0.05, null, 2)")
    lake.execute("insert into shop.orders values (5, 'x', '7.25', timestamp '2026-01-02 03:04:05', 1)")
    lake.execute("insert into shop.orders values (6, 'x', null, '2026-01-02T03:04:05+01:00', null)")

    moment = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert rows(lake, "id, amount, placed")[2:] == [
        (3, Decimal("12.00"), moment),
        (4, Decimal("0.05"), None),
        (5, Decimal("7.25"), moment),
        (6, None, moment - dt.timedelta(hours=1)),
    ]


def test_on_conflict_do_nothing_leaves_what_is_there(lake: Lake) -> None:
    text = (
        "insert into shop.orders (id, status) values (2, 'other'), (3, 'first'), (3, 'second') on conflict do nothing"
    )

    assert counted(lake.execute(text)) == (1, 0, 0)
    assert rows(lake) == [(1, "new", 1), (2, "paid", 2), (3, "first", None)]


def test_on_conflict_do_update_sees_the_row_that_is_there_and_the_one_that_came(lake: Lake) -> None:
    text = (
        "insert into shop.orders (id, status, n) values (2, 'b', 5), (3, 'c', 6) "
        "on conflict (id) do update set n = n + excluded.n, status = orders.status || excluded.status"
    )

    assert counted(lake.execute(text)) == (1, 1, 0)
    assert rows(lake)[1:] == [(2, "paidb", 7), (3, "c", 6)]


def written(lake: Lake, table: str = "shop.orders") -> dict[Op, int]:
    """What the newest commit brought, by operation."""
    snapshot = lake.table(table).snapshot()
    return {file.op: file.rows for file in snapshot.changes if file.seq == snapshot.seq}


def test_few_rows_are_updated_by_what_is_set_and_many_are_written_whole(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.execute("update shop.orders set n = n + 10 where id = 2")
    assert written(lake) == {Op.UPDATE: 1}

    lake.execute(
        "merge into shop.orders t using (values (1, 7), (3, 8)) s (id, n) on t.id = s.id "
        "when matched then update set n = s.n when not matched then insert (id, status, n) values (s.id, 'new', s.n)"
    )
    assert written(lake) == {Op.UPDATE: 1, Op.UPSERT: 1}

    monkeypatch.setattr(decide, "LINES_MAX", 1)
    lake.execute("update shop.orders set n = n + 1 where id < 3")
    assert written(lake) == {Op.UPSERT: 2}
    assert rows(lake) == [(1, "new", 8), (2, "paid", 13), (3, "new", 8)]


def test_what_a_statement_writes_into_an_ordered_table_are_whole_rows(lake: Lake) -> None:
    lake.create_table("shop.late", pa.schema([("id", pa.int64()), ("at", pa.int64()), ("n", pa.int64())]), "id", "at")
    lake.execute("insert into shop.late values (1, 5, 0), (2, 5, 0)")

    lake.execute("update shop.late set n = 1 where id = 1")

    assert written(lake, "shop.late") == {Op.REPLACE: 1}


def test_a_merge_takes_words_behind_the_name_of_its_source_for_columns_of_the_source() -> None:
    schema = define(pa.schema([(name, pa.int64()) for name in ("id", "n", "m", "s", "x", "Y")]), "id")

    def meant(text: str) -> list[str]:
        found = parse(f"merge into a.t as t using a.s as s on t.id = s.id when matched {text}")
        assert isinstance(found, Merge)
        return decide.mentioned(found, found.whens, schema)

    assert meant("then update set n = s.n, m = s.x + x") == ["id", "s", "x"]
    assert meant('and t.s.n = 1 then update set n = "s"."x" + s.s.m') == ["id", "s"]
    assert meant("and s.y < Y then delete") == ["id", "s", "Y"]
    assert meant("and struct(t.*) is null then delete") == schema.names


def test_a_merge_reads_the_columns_that_its_words_mean(lake: Lake) -> None:
    columns = pa.schema([("id", pa.int64()), ("Other", pa.string()), ("n", pa.int64()), ("m", pa.int64())])
    lake.create_table("shop.mixed", columns, key="id")
    lake.execute("insert into shop.mixed values (1, 'x', 1, 10), (2, 'y', 2, 20), (3, 'x', 3, 30)")

    lake.execute(
        "merge into shop.mixed t using (values (1, 5), (2, 6), (3, 7), (4, 8)) s (id, n) on s.id = t.id and t.n < 3 "
        "when matched and t.\"Other\" = 'x' then update set n = s.n + M "
        "when not matched and s.id > 3 then insert (id, n) values (s.id, s.n)"
    )

    assert rows(lake, 'id, "Other", n, m', "shop.mixed") == [
        (1, "x", 15, 10),
        (2, "y", 2, 20),
        (3, "x", 3, 30),
        (4, None, 8, None),
    ]


def test_an_update_sees_the_old_row_in_all_its_values(lake: Lake) -> None:
    assert counted(lake.execute("update shop.orders set n = id, amount = n, status = 'was ' || n where id = 2")) == (
        0,
        1,
        0,
    )
    assert rows(lake, "id, n, amount, status")[1] == (2, 2, Decimal("2.00"), "was 2")


def test_an_update_that_finds_nothing_commits_nothing(lake: Lake) -> None:
    before = lake.table("shop.orders").snapshot().identity

    done = lake.execute("update shop.orders set n = 1 where id = 99")

    assert (done.seq, counted(done)) == (1, (0, 0, 0))
    assert lake.table("shop.orders").snapshot().identity == before


def test_update_from_and_delete_using_join_other_tables(lake: Lake) -> None:
    lake.create_table("shop.other", pa.schema([("order", pa.int64()), ("state", pa.string())]))
    lake.execute("""insert into shop.other values (1, 'sent'), (7, 'lost')""")

    lake.execute("""update shop.orders o set status = s.state from shop.other s where o.id = s."order" """)
    assert rows(lake) == [(1, "sent", 1), (2, "paid", 2)]

    lake.execute("delete from shop.orders o using shop.other s where s.state = o.status")
    assert rows(lake) == [(2, "paid", 2)]


def test_one_statement_is_one_commit(lake: Lake) -> None:
    lake.execute(
        "merge into shop.orders t using (values (1, 'gone'), (2, 'kept'), (3, 'new')) as s(id, status) "
        "on t.id = s.id when matched and s.status = 'gone' then delete when matched then update set * "
        "when not matched then insert *"
    )

    assert rows(lake) == [(2, "kept", 2), (3, "new", None)]
    newest, before = lake.table("shop.orders").history(2)
    assert (newest.operation, newest.seq, before.seq) == ("merge", 2, 1)


def test_a_merge_sees_its_own_target_as_it_was(lake: Lake) -> None:
    done = lake.execute(
        "merge into shop.orders as t using (select id + 1 as id, n from shop.orders) as s on t.id = s.id "
        "when matched then update set n = s.n when not matched then insert (id, status, n) values (s.id, 'next', s.n) "
        "when not matched by source then delete"
    )

    assert counted(done) == (1, 1, 1)
    assert rows(lake) == [(2, "paid", 1), (3, "next", 2)]


def test_written_rows_win_whatever_order_by_says(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        table = lake.create_table(
            "a.t", pa.schema([("id", pa.int64()), ("at", pa.int64()), ("v", pa.string())]), "id", "at"
        )
        table.upsert([{"id": 1, "at": 100, "v": "x"}, {"id": 2, "at": 100, "v": "y"}])
        table.fold()

        lake.execute("update a.t set at = 1, v = 'old but meant' where id = 1")
        lake.execute("delete from a.t where id = 2")
        lake.execute("insert into a.t values (2, 5, 'again')")

        assert rows(lake, "id, at, v", "a.t") == [(1, 1, "old but meant"), (2, 5, "again")]
        table.fold()
        assert rows(lake, "id, at, v", "a.t") == [(1, 1, "old but meant"), (2, 5, "again")]


def test_a_dry_run_counts_and_writes_nothing(lake: Lake) -> None:
    done = lake.execute("delete from shop.orders where n > 0", dry_run=True)

    assert (counted(done), done.dry_run) == ((0, 0, 2), True)
    assert len(rows(lake)) == 2


def test_a_batch_id_is_executed_once_and_answered_as_the_first_time(lake: Lake) -> None:
    text = "update shop.orders set n = n + 1"
    first = lake.execute(text, batch_id="tick-1")
    lake.execute("update shop.orders set n = n + 1 where id = 1")
    second = lake.execute(text, batch_id="tick-1")

    assert (second.replayed, second.seq, counted(second)) == (True, first.seq, (0, 2, 0))
    assert rows(lake) == [(1, "new", 3), (2, "paid", 3)]


def test_a_batch_id_is_remembered_even_if_nothing_was_to_be_written(lake: Lake) -> None:
    lake.execute("update shop.orders set n = 0 where id = 9", batch_id="b")
    lake.execute("insert into shop.orders (id, status, n) values (9, 'late', 5)")

    assert lake.execute("update shop.orders set n = 0 where id = 9", batch_id="b").replayed
    assert rows(lake)[2] == (9, "late", 5)


def test_sql_answers_a_statement_with_one_row_of_counts(lake: Lake) -> None:
    found = lake.sql(
        "-- tidy up\nwith old as (select 1 as id) delete from shop.orders using old where orders.id = old.id"
    )

    assert found.to_pylist() == [
        {"statement": "delete", "table": "shop.orders", "inserted": 0, "updated": 0, "deleted": 1, "seq": 2}
    ]


def test_who_and_why_stand_in_the_history(lake: Lake) -> None:
    lake.execute("delete from shop.orders", actor="eva", reason="gdpr")

    entry = lake.table("shop.orders").history(1)[0]
    assert (entry.operation, entry.actor, entry.reason, entry.rows) == ("delete", "eva", "gdpr", 2)


def test_more_rows_than_a_statement_may_take_are_refused(folder: Path) -> None:
    with Lake(folder / "lake", settings=Settings(statement_rows_max=10)) as lake:
        lake.create_table("a.t", pa.schema([("id", pa.int64())]), key="id")
        lake.table("a.t").append([{"id": number} for number in range(11)])

        with pytest.raises(LimitExceeded, match="statement_rows_max"):
            lake.execute("delete from a.t")
        lake.execute("delete from a.t where id > 0")

        assert lake.table("a.t").count() == 1


class TestWithoutAKey:
    """Rows are told apart by their values."""

    @pytest.fixture
    def events(self, lake: Lake) -> Lake:
        lake.create_table("shop.events", pa.schema([("kind", pa.string()), ("n", pa.int64())]))
        lake.execute("insert into shop.events values ('a', 1), ('a', 1), ('b', 2), (null, 3)")
        return lake

    def content(self, lake: Lake) -> list[tuple[Any, ...]]:
        found = lake.table("shop.events").to_arrow().to_pylist()
        return sorted((tuple(row.values()) for row in found), key=repr)

    def test_insert_appends(self, events: Lake) -> None:
        assert counted(events.execute("insert into shop.events select * from shop.events where n = 2")) == (1, 0, 0)
        assert self.content(events).count(("b", 2)) == 2

    def test_delete_takes_all_that_are_equal(self, events: Lake) -> None:
        assert counted(events.execute("delete from shop.events where n in (1, 3)")) == (0, 0, 3)
        assert self.content(events) == [("b", 2)]

    def test_update_of_rows_into_others_that_are_there(self, events: Lake) -> None:
        """('a', 1) twice becomes ('a', 2), and what was ('a', 2) before is no more."""
        events.execute("insert into shop.events values ('a', 2)")

        assert counted(events.execute("update shop.events set n = n + 1 where kind = 'a'")) == (0, 3, 0)
        assert self.content(events) == [("a", 2), ("a", 2), ("a", 3), ("b", 2), (None, 3)]
        events.table("shop.events").fold()
        assert self.content(events) == [("a", 2), ("a", 2), ("a", 3), ("b", 2), (None, 3)]

    def test_fewer_but_some_of_equal_rows_cannot_be_said(self, events: Lake) -> None:
        before = self.content(events)

        with pytest.raises(InvalidRequest, match="cannot be told apart"):
            events.execute(
                "update shop.events set kind = case when n = 2 then 'a' else 'c' end, "
                "n = case when n = 2 then 1 else 9 end where kind in ('a', 'b')"
            )

        assert self.content(events) == before

    @pytest.mark.parametrize(
        "text",
        [
            "merge into shop.events t using shop.orders s on t.n = s.n when matched then delete",
            "update shop.events set n = 1 from shop.orders o where o.id = 1",
            "delete from shop.events using shop.orders o where o.id = 1",
            "insert into shop.events values ('a', 1) on conflict do nothing",
        ],
    )
    def test_what_needs_a_key_is_refused(self, events: Lake, text: str) -> None:
        with pytest.raises(InvalidRequest, match="has no key"):
            events.execute(text)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("insert into shop.orders (id, status) values (1, 'x')", Conflict, "already with the key id = 1.*ON CONFLICT"),
        ("insert into shop.orders (id, status) values (8, 'x'), (8, 'y')", Conflict, "key id = 8"),
        (
            "insert into shop.orders (id, status) values (8, 'x'), (8, 'y') on conflict (id) do update set n = 1",
            Conflict,
            "key id = 8",
        ),
        ("insert into shop.orders (id) values (8)", InvalidRequest, "'status' is missing and may not be null"),
        ("insert into shop.orders (id, status) values (null, 'x')", InvalidRequest, "'id' is null in row 0"),
        ("insert into shop.orders (id, status) values ('x', 'x')", InvalidRequest, "column 'id'"),
        ("insert into shop.orders (id, state) values (8, 'x')", InvalidRequest, "'state' is not in table shop.orders"),
        ("insert into shop.orders (id, id) values (8, 9)", InvalidRequest, "'id' is written to twice"),
        ("insert into shop.orders values (8, 'x')", InvalidRequest, "2 values for 5 columns"),
        (
            "insert into shop.orders (id, status) values (8, 'x') on conflict (n) do nothing",
            InvalidRequest,
            "by its key",
        ),
        ("update shop.orders set id = 5", InvalidRequest, "'id' is part of the key"),
        ("update shop.orders set status = null", InvalidRequest, "'status' is null in row 0"),
        ("update shop.orders set n = 'many'", InvalidRequest, "column 'n'"),
        ("update shop.orders set n = 3000000000", InvalidRequest, "column 'n'"),
        ("update shop.orders set amount = 1.005", InvalidRequest, "column 'amount'"),
        ("update shop.orders set amount = 99999999999", InvalidRequest, "column 'amount'"),
        ("update shop.orders set N1 = 1", InvalidRequest, "'n1' is not in table"),
        ("update shop.orders set n = nothing", InvalidRequest, "nothing"),
        ("update shop.orders set n = 1, n = 2", InvalidRequest, "'n' is written to twice"),
        ("update shop.orders set status = default", InvalidRequest, "'status' of shop.orders has no DEFAULT"),
        ("update shop.orders set n = default + 1", InvalidRequest, "end of the statement"),
        ("insert into shop.orders (id, status) values (8, default)", InvalidRequest, "'status' is null"),
        ("insert into shop.orders (id, status) values (8, default), (9)", InvalidRequest, "VALUES|values|length"),
        ("update shop.orders set struct.n = 1", InvalidRequest, "calls its table orders"),
        ("update shop.orders o set orders.n = 1", InvalidRequest, "calls its table o"),
        (
            "merge into shop.orders t using (values (1)) s(id) on t.id = s.id when matched then update set s.n = 1",
            InvalidRequest,
            "calls its table t",
        ),
        (
            "update shop.orders o set n = s.x from (values (1), (2)) s(x) where o.id = 1",
            Conflict,
            "more than one row of the source .* id = 1",
        ),
        ("update shop.none set n = 1", NotFound, "shop.none"),
        ("update orders set n = 1", InvalidRequest, "namespace.table"),
        ("update other.shop.orders set n = 1", InvalidRequest, "no catalog"),
        ("delete from shop.orders where id in (select id from shop.none)", NotFound, "shop.none"),
        ("delete from shop.orders where n", InvalidRequest, "."),
        (
            "merge into shop.orders t using (values (1, 'a'), (1, 'b')) s(id, status) on t.id = s.id "
            "when matched then delete",
            Conflict,
            "more than one row of the source matches the row of shop.orders with id = 1",
        ),
        (
            "merge into shop.orders t using (values (8, 'a'), (8, 'b')) s(id, status) on t.id = s.id "
            "when not matched then insert *",
            Conflict,
            "the key id = 8",
        ),
        (
            "merge into shop.orders t using (values (1, 'a')) s(id, status) on false when not matched then insert *",
            Conflict,
            "ON did not match.* id = 1",
        ),
        (
            "merge into shop.orders t using (values (1, 2)) s(id, x) on t.id = s.id when matched then update set *",
            InvalidRequest,
            "no column 'x'",
        ),
        (
            "merge into shop.orders t using shop.orders s on t.id = s.id when matched then update set id = 5",
            InvalidRequest,
            "part of the key",
        ),
        (
            "merge into shop.orders t using shop.orders s on t.id = s.id "
            "when not matched then insert (id) values (1, 2)",
            InvalidRequest,
            "2 values for 1 columns",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_nothing_is_written(
    lake: Lake, text: str, kind: type[Exception], message: str
) -> None:
    table = lake.table("shop.orders")
    before, seq = rows(lake, "id, status, amount, placed, n"), table.snapshot().seq

    with pytest.raises(kind, match=message):
        lake.execute(text)

    assert (rows(lake, "id, status, amount, placed, n"), table.snapshot().seq) == (before, seq)


@pytest.mark.parametrize(
    "statement",
    [
        "update a.parted set b = 2 where id = 1",
        "merge into a.parted t using (select 1 as id, 2 as b) s on t.id = s.id when matched then update set b = s.b",
        "update a.parted set part = 'x', b = 2 where id = 1",
    ],
)
def test_rows_of_a_partitioned_table_change(lake: Lake, statement: str) -> None:
    columns = pa.schema([("id", pa.int64()), ("part", pa.string()), ("b", pa.int64())])
    table = lake.create_table("a.parted", columns, key="id", partition_by="part")
    table.upsert([{"id": 1, "part": "x", "b": 1}])
    assert lake.execute(statement).updated == 1
    assert table.get(1) == {"id": 1, "part": "x", "b": 2}


def test_rows_of_constants_are_those_of_their_own_statement(lake: Lake) -> None:
    """Statements that are alike but for their constants, of which some are wider."""
    lake.execute("delete from shop.orders")
    texts = ["{id}, 'new', {id}.5", "{id}, 'it''s', {id}.25", "{id}, null, 1234567.5", "{id}, 'same', 7"]
    for turn, text in enumerate(texts):
        rows = ", ".join(f"({text.format(id=number)})" for number in range(turn * 10, turn * 10 + 40))
        lake.execute(
            f"merge into shop.orders t using (select * from (values {rows}) as v (id, status, amount)) s "
            "on t.id = s.id "
            "when matched then update set amount = s.amount, status = coalesce(s.status, t.status) "
            "when not matched then insert (id, status, amount) values (s.id, coalesce(s.status, 'none'), s.amount)"
        )

    found = {row["id"]: (row["status"], str(row["amount"])) for row in lake.table("shop.orders").to_arrow().to_pylist()}
    assert len(found) == 70
    assert [found[number] for number in (5, 15, 25, 35, 59, 69)] == [
        ("new", "5.50"),
        ("it's", "15.25"),
        ("it's", "1234567.50"),
        ("same", "7.00"),
        ("same", "7.00"),
        ("same", "7.00"),
    ]
    assert found[55] == ("same", "7.00")
    rows = ", ".join(f"({number}, 'x', 0.123)" for number in range(90, 130))
    with pytest.raises(InvalidRequest, match="amount"):
        lake.execute(f"insert into shop.orders (id, status, amount) values {rows}")
