"""init, create, tables, describe, add-column, adopt, drop."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

Run = Callable[..., Any]


def test_init_makes_a_lake_once(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "lake")
    assert run("init", path, "--json").json == {"lake": path, "created": True}
    assert run("init", path, "--json").json == {"lake": path, "created": False}


def test_init_takes_the_lake_option_too(run: Run, tmp_path: Path) -> None:
    assert run("init", "--lake", str(tmp_path / "lake"), "--json").json["created"] is True


def test_init_refuses_a_folder_with_other_things_in_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    answer = run("init", str(tmp_path))
    assert answer.code == 1
    assert "not empty" in answer.err


def test_create_with_everything(cli: Run) -> None:
    answer = cli(
        *("create", "shop.orders", "-c", "id:int64", "--column", "amount:decimal(10,2)!", "-c", "at:timestamp"),
        *("-c", "country:string", "-c", "v:int64", "--key", "id", "--order-by", "v", "--time", "at"),
        *("--partition-by", "country", "--json"),
    )
    assert answer.code == 0
    found = answer.json
    assert (found["created"], found["key"], found["order_by"], found["time"]) == (True, ["id"], "v", "at")
    assert found["partition_by"] == ["country"]
    assert found["columns"][:2] == [
        {"name": "id", "type": "int64", "nullable": False},
        {"name": "amount", "type": "decimal(10,2)", "nullable": False},
    ]


def test_create_twice(orders: Run) -> None:
    same = (
        "create",
        "shop.orders",
        "-c",
        "id:int64",
        "-c",
        "amount:decimal(10,2)",
        "-c",
        "status:string",
        "--key",
        "id",
    )
    assert orders(*same, "--json").json["error"]["code"] == "conflict"
    assert orders(*same, "--if-not-exists", "--json").json["created"] is False


def test_create_from_what_describe_printed(orders: Run, tmp_path: Path) -> None:
    described = orders("describe", "shop.orders", "--json")
    (tmp_path / "schema.json").write_text(described.out)
    copy = orders("create", "shop.copy", "--schema", "schema.json", "--key", "id", "--json")
    assert copy.json["columns"] == described.json["columns"]


def test_create_from_a_short_schema_file(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"id": "int64!", "tags": "list<string>"}')
    assert [c["type"] for c in cli("create", "a.b", "--schema", "schema.json", "--json").json["columns"]] == [
        "int64",
        "list<string>",
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("a.b",), "needs columns"),
        (("a.b", "-c", "id:nope"), "is no type"),
        (("a.b", "-c", "id:double", "--key", "id"), "floating point"),
        (("a.b", "-c", "id:int64", "--key", "other"), "'other' is not in the schema"),
        (("a.b", "-c", "_seq:int64"), "reserved"),
        (("../b", "-c", "id:int64"), "is no table name"),
        (("a.b", "-c", "id:int64", "--schema", "x.json"), "not both"),
        (("a.b", "--schema", "missing.json"), "does not exist"),
        (("a.b", "--schema", "bad.json"), "holds no schema"),
    ],
)
def test_create_refuses(cli: Run, tmp_path: Path, arguments: tuple[str, ...], problem: str) -> None:
    (tmp_path / "bad.json").write_text("[1]")
    answer = cli("create", *arguments)
    assert answer.refused
    assert problem in answer.err
    assert cli("tables", "--json").json["tables"] == []


def test_tables_lists_rows_pending_and_seq(orders: Run) -> None:
    assert orders("tables", "--json").json["tables"] == [
        {
            "table": "shop.orders",
            "base_rows": 0,
            "base_bytes": 0,
            "pending_rows": 3,
            "pending_files": 1,
            "seq": 1,
            "watermark": 0,
        }
    ]
    assert "shop.orders" in orders("tables").out


def test_a_damaged_table_does_not_hide_the_others(orders: Run, tmp_path: Path) -> None:
    orders("create", "shop.broken", "-c", "id:int64", "--key", "id")
    orders("write", "shop.broken", "--row", '{"id": 1}')
    log = tmp_path / "lake" / "shop" / "broken" / "changes" / "_delta_log" / "00000000000000000000.json"
    log.write_text("{torn")
    answer = orders("tables", "--json")
    assert answer.code == 0
    rows = {row["table"]: row for row in answer.json["tables"]}
    assert "error" in rows["shop.broken"]
    assert rows["shop.orders"]["pending_rows"] == 3


def test_describe(orders: Run, tmp_path: Path) -> None:
    found = orders("describe", "shop.orders", "--json").json
    assert found["key"] == ["id"]
    assert (found["seq"], found["watermark"], found["pending"]["rows"], found["base"]["rows"]) == (1, 0, 3, 0)
    assert found["base"]["path"] == str(tmp_path / "lake" / "shop" / "orders" / "base")
    text = orders("describe", "shop.orders").out
    for part in ("decimal(10,2)", "required", "3 changes in 1 file", found["base"]["path"]):
        assert part in text


def test_add_column(orders: Run) -> None:
    answer = orders("add-column", "shop.orders", "note:string", "--json")
    assert answer.json["columns"][-1] == {"name": "note", "type": "string", "nullable": True}
    assert orders("get", "shop.orders", "1", "--json").json["row"]["note"] is None


def test_defaults(orders: Run) -> None:
    made = orders(
        "create", "shop.d", "-c", "id:int64", "-c", "on:bool", "--default", "on=true", "--key", "id", "--json"
    )
    assert made.json["defaults"] == {"on": True}
    assert orders("add-column", "shop.d", "n:int32", "--default", "5").code == 0
    assert orders("alter-column", "shop.d", "on", "--no-default", "--json").json["defaults"] == {"n": 5}
    assert orders("alter-column", "shop.d", "on", "--default", "false").code == 0
    assert "on=False" in orders("describe", "shop.d").out
    assert orders("write", "shop.d", "--row", '{"id": 1}').code == 0
    assert orders("get", "shop.d", "1", "--json").json["row"] == {"id": 1, "on": False, "n": 5}
    for wrong in (
        ["alter-column", "shop.d", "n", "--default", "x"],
        ["create", "shop.e", "-c", "a:int64", "--default", "a"],
    ):
        assert orders(*wrong).code == 1


@pytest.mark.parametrize(
    ("column", "problem"), [("note:string!", "must be nullable"), ("status:string", "already"), ("note", "name:type")]
)
def test_add_column_refuses(orders: Run, column: str, problem: str) -> None:
    answer = orders("add-column", "shop.orders", column)
    assert answer.code == 1
    assert problem in answer.err


def test_adopt_a_delta_table(cli: Run, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "delta", pa.table({"id": [1, 2], "name": ["a", "b"]}))
    answer = cli("adopt", "old.people", str(tmp_path / "delta"), "--key", "id", "--json")
    assert answer.code == 0, answer.out
    assert answer.json["base"]["rows"] == 2
    assert cli("get", "old.people", "2", "--json").json["row"] == {"id": 2, "name": "b"}


def test_adopt_refuses_duplicate_keys(cli: Run, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "delta", pa.table({"id": [1, 1]}))
    answer = cli("adopt", "old.people", str(tmp_path / "delta"), "--key", "id")
    assert answer.code == 1
    assert cli("tables", "--json").json["tables"] == []


def test_drop(orders: Run) -> None:
    assert orders("drop", "shop.orders", "--yes", "--json").json == {"table": "shop.orders", "dropped": True}
    assert orders("tables", "--json").json["tables"] == []


def test_drop_wants_to_be_told_that_it_is_meant(orders: Run) -> None:
    answer = orders("drop", "shop.orders")
    assert answer.code == 1
    assert "--yes" in answer.err
    assert json.loads(orders("tables", "--json").out)["tables"]
