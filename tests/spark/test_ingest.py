"""Files into tables: every record arrives, is refused with its place, or is set aside."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import InvalidRequest, Lake, NotFound
from lithify.core.type_text import type_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SPARSE = {"missing_columns": "null"}  # files hold what a test is about, and nothing else
SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("price", pa.decimal128(10, 2)), ("at", pa.timestamp("us", "UTC"))]
)


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    return folder


def ids(lake: Lake) -> list[int]:
    return sorted(lake.table("s.t").to_arrow(["id"]).column("id").to_pylist())


def test_csv_with_quotes_nulls_and_other_column_orders(lake: Lake, spark: SparkSession, inbox: Path) -> None:
    lake.create_table("s.t", SCHEMA, key="id", options=SPARSE)
    (inbox / "a.csv").write_text('id,name,price,at\n1,"Bo, ""B""",1.25,2026-01-01T00:00:00Z\n2,,,\n')
    with gzip.open(inbox / "b.csv.gz", "wt") as file:
        file.write("name,id\nCy,3\n")
    stages: list[str] = []

    report = lake.ingest("s.t", str(inbox / "*.csv*"), progress=lambda stage, _: stages.append(stage))

    assert (report.rows, report.files, report.bad_records) == (3, 2, 0)
    row = lake.table("s.t").get(1)
    assert row is not None
    assert (row["name"], row["price"]) == ('Bo, "B"', Decimal("1.25"))
    assert lake.table("s.t").get(2) == {"id": 2, "name": None, "price": None, "at": None}
    assert "writing" in stages


def test_json_lines(lake: Lake, spark: SparkSession, inbox: Path) -> None:
    lake.create_table("s.t", SCHEMA.append(pa.field("tags", pa.list_(pa.string()))), key="id", options=SPARSE)
    (inbox / "a.jsonl").write_text('{"id": 1, "price": 2.5, "tags": ["x", "y"]}\n{"id": 2, "name": "B"}\n')

    lake.ingest("s.t", str(inbox / "a.jsonl"))

    row = lake.table("s.t").get(1)
    assert row is not None
    assert (row["price"], row["tags"]) == (Decimal("2.50"), ["x", "y"])


def test_parquet_folder(lake: Lake, spark: SparkSession, inbox: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}), inbox / "1.parquet")
    pq.write_table(pa.table({"id": [3]}), inbox / "2.parquet")
    lake.create_table("s.t", SCHEMA, key="id", options=SPARSE)

    assert lake.ingest("s.t", str(inbox)).rows == 3


BAD_CSV = "id,name,price\n1,ok,1.00\nx2,not a number,1.00\n3,too many digits,1.999\n,no key,1\n5,short\n6,ok,2.00\n"


def test_bad_records_fail_with_their_place_and_nothing_is_written(lake: Lake, spark: SparkSession, inbox: Path) -> None:
    lake.create_table("s.t", SCHEMA, key="id", options=SPARSE)
    (inbox / "a.csv").write_text(BAD_CSV)

    with pytest.raises(InvalidRequest) as refused:
        lake.ingest("s.t", str(inbox / "a.csv"))

    text = str(refused.value)
    assert "a.csv, line 3, column 'id': 'x2' does not fit int64" in text
    assert "a.csv, line 4, column 'price': '1.999' does not fit decimal(10,2)" in text
    assert "a.csv, line 5, column 'id': null, and it needs a value" in text
    assert "a.csv, line 6: it has 2 fields, the header 3: 5,short" in text
    assert ids(lake) == []


def test_bad_records_go_to_quarantine_and_the_rest_arrives(lake: Lake, spark: SparkSession, inbox: Path) -> None:
    lake.create_table("s.t", SCHEMA, key="id", options=SPARSE)
    (inbox / "a.csv").write_text(BAD_CSV)

    report = lake.ingest("s.t", str(inbox / "a.csv"), on_bad_record="quarantine")

    assert ids(lake) == [1, 6]
    assert (report.rows, report.bad_records) == (2, 4)
    assert report.quarantine is not None
    aside = [
        json.loads(line) for file in Path(report.quarantine).glob("*.json") for line in file.read_text().splitlines()
    ]
    assert len(aside) == 4
    assert [(record["line"], record["column"]) for record in aside] == [(3, "id"), (4, "price"), (5, "id"), (6, None)]
    assert all(record["why"] and record["record"] and record["file"].endswith("a.csv") for record in aside)


def test_files_without_a_row_say_so(lake: Lake, spark: SparkSession, inbox: Path) -> None:
    lake.create_table("s.t", SCHEMA, key="id", options=SPARSE)
    (inbox / "names.csv").write_text("id,name\n")
    (inbox / "bad.csv").write_text("id,name\nx,1\ny,2\n")

    with pytest.raises(InvalidRequest, match=r"names\.csv has no records but column names"):
        lake.ingest("s.t", str(inbox / "names.csv"))
    with pytest.raises(
        InvalidRequest, match=r"bad\.csv has no record that fits table s\.t: all 2 were set aside in "
    ) as no:
        lake.ingest("s.t", str(inbox / "bad.csv"), on_bad_record="quarantine")

    folder = Path(str(no.value).partition("set aside in ")[2].partition(",")[0])
    assert [json.loads(line)["line"] for file in folder.iterdir() for line in file.open()] == [2, 3]
    assert ids(lake) == []


