"""Spark reads the files that a log names, letter by letter, and what it writes has the lake's modes."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lithify import Corruption, Lake, Settings

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.untrusted import COLUMNS, OURS, SECRET, TABLE, Outside, _add, _commit, make_lake, make_outside


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    return make_outside(tmp_path / "outside")


@pytest.mark.parametrize("spelled", ["{..,q}", "[.][.]", "?."])
def test_a_pattern_in_a_path_is_a_name(spark: SparkSession, tmp_path: Path, outside: Outside, spelled: str) -> None:
    """A folder may really have such a name; what the pattern matches is not what the log names."""
    lake = make_lake(tmp_path / "lake", OURS)
    ups = os.path.relpath(outside.root, lake / "shop/t/base").replace("..", spelled)
    decoy = lake / "shop/t/base" / ups / "private.parquet"
    decoy.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": [7], "p": ["x"], "v": [OURS]}, COLUMNS), decoy)
    _commit(lake, "base", _add(f"{ups}/private.parquet", decoy.stat().st_size, "base"))

    with Lake(lake, spark) as opened:
        rows = opened.table(TABLE).to_spark().collect()

    assert [row.v for row in rows if row.id == 7] == [OURS]
    assert SECRET not in str(rows)


def test_links_and_dots_are_refused_by_spark_too(spark: SparkSession, tmp_path: Path, outside: Outside) -> None:
    before = outside.state()
    for number, path in enumerate(("link.parquet", "../../../../outside/private.parquet")):
        lake = make_lake(tmp_path / f"lake{number}", OURS)
        if number == 0:
            (lake / "shop/t/base/link.parquet").symlink_to(outside.parquet)
        _commit(lake, "base", _add(path, outside.parquet.stat().st_size, "base"))
        with Lake(lake, spark) as opened, pytest.raises(Corruption):
            opened.table(TABLE).to_spark()
    assert outside.state() == before


def test_staged_folders_that_are_links_are_replaced(spark: SparkSession, tmp_path: Path, outside: Outside) -> None:
    lake = make_lake(tmp_path / "lake", OURS)
    before = outside.state()
    with Lake(lake, spark) as opened:
        table = opened.table(TABLE)
        owner = f"{os.uname().nodename}-{os.getpid()}"
        snapshot = table.snapshot()
        name = f"overlay-{owner}-{snapshot.changes_version}-{snapshot.base_version}"
        (lake / "shop/t/index" / name).symlink_to(outside.root)
        assert SECRET not in str(table.to_spark().collect())
    assert outside.state() == before


def test_what_spark_writes_has_the_mode_of_the_setting(spark: SparkSession, tmp_path: Path) -> None:
    with Lake(
        tmp_path / "lake", spark, settings=Settings(file_mode="640", local_job_bytes_max=0, local_frame_bytes_max=0)
    ) as lake:
        table = lake.create_table(TABLE, COLUMNS, key="id", partition_by="p")
        frame = spark.range(100).selectExpr("id", "cast(id % 3 as string) as p", "'v' as v")
        table.upsert(frame)
        table.fold()
        table.upsert([{"id": 1, "p": "x", "v": "new"}])
        table.to_spark().collect()
        table.fold()
    modes = {
        (path.is_dir(), stat.S_IMODE(path.stat().st_mode)): str(path)
        for path in (tmp_path / "lake", *(tmp_path / "lake").rglob("*"))
    }
    assert set(modes) == {(False, 0o640), (True, 0o750)}, modes
