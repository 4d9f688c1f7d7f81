"""What is read into memory instead of being scanned: little, and more of a lake in a bucket."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lithify import Lake
from lithify.core.read_plan import ReadPlan, Source
from lithify.lake.internals import internals
from lithify.sql import engine, scan_memory
from lithify.sql.scan_memory import BUCKET_RAW_BYTES_MAX, RAW_BYTES_MAX, fits_memory
from support.folders import memory_folder

COLUMNS = pa.schema([("a", pa.string()), ("b", pa.int64()), ("v", pa.int64())])


@pytest.fixture(scope="module")
def plan() -> ReadPlan:
    with memory_folder() as folder, Lake(folder) as lake:
        table = lake.create_table("a.t", pa.schema([("id", pa.int64())]), key="id")
        table.upsert([{"id": 1}])
        return internals(table).reader.plan(table.snapshot())


def of(plan: ReadPlan, raw_bytes: int | None, path: str = "/lake/x.parquet") -> ReadPlan:
    return replace(plan, clean=(Source(path, 1, 1, raw_bytes=raw_bytes),), touched=())


def test_local_files_are_read_up_to_the_size_at_which_a_scan_is_faster(plan: ReadPlan) -> None:
    assert fits_memory(of(plan, RAW_BYTES_MAX))
    assert not fits_memory(of(plan, RAW_BYTES_MAX + 1))
    assert not fits_memory(of(plan, None)), "its size is not known"


def test_more_is_read_of_a_bucket_whatever_its_files_are_called(plan: ReadPlan) -> None:
    in_bucket = of(plan, BUCKET_RAW_BYTES_MAX, "s3://bucket/x.parquet")
    copies = replace(of(plan, BUCKET_RAW_BYTES_MAX), copied=True)

    assert fits_memory(in_bucket)
    assert fits_memory(copies), "as a query process is told of them"
    assert not fits_memory(of(plan, BUCKET_RAW_BYTES_MAX + 1, "s3://bucket/x.parquet"))


@pytest.mark.parametrize("bytes_max", [RAW_BYTES_MAX, -1], ids=["in memory", "scanned"])
def test_both_ways_give_the_same_rows(bytes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With changes that are pending, keys of several columns and rows that a condition leaves."""
    monkeypatch.setattr(scan_memory, "RAW_BYTES_MAX", bytes_max)
    scans: list[ReadPlan] = []
    scan = engine.relation

    def noted(ctx: Any, plan: ReadPlan, *rest: Any, **more: Any) -> Any:
        scans.append(plan)
        return scan(ctx, plan, *rest, **more)

    monkeypatch.setattr(engine, "relation", noted)
    with memory_folder() as folder, Lake(folder) as lake:
        table = lake.create_table("a.t", COLUMNS, key=["a", "b"])
        table.upsert([{"a": f"{n % 7}", "b": n, "v": n} for n in range(1_000)])
        table.fold()
        table.upsert([{"a": f"{n % 7}", "b": n, "v": -n} for n in range(0, 1_000, 100)])
        table.delete([{"a": "1", "b": 1}])

        found = lake.sql("SELECT sum(v) AS v, count(*) AS n FROM a.t WHERE b < 500 AND a <> '6'").to_pylist()

    expected = [-n if n % 100 == 0 else n for n in range(500) if n % 7 != 6 and n != 1]
    assert found == [{"v": sum(expected), "n": len(expected)}]
    assert bool(scans) == (bytes_max < 0)
