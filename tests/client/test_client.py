"""Every method of a remote lake does what it does on a local one: here both look at the same lake."""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
import ssl
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import trustme

import lithify
from lithify import (
    Cancelled,
    Conflict,
    Forbidden,
    InvalidRequest,
    Lake,
    LimitExceeded,
    LithifyError,
    NotFound,
    Settings,
    Table,
    Unavailable,
)
from lithify.client.lake import RemoteLake
from lithify.client.table import RemoteTable

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.service import Served, free_port, serving

ORDERS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("day", pa.date32()),
        pa.field("raw", pa.binary()),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
        pa.field("place", pa.struct([pa.field("city", pa.string()), pa.field("floor", pa.int32())])),
        pa.field("counts", pa.map_(pa.string(), pa.int64())),
    ]
)
EVENTS = pa.schema([pa.field("user_id", pa.int64()), pa.field("what", pa.string())])
LINES = pa.schema([pa.field("order", pa.int64()), pa.field("line", pa.string()), pa.field("qty", pa.int32())])
ROW: dict[str, Any] = {
    "id": 2**60,
    "amount": Decimal("12345678.90"),
    "at": dt.datetime(2026, 11, 15, 12, 0, 0, 1, tzinfo=dt.UTC),
    "day": dt.date(2026, 11, 15),
    "raw": b"\x00\xff",
    "tags": ["a", None, ""],
    "place": {"city": "Bern", "floor": None},
    "counts": [("x", 1), ("y", 2**60)],
}


def both(lake: Lake, remote: RemoteLake, name: str, rows: int = 3) -> tuple[Table, RemoteTable]:
    """The table with rows 1, 2, … in it."""
    local = lake.create_table(name, ORDERS, key="id", options={"missing_columns": "null"})
    local.upsert([{**ROW, "id": n} for n in range(1, rows + 1)])
    return local, remote.table(name)


def events(lake: Lake, remote: RemoteLake, name: str) -> tuple[Table, RemoteTable]:
    local = lake.create_table(name, EVENTS)
    local.append([{"user_id": n, "what": "a"} for n in (1, 2, 2)])
    return local, remote.table(name)


