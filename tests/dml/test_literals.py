"""Numbers and times of a statement mean in UPDATE, MERGE and DELETE what they mean in a query (`literal_matrix`)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from lithify import Lake
from support.effort import examples
from support.folders import memory_folder
from support.literal_matrix import COLUMNS, answer, cases, is_known_to_differ, rows

ROWS = rows()
CASES = [case for case in cases() if not is_known_to_differ("lithify", case)]
MARKED = pa.schema([*COLUMNS, ("mark", pa.int64())])


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    with memory_folder() as path, Lake(path / "lake") as lake:
        for name in ("m.t", "m.deleted"):
            lake.create_table(name, MARKED, key="id").upsert([{**row, "mark": 0} for row in ROWS])
        lake.create_table("m.s", pa.schema([("id", pa.int64())]), key="id").upsert([{"id": row["id"]} for row in ROWS])
        yield lake


@pytest.mark.parametrize("door", ["update", "case", "merge", "delete"])
def test_statements_change_the_rows_that_they_mean(lake: Lake, door: str) -> None:
    wrong = []
    for number, case in enumerate(random.sample(CASES, examples(12, 2_000)), 1):
        texts = {
            "update": f"UPDATE m.t SET mark = {number} WHERE {case.sql}",
            "case": f"UPDATE m.t SET mark = CASE WHEN {case.sql} THEN {number} ELSE 0 END",
            "merge": "MERGE INTO m.t USING m.s s ON m.t.id = s.id "
            f"WHEN MATCHED AND {case.sql} THEN UPDATE SET mark = {number}",
            "delete": f"DELETE FROM m.deleted WHERE {case.sql}",
        }
        lake.execute(texts[door])
        if door == "delete":
            left = lake.table("m.deleted").to_arrow(columns=["id"]).column("id").to_pylist()
            found = sorted({row["id"] for row in ROWS} - set(left))
            if found:
                lake.table("m.deleted").upsert([{**row, "mark": 0} for row in ROWS if row["id"] in found])
        else:
            lines = lake.table("m.t").to_arrow(columns=["id", "mark"]).to_pylist()
            found = sorted(line["id"] for line in lines if line["mark"] == number)
            lake.execute("UPDATE m.t SET mark = 0")
        if found != answer(case, ROWS):
            wrong.append((texts[door], answer(case, ROWS), found))

    assert wrong == []


@pytest.mark.parametrize("more", [0, 40], ids=["short", "long"])
def test_numbers_of_values_are_doubles_beside_a_float_however_many_there_are(more: int) -> None:
    values = ", ".join(["(0.1)", "(2.0)", *(f"({1000 + number}.5)" for number in range(more))])
    with memory_folder() as path, Lake(path / "lake") as lake:
        schema = pa.schema([("id", pa.int64()), ("x", pa.float64())])
        table = lake.create_table("m.f", schema, key="id")
        table.upsert([{"id": id, "x": x} for id, x in enumerate((0.1, 2.0, 1e300, float("nan")))])

        done = lake.execute(f"DELETE FROM m.f AS f USING (VALUES {values}) AS s(v) WHERE f.x = s.v")

        assert (done.deleted, table.to_arrow(columns=["id"]).column("id").to_pylist()) == (2, [2, 3])
