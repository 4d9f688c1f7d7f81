"""Every Python example that needs Spark runs, section by section, as a reader would type it."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lithify
from lithify import Lake
from support.pages import DOCS, Example, examples, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def sections() -> dict[str, list[Example]]:
    found = defaultdict(list)
    for heading, block in examples(DOCS / "spark.md"):
        if block.language == "python":
            found[heading].append(block)
    return found


@pytest.mark.parametrize("blocks", [pytest.param(blocks, id=heading) for heading, blocks in sections().items()])
def test_the_examples_of_a_section_run(
    blocks: list[Example], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Lake(tmp_path / "lake", spark=spark) as lake:
        names: dict[str, Any] = {"spark": spark, "lake": lake, "tmp": tmp_path, "__name__": "docs"}
        run(blocks, tmp_path, names)


def here(page: Path, heading: str | None, folder: Path) -> list[Example]:
    """The JVM is where the first test was: what a reader writes as relative is absolute here."""
    names = re.compile(r'"(exports/|my-lake/|arriving|checkpoints/)')
    return [
        replace(block, text=names.sub(rf'"{folder}/\1', block.text))
        for found, block in examples(page)
        if heading in (None, found)
    ]


def test_how_to_write_a_stream(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(here(DOCS / "how-to" / "streams.md", None, tmp_path), tmp_path, {"spark": spark})


def test_getting_started_in_spark(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "status": ["new", "paid"]})
    (tmp_path / "exports").mkdir()
    pq.write_table(rows, "exports/a.parquet")
    with Lake("my-lake", spark=spark) as lake:
        orders = lake.create_table("shop.orders", rows.schema, key="id")
        names: dict[str, Any] = {"spark": spark, "lithify": lithify, "orders": orders}
        run(here(DOCS / "getting-started.md", "In Spark", tmp_path), tmp_path, names)
        assert (names["paid"].count(), names["same"].count()) == (1, 2)
