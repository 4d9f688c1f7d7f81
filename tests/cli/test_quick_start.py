"""What short commands do not wait for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lithify
from lithify import Lake

HEAVY = (
    "pandas",
    "pyspark",
    "py4j",
    "sqlglot",
    "httpx",
    "obstore",
    "starlette",
    "fastapi",
    "uvicorn",
    "polars",
    "duckdb",
    "lithify.maintenance.fold",
    "lithify.maintenance.table_maintenance",
    "lithify.maintenance.vacuum",
)
RUN = """
import sys
from lithify.cli.main import main
try:
    main()
except SystemExit as ended:
    assert ended.code == 0
print("imported:", *sorted(set({heavy!r}) & set(sys.modules)), file=sys.stderr)
"""


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(lithify.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        check=True,
        timeout=60,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def folder_of_a_lake(tmp_path: Path) -> str:
    with Lake(tmp_path / "lake") as lake:
        lake.sql("CREATE TABLE shop.orders (id BIGINT, status STRING, PRIMARY KEY (id))")
        lake.table("shop.orders").upsert([{"id": 1, "status": "new"}, {"id": 2, "status": "paid"}])
    return str(tmp_path / "lake")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["tables"],
        ["tables", "--json"],
        ["sql", "select status, count(*) as n from shop.orders group by status"],
        ["get", "shop.orders", "2"],
        ["describe", "shop.orders"],
        ["history", "shop.orders", "--json"],
        ["write", "shop.orders", "--row", '{"id": 3, "status": "paid"}'],
        ["delete", "shop.orders", "1"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_looking_at_tables_imports_nothing_heavy(folder_of_a_lake: str, command: list[str]) -> None:
    ended = python(RUN.format(heavy=HEAVY), *command, "--lake", folder_of_a_lake)

    assert ended.stderr.splitlines()[-1].strip() == "imported:"
    assert "shop.orders" in ended.stdout or "paid" in ended.stdout or "upsert" in ended.stdout


@pytest.mark.slow
def test_pandas_is_there_for_whoever_asks_afterwards() -> None:
    python(
        """
import sys
from lithify.cli import quick_start
quick_start.this_process_runs_one_command()
quick_start.spare_pandas()
import pyarrow as pa
table = pa.table({"a": [1, 2]})
assert "pandas" not in sys.modules
assert table.to_pandas()["a"].tolist() == [1, 2]
import pandas
frame = pandas.DataFrame({"a": [1.5, None]})
assert pa.Table.from_pandas(frame).column("a").to_pylist() == pa.array(frame["a"]).to_pylist() == [1.5, None]
"""
    )


@pytest.mark.slow
def test_pandas_is_left_alone_in_processes_of_others() -> None:
    python(
        """
import sys
from lithify.cli import quick_start
quick_start.spare_pandas()
import pyarrow as pa
pa.array([0])
assert "pandas" in sys.modules
"""
    )
