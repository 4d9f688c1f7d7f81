"""sql, changes, history, stats, snapshot, fold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lithify import Lake

Run = Callable[..., Any]
SELECT = "select id, amount from shop.orders order by id"


def test_sql_as_a_table(orders: Run) -> None:
    answer = orders("sql", SELECT)
    assert answer.code == 0
    assert "amount" in answer.out
    assert "3 rows" in answer.out


def test_sql_as_json(orders: Run) -> None:
    answer = orders("sql", SELECT, "--json").json
    assert answer["columns"] == [{"name": "id", "type": "int64"}, {"name": "amount", "type": "decimal(10,2)"}]
    assert answer["row_count"] == 3
    assert answer["rows"][0] == {"id": 1, "amount": "1.50"}


def test_a_statement_about_a_table_counts_no_rows(cli: Run) -> None:
    assert "create table a.b: done" in cli("sql", "create table a.b (id bigint primary key)").out
    assert "alter table a.b: done" in cli("sql", "alter table a.b add column note string").out
    assert "create table on a.c: 1 row inserted, seq 1" in cli("sql", "create table a.c as select 1 as id").out
    assert "drop table a.b: done" in cli("sql", "drop table a.b").out


def test_sql_from_stdin(orders: Run) -> None:
    assert orders("sql", "-", "--json", stdin=SELECT).json["row_count"] == 3


def test_sql_shows_some_rows_and_says_how_many_there_are(cli: Run) -> None:
    cli("create", "a.b", "-c", "id:int64", "--key", "id")
    cli("write", "a.b", stdin="".join(f'{{"id": {n}}}\n' for n in range(250)))
    query = "select id from a.b order by id"
    assert "100 of 250 rows shown" in cli("sql", query).out
    assert "3 of 250 rows shown" in cli("sql", query, "--limit", "3").out
    assert "249" in cli("sql", query, "--limit", "0").out
    assert len(cli("sql", query, "--json").json["rows"]) == 250
    assert len(cli("sql", query, "--json", "--limit", "5").json["rows"]) == 5


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("csv", "id,amount\n1,1.50\n2,2.50\n3,3.50\n"),
        ("ndjson", '{"id":1,"amount":"1.50"}\n{"id":2,"amount":"2.50"}\n{"id":3,"amount":"3.50"}\n'),
        (
            "json",
            '[\n  {"id":1,"amount":"1.50"},\n  {"id":2,"amount":"2.50"},\n  {"id":3,"amount":"3.50"}\n]\n',
        ),
    ],
)
def test_sql_formats(orders: Run, tmp_path: Path, format: str, text: str) -> None:
    assert orders("sql", SELECT, "--format", format).out == text
    answer = orders("sql", SELECT, "--output", f"out.{format}", "--json").json
    assert (answer["rows_written"], answer["format"]) == (3, format)
    assert (tmp_path / f"out.{format}").read_text() == text


def test_sql_to_parquet(orders: Run, tmp_path: Path) -> None:
    assert orders("sql", SELECT, "--output", "out.parquet").code == 0
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lake", "out.parquet"]


def test_sql_with_no_rows(orders: Run) -> None:
    nothing = "select id from shop.orders where id > 100"
    assert orders("sql", nothing).out.strip() == "no rows (id)"
    assert orders("sql", nothing, "--format", "json").out == "[]\n"
    assert orders("sql", nothing, "--json").json["rows"] == []


def test_csv_quotes_what_needs_it(cli: Run) -> None:
    cli("create", "a.b", "-c", "id:int64", "-c", "t:string", "--key", "id")
    for number, text in enumerate(['say "hi", you', "two\nlines", "", None]):
        cli("write", "a.b", "--row", json.dumps({"id": number, "t": text}))
    printed = cli("sql", "select id, t from a.b order by id", "-f", "csv").out
    assert printed == 'id,t\n0,"say ""hi"", you"\n1,"two\nlines"\n2,""\n3,\n'


def test_markup_in_values_is_shown_as_it_is(cli: Run) -> None:
    cli("create", "a.b", "-c", "id:int64", "-c", "t:string", "--key", "id")
    cli("write", "a.b", "--row", '{"id": 1, "t": "[bold]x[/bold]"}')
    assert "[bold]x[/bold]" in cli("sql", "select t from a.b").out
    assert "[bold]x[/bold]" in cli("get", "a.b", "1").out


def test_sql_as_of(orders: Run) -> None:
    orders("delete", "shop.orders", "1")
    orders("fold", "shop.orders")
    assert orders("sql", SELECT, "--json").json["row_count"] == 2
    assert orders("sql", SELECT, "--as-of", "1", "--json").json["row_count"] == 3


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("selec 1",), "not accepted"),
        ((" ",), "empty"),
        (("select * from shop.nope",), "shop.nope"),
        (("select nope from shop.orders",), "nope"),
        (("drop schema shop",), "TABLE"),
        ((SELECT, "--as-of", "99"), "99"),
        ((SELECT, "--as-of", "yesterday"), "yesterday"),
        ((SELECT, "--output", "noname"), "--format"),
        ((SELECT, "--output", "nowhere/out.csv"), "nowhere"),
        ((SELECT, "--format", "xml"), "xml"),
        ((SELECT, "--limit", "-1"), "--limit"),
        (("select id, id as id2, amount as id from shop.orders", "--format", "json"), "id"),
    ],
)
def test_sql_refuses(orders: Run, arguments: tuple[str, ...], problem: str) -> None:
    answer = orders("sql", *arguments)
    assert answer.refused
    assert problem in answer.err
    assert "Traceback" not in answer.err


def test_json_and_format_together_are_refused(orders: Run) -> None:
    answer = orders("sql", SELECT, "--json", "--format", "csv")
    assert answer.code == 1
    assert answer.json["error"]["code"] == "invalid_request"


def test_changes_since_a_token(orders: Run) -> None:
    orders("write", "shop.orders", "--row", '{"id": 9}')
    orders("delete", "shop.orders", "1")
    orders("fold", "shop.orders")
    answer = orders("changes", "shop.orders", "--since", "1", "--json").json
    assert (answer["since"], answer["next"]) == (1, 3)
    assert [(row["id"], row["_seq"], row["_op"]) for row in answer["rows"]] == [(9, 2, "upsert"), (1, 3, "delete")]
    assert orders("changes", "shop.orders", "--since", "3", "--json").json["next"] == 3
    assert orders("changes", "shop.orders", "--since", "4").code == 1


def test_changes_up_to_a_seq(orders: Run) -> None:
    orders("write", "shop.orders", "--row", '{"id": 9}')
    orders("delete", "shop.orders", "1")
    answer = orders("changes", "shop.orders", "--since", "1", "--until", "2", "--json").json
    assert (answer["next"], [row["_seq"] for row in answer["rows"]]) == (2, [2])


def test_changes_as_effects(orders: Run) -> None:
    orders("write", "shop.orders", "--row", '{"id": 9, "amount": 1.5}')
    orders("write", "shop.orders", "--row", '{"id": 9, "amount": 2.5}')
    orders("delete", "shop.orders", "9")
    orders("delete", "shop.orders", "99")
    answer = orders("changes", "shop.orders", "--since", "1", "--effects", "--json").json
    assert [(row["amount"], row["_seq"], row["_kind"]) for row in answer["rows"]] == [
        ("1.50", 2, "insert"),
        ("2.50", 3, "update"),
        ("2.50", 4, "delete"),
    ]
    assert answer["next"] == 5, "the last commit did nothing, and need not be asked for again"


def test_changes_with_the_rows_before_updates(orders: Run) -> None:
    orders("write", "shop.orders", "--row", '{"id": 9, "amount": 1.5}')
    orders("write", "shop.orders", "--row", '{"id": 9, "amount": 2.5}')
    answer = orders("changes", "shop.orders", "--since", "2", "--effects", "--before", "--json").json
    assert [(row["amount"], row["_kind"]) for row in answer["rows"]] == [
        ("1.50", "update_before"),
        ("2.50", "update_after"),
    ]
    assert "--effects" in orders("changes", "shop.orders", "--before", "--json").json["error"]["message"]


def test_changes_since_a_position(orders: Run, tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        position = lake.table("shop.orders").position()
    orders("write", "shop.orders", "--row", '{"id": 9}')
    assert orders("changes", "shop.orders", "--since", position, "--json").json["next"] == 2


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--since", "yesterday"), "is no position"),
        (("--since", "shop.items@00000000:1"), "is of table shop.items"),
        (("--since", "shop.orders@00000000:1"), "created again"),
        (("--since", "1", "--until", "0"), "swap them"),
        (("--until", "2"), "its newest seq is 1"),
        (("--until", "2", "--effects"), "its newest seq is 1"),
    ],
)
def test_bad_positions_are_refused(orders: Run, options: tuple[str, ...], problem: str) -> None:
    answer = orders("changes", "shop.orders", *options, "--json")
    assert answer.code == 1
    assert problem in answer.json["error"]["message"]


def test_history_newest_first(orders: Run) -> None:
    orders("fold", "shop.orders")
    orders("delete", "shop.orders", "--where", "id = 1", "--reason", "asked", "--batch-id", "b7")
    entries = orders("history", "shop.orders", "--json").json["history"]
    assert [entry["operation"] for entry in entries] == ["delete where", "fold", "upsert", "create table"]
    assert (entries[0]["reason"], entries[0]["detail"], entries[0]["batch_id"]) == ("asked", "id = 1", "b7")
    assert len(orders("history", "shop.orders", "--limit", "2", "--json").json["history"]) == 2
    text = orders("history", "shop.orders").out
    assert "asked" in text
    assert "b7" in text
    assert orders("history", "shop.orders", "--limit", "0").code == 2


def test_stats(orders: Run) -> None:
    found = orders("stats", "shop.orders", "--json").json
    assert (found["seq"], found["pending_rows"], found["base_rows"]) == (1, 3, 0)
    assert "pending rows" in orders("stats", "shop.orders").out


def test_snapshot(orders: Run) -> None:
    orders("write", "shop.orders", "--row", '{"id": 9}')
    found = orders("snapshot", "shop.orders", "--as-of", "1", "--json").json
    assert (found["seq"], found["pending_rows"]) == (1, 3)
    assert orders("snapshot", "shop.orders", "--as-of", "77").code == 3


def test_fold_dry_run_changes_nothing(orders: Run) -> None:
    answer = orders("fold", "shop.orders", "--dry-run", "--json").json
    assert answer["dry_run"] is True
    assert answer["folds"][0]["change_rows"] == 3
    assert orders("stats", "shop.orders", "--json").json["pending_rows"] == 3


def test_fold_reports_exactly(orders: Run) -> None:
    answer = orders("fold", "shop.orders", "--json").json["folds"][0]
    assert (answer["change_rows"], answer["inserted"], answer["final_rows"]) == (3, 3, 3)
    assert orders("stats", "shop.orders", "--json").json["base_rows"] == 3
    assert "shop.orders" in orders("fold", "shop.orders").out


def test_fold_all_goes_on_after_a_damaged_table(orders: Run, tmp_path: Path) -> None:
    orders("create", "a.broken", "-c", "id:int64", "--key", "id")
    orders("write", "a.broken", "--row", '{"id": 1}')
    with Lake(tmp_path / "lake") as lake:
        file = lake.table("a.broken").snapshot().changes[0].path
    (tmp_path / "lake" / "a" / "broken" / "changes" / file).write_bytes(b"torn")
    answer = orders("fold", "--all", "--json")
    assert answer.code == 1
    folds = {fold["table"]: fold for fold in answer.json["folds"]}
    assert file in folds["a.broken"]["error"]
    assert folds["shop.orders"]["final_rows"] == 3
    assert orders("fold", "a.broken", "--json").json["error"]["code"] == "corruption"


def test_fold_needs_a_table_or_all(orders: Run) -> None:
    assert orders("fold").code == 1
    assert orders("fold", "shop.orders", "--all").code == 1


def test_fold_all_of_an_empty_lake(cli: Run) -> None:
    assert cli("fold", "--all").out.strip() == "no tables to fold"


def test_a_statement_tells_what_it_wrote(orders: Run) -> None:
    answer = orders("sql", "update shop.orders set amount = :a where id <= :n", "--param", "a=7.25", "-p", "n=2")
    assert (answer.code, "2 rows updated" in answer.out) == (0, True)
    assert orders("sql", SELECT, "--json").json["rows"][1] == {"id": 2, "amount": "7.25"}

    told = orders("sql", "delete from shop.orders", "--dry-run", "--json").json
    assert (told["statement"], told["deleted"], told["dry_run"]) == ("delete", 3, True)
    assert orders("sql", SELECT, "--json").json["row_count"] == 3

    assert orders("sql", "select :a as a", "-p", "a=x y", "--json").json["rows"] == [{"a": "x y"}]


def test_a_statement_that_is_refused_fails(orders: Run) -> None:
    assert "already" in orders("sql", "insert into shop.orders (id) values (1)").err
    assert "for reading" in orders("sql", "delete from shop.orders", "--as-of", "1").err
    assert "this one reads" in orders("sql", SELECT, "--dry-run").err
    assert "NAME=VALUE" in orders("sql", SELECT, "--param", "x").err
