"""Every Python example of docs/spark.md runs, section by section, as a reader would type it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lithify import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def sections() -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """Headings with the line and the text of each Python block below them."""
    page = PAGE.read_text()
    for part in re.split(r"^(?=## )", page, flags=re.MULTILINE):
        start = page.index(part)
        blocks = [
            (page.count("\n", 0, start + found.start(1)), found[1])
            for found in re.finditer(r"^```python\n(.*?)^```", part, re.MULTILINE | re.DOTALL)
        ]
        if blocks:
            yield part.splitlines()[0].removeprefix("## "), blocks


@pytest.mark.parametrize(("heading", "blocks"), [pytest.param(h, b, id=h) for h, b in sections()])
def test_the_examples_of_a_section_run(
    heading: str,
    blocks: list[tuple[int, str]],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with Lake(tmp_path / "lake", spark=spark) as lake:
        names: dict[str, Any] = {"spark": spark, "lake": lake, "tmp": tmp_path, "__name__": "docs"}
        for line, block in blocks:
            exec(compile("\n" * line + block, str(PAGE), "exec"), names)
