"""`lithify explain` and `Lake.explain`: what a query would read, and why."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lithify import Lake, Settings
from lithify.core.results import Condition
from lithify.index.table_index import SOLID_ROWS_MIN
from support.folders import memory_folder

Run = Callable[..., Any]
COLUMNS = pa.schema([("id", pa.int64()), ("country", pa.string()), ("token_id", pa.string())])


def order(number: int, country: str = "DE") -> dict[str, Any]:
    return {"id": number, "country": country, "token_id": None}


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    """shop.orders: ids 0–9, 100–109 and 200–209 in three base files, one change pending. shop.countries: folded."""
    with memory_folder() as path:
        with Lake(path / "lake") as lake:
            orders = lake.create_table("shop.orders", COLUMNS, key="id")
            for number in range(3):
                orders.upsert([order(number * 100 + i) for i in range(10)])
                orders.fold()
            orders.upsert([order(105, "FR")])
            countries = lake.create_table("shop.countries", pa.schema([("code", pa.string())]), key="code")
            countries.upsert([{"code": "DE"}, {"code": "FR"}])
            countries.fold()
        yield path / "lake"


@pytest.fixture
def lake_path(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "explained")


@pytest.fixture
def lake(lake_path: Path) -> Iterator[Lake]:
    with Lake(lake_path) as lake:
        yield lake


def test_a_filter_rules_out_files_row_groups_and_bytes(lake: Lake) -> None:
    (found,) = lake.explain("select * from shop.orders where id = 105")

    assert (found.files_read, found.files_total) == (1, 3)
    assert (found.groups_read, found.groups_total) == (1, 3)
    assert 0 < found.bytes_read < found.bytes_total
    assert found.conditions == (Condition("id = 105", 2),)
    assert found.note is None


def test_each_condition_tells_what_it_rules_out_alone(lake: Lake) -> None:
    (found,) = lake.explain("select * from shop.orders where id >= 100 and country = 'FR'")

    assert {c.text: c.groups_ruled_out for c in found.conditions} == {"id >= 100": 1, "country = 'FR'": 3}
    assert found.files_read == 0


def test_the_snapshot_is_the_one_that_a_read_would_take(lake: Lake) -> None:
    (found,) = lake.explain("select * from shop.orders")
    snapshot = lake.table("shop.orders").snapshot()

    assert (found.seq, found.changes_version, found.base_version) == (
        snapshot.seq,
        snapshot.changes_version,
        snapshot.base_version,
    )


def test_of_the_past(lake: Lake) -> None:
    (found,) = lake.explain("select * from shop.orders where id < 50", as_of=2)

    assert (found.seq, found.files_read, found.files_total) == (2, 1, 2)


@pytest.mark.parametrize(
    ("query", "note"),
    [
        ("select * from shop.orders", "no filter on this table"),
        ("select * from shop.orders where length(country) = 3", "cannot be decided"),
    ],
)
def test_why_nothing_is_ruled_out(lake: Lake, query: str, note: str) -> None:
    (found,) = lake.explain(query)

    assert note in (found.note or "")
    assert (found.files_read, found.conditions) == (3, ())


def test_every_table_of_a_query_is_told(lake: Lake) -> None:
    query = "select o.id from shop.orders o join shop.countries c on c.code = o.country where o.id < 50"
    found = {table.table: table for table in lake.explain(query)}

    assert found.keys() == {"shop.orders", "shop.countries"}
    assert (found["shop.orders"].files_read, found["shop.countries"].files_read) == (1, 1)


def test_what_the_sidecar_answers_alone_reads_no_file(lake: Lake) -> None:
    (found,) = lake.explain("select count(*) from shop.countries")

    assert found.from_sidecar
    assert (found.files_read, found.bytes_read, found.note) == (0, 0, None)


@pytest.mark.parametrize("condition", ["1 = 0", "id = null"])
def test_a_table_that_the_optimised_query_does_not_read(lake: Lake, condition: str) -> None:
    (found,) = lake.explain(f"select * from shop.orders where {condition}")

    assert (found.files_read, found.groups_read, found.bytes_read) == (0, 0, 0)
    assert (found.files_total, found.conditions) == (3, ())
    assert "not read" in (found.note or "")


def test_pending_changes_are_resolved_once(lake: Lake) -> None:
    query = "select * from shop.orders where id = 105"
    (before,) = lake.explain(query)
    lake.sql(query)
    (after,) = lake.explain(query)

    assert (before.pending_files, before.pending_rows) == (1, 1)
    assert (before.resolved, after.resolved) == (False, True)


def test_changes_that_are_too_many_are_merged_while_reading(lake_path: Path) -> None:
    with Lake(lake_path, settings=Settings(resolve_rows_max=1)) as lake:
        lake.table("shop.orders").upsert([order(106)])
        (found,) = lake.explain("select * from shop.orders where id = 105")

    assert found.resolved is None


def test_changes_that_stand_beside_base_count_as_files_that_are_scanned(lake: Lake) -> None:
    table = lake.create_table("shop.loaded", pa.schema([("id", pa.int64())]), key="id")
    table.upsert(pa.table({"id": range(SOLID_ROWS_MIN)}))

    (found,) = lake.explain("select * from shop.loaded where id = 7")

    assert (found.files_total, found.pending_files, found.pending_beside) == (1, 1, 1)


def test_row_groups_that_only_a_bloom_filter_rules_out(lake: Lake) -> None:
    table = lake.create_table("shop.tokens", COLUMNS, key="id")
    rows = 10_000
    tokens = [f"t{number:05}" for number in range(rows)]
    table.upsert(pa.table({"id": range(rows), "country": ["DE"] * rows, "token_id": tokens}))
    table.fold()

    (found,) = lake.explain("select * from shop.tokens where token_id = 't00007x'")

    assert (found.groups_read, found.conditions[0].groups_ruled_out, found.otherwise_ruled_out) == (0, 0, 1)


def test_a_table_without_a_sidecar_is_looked_up_in_its_footers(lake_path: Path) -> None:
    shutil.rmtree(lake_path / "shop" / "orders" / "index")
    with Lake(lake_path) as lake:
        (found,) = lake.explain("select * from shop.orders where id = 105")

    assert (found.files_read, found.files_unknown) == (1, 0)


def test_files_that_the_sidecar_does_not_know_are_counted(lake_path: Path) -> None:
    shutil.rmtree(lake_path / "shop" / "orders" / "index")
    for path in (lake_path / "shop" / "orders" / "base").glob("*-*/*.parquet"):
        path.write_bytes(b"\0" * path.stat().st_size)
    with Lake(lake_path) as lake:
        (found,) = lake.explain("select * from shop.orders where id = 105")

    assert (found.files_read, found.files_unknown) == (3, 3)


class TestTheCommand:
    @pytest.fixture
    def cli(self, run: Run, lake_path: Path) -> Run:
        return lambda *arguments, **options: run("--lake", str(lake_path), "explain", *arguments, **options)

    def test_as_json(self, cli: Run) -> None:
        query = "select * from shop.orders where id = 105"
        answer = cli(query, "--json")

        assert answer.code == 0
        assert answer.json["query"] == query
        (table,) = answer.json["tables"]
        assert (table["table"], table["files_read"], table["files_total"]) == ("shop.orders", 1, 3)
        assert table["conditions"] == [{"text": "id = 105", "groups_ruled_out": 2}]

    def test_from_stdin_as_of_a_seq(self, cli: Run) -> None:
        (table,) = cli("-", "--as-of", "1", "--json", stdin="select * from shop.orders").json["tables"]

        assert (table["seq"], table["files_total"]) == (1, 1)

    def test_looks_good_in_a_narrow_terminal(self, cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
        shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", cli("select * from shop.orders where id = 105").out)

        lines = [" ".join(line.split()) for line in shown.splitlines()]
        assert max(map(len, shown.splitlines())) <= 80
        assert lines[0] == "shop.orders"
        assert lines[1].startswith("snapshot seq 4, base version ")
        assert lines[2:4] == ["files 1 of 3", "row groups 1 of 3"]
        assert lines[5:] == [
            "why id = 105 rules out 2 row groups",
            "pending 1 change in 1 file, to be resolved first",
            "sidecar complete",
        ]

    def test_an_answer_from_the_sidecar(self, cli: Run) -> None:
        assert "the sidecar alone answers this" in cli("select max(code) from shop.countries").out

    def test_a_sidecar_that_is_not_complete(self, cli: Run, lake_path: Path) -> None:
        shutil.rmtree(lake_path / "shop" / "orders" / "index")
        path = next((lake_path / "shop" / "orders" / "base").glob("*-*/*.parquet"))
        path.write_bytes(b"\0" * path.stat().st_size)

        assert "1 file missing; `lithify index build shop.orders` completes it" in cli("select * from shop.orders").out

    def test_no_sidecar_at_all(self, cli: Run, lake_path: Path) -> None:
        shutil.rmtree(lake_path / "shop" / "orders" / "index")
        for path in (lake_path / "shop" / "orders" / "base").glob("*-*/*.parquet"):
            path.write_bytes(b"\0" * path.stat().st_size)

        shown = " ".join(cli("select * from shop.orders where id = 105").out.split())

        assert "why nothing is known of the files yet" in shown
        assert "sidecar none yet; `lithify index build shop.orders` builds it" in shown

    def test_a_table_without_files(self, cli: Run, lake: Lake) -> None:
        lake.create_table("shop.empty", COLUMNS, key="id")

        assert "there are no files yet" in cli("select * from shop.empty where id = 1").out

    def test_what_partition_values_rule_out_and_bounds_do_not(self, cli: Run, lake: Lake, tmp_path: Path) -> None:
        rows = pa.table({"id": [1, 2], "country": ["DE", "FR"]})
        write_deltalake(tmp_path / "parted", rows, partition_by=["country"])
        lake.adopt("shop.parted", tmp_path / "parted")

        shown = cli("select * from shop.parted where country = 'FR'").out

        assert "country = 'FR' rules out nothing by its bounds" in shown
        assert "bloom filters or partition values rule out 1 row group" in shown

    def test_a_query_without_tables(self, cli: Run) -> None:
        assert "the query reads no table" in cli("select 1").out
        assert cli("select 1", "--json").json["tables"] == []

    @pytest.mark.parametrize(
        ("query", "code", "words"),
        [
            ("", "invalid_request", "the query is empty"),
            ("select nope", "invalid_request", "nope"),
            ("select * from shop.none", "not_found", "shop.none"),
            ("create table x as select 1", "invalid_request", "not accepted"),
        ],
    )
    def test_refuses(self, cli: Run, query: str, code: str, words: str) -> None:
        answer = cli(query, "--json")

        assert answer.refused
        assert answer.json["error"]["code"] == code
        assert words in answer.json["error"]["message"]