class TestTables:
    def test_a_schema_fingerprint_is_the_same_and_goes_along_with_a_write(
        self, lake: Lake, remote: RemoteLake, name: str
    ) -> None:
        local, there = both(lake, remote, f"lake.{name}")
        known = there.definition.fingerprint
        assert known == local.definition.fingerprint
        assert there.name == name
        there.upsert([{**ROW, "id": 9}], schema_fingerprint=known)
        local.add_column(pa.field("later", pa.int64()))
        for write in (
            lambda **options: there.upsert([ROW], schema_fingerprint=known, **options),
            lambda **options: there.delete([9], schema_fingerprint=known, **options),
        ):
            for options in ({}, {"batch_id": f"of {name}"}):
                with pytest.raises(Conflict, match=known):
                    write(**options)
        assert local.to_arrow(["id"]).num_rows == 4

    def test_a_table_is_created_as_it_would_be_locally(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        made = remote.create_table(
            name,
            ORDERS,
            key="id",
            order_by="amount",
            time="at",
            partition_by=["day"],
            options={"compression_level": 5},
        )
        assert made.definition == lake.table(name).definition
        assert made.schema == lake.table(name).schema
        assert made.options == lake.table(name).options

    def test_other_spellings_of_a_schema(self, remote: RemoteLake, name: str) -> None:
        table = remote.create_table(name, pl.DataFrame({"id": [1], "name": ["x"]}).to_arrow().schema, key=("id",))
        assert table.schema == pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])

    def test_a_table_that_is_there_already(self, remote: RemoteLake, name: str) -> None:
        remote.create_table(name, EVENTS)
        assert remote.create_table(name, EVENTS, if_not_exists=True).name == name
        with pytest.raises(Conflict, match=name):
            remote.create_table(name, EVENTS)

    def test_a_definition_that_cannot_be_is_refused_in_the_same_words(self, lake: Lake, remote: RemoteLake) -> None:
        for arguments in (("shop.x", EVENTS, "nope"), ("Shop.X", EVENTS), ("shop.x", "no schema")):
            with pytest.raises(InvalidRequest) as here:
                lake.create_table(*arguments)
            with pytest.raises(InvalidRequest) as there:
                remote.create_table(*arguments)
            assert here.value.message.replace(" or Spark", "") == there.value.message

    def test_the_tables_are_listed(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        lake.create_table(name, EVENTS)
        assert name in remote.tables()
        assert remote.tables() == lake.tables()

    def test_a_table_that_is_not_there(self, lake: Lake, remote: RemoteLake) -> None:
        for door in (lake, remote):
            with pytest.raises(NotFound, match=r"shop\.nowhere"):
                door.table("shop.nowhere")
            with pytest.raises(InvalidRequest, match="no table name"):
                door.table("../../etc")

    def test_drop(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        lake.create_table(name, EVENTS)
        remote.drop_table(name)
        assert name not in lake.tables()
        with pytest.raises(NotFound):
            remote.drop_table(name)

    def test_what_is_set_elsewhere_is_seen(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = events(lake, remote, name)
        local.set_options({"compression_level": 9})
        local.add_column(pa.field("note", pa.string()))
        assert table.definition == local.definition
        assert table.options["compression_level"] == 9


class TestWrites:
    @pytest.mark.parametrize("mode", ["append", "upsert", "replace"])
    def test_rows_arrive_as_they_were(self, lake: Lake, remote: RemoteLake, name: str, mode: str) -> None:
        local, table = both(lake, remote, name)
        commit = getattr(table, mode)([ROW, {"id": 1}])
        assert local.get(2**60) == ROW
        assert local.get(1) == dict.fromkeys(ORDERS.names) | {"id": 1}
        expected = getattr(local, mode)([ROW, {"id": 1}])
        assert dataclasses.replace(expected, seq=commit.seq) == commit
        assert commit.seq == expected.seq - 1

    def test_an_update_leaves_what_is_not_given(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        table.upsert([ROW])
        given = next(column for column in ORDERS.names if column != "id" and ROW[column] is not None)
        commit = table.update([{"id": ROW["id"], given: None}, {"id": 1}])
        assert (commit.operation, commit.rows) == ("update", 2)
        assert local.get(ROW["id"]) == {**ROW, given: None}
        assert table.update([{"id": 5}], missing="skip").rows == 0
        for one in (local, table):
            with pytest.raises(InvalidRequest, match="1 key is not in table"):
                one.update([{"id": 5}], missing="refuse")

    def test_rows_add_up_by_merge_rules(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        columns = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("n", pa.int64())])
        rules = {"v": "sum", "n": "count"}
        table = remote.create_table(f"{name}_ruled", columns, key="k", merge_rules=rules)
        assert table.definition == lake.table(f"{name}_ruled").definition
        assert table.definition.merge_rules == rules
        for batch_id in ("one", "one", "two"):
            table.upsert([{"k": 1, "v": 5}], batch_id)
        table.update([{"k": 1, "v": 1}])
        table.retract([{"k": 1, "v": 5}], "back")
        assert lake.table(table.name).get(1) == {"k": 1, "v": 6, "n": 2}
        with pytest.raises(InvalidRequest, match="'k' is in key"):
            remote.create_table(f"{name}_other", columns, key="k", merge_rules={"k": "max"})

    def test_two_sources_feed_one_row(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        columns = pa.schema([(each, pa.int64()) for each in ("k", "a", "a_at", "b", "b_at")])
        groups = {"a_at": ["a"], "b_at": "b"}
        table = remote.create_table(f"{name}_groups", columns, key="k", order_groups=groups)
        assert table.definition == lake.table(table.name).definition
        assert table.definition.order_groups == {"a_at": ("a",), "b_at": ("b",)}
        assert remote.create_table(table.name, columns, "k", order_groups=groups, if_not_exists=True).name == table.name
        table.upsert([{"k": 1, "a": 5, "a_at": 9}])
        table.upsert([{"k": 1, "a": 6, "a_at": 8, "b": 7, "b_at": 1}])
        table.update([{"k": 1, "b": 8, "b_at": 0}])
        assert table.get(1) == lake.table(table.name).get(1) == {"k": 1, "a": 5, "a_at": 9, "b": 7, "b_at": 1}
        for wrong in ({"a_at": ["k"]}, {"nope": ["a"]}, {"a_at": ["b_at"], "b_at": ["b"]}):
            with pytest.raises(InvalidRequest) as here:
                lake.create_table(f"{name}_other", columns, key="k", order_groups=wrong)
            with pytest.raises(InvalidRequest) as there:
                remote.create_table(f"{name}_other", columns, key="k", order_groups=wrong)
            assert here.value.message == there.value.message
        with pytest.raises(InvalidRequest, match="gives 'a' and lacks 'a_at'"):
            table.update([{"k": 1, "a": 1}])

    def test_every_container_of_rows(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        given = [
            {"id": 10},
            [{"id": 11}],
            iter([{"id": 12}]),
            pa.table({"id": [13]}),
            pa.record_batch({"id": [14]}),
            pa.table({"id": [15]}).to_reader(),
            pd.DataFrame({"id": [16]}),
            pl.DataFrame({"id": [17]}),
        ]
        assert [table.upsert(rows).rows for rows in given] == [1] * len(given)
        ids = local.to_arrow(["id"], "id >= 10").sort_by("id").column("id").to_pylist()
        assert ids == list(range(10, 10 + len(given)))

    def test_a_batch_is_refused_in_the_same_words(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        before = local.snapshot().seq
        for batch in ([], [{"id": None}], [{"nope": 1}], [{"id": "x"}], "text", pa.table({"id": ["x"]})):
            with pytest.raises(InvalidRequest) as here:
                local.upsert(batch)
            with pytest.raises(InvalidRequest) as there:
                table.upsert(batch)
            assert here.value.message == there.value.message
        assert local.snapshot().seq == before

    def test_a_column_that_was_added_meanwhile_can_be_written(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = events(lake, remote, name)
        local.add_column(pa.field("note", pa.string()))
        table.append([{"user_id": 9, "note": "new"}])
        assert local.to_arrow(["note"], "user_id = 9").to_pylist() == [{"note": "new"}]

    def test_a_batch_id_is_written_once(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = events(lake, remote, name)
        first = table.append([{"user_id": 9}], batch_id="b-1")
        again = table.append([{"user_id": 9}], batch_id="b-1")
        assert (first.batch_id, first.replayed) == ("b-1", False)
        assert again == dataclasses.replace(first, replayed=True)
        assert local.append([{"user_id": 9}], batch_id="b-1") == again

    @pytest.mark.parametrize("batch_id", ["", "x" * 10_000])
    def test_a_batch_id_that_cannot_be(self, lake: Lake, remote: RemoteLake, name: str, batch_id: str) -> None:
        for table in events(lake, remote, name):
            with pytest.raises(InvalidRequest, match="batch_id must have"):
                table.append([{"user_id": 9}], batch_id=batch_id)

    def test_a_batch_id_that_no_header_can_hold(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        _, table = events(lake, remote, name)
        for batch_id in ("é", "a\r\nb", " a"):
            with pytest.raises(InvalidRequest, match="printable ASCII"):
                table.append([{"user_id": 9}], batch_id=batch_id)

    def test_without_a_key_there_is_nothing_to_upsert(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        for verb in ("upsert", "replace"):
            told = set()
            for table in (lake.create_table(name, EVENTS, if_not_exists=True), remote.table(name)):
                with pytest.raises(InvalidRequest) as caught:
                    getattr(table, verb)([{"user_id": 9}])
                told.add(caught.value.message)
            assert len(told) == 1

    @pytest.mark.parametrize("times", [2, 8])
    def test_a_batch_that_is_too_large_says_what_to_do(
        self, lake: Lake, remote: RemoteLake, name: str, times: int
    ) -> None:
        local, table = events(lake, remote, name)
        seq = local.snapshot().seq
        text = "".join(chr(48 + (n * n) % 71) for n in range(1_000))
        rows = [{"user_id": n, "what": f"{n}{text}"} for n in range(times * 1_048)]
        with pytest.raises(LimitExceeded, match=r"several batches, or load them with `lithify ingest`") as caught:
            table.append(rows)
        assert caught.value.details["limit"] == "size"
        assert local.snapshot().seq == seq

    def test_large_batches_are_packed_on_the_way(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = events(lake, remote, name)
        rows = pa.table({"user_id": pa.array(range(40_000), pa.int64()), "what": ["same"] * 40_000})
        table.append(rows)
        assert local.stats().pending_rows == 40_003


class TestDeletes:
    @pytest.mark.parametrize(
        "keys", [1, [1, 2], [{"id": 1}], {"id": 1}, pa.table({"id": [1, 2]}), [2**60]], ids=lambda keys: repr(keys)[:20]
    )
    def test_by_key(self, lake: Lake, remote: RemoteLake, name: str, keys: Any) -> None:
        local, table = both(lake, remote, name)
        local.upsert([ROW])
        commit = table.delete(keys, reason="erasure")
        expected = local.delete(keys)
        assert dataclasses.replace(expected, seq=commit.seq) == commit
        entry = local.history(2)[1]
        assert (entry.operation, entry.reason, entry.actor) == ("delete", "erasure", "tester")

    def test_by_a_key_of_two_columns(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local = lake.create_table(name, LINES, key=("order", "line"))
        local.upsert([{"order": 1, "line": "a"}, {"order": 1, "line": "b"}], missing="null")
        remote.table(name).delete([(1, "a")])
        assert local.to_arrow(["line"]).to_pylist() == [{"line": "b"}]

    def test_at_a_place_in_the_order(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local = lake.create_table(name, ORDERS, key="id", order_by="at")
        late = {**ROW, "at": ROW["at"] - dt.timedelta(hours=1)}
        local.upsert([ROW, {**ROW, "id": 2}])
        table = remote.table(name)
        table.delete([ROW["id"], 2], at=[late["at"], ROW["at"]])
        assert local.to_arrow(["id"]).to_pylist() == [{"id": ROW["id"]}], "the first is newer than its delete"
        table.delete([ROW["id"]], at=ROW["at"])
        local.upsert([late])
        assert local.to_arrow().num_rows == 0
        for at in ("noon", [ROW["at"]], [None, ROW["at"]], {}):
            with pytest.raises(InvalidRequest) as here:
                local.delete([1, 2], at=at)
            with pytest.raises(InvalidRequest) as there:
                table.delete([1, 2], at=at)
            assert here.value.message == there.value.message

    def test_at_a_place_of_several_columns(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        table = remote.create_table(name, ORDERS, key="id", order_by=["at", "amount"])
        local = lake.table(name)
        assert table.definition == local.definition
        assert remote.table(name).definition.order_by == ("at", "amount")
        local.upsert([ROW, {**ROW, "id": 2}])
        less = ROW["amount"] - 1
        table.delete([ROW["id"], 2], at=[(ROW["at"], less), {"amount": ROW["amount"], "at": ROW["at"]}])
        assert local.to_arrow(["id"]).to_pylist() == [{"id": ROW["id"]}], "the first is newer than its delete"
        table.delete([ROW["id"]], at=(ROW["at"], ROW["amount"]))
        local.upsert([{**ROW, "amount": less}])
        assert local.to_arrow().num_rows == 0
        for at in (ROW["at"], (ROW["at"],), [(ROW["at"], less)], (ROW["at"], None), {}):
            with pytest.raises(InvalidRequest) as here:
                local.delete([1, 2], at=at)
            with pytest.raises(InvalidRequest) as there:
                table.delete([1, 2], at=at)
            assert here.value.message == there.value.message

    def test_without_a_key_by_columns(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = events(lake, remote, name)
        table.delete([{"user_id": 2}])
        assert local.to_arrow(["user_id"]).to_pylist() == [{"user_id": 1}]

    def test_every_type_of_key(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        for number, column in enumerate(("amount", "at", "day", "raw")):
            local = lake.create_table(f"{name}_{number}", ORDERS, key=column)
            local.upsert([ROW])
            table = remote.table(f"{name}_{number}")
            assert table.get(ROW[column]) == ROW
            table.delete([ROW[column]])
            assert local.get(ROW[column]) is None

    def test_keys_are_refused_in_the_same_words(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        for keys in ([], [{"nope": 1}], ["x"], [None], [(1, 2)]):
            with pytest.raises(InvalidRequest) as here:
                local.delete(keys)
            with pytest.raises(InvalidRequest) as there:
                table.delete(keys)
            assert here.value.message == there.value.message

    def test_by_a_condition(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        commit = table.delete_where("id >= 2", reason="test")
        assert (commit.operation, commit.rows, commit.batch_id) == ("delete where", 2, None)
        assert local.to_arrow(["id"]).to_pylist() == [{"id": 1}]

    def test_a_condition_that_is_wrong(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        for table in both(lake, remote, name):
            with pytest.raises(InvalidRequest):
                table.delete_where("nope = 1")

    def test_the_actor_is_the_token(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        _, table = both(lake, remote, name)
        with pytest.raises(InvalidRequest, match="token's name"):
            table.delete([1], actor="somebody")


class TestReads:
    def test_get(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        local.upsert([ROW, {"id": 8}])
        for key in (1, 8, 2**60, {"id": 1}, 99):
            assert table.get(key) == local.get(key)

    def test_get_by_a_key_of_two_columns(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local = lake.create_table(name, LINES, key=("order", "line"))
        local.upsert([{"order": 1, "line": 'a "b" & c=1, ü', "qty": 7}])
        table = remote.table(name)
        assert table.get((1, 'a "b" & c=1, ü')) == local.get((1, 'a "b" & c=1, ü'))

    def test_get_by_a_text_that_looks_like_json(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        keys = ["1", "null", "true", '"x"', "{}", "a b/c?d", ""]
        lake.create_table(name, EVENTS, key="what").upsert([{"what": key, "user_id": 7} for key in keys])
        table = remote.table(name)
        assert [table.get(key) for key in keys] == [{"what": key, "user_id": 7} for key in keys]

    def test_get_without_a_key_or_with_a_wrong_one(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        for table in events(lake, remote, name):
            with pytest.raises(InvalidRequest, match="has no key"):
                table.get(1)
        for table in both(lake, remote, f"{name}_k"):
            with pytest.raises(InvalidRequest, match="does not fit"):
                table.get("x")

    def test_get_from_a_table_that_was_dropped(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        _, table = both(lake, remote, name)
        lake.drop_table(name)
        with pytest.raises(NotFound):
            table.get(1)

    def test_to_arrow(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        seq = local.snapshot().seq
        local.upsert([{**ROW, "id": 4}])
        for arguments in (
            {},
            {"columns": ["day", "id"]},
            {"where": "id > 1 and day = date '2026-11-15'"},
            {"as_of": seq},
            {"as_of": str(seq)},
            {"as_of": dt.datetime.now(dt.UTC)},
            {"as_of": table.snapshot(seq)},
        ):
            there = {k: v if k != "as_of" or not hasattr(v, "seq") else v.seq for k, v in arguments.items()}
            assert table.to_arrow(**arguments).sort_by("id") == local.to_arrow(**there).sort_by("id")  # type: ignore[arg-type]

    def test_other_forms_of_rows(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        seq = local.snapshot().seq
        local.upsert([{**ROW, "id": 4}])

        assert table.count() == local.count() > table.count(as_of=seq) == local.count(as_of=seq)
        assert table.count("id = 4") == 1
        assert table.head(1).schema == local.head(1).schema
        assert table.head(2).num_rows == 2
        assert table.head(5, ["id"], "id = 4").to_pylist() == [{"id": 4}]
        assert table.to_polars(["id"]).sort("id").equals(local.to_polars(["id"]).sort("id"))
        assert table.to_pandas(["id"], "id = 4").equals(local.to_pandas(["id"], "id = 4"))
        with pytest.raises(InvalidRequest, match="rows is a whole number from 1 on"):
            table.head(0)
        local.upsert([{**ROW, "id": 100 + number} for number in range(1_100)])
        with pytest.raises(LimitExceeded, match="answers with 1,000 rows at most: ask for fewer than 5,000"):
            table.head(5_000)

    def test_rows_are_never_cut_without_a_word(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local = lake.create_table(name, EVENTS)
        local.append([{"user_id": n} for n in range(1_001)])
        table = remote.table(name)
        for ask in (table.to_arrow, lambda: remote.sql(f"select * from {name}")):
            with pytest.raises(LimitExceeded, match="1,000 rows") as caught:
                ask()
            assert caught.value.details["limit"] == "rows"
        assert table.to_arrow(where="user_id < 1000").num_rows == 1_000
        assert remote.sql(f"select * from {name} limit 1000").num_rows == 1_000

    def test_changes(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        token = local.snapshot().seq
        local.delete([1])
        local.upsert([ROW])
        local.fold()
        assert table.changes() == local.changes()
        assert table.changes(since=token) == local.changes(since=token)
        assert table.changes(since=token).num_rows == 2
        for door in (local, table):
            with pytest.raises(InvalidRequest, match="since is a seq"):
                door.changes(since=999)

    def test_the_feed(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        token = local.snapshot().seq
        local.upsert([{**ROW, "id": 1}, {**ROW, "id": 9}])
        local.delete([1])
        for options in ({}, {"before": True}, {"until": token + 1, "columns": ["id"], "before": True}):
            assert table.feed(token, **options).to_pylist() == local.feed(token, **options).to_pylist()
        assert table.feed(token, before=True).column("_kind").to_pylist() == [
            "update_before",
            "update_after",
            "insert",
            "delete",
        ]
        for door in (local, table):
            with pytest.raises(InvalidRequest, match="since is a seq"):
                door.feed(999)

    def test_all_of_the_feed_comes_however_much(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local = lake.create_table(name, EVENTS)
        for batch in range(3):
            local.append([{"user_id": n, "what": str(batch)} for n in range(900)])
        found = remote.table(name).feed(0)
        assert found.column("_seq").to_pylist() == local.feed(0).column("_seq").to_pylist()

    def test_all_changes_come_however_many(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local = lake.create_table(name, EVENTS)
        for batch in range(3):
            local.append([{"user_id": n, "what": str(batch)} for n in range(900)])
        assert remote.table(name).changes() == local.changes()


class TestRestore:
    def test_as_it_would_be_locally(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        token, before = local.snapshot().seq, local.to_arrow().to_pylist()
        local.upsert([{**ROW, "id": 77}])
        assert table.restore(token, dry_run=True) == local.restore(token, dry_run=True)
        commit = table.restore(token, batch_id=f"undo {name}", reason="wrong")
        assert (commit.operation, commit.upserted, commit.deleted) == ("restore", 0, 1)
        assert table.restore(token, batch_id=f"undo {name}", reason="wrong").replayed
        assert sorted(map(str, local.to_arrow().to_pylist())) == sorted(map(str, before))

    def test_rows_that_are_there_already(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        table.upsert([{**ROW, "id": 77}])
        seq = local.snapshot().seq
        commit = table.upsert([{**ROW, "id": 77}], if_changed=True)
        assert (commit.rows, commit.skipped, local.snapshot().seq) == (0, 1, seq + 1), "the key of the request is kept"
        assert table.update([{"id": 77, "day": ROW["day"]}], if_changed=True).skipped == 1

    def test_columns_that_are_new(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        with pytest.raises(InvalidRequest):
            table.update([{"id": "x", "rank": 1}], evolve=True)
        assert "rank" not in local.schema.names
        table.update([{"id": 77, "rank": 1}], evolve=True)
        assert [row["rank"] for row in local.to_arrow(where="id = 77").to_pylist()] == [1]


class TestLooking:
    def test_snapshot(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        local.fold()
        local.upsert([ROW])
        for as_of in (None, 1):
            here, there = local.snapshot(as_of), table.snapshot(as_of)
            for field in dataclasses.fields(there):
                assert getattr(there, field.name) == getattr(here, field.name), field.name

    def test_history(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        local.delete([1], actor="desk", reason="why not")
        local.fold()
        assert table.history() == local.history()
        assert table.history(1) == local.history(1)

    def test_stats(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        assert table.stats() == local.stats()
        assert remote.stats() == lake.stats()

    def test_partitions(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local = lake.create_table(name, ORDERS, key="id", time="at", partition_by=("amount", "day"))
        local.upsert([{**ROW, "id": 1}, {**ROW, "id": 2, "amount": None, "at": None}])
        assert remote.table(name).partitions() == local.partitions() == []
        local.fold()
        assert remote.table(name).partitions() == local.partitions()
        assert len(local.partitions()) == 2


class TestTags:
    def test_a_version_gets_a_name(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        made = table.tag("month-end")
        assert table.tags() == local.tags() == [made]
        before = table.to_arrow()
        table.delete([before["id"][0].as_py()])
        assert table.to_arrow(as_of="month-end").num_rows == before.num_rows > table.to_arrow().num_rows
        assert table.tag("same", as_of="month-end").seq == made.seq
        for each in ("month-end", "same"):
            table.untag(each)
        assert local.tags() == []


class TestQuarantine:
    def test_records_that_were_set_aside(self, lake: Lake, remote: RemoteLake, name: str, tmp_path: Path) -> None:
        local, table = both(lake, remote, name)
        records = tmp_path / "in.json"
        records.write_text('{"id": 71}\n{"id": "x"}\n')
        with pytest.raises(InvalidRequest, match="all 2 were set aside"):
            lake.ingest(name, str(records), on_bad_record="quarantine", missing="refuse")
        assert table.quarantine() == local.quarantine()
        (found,) = table.quarantine()
        assert table.quarantined(found.name) == local.quarantined(found.name)
        assert table.quarantined(found.name, limit=1, after=1) == local.quarantined(found.name)[1:]
        done = table.retry_quarantine(found.name, missing="null")
        assert (done.written, done.left) == (1, 1)
        records.write_text('{"id": "x"}\n' * 1_100 + '{"id": 72}\n')
        lake.ingest(name, str(records), on_bad_record="quarantine", missing="null")
        many = table.quarantine()[-1]
        assert table.quarantined(many.name, limit=1_050) == local.quarantined(many.name, limit=1_050)
        assert len(table.quarantined(many.name, limit=5_000, after=50)) == 1_050
        table.purge_quarantine(many.name)
        assert [each.name for each in table.purge_quarantine(found.name)] == [found.name]
        assert local.quarantine() == []


class TestMaintenance:
    def test_fold(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        assert table.fold(dry_run=True) == local.fold(dry_run=True)
        report = table.fold()
        assert (report.inserted, report.final_rows, report.problem) == (3, 3, "")
        assert dataclasses.replace(table.fold(), seconds=0) == dataclasses.replace(local.fold(), seconds=0)

    def test_compact(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        local.set_options({"pack_files_min": 2})
        for n in (10, 20, 30):
            local.append([{"id": n}])
            local.fold()
        there, here = table.compact(dry_run=True), local.compact(dry_run=True)
        assert there == [plan.summary() for plan in here]
        assert [plan.file_count for plan in there] == [plan.file_count for plan in here]
        told: list[Any] = []
        reports = table.compact(progress=told.append)
        assert [(r.origin, r.files_written) for r in reports] == [("pack", 1)] * len(here)
        assert told == reports
        assert table.compact() == local.compact() == []

    def test_optimize(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        local.fold()
        assert len(table.optimize(dry_run=True)) == len(local.optimize(dry_run=True)) == 1
        assert [report.rows for report in table.optimize("day")] == [3]
        assert [report.rows for report in table.optimize(["id", "day"])] == [3]
        with pytest.raises(InvalidRequest, match="nope"):
            table.optimize("nope")

    def test_vacuum(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        shown, here = table.vacuum(24), local.vacuum(24)
        assert dataclasses.replace(shown, seconds=0) == dataclasses.replace(here, seconds=0)
        assert not table.vacuum(24, dry_run=False).dry_run
        with pytest.raises(InvalidRequest):
            table.vacuum(0.1)

    def test_a_cycle(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        both(lake, remote, name)
        report = remote.maintain(tables=[name])
        here = lake.past_cycles(1)[0]
        assert report.document() == here
        assert remote.past_cycles(1) == lake.past_cycles(1)

    def test_jobs(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, _ = both(lake, remote, name)
        local.fold()
        assert remote.jobs() == lake.jobs() == []
        assert remote.running_cycle() is None
        there, here = remote.ended_jobs(1)[0], lake.ended_jobs(1)[0]
        assert {field: here.get(field) for field in there} == there
        assert [job["table"] for job in remote.ended_jobs(table=name)] == [
            job["table"] for job in lake.ended_jobs(table=name)
        ]

    def test_what_is_due_on_a_table(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, _ = both(lake, remote, name)
        local.fold()
        local.upsert([ROW])
        there, here = remote.table_maintenance(name), lake.table_maintenance(name)
        assert {k: v for k, v in there.items() if k != "last_job"} == {k: v for k, v in here.items() if k != "last_job"}
        assert there["last_job"]["kind"] == here["last_job"]["kind"]
        with pytest.raises(NotFound):
            remote.table_maintenance("shop.nowhere")


class TestSql:
    def test_rows_and_types(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, _ = both(lake, remote, name)
        local.upsert([ROW])
        text = f"select *, id as again, count(*) over () as n from {name} order by id"
        assert remote.sql(text) == lake.sql(text)
        assert remote.sql("select 1 as n where false") == lake.sql("select 1 as n where false")

    def test_as_of(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, _ = both(lake, remote, name)
        local.delete([1])
        for as_of in (1, "1", None):
            text = f"select count(*) as n from {name}"
            assert remote.sql(text, as_of=as_of) == lake.sql(text, as_of=as_of)

    def test_a_query_with_limits(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, _ = both(lake, remote, name)
        answer = remote.query(f"select id from {name}", id="mine", rows_max=2, timeout_s=20)
        assert (answer.id, answer.rows.num_rows, answer.cut) == ("mine", 2, True)
        assert answer.snapshots == {name: local.snapshot().seq}
        assert answer.source in ("answer", "hot", "files")
        assert not remote.query(f"select id from {name}").cut

    def test_wrong_queries(self, lake: Lake, remote: RemoteLake) -> None:
        for text in ("select", "select * from shop.nowhere", "drop table a.b", "select nope", ""):
            with pytest.raises(LithifyError) as here:
                lake.sql(text)
            with pytest.raises(type(here.value)):
                remote.sql(text)

    def test_explain(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, _ = both(lake, remote, name)
        local.fold()
        local.upsert([ROW])
        text = f"select * from {name} where id = 2 and amount > 3"
        lake.explain(text)  # which resolves the pending changes: from now on it says so
        assert remote.explain(text) == lake.explain(text)

    def test_a_query_that_runs_is_listed_and_cancelled(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        lake.create_table(name, EVENTS).append([{"user_id": n} for n in range(3_000)])
        text = f"select sum(a.user_id * b.user_id % c.user_id) from {name} a, {name} b, {name} c"
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(remote.query, text, id="long")
            while not (found := remote.queries()) and not asked.done():
                pass
            assert [(query.id, query.sql) for query in found] == [("long", text)]
            assert remote.cancel("long") is True
            with pytest.raises(Cancelled):
                asked.result(60)
        assert remote.queries() == []
        assert remote.cancel("long") is False


class TestCache:
    def test_pin_stats_and_evict(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        both(lake, remote, name)
        pinned = remote.cache.pin(name, ["id", "amount"])
        assert (pinned.table, pinned.rows, pinned.pinned) == (name, 3, True)
        assert set(pinned.columns) >= {"id", "amount"}
        there, here = remote.cache.stats(), lake.cache.stats()
        assert dataclasses.replace(there, tables=()) == dataclasses.replace(here, tables=())
        assert [hot.table for hot in there.tables] == [hot.table for hot in here.tables] == [name]
        assert remote.cache.unpin(name) is True
        assert remote.cache.unpin(name) is False
        assert remote.cache.evict(name) > 0
        assert lake.cache.stats().tables == ()
        with pytest.raises(NotFound):
            remote.cache.pin("shop.nowhere")


class TestTheContract:
    """Whoever can use a local lake can use a remote one."""

    @pytest.mark.parametrize(("here", "there"), [(Lake, RemoteLake), (Table, RemoteTable)])
    def test_every_public_method_is_there(self, here: type, there: type) -> None:
        methods = {name for name in vars(here) if not name.startswith("_")} - {
            "plan",
            "cache",
            "maintenance",
            "pipeline_runner",
        }
        assert methods <= {name for name in dir(there) if not name.startswith("_")} | {"name"}

    @pytest.mark.parametrize(("here", "there"), [(Lake, RemoteLake), (Table, RemoteTable)])
    def test_with_the_same_parameters(self, here: type, there: type) -> None:
        for name, method in vars(there).items():
            if name.startswith("_") or not inspect.isfunction(method) or not hasattr(here, name):
                continue
            known = list(inspect.signature(method).parameters)
            if known[1:] == ["_", "__"]:
                continue
            wanted = list(inspect.signature(getattr(here, name)).parameters)
            only_here = {"memory_bytes_max", "may_read", "within", "owner", "only"}
            assert [p for p in wanted if p not in only_here] == [p for p in known if p in wanted], name

    @pytest.mark.parametrize("method", ["adopt", "ingest", "start_maintenance", "on_change"])
    def test_what_only_a_local_lake_can_do_says_so(self, remote: RemoteLake, method: str) -> None:
        with pytest.raises(InvalidRequest, match=f"{method} does not work through a service: .+"):
            getattr(remote, method)("a.b", "/path")
        with pytest.raises(InvalidRequest, match="through a service"):
            _ = remote.spark

    @pytest.mark.parametrize(
        "method",
        [
            "to_spark",
            "pin",
            "build_index",
            "rebuild_index",
            "check_index",
            "inspect_index",
        ],
    )
    def test_what_only_a_local_table_can_do_says_so(
        self, lake: Lake, remote: RemoteLake, name: str, method: str
    ) -> None:
        _, table = events(lake, remote, name)
        with pytest.raises(InvalidRequest, match=f"{method} does not work through a service: .+"):
            getattr(table, method)()

    def test_columns_change(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        local, table = both(lake, remote, name)
        table.add_column(pa.field("seen", pa.timestamp("us", "UTC")))
        table.add_column(pa.field("Added", pa.int32()))
        seq = table.rename_column("Added", "added")
        assert seq == local.snapshot().seq
        table.alter_column("added", type=pa.int64())
        table.alter_column("added", first=True)
        table.alter_column("seen", after="added")
        assert table.schema.field("seen").type == pa.timestamp("us", "UTC")
        assert table.schema.names[:2] == local.schema.names[:2] == ["added", "seen"]
        table.drop_column("seen")
        with pytest.raises(NotFound, match="'seen' is not in table"):
            table.drop_column("seen")
        with pytest.raises(InvalidRequest, match="does not hold all of its values"):
            table.alter_column("added", type="int8")
        assert local.schema == table.schema

    def test_a_spark_frame_says_what_to_do(self, lake: Lake, remote: RemoteLake, name: str) -> None:
        DataFrame = type("DataFrame", (), {"__module__": "pyspark.sql.dataframe"})
        _, table = events(lake, remote, name)
        with pytest.raises(InvalidRequest, match="toArrow"):
            table.append(DataFrame())


class TestConnecting:
    def test_a_wrong_token(self, served: Served) -> None:
        for token in ("lith_wrong", None):
            with lithify.connect(served.url, token=token) as remote, pytest.raises(Forbidden) as caught:
                remote.tables()
            assert caught.value.details["status"] == 401

    def test_a_token_without_the_scope(self, served: Served, lake: Lake, name: str) -> None:
        lake.create_table(name, EVENTS)
        _, secret = served.tokens.create("reader", ("read",))
        with lithify.connect(served.url, token=secret) as remote:
            assert name in remote.tables()
            with pytest.raises(Forbidden, match="write"):
                remote.table(name).append([{"user_id": 1}])

    def test_nobody_there(self) -> None:
        address = f"http://127.0.0.1:{free_port()}"
        with lithify.connect(address, token="lith_x") as remote, pytest.raises(Unavailable, match=address):
            remote.tables()

    def test_tls(self, lake: Lake, settings: Settings, tmp_path: Path) -> None:
        authority = trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        trusted = tmp_path / "ca.pem"
        authority.cert_pem.write_to_path(str(trusted))
        with serving(lake, settings, tls=context) as served:
            with lithify.connect(served.url, token=served.token, verify=trusted) as remote:
                assert remote.tables() == lake.tables()
            with (
                lithify.connect(served.url, token=served.token) as remote,
                pytest.raises(Unavailable, match=r"is not trusted .* verify=FILE"),
            ):
                remote.tables()

    def test_the_token_is_not_shown(self, served: Served) -> None:
        with lithify.connect(served.url, token=served.token) as remote:
            assert served.token not in repr(remote)
            assert served.url in repr(remote)


def test_statements_do_the_same_here_and_there(lake: Lake, remote: RemoteLake) -> None:
    columns = pa.schema([("id", pa.int64()), ("amount", pa.decimal128(10, 2)), ("at", pa.timestamp("us", "UTC"))])
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
    here, there = (
        lakes.create_table(f"dml.{name}", columns, key="id") for lakes, name in ((lake, "here"), (remote, "there"))
    )
    texts: list[tuple[str, Any]] = [
        ("insert into {} values ($1, $2, $3), (2, 1.5, null)", [1, Decimal("12.30"), moment]),
        ("update {} set amount = amount + :more where at is not null", {"more": Decimal("0.05")}),
        (
            "merge into {} t using (values (2), (3)) s(id) on t.id = s.id when matched then delete "
            "when not matched then insert *",
            None,
        ),
    ]
    for text, parameters in texts:
        done, told = (
            lakes.execute(text.format(table.name), parameters) for lakes, table in ((lake, here), (remote, there))
        )
        assert dataclasses.replace(told, table="dml.here") == done
    assert here.to_arrow().sort_by("id") == there.to_arrow().sort_by("id")
    assert remote.sql("select id from dml.there where amount = $1", parameters=[Decimal("12.35")]).to_pylist() == [
        {"id": 1}
    ]
    assert remote.sql("delete from dml.there where id = 1").to_pylist()[0]["deleted"] == 1
    remote.execute("create table dml.made (primary key (id)) as select id from dml.here")
    assert lake.table("dml.made").definition.key == ("id",)
    assert remote.sql("show columns from dml.made").column("role").to_pylist() == ["key"]
    remote.execute("drop table dml.made")
    assert "dml.made" not in lake.tables()


def test_a_statement_with_a_batch_id_is_executed_once_through_a_service(remote: RemoteLake) -> None:
    remote.create_table("dml.once", pa.schema([("id", pa.int64()), ("n", pa.int64())]), key="id")
    remote.execute("insert into dml.once values (1, 1)")
    done = [remote.execute("update dml.once set n = n + 1", batch_id="b", reason="count") for _ in range(2)]

    assert [(one.replayed, one.updated) for one in done] == [(False, 1), (True, 1)]
    assert remote.table("dml.once").get(1) == {"id": 1, "n": 2}
    with pytest.raises(Conflict, match="already"):
        remote.execute("insert into dml.once values (1, 1)")
    assert remote.execute("delete from dml.once", dry_run=True).deleted == 1
