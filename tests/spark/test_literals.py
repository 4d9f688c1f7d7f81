"""Spark finds the rows that DataFusion finds, whatever column a constant stands beside and however it is written."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lithify import Lake, Table
from support.effort import examples
from support.literal_matrix import COLUMNS, Case, answer, cases, is_known_to_differ, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = rows()
CASES = [case for case in cases() if not is_known_to_differ("spark", case)]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Table]:
    """In files of their own range each, and times of UTC."""
    folder: Path = tmp_path_factory.mktemp("literals")
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    with Lake(folder / "lake", spark=spark) as lake:
        table = lake.create_table("m.t", COLUMNS, key="id")
        for start in range(0, len(ROWS), 4):
            table.upsert(ROWS[start : start + 4])
            table.fold()
        yield table
    spark.conf.set("spark.sql.session.timeZone", zone)


def in_spark(case: Case) -> str:
    if not case.operator.endswith("distinct from"):
        return case.sql
    equal = f"({case.column} <=> {case.constants[0].sql})"
    return equal if "not" in case.operator else f"NOT {equal}"


def found(table: Table, batch: Sequence[Case]) -> list[list[int]]:
    """The ids that each condition finds, of many in one query."""
    asked = [f"({in_spark(case)}) AS c{number}" for number, case in enumerate(batch)]
    lines = table.to_spark().selectExpr("id", *asked).collect()
    return [sorted(line[0] for line in lines if line[number + 1]) for number in range(len(batch))]


def test_conditions_find_the_rows_that_they_mean(table: Table) -> None:
    asked = random.sample(CASES, examples(256, len(CASES)))
    wrong = []
    for start in range(0, len(asked), 128):
        batch = asked[start : start + 128]
        for case, ids in zip(batch, found(table, batch), strict=True):
            if ids != answer(case, ROWS):
                wrong.append((case.sql, answer(case, ROWS), ids))

    assert wrong == []


def test_a_condition_given_to_the_read_finds_the_same(table: Table) -> None:
    """Files are ruled out by it before Spark sees it."""
    wrong = []
    for case in random.sample(CASES, examples(12, 400)):
        ids = sorted(row[0] for row in table.to_spark(where=in_spark(case)).select("id").collect())
        if ids != answer(case, ROWS):
            wrong.append((case.sql, answer(case, ROWS), ids))

    assert wrong == []
