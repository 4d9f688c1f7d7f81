"""Files into tables by this process: every record arrives, is refused with its place, or is set aside. No JVM starts.

What is loaded by Spark is tested in tests/spark/test_ingest.py.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import Corruption, InvalidRequest, Lake
from lithify.core.type_text import type_name

SPARSE = {"missing_columns": "null"}
SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("price", pa.decimal128(10, 2)), ("at", pa.timestamp("us", "UTC"))]
)
BAD_CSV = "id,name,price\n1,ok,1.00\nx2,not a number,1.00\n3,too many digits,1.999\n,no key,1\n5,short\n6,ok,2.00\n"


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as lake:
        yield lake
        assert lake._internals._own_spark is None, "Spark was started"


@pytest.fixture
def inbox(folder: Path) -> Path:
    (folder / "inbox").mkdir()
    return folder / "inbox"


def ids(lake: Lake) -> list[int]:
    return sorted(lake.table("s.t").to_arrow(["id"]).column("id").to_pylist())


def test_text_with_quotes_nulls_packed_and_in_other_column_orders(lake: Lake, inbox: Path) -> None:
    lake.create_table("s.t", SCHEMA, key="id", options=SPARSE)
    (inbox / "a.csv").write_text('id,name,price,at\n1,"Bo, ""B""",1.25,2026-01-01T00:00:00Z\n2,,,\n')
    with gzip.open(inbox / "b.csv.gz", "wt") as file:
        file.write("name,id\nCy,3\n")
    stages: list[str] = []

    report = lake.ingest("s.t", str(inbox / "*.csv*"), progress=lambda stage, _: stages.append(stage))

    assert (report.seq, report.rows, report.files, report.bad_records) == (1, 3, 2, 0)
    row = lake.table("s.t").get(1)
    assert row is not None
    assert (row["name"], row["price"]) == ('Bo, "B"', Decimal("1.25"))
    assert lake.table("s.t").get(3) == {"id": 3, "name": "Cy", "price": None, "at": None}
    assert "writing" in stages


def test_json_lines_give_any_columns(lake: Lake, inbox: Path) -> None:
    lake.create_table("s.t", SCHEMA.append(pa.field("tags", pa.list_(pa.string()))), key="id", options=SPARSE)
    (inbox / "a.jsonl").write_text('{"id": 1, "price": 2.5, "tags": ["x", "y"]}\n{"id": 2, "name": "B"}\n')

    lake.ingest("s.t", str(inbox / "a.jsonl"))

    row = lake.table("s.t").get(1)
    assert row is not None
    assert (row["price"], row["tags"]) == (Decimal("2.50"), ["x", "y"])


def test_parquet_files_with_other_types_and_columns(lake: Lake, inbox: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([2, 1], pa.int32()), "name": ["a", "b"]}), inbox / "1.parquet")
    pq.write_table(pa.table({"id": [3], "at": pa.array([0], pa.timestamp("ns", "UTC"))}), inbox / "2.parquet")
    lake.create_table("s.t", SCHEMA, key="id", options=SPARSE)

    assert lake.ingest("s.t", str(inbox)).rows == 3
    assert ids(lake) == [1, 2, 3]


def test_many_rows_are_in_order_and_linked_by_a_fold(lake: Lake, inbox: Path) -> None:
    keys = np.random.default_rng(1).permutation(200_000)
    pq.write_table(pa.table({"id": keys, "name": ["x"] * len(keys)}), inbox / "1.parquet", row_group_size=30_000)
    lake.create_table("s.t", SCHEMA, key="id", options=SPARSE)

    lake.ingest("s.t", str(inbox))

    assert lake.table("s.t").fold().bytes_written == 0
    assert lake.sql("select count(*) n, count(distinct id) d from s.t").to_pylist() == [{"n": 200_000, "d": 200_000}]


def test_bad_records_fail_with_their_place_and_nothing_is_written(lake: Lake, inbox: Path) -> None:
    lake.create_table("s.t", SCHEMA, key="id", options=SPARSE)
    (inbox / "a.csv").write_text(BAD_CSV)

    with pytest.raises(InvalidRequest) as refused:
        lake.ingest("s.t", str(inbox / "a.csv"))

    text = str(refused.value)
    assert "4 records do not fit table s.t; nothing was written" in text
    assert "a.csv, line 3, column 'id': 'x2' does not fit int64" in text
    assert "a.csv, line 6: it has 2 fields, the header 3: 5,short" in text
    assert ids(lake) == []
    assert not list((lake.path / "_lithify" / "jobs").iterdir())


