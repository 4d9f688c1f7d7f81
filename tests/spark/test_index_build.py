"""Indexes of very many files: footers are read by Spark tasks, with the same result as by threads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import Corruption, Lake, Table

pytestmark = pytest.mark.spark
FILES = 12


@pytest.fixture
def adopted(tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Table:
    folder = tmp_path / "parquet"
    folder.mkdir()
    for number in range(FILES):
        rows = pa.table({"id": range(number * 10, number * 10 + 10), "name": [f"name {number}"] * 10})
        pq.write_table(rows, folder / f"{number:02d}.parquet")
    table = lake.adopt("a.t", folder, key="id")
    (lake.path / "a" / "t" / "index" / "base.pm").unlink()
    monkeypatch.setattr("lithify.index.rebuild.SPARK_FILES_MIN", 2)
    monkeypatch.setattr("lithify.index.rebuild.WAVE_FILES", 8)
    monkeypatch.setattr("lithify.index.rebuild.BATCH_FILES", 3)
    return table


def test_tasks_build_what_threads_would(adopted: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as here:
        here.setattr("lithify.index.rebuild.read_by_child", lambda files, folder: iter([] if not files else [None]))
        built = adopted.build_index()

    assert (built.files, built.added) == (FILES, FILES)
    assert adopted.check_index().ok
    assert adopted.get(57) == {"id": 57, "name": "name 5"}


def test_a_task_names_the_file_it_stopped_at(adopted: Table) -> None:
    path = adopted.base_path / adopted.snapshot().base[4].path
    path.write_bytes(path.read_bytes()[:-4] + b"XXXX")

    with pytest.raises(Corruption, match=path.name):
        adopted.build_index()

    skipped = adopted.build_index(skip_corrupt=True)
    assert [Path(name).name for name in skipped.skipped] == [path.name]
    assert adopted.check_index().missing == (str(path),)