def test_a_large_file_is_read_in_pieces_by_several_tasks(
    lake: Lake, spark: SparkSession, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lithify.files import text_files
    from lithify.spark import ingest

    for module, name in ((text_files, "RANGE_BYTES"), (ingest, "TASK_BYTES"), (ingest, "SMALL_BYTES")):
        monkeypatch.setattr(module, name, 2_000)
    lake.create_table("s.t", SCHEMA, key="id", options=SPARSE)
    lines = [f'{number},"line {number}\nand ""more"", of it",1.5' for number in range(500)]
    lines[400] = "x,y,z"
    (inbox / "a.csv").write_text("id,name,price\n" + "\n".join(lines))

    report = lake.ingest("s.t", str(inbox / "a.csv"), on_bad_record="quarantine")

    assert (report.rows, report.bad_records) == (499, 1)
    assert report.quarantine is not None
    (aside,) = [json.loads(line) for file in Path(report.quarantine).iterdir() for line in file.open()]
    assert aside["line"] == 802
    row = lake.table("s.t").get(399)
    assert row is not None
    assert row["name"] == 'line 399\nand "more", of it'


def test_a_broken_json_line_is_found(lake: Lake, spark: SparkSession, inbox: Path) -> None:
    lake.create_table("s.t", SCHEMA, key="id", options=SPARSE)
    (inbox / "a.jsonl").write_text('{"id": 1}\n{"id": 2\n')

    with pytest.raises(InvalidRequest, match=r"a\.jsonl, line 2: no JSON"):
        lake.ingest("s.t", str(inbox / "a.jsonl"))


def test_creating_the_table_from_what_is_there(lake: Lake, spark: SparkSession, inbox: Path) -> None:
    text = "id,name,zip,ratio,day,at,ok,none,mixed\n1,a,01234,1,2026-11-15,2026-11-15,true,,1\n2,b,5,2.5,2026-11-16,"
    (inbox / "a.csv").write_text(text + "2026-11-15 12:00:00,false,,x\n")

    lake.ingest("s.t", str(inbox / "a.csv"), create=True, key="id")

    definition = lake.table("s.t").definition
    assert definition.key == ("id",)
    assert {f.name: type_name(f.type) for f in definition.columns} == {
        "id": "int64", "name": "string", "zip": "string", "ratio": "float64", "day": "date", "at": "timestamp",
        "ok": "bool", "none": "string", "mixed": "string",
    }  # fmt: skip
    assert ids(lake) == [1, 2]


def test_creating_the_table_from_json(lake: Lake, spark: SparkSession, inbox: Path) -> None:
    (inbox / "a.json").write_text(
        '{"id": 1, "s": {"a": 1}, "l": []}\n{"id": 2, "s": {"b": "x"}, "l": [1.5], "n": null}\n'
    )

    lake.ingest("s.t", str(inbox / "a.json"), create=True, key="id")

    assert {f.name: type_name(f.type) for f in lake.table("s.t").definition.columns} == {
        "id": "int64", "s": "struct<a:int64,b:string>", "l": "list<float64>", "n": "string",
    }  # fmt: skip


def test_a_load_that_fails_leaves_no_new_table(lake: Lake, spark: SparkSession, inbox: Path) -> None:
    (inbox / "a.csv").write_text("id,name\n1,a\n1,b\n")

    with pytest.raises(InvalidRequest, match="more than one row"):
        lake.ingest("s.t", str(inbox / "a.csv"), create=True, key="id")

    assert lake.tables() == []


def test_bad_requests(lake: Lake, spark: SparkSession, inbox: Path) -> None:
    lake.create_table("s.t", SCHEMA, key="id", options=SPARSE)
    (inbox / "a.csv").write_text("id,other\n1,a\n")
    (inbox / "b.txt").write_text("id\n1\n")

    with pytest.raises(InvalidRequest, match="column 'other'"):
        lake.ingest("s.t", str(inbox / "a.csv"))
    with pytest.raises(NotFound, match="matches no file"):
        lake.ingest("s.t", str(inbox / "*.nothing"))
    with pytest.raises(InvalidRequest, match="pass format"):
        lake.ingest("s.t", str(inbox / "b.txt"))
    with pytest.raises(NotFound, match=r"s\.missing"):
        lake.ingest("s.missing", str(inbox / "a.csv"))
    with pytest.raises(InvalidRequest, match="on_bad_record 'ignore'"):
        lake.ingest("s.t", str(inbox / "a.csv"), on_bad_record="ignore")