def test_bad_records_go_to_quarantine_and_the_rest_arrives(lake: Lake, inbox: Path) -> None:
    lake.create_table("s.t", SCHEMA, key="id", options=SPARSE)
    (inbox / "a.csv").write_text(BAD_CSV)

    report = lake.ingest("s.t", str(inbox / "a.csv"), on_bad_record="quarantine")

    assert ids(lake) == [1, 6]
    assert (report.rows, report.bad_records) == (2, 4)
    assert report.quarantine is not None
    aside = [json.loads(line) for file in Path(report.quarantine).iterdir() for line in file.open()]
    assert [(record["line"], record["column"]) for record in aside] == [(3, "id"), (4, "price"), (5, "id"), (6, None)]


def test_files_without_a_row_say_so(lake: Lake, inbox: Path) -> None:
    lake.create_table("s.t", SCHEMA, key="id", options=SPARSE)
    (inbox / "names.csv").write_text("id,name\n")
    (inbox / "bad.csv").write_text("id,name\nx,1\ny,2\n")
    pq.write_table(SCHEMA.empty_table(), inbox / "none.parquet")

    with pytest.raises(InvalidRequest, match=r"names\.csv has no records but column names"):
        lake.ingest("s.t", str(inbox / "names.csv"))
    with pytest.raises(InvalidRequest, match=r"bad\.csv has no record that fits table s\.t: all 2 were set aside in "):
        lake.ingest("s.t", str(inbox / "bad.csv"), on_bad_record="quarantine")
    with pytest.raises(InvalidRequest, match="empty"):
        lake.ingest("s.t", str(inbox / "none.parquet"))
    assert ids(lake) == []


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_a_file_with_another_separator_is_told_from_one_with_another_column(
    lake: Lake, inbox: Path, separator: str
) -> None:
    lake.create_table("s.t", SCHEMA, key="id", options=SPARSE)
    (inbox / "a.csv").write_text(f"id{separator}name\n1{separator}a\n")

    with pytest.raises(InvalidRequest, match=r"a\.csv: its first line is one column, with .* are separated by commas"):
        lake.ingest("s.t", str(inbox / "a.csv"))


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ((1, 2**64 - 1), "do not fit int64"),
        ((1, 2**64 + 1), "do not fit int64"),
        ((10**30 + 1, 10**30), "do not fit int64"),
        (([0.5], [10**30 + 1]), "do not fit int64"),
        (({"a": 0.5}, {"a": 10**30 + 1}), "do not fit int64"),
        ((2**53 + 1, 0.5), "several types"),
    ],
)
def test_a_column_that_no_type_is_found_for_is_named(
    lake: Lake, inbox: Path, numbers: tuple[object, object], why: str
) -> None:
    (inbox / "a.json").write_text("".join(json.dumps({"id": 1, "amount": number}) + "\n" for number in numbers))

    with pytest.raises(InvalidRequest, match=f"a.json: column 'amount' holds .*{why}"):
        lake.ingest("s.t", str(inbox / "a.json"), create=True)


def test_large_floats_are_floats(lake: Lake, inbox: Path) -> None:
    (inbox / "a.json").write_text('{"id": 1, "amount": 1e300}\n{"id": 2, "amount": -1.5e19}\n')

    lake.ingest("s.t", str(inbox / "a.json"), create=True)

    assert lake.sql("select amount from s.t order by id").column(0).to_pylist() == [1e300, -1.5e19]


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_a_table_is_created_from_what_is_there(lake: Lake, inbox: Path, kind: str) -> None:
    rows = [{"id": 1, "ratio": 1, "ok": True, "zip": "01234"}, {"id": 2, "ratio": 2.5, "ok": False, "zip": "5"}]
    if kind == "csv":
        lines = [",".join(rows[0]), *(",".join(str(value).lower() for value in row.values()) for row in rows)]
        (inbox / "a.csv").write_text("\n".join(lines))
    elif kind == "json":
        (inbox / "a.json").write_text("\n".join(map(json.dumps, rows)))
    else:
        columns = {"id": [1, 2], "ratio": [1.0, 2.5], "ok": [True, False], "zip": pa.array(["01234", "5"])}
        pq.write_table(pa.table({**columns, "zip": columns["zip"].dictionary_encode()}), inbox / "a.parquet")

    lake.ingest("s.t", str(inbox), create=True, key="id")

    assert {f.name: type_name(f.type) for f in lake.table("s.t").definition.columns} == {
        "id": "int64", "ratio": "float64", "ok": "bool", "zip": "string",
    }  # fmt: skip
    assert sorted(lake.table("s.t").to_arrow().to_pylist(), key=lambda row: row["id"]) == rows


