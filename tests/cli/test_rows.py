"""write, get, delete."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.parquet_footers import COLUMNS, GROUP_ROWS, I64, META_DATA, NUM_ROWS, ROW_GROUPS, Fields, edited

Run = Callable[..., Any]
ROWS = pa.table({"id": pa.array([7, 8], pa.int64()), "status": ["new", "paid"]})


def ids(run: Run, table: str = "shop.orders") -> list[int]:
    return [row["id"] for row in run("sql", f"select id from {table} order by id", "--json").json["rows"]]


def test_write_answers_with_the_commit(orders: Run) -> None:
    answer = orders("write", "shop.orders", "--row", '{"id": 4}', "--row", '{"id": 5, "amount": 1.25}', "--json").json
    assert (answer["table"], answer["seq"], answer["operation"], answer["rows"]) == ("shop.orders", 2, "upsert", 2)
    assert (answer["upserted"], answer["deleted"], answer["replayed"]) == (2, 0, False)
    assert answer["seconds"] > 0
    assert orders("get", "shop.orders", "5", "--json").json["row"] == {"id": 5, "amount": "1.25", "status": None}


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _file(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


FILES = {
    "rows.jsonl": b'{"id": 7, "status": "new"}\n\n{"id": 8, "status": "paid"}\n',
    "rows.json": b' [{"id": 7, "status": "new"}, {"id": 8, "status": "paid"}]',
    "rows.csv": b"id,status\n7,new\n8,paid\n",
    "rows.parquet": _parquet(ROWS),
    "rows.arrow": _file(ROWS),
    "rows.ipc": _stream(ROWS),
}
FORMATS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet", ".arrow": "arrow", ".ipc": "arrow"}


@pytest.mark.parametrize("name", FILES)
def test_write_reads_files_by_their_name(orders: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    assert orders("write", "shop.orders", name, "--json").json["rows"] == 2
    assert ids(orders) == [1, 2, 3, 7, 8]


@pytest.mark.parametrize("name", FILES)
def test_write_reads_stdin(orders: Run, name: str) -> None:
    kind = FORMATS[Path(name).suffix]
    assert orders("write", "shop.orders", "-", "--format", kind, stdin=FILES[name]).code == 0
    assert ids(orders) == [1, 2, 3, 7, 8]


def test_csv_tells_null_from_empty_text(orders: Run) -> None:
    assert orders("write", "shop.orders", "-f", "csv", stdin='id,amount,status\n4,,""\n5,1.5,\n').code == 0
    assert orders("get", "shop.orders", "4", "--json").json["row"] == {"id": 4, "amount": None, "status": ""}
    assert orders("get", "shop.orders", "5", "--json").json["row"] == {"id": 5, "amount": "1.50", "status": None}


def test_what_sql_prints_can_be_written_back(cli: Run) -> None:
    columns = ("id:int64", "raw:binary", "at:timestamp", "day:date", "price:decimal(20,3)", "ratio:double")
    nested = ("tags:list<string>", "m:map<string,int64>", "s:struct<a:int64,b:decimal(5,2)>")
    for name in ("a.one", "a.two"):
        assert cli("create", name, *(part for c in (*columns, *nested) for part in ("-c", c)), "--key", "id").code == 0
    row = (
        '{"id": 9007199254740993, "raw": "AP8=", "at": "2026-11-15T12:00:00.000001Z", "day": "2026-11-15", '
        '"price": "12345678901234567.125", "ratio": "NaN", "tags": ["x", null], "m": {"k": 9007199254740993}, '
        '"s": {"a": 1, "b": 1.25}}'
    )
    assert cli("write", "a.one", "--row", row).code == 0
    printed = cli("sql", "select * from a.one", "--format", "ndjson").out
    assert cli("write", "a.two", stdin=printed).code == 0
    assert cli("sql", "select * from a.two", "--format", "ndjson").out == printed


def test_the_same_batch_id_is_written_once(orders: Run) -> None:
    write = ("write", "shop.orders", "--row", '{"id": 4}', "--batch-id", "b1", "--json")
    assert orders(*write).json["replayed"] is False
    again = orders(*write).json
    assert (again["replayed"], again["seq"]) == (True, 2)
    assert "nothing was changed" in orders(*write[:-1]).out


def test_a_table_with_no_key_takes_appends(events: Run) -> None:
    assert events("write", "log.events", "--row", '{"user_id": 3}', "--json").json["operation"] == "append"
    assert events("write", "log.events", "--row", '{"user_id": 3}', "--mode", "upsert").code == 1


def test_replace_beats_a_higher_order_by(cli: Run) -> None:
    columns = ("-c", "id:int64", "-c", "v:int64")
    assert cli("create", "a.ordered", *columns, "--key", "id", "--order-by", "v").code == 0
    cli("write", "a.ordered", "--row", '{"id": 1, "v": 9}')
    cli("write", "a.ordered", "--row", '{"id": 1, "v": 2}')
    assert cli("get", "a.ordered", "1", "--json").json["row"]["v"] == 9
    cli("write", "a.ordered", "--row", '{"id": 1, "v": 2}', "--mode", "replace")
    assert cli("get", "a.ordered", "1", "--json").json["row"]["v"] == 2


def test_two_sources_feed_one_row(cli: Run) -> None:
    columns = [each for name in ("id", "price", "price_ts", "stock", "stock_ts") for each in ("-c", f"{name}:int64")]
    groups = ("--order-group", "price_ts=price", "--order-group", "stock_ts = stock")
    done = cli("create", "a.t", *columns, "--key", "id", *groups, "--json")
    assert done.json["order_groups"] == {"price_ts": ["price"], "stock_ts": ["stock"]}
    assert "price_ts=price; stock_ts=stock" in cli("describe", "a.t").out
    for row in (
        '{"id": 1, "price": 9, "price_ts": 5}',
        '{"id": 1, "price": 8, "price_ts": 4, "stock": 2, "stock_ts": 1}',
    ):
        assert cli("write", "a.t", "--row", row).code == 0
    assert cli("get", "a.t", "1", "--json").json["row"] == {
        "id": 1,
        "price": 9,
        "price_ts": 5,
        "stock": 2,
        "stock_ts": 1,
    }
    for wrong in ("price_ts", "=price", "price_ts=", "price_ts=price,"):
        refused = cli("create", "a.u", *columns, "--key", "id", "--order-group", wrong)
        assert (refused.code, "write ORDER=COLUMN,COLUMN" in refused.err) == (1, True)
    refused = cli("create", "a.u", *columns, "--key", "id", *groups, "--order-group", "price_ts=stock")
    assert (refused.code, "is given two groups" in refused.err) == (1, True)


def test_rows_add_up_by_merge_rules_and_are_taken_back(cli: Run) -> None:
    columns = ("-c", "id:int64", "-c", "v:int64", "-c", "n:int64")
    done = cli("create", "a.t", *columns, "--key", "id", "--merge-rule", "v=sum", "--merge-rule", "n=count", "--json")
    assert done.json["merge_rules"] == {"v": "sum", "n": "count"}
    assert "v=sum, n=count" in cli("describe", "a.t").out
    cli("write", "a.t", "--row", '{"id": 1, "v": 9}', "--row", '{"id": 1, "v": 2}')
    cli("write", "a.t", "--mode", "retract", "--row", '{"id": 1, "v": 9}')
    assert cli("get", "a.t", "1", "--json").json["row"] == {"id": 1, "v": 2, "n": 1}
    refused = cli("create", "a.u", *columns, "--key", "id", "--merge-rule", "v")
    assert (refused.code, "write COLUMN=RULE" in refused.err) == (1, True)


@pytest.mark.parametrize("way", ["rows", "lines", "csv"])
def test_update_leaves_what_is_not_named(cli: Run, way: str) -> None:
    cli("create", "a.t", "-c", "id:int64", "-c", "v:int64", "-c", "s:string", "--key", "id")
    cli("write", "a.t", "--row", '{"id": 1, "v": 9, "s": "a"}')
    first, second = '{"id": 1, "s": "b"}', '{"id": 2, "v": 2}'
    match way:
        case "rows":
            done = cli("write", "a.t", "--update", "--row", first, "--row", second, "--json")
        case "lines":
            done = cli("write", "a.t", "--mode", "update", "--json", stdin=f"{first}\n{second}\n")
        case _:
            done = cli("write", "a.t", "--update", "--format", "csv", "--json", stdin="id,s\n1,b\n")
    assert done.json["operation"] == "update"
    assert cli("get", "a.t", "1", "--json").json["row"] == {"id": 1, "v": 9, "s": "b"}
    if way != "csv":
        assert cli("get", "a.t", "2", "--json").json["row"] == {"id": 2, "v": 2, "s": None}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--update", "--mode", "upsert"), "says something else"),
        (("--missing", "skip"), "--missing skip does not go with an upsert"),
        (("--update", "--missing", "null"), "--missing null does not go with --mode update"),
        (("--update", "--missing", "refuse"), "1 key is not in table shop.orders"),
    ],
)
def test_update_refuses_what_contradicts_itself(orders: Run, arguments: tuple[str, ...], problem: str) -> None:
    done = orders("write", "shop.orders", *arguments, "--row", '{"id": 7000}')
    assert (done.code, problem in done.err) == (1, True)


@pytest.mark.parametrize("way", ["rows", "json", "csv"])
def test_rows_that_lack_a_column_are_refused_unless_null_is_wanted(orders: Run, way: str) -> None:
    orders("set", "shop.orders", "missing_columns=refuse")
    match way:
        case "rows":
            given: tuple[str, ...] = (
                "--row",
                '{"id": 1, "amount": 1, "status": null}',
                "--row",
                '{"id": 1, "amount": 2}',
            )
            stdin = ""
        case "json":
            given, stdin = (), '{"id": 1, "amount": 1, "status": "x"}\n{"id": 1, "amount": 2}\n'
        case _:
            given, stdin = ("--format", "csv"), "id,amount\n1,2\n"
    done = orders("write", "shop.orders", *given, stdin=stdin)
    assert (done.code, "lack the column 'status'" in done.err) == (1, True)

    assert orders("write", "shop.orders", "--missing", "null", *given, stdin=stdin).code == 0
    row = orders("get", "shop.orders", "1", "--json").json["row"]
    assert row == {"id": 1, "amount": "2.00", "status": None}
    orders("set", "shop.orders", "missing_columns=null")
    assert orders("write", "shop.orders", *given, stdin=stdin).code == 0


@pytest.mark.parametrize(
    ("arguments", "stdin", "problem"),
    [
        (("--row", "nonsense"), "", "no JSON"),
        (("--row", "[1]"), "", "JSON object"),
        (("--row", '{"id": 1.5}'), "", "1.5 does not fit int64"),
        (("--row", '{"id": "x"}'), "", '"x" does not fit int64'),
        (("--row", '{"id": null}'), "", "null"),
        (("--row", '{"status": "no key"}'), "", "'id'"),
        (("--row", '{"id": 9, "amount": 1.999}'), "", "'amount'"),
        (("--row", '{"id": 9, "colour": "red"}'), "", "'colour' is not in the table"),
        (("--row", '{"id": 9223372036854775808}'), "", "does not fit"),
        (("--row", '{"id": 9}', "file.csv"), "", "not both"),
        (("missing.csv",), "", "missing.csv does not exist"),
        (("rows.txt",), "", "--format"),
        ((".",), "", "is a folder"),
        (("--mode", "merge"), "", "merge"),
        (("--format", "xml"), "", "xml"),
        ((), "", "empty"),
        ((), '{"id": 9}\n{"id": 10', "stdin, line 2: no JSON"),
        ((), '{"id": 9}\n7\n', "stdin, line 2: no JSON object"),
        ((), b'{"id": 9, "status": "\xff"}', "stdin, line 1: bytes that are no text"),
        ((), '{"id": 9, "amount": NaN}', "stdin, line 1: no JSON"),
        (("-f", "csv"), "id,amount\n9,1.5\n10,abc\n", "stdin, line 3, column 'amount': 'abc' does not fit"),
        (("-f", "csv"), "id,amount\n", "no records"),
        (("-f", "csv"), "id,id\n1,2\n", "the column 'id' twice"),
        (("-f", "csv"), 'id,status\n4,"a\nb"\n5,"c', "stdin, line 4: a quote is opened and never closed"),
        (("-f", "csv", "--encoding", "klingon"), "id\n4\n", "encoding 'klingon' is not known"),
        (("-f", "csv"), "", "empty"),
        (("-f", "parquet"), "no parquet", "no readable Parquet"),
        (("-f", "arrow"), "no arrow", "no readable Arrow"),
    ],
)
def test_write_refuses_and_changes_nothing(
    orders: Run, tmp_path: Path, arguments: tuple[str, ...], stdin: str | bytes, problem: str
) -> None:
    (tmp_path / "rows.txt").write_text("{}")
    answer = orders("write", "shop.orders", *arguments, stdin=stdin)
    assert answer.refused
    assert problem in answer.err
    assert "Traceback" not in answer.err
    assert orders("stats", "shop.orders", "--json").json["seq"] == 1


def _in_each_group(footer: Fields, rows: int) -> None:
    for group in footer[ROW_GROUPS][1][1]:
        group[GROUP_ROWS] = I64, rows


def _values_of_last_column(footer: Fields, count: int) -> None:
    for group in footer[ROW_GROUPS][1][1]:
        group[COLUMNS][1][1][-1][META_DATA][1][5] = I64, count


CONTRADICTIONS: dict[str, tuple[Callable[[Fields], Any], str]] = {
    "the footer": (lambda footer: footer.update({NUM_ROWS: (I64, 1)}), "says 1 rows, and its row groups have 2"),
    "the row groups": (lambda footer: _in_each_group(footer, 1), "says 2 rows, and its row groups have 1"),
    "both": (
        lambda footer: (footer.update({NUM_ROWS: (I64, 1)}), _in_each_group(footer, 1)),
        "'id' has 2 values for 1 rows",
    ),
    "more values": (lambda footer: _values_of_last_column(footer, 9), "'status' has 9 values for 2 rows"),
    "fewer values": (lambda footer: _values_of_last_column(footer, 1), "'status' has 1 values for 2 rows"),
}


@pytest.mark.parametrize("counts", CONTRADICTIONS)
@pytest.mark.parametrize("stdin", [False, True], ids=["file", "stdin"])
def test_a_parquet_file_whose_counts_contradict_each_other_is_refused_whole(
    orders: Run, tmp_path: Path, counts: str, stdin: bool
) -> None:
    change, said = CONTRADICTIONS[counts]
    path = tmp_path / "x.parquet"
    path.write_bytes(_parquet(ROWS))
    edited(path, change)

    arguments, body = (("-f", "parquet"), path.read_bytes()) if stdin else ((str(path),), b"")
    answer = orders("write", "shop.orders", *arguments, stdin=body)

    assert answer.refused
    assert said in answer.err
    assert orders("stats", "shop.orders", "--json").json["seq"] == 1


@pytest.mark.parametrize("lists", [[[1, 2, 3], [4]], [[], None], [None, [None, 5]]], ids=str)
def test_a_list_has_as_many_values_as_it_likes(tmp_path: Path, lists: list[Any]) -> None:
    from lithify.cli.row_input import read_rows

    rows = pa.table({"id": [1, 2], "numbers": pa.array(lists, pa.list_(pa.int64()))})
    (tmp_path / "x.parquet").write_bytes(_parquet(rows))

    assert read_rows(str(tmp_path / "x.parquet"), None, rows.schema, "a.t").equals(rows)


def test_get_text_and_json(orders: Run) -> None:
    assert orders("get", "shop.orders", "2", "--json").json == {
        "table": "shop.orders",
        "row": {"id": 2, "amount": "2.50", "status": "paid"},
    }
    assert "2.50" in orders("get", "shop.orders", "2").out
    assert orders("get", "shop.orders", "id=2", "--json").json["row"]["id"] == 2


def test_get_what_is_not_there(orders: Run) -> None:
    answer = orders("get", "shop.orders", "99", "--json")
    assert answer.code == 3
    assert answer.json["error"] == {"code": "not_found", "message": "table shop.orders has no row with key 99"}


@pytest.mark.parametrize("key", ['{"order": 1, "line": "a,b"}', '{"line": "a,b", "order": "1"}'])
def test_get_by_a_key_of_two_columns_as_json(lines: Run, key: str) -> None:
    assert lines("get", "shop.lines", key, "--json").json["row"]["qty"] == 2


def test_get_by_a_key_of_two_columns(lines: Run) -> None:
    assert lines("get", "shop.lines", "order=1,line=c", "--json").json["row"] == {"order": 1, "line": "c", "qty": None}


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("1", "order=…,line=…"),
        ("order=1", "line"),
        ("order=x,line=c", "does not fit"),
        ("other=1,line=c", "no column 'other'"),
    ],
)
def test_bad_key(lines: Run, key: str, problem: str) -> None:
    for command in ("get", "delete"):
        answer = lines(command, "shop.lines", key)
        assert answer.code == 1
        assert problem in answer.err


def test_get_on_a_table_with_no_key(events: Run) -> None:
    answer = events("get", "log.events", "1")
    assert answer.code == 1
    assert "has no key" in answer.err


def test_delete_by_key_says_who_and_why(orders: Run) -> None:
    answer = orders("delete", "shop.orders", "1", "3", "--actor", "desk", "--reason", "asked", "--json").json
    assert (answer["operation"], answer["deleted"], answer["seq"]) == ("delete", 2, 2)
    assert ids(orders) == [2]
    newest = orders("history", "shop.orders", "--json").json["history"][0]
    assert (newest["actor"], newest["reason"], newest["rows"]) == ("desk", "asked", 2)


def test_delete_at_a_place_in_the_order(cli: Run) -> None:
    cli("create", "a.t", "-c", "id:int64", "-c", "at:timestamp", "--key", "id", "--order-by", "at")
    cli("write", "a.t", "--row", '{"id": 1, "at": "2026-11-15T12:00:00Z"}', "--row", '{"id": 2, "at": null}')
    assert cli("delete", "a.t", "1", "2", "--at", "2026-11-15T11:00:00Z", "--json").json["deleted"] == 2
    assert ids(cli, "a.t") == [1], "the first is newer than its delete"
    for wrong, said in (("noon", "noon"), ("", "''")):
        answer = cli("delete", "a.t", "1", "--at", wrong)
        assert answer.code == 1
        assert said in answer.err
    assert "--at goes with keys" in cli("delete", "a.t", "--where", "id = 1", "--at", "2026-11-15T11:00:00Z").err


@pytest.mark.parametrize("order_by", [("at,lsn",), ("at", "lsn"), ("at, lsn",)])
def test_ties_are_broken_by_a_second_column(cli: Run, order_by: tuple[str, ...]) -> None:
    columns = ("-c", "id:int64", "-c", "at:timestamp", "-c", "lsn:int64")
    made = cli(
        "create", "a.t", *columns, "--key", "id", *(x for name in order_by for x in ("--order-by", name)), "--json"
    )
    assert made.json["order_by"] == ["at", "lsn"]
    assert "at, lsn" in cli("describe", "a.t").out
    noon = "2026-11-15T12:00:00Z"
    cli("write", "a.t", *(x for n in (1, 2) for x in ("--row", f'{{"id": {n}, "at": "{noon}", "lsn": 5}}')))
    assert cli("delete", "a.t", "1", "--at", noon, "--at", "4").code == 0
    assert ids(cli, "a.t") == [1, 2]
    assert cli("delete", "a.t", "1", "--at", noon, "--at", "5").code == 0
    assert ids(cli, "a.t") == [2]
    answer = cli("delete", "a.t", "2", "--at", noon)
    assert (answer.code, "give a value for each of at, lsn" in answer.err) == (1, True)


def test_delete_a_negative_key(orders: Run) -> None:
    orders("write", "shop.orders", "--row", '{"id": -5}')
    assert orders("delete", "shop.orders", "--", "-5").code == 0
    assert ids(orders) == [1, 2, 3]


def test_delete_where(orders: Run) -> None:
    assert orders("delete", "shop.orders", "--where", "amount > 2", "--json").json["deleted"] == 2
    assert ids(orders) == [1]
    assert "nothing was changed" in orders("delete", "shop.orders", "--where", "amount > 2").out


def test_delete_from_a_file(orders: Run, tmp_path: Path) -> None:
    (tmp_path / "keys.csv").write_text("id\n1\n2\n")
    assert orders("delete", "shop.orders", "--from", "keys.csv", "--batch-id", "b").code == 0
    assert ids(orders) == [3]
    assert orders("delete", "shop.orders", "--from", "keys.csv", "--batch-id", "b", "--json").json["replayed"] is True


def test_delete_from_stdin(orders: Run) -> None:
    assert orders("delete", "shop.orders", "--from", "-", stdin='{"id": 3}\n').code == 0
    assert ids(orders) == [1, 2]


def test_delete_on_a_table_with_no_key(events: Run) -> None:
    assert events("delete", "log.events", "user_id=1").code == 0
    assert events("sql", "select * from log.events", "--json").json["rows"] == [{"user_id": 2, "what": "b"}]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "in one way"),
        (("1", "--where", "id = 1"), "in one way"),
        (("--where", "nope = 1"), "nope"),
        (("x",), "does not fit int64"),
        (("--from", "missing.csv"), "does not exist"),
    ],
)
def test_delete_refuses_and_changes_nothing(orders: Run, arguments: tuple[str, ...], problem: str) -> None:
    answer = orders("delete", "shop.orders", *arguments)
    assert answer.refused
    assert problem in answer.err
    assert orders("stats", "shop.orders", "--json").json["seq"] == 1


def test_write_and_delete_only_if_the_schema_is_the_known_one(orders: Run) -> None:
    known = orders("describe", "shop.orders", "--json").json["schema_fingerprint"]
    option = "--schema-fingerprint"
    assert orders("write", "shop.orders", "--row", '{"id": 9}', option, known).code == 0
    for arguments in (("write", "shop.orders", "--row", '{"id": 10}'), ("delete", "shop.orders", "9")):
        answer = orders(*arguments, option, "abc")
        assert answer.code == 1
        assert known in answer.err
        assert "'abc'" in answer.err
    assert ids(orders) == [1, 2, 3, 9]


def test_a_table_may_be_named_with_its_catalog(orders: Run) -> None:
    assert orders("write", "lake.shop.orders", "--row", '{"id": 9}').code == 0
    assert orders("get", "lake.shop.orders", "9").code == 0
    assert orders("sql", "select count(*) as n from lake.shop.orders", "--json").json["rows"] == [{"n": 4}]
    for command in (("get", "prod.shop.orders", "9"), ("sql", "select * from prod.shop.orders")):
        answer = orders(*command)
        assert answer.refused
        assert "there is no catalog 'prod'" in answer.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["write", "shop.orders", "--row", '{"id": 4, "id": 5}'],
        ["get", "shop.orders", '{"id": 1, "id": 2}'],
        ["delete", "shop.orders", '{"id": 1, "id": 2}'],
    ],
)
def test_a_field_that_comes_twice_is_refused(orders: Run, arguments: list[str]) -> None:
    answer = orders(*arguments)
    assert answer.code == 1
    assert "comes twice" in answer.err
    assert ids(orders) == [1, 2, 3]
