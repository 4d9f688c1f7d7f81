"""Rows of many files in one order: of all of them, or none."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify.core.read_plan import Source
from lithify.errors import Corruption
from lithify.sql.sort_files import sorted_batches
from support.vanishing import HARMS, before_listing

COLUMNS = pa.schema([("id", pa.int64())])


def written(folder: Path) -> list[Source]:
    sources = []
    for number in range(3):
        path = folder / f"{number}.parquet"
        pq.write_table(pa.table({"id": range(number, 300, 3)}, COLUMNS), path)
        sources.append(Source(str(path), 100, path.stat().st_size))
    return sources


def test_rows_come_in_order(tmp_path: Path) -> None:
    found = pa.Table.from_batches(sorted_batches(written(tmp_path), COLUMNS, ["id"], tmp_path, 2**26), COLUMNS)
    assert found.column("id").to_pylist() == list(range(300))


@pytest.mark.parametrize("harm", HARMS)
def test_a_file_that_vanishes_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str) -> None:
    sources = written(tmp_path)
    path = Path(sources[1].path)
    happened = before_listing(monkeypatch, path, lambda: HARMS[harm](path))
    with pytest.raises(Corruption, match=str(path)):
        list(sorted_batches(sources, COLUMNS, ["id"], tmp_path, 2**26))
    assert happened.done