def test_what_is_refused_leaves_no_new_table(lake: Lake, inbox: Path) -> None:
    (inbox / "a.csv").write_text("id,name\n2,a\n1,b\n1,c\n")
    with pytest.raises(InvalidRequest, match="more than one row for the same key"):
        lake.ingest("s.t", str(inbox / "a.csv"), create=True, key="id")
    assert lake.tables() == []

    pq.write_table(pa.table({"id": [1]}), inbox / "1.parquet")
    pq.write_table(pa.table({"id": ["x"]}), inbox / "2.parquet")
    with pytest.raises(InvalidRequest, match=r"column 'id' is string, but int64 in other files"):
        lake.ingest("s.t", str(inbox / "*.parquet"), create=True, key="id")
    assert lake.tables() == []


def test_of_rows_with_an_order_the_newest_counts(lake: Lake, inbox: Path) -> None:
    lake.create_table("s.t", SCHEMA, key="id", order_by="at", options=SPARSE)
    (inbox / "a.csv").write_text("id,name,at\n1,new,2026-01-02\n1,old,2026-01-01\n")

    lake.ingest("s.t", str(inbox / "a.csv"))

    row = lake.table("s.t").get(1)
    assert row is not None
    assert row["name"] == "new"


def test_files_that_lack_a_column_or_have_another_are_refused(lake: Lake, inbox: Path) -> None:
    lake.create_table("s.t", SCHEMA, key="id")
    (inbox / "a.csv").write_text("id,name\n1,a\n")
    (inbox / "b.json").write_text('{"id": 1, "name": "a", "price": 1, "at": null}\n{"id": 2, "name": "b"}\n')
    pq.write_table(pa.table({"id": [1], "name": ["a"]}), inbox / "c.parquet")
    pq.write_table(pa.table({"id": [1], "other": ["a"]}), inbox / "d.parquet")

    for file, why in (("a.csv", "price"), ("b.json", "line 2"), ("c.parquet", "price"), ("d.parquet", "other")):
        with pytest.raises(InvalidRequest, match=why):
            lake.ingest("s.t", str(inbox / file))
    assert lake.table("s.t").snapshot().seq == 0


@pytest.mark.parametrize("create", [False, True])
def test_a_file_that_is_no_parquet_is_told(lake: Lake, inbox: Path, create: bool) -> None:
    if not create:
        lake.create_table("s.t", SCHEMA, key="id", options=SPARSE)
    (inbox / "a.parquet").write_bytes(b"PAR1 is how they begin, and end: PAR1")

    with pytest.raises(Corruption, match=r"a\.parquet"):
        lake.ingest("s.t", str(inbox / "a.parquet"), create=create, key="id")
    assert lake.tables() == ([] if create else ["s.t"])


def test_a_damaged_page_is_told(lake: Lake, inbox: Path) -> None:
    lake.create_table("s.t", SCHEMA, key="id", options=SPARSE)
    path = inbox / "a.parquet"
    pq.write_table(pa.table({"id": range(1_000)}), path, write_page_checksum=True, compression="none")
    data = bytearray(path.read_bytes())
    data[600] ^= 1
    path.write_bytes(data)

    with pytest.raises(Corruption, match=r"a\.parquet"):
        lake.ingest("s.t", str(path))
    assert lake.table("s.t").snapshot().seq == 0


def test_the_same_batch_is_loaded_once(lake: Lake, inbox: Path) -> None:
    lake.create_table("s.t", SCHEMA, options=SPARSE)
    (inbox / "a.csv").write_text("id\n1\n2\n")
    first = lake.ingest("s.t", str(inbox / "a.csv"), batch_id="b")
    again = lake.ingest("s.t", str(inbox / "a.csv"), batch_id="b")
    assert (again.seq, again.rows) == (first.seq, first.rows) == (1, 2)
    assert ids(lake) == [1, 2]
