"""Taking existing tables over without copying them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lithify import Conflict, Corruption, InvalidRequest, Lake, NotFound
from support.faults import FaultyStore


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as opened:
        yield opened


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def people() -> pa.Table:
    return pa.table({"id": list(range(6)), "land": ["de", "fr"] * 3, "v": [1.5] * 6})


@pytest.mark.parametrize("partition_by", [None, ["land"]])
def test_a_delta_table_becomes_the_base_where_it_is(lake: Lake, folder: Path, partition_by: list[str] | None) -> None:
    write_deltalake(folder / "d", people(), partition_by=partition_by)
    table = lake.adopt("a.t", folder / "d", key="id")
    table.upsert([{"id": 2, "land": "es", "v": 9.0}, {"id": 7, "land": "de", "v": 0.0}])
    table.delete([3])
    expected = rows(table.to_arrow())

    report = table.fold()

    assert [row["id"] for row in expected] == [0, 1, 2, 4, 5, 7]
    assert (report.inserted, report.updated, report.deleted) == (1, 1, 1)
    assert rows(table.to_arrow()) == expected
    assert rows(DeltaTable(folder / "d").to_pyarrow_table().select(["id", "land", "v"])) == expected
    assert table.get(2) == {"id": 2, "land": "es", "v": 9.0}
    assert table.get(4) == {"id": 4, "land": "de", "v": 1.5}


def test_of_two_lakes_that_adopt_one_table_at_once_one_is_refused(folder: Path) -> None:
    """Two watermarks on one base would swallow each other's changes."""
    write_deltalake(folder / "d", people())
    with Lake(folder / "quicker") as quicker:
        store = FaultyStore("log.swap", lambda: quicker.adopt("b.t", folder / "d", key="id"))
        with Lake(folder / "lake", store=store) as lake:
            with pytest.raises(Conflict, match=r"is the base of table b\.t in .* already"):
                lake.adopt("a.t", folder / "d", key="id")
            assert lake.tables() == []
        assert quicker.table("b.t").to_arrow().num_rows == 6


def test_a_parquet_folder_is_linked_and_stays_untouched(lake: Lake, folder: Path) -> None:
    for land in ("de", "fr"):
        (folder / "p" / f"land={land}").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), folder / "p" / "land=de" / "x.parquet")
    pq.write_table(pa.table({"id": [3]}), folder / "p" / "land=fr" / "x.parquet")
    before = {path: path.read_bytes() for path in (folder / "p").rglob("*.parquet")}
    table = lake.adopt("a.t", folder / "p", key="id")
    table.upsert([{"id": 2, "land": "fr"}])

    table.fold()

    assert rows(table.to_arrow()) == [{"id": 1, "land": "de"}, {"id": 2, "land": "fr"}, {"id": 3, "land": "fr"}]
    assert rows(DeltaTable(table.base_path).to_pyarrow_table().select(["id", "land"])) == rows(table.to_arrow())
    assert {path: path.read_bytes() for path in (folder / "p").rglob("*") if path.is_file()} == before


def test_dropping_an_adopted_table_leaves_its_base(lake: Lake, folder: Path) -> None:
    write_deltalake(folder / "d", people())
    lake.adopt("a.t", folder / "d", key="id")

    lake.drop_table("a.t")

    assert DeltaTable(folder / "d").to_pyarrow_table().num_rows == 6


def test_values_that_are_no_key_are_refused_with_examples(lake: Lake, folder: Path) -> None:
    write_deltalake(folder / "d", people())

    with pytest.raises(InvalidRequest, match=r"land is no key.*de"):
        lake.adopt("a.t", folder / "d", key="land")

    assert lake.tables() == []


def test_deletion_vectors_and_column_mapping_are_refused(lake: Lake, folder: Path) -> None:
    write_deltalake(folder / "d", people())
    log = folder / "d" / "_delta_log" / f"{0:020d}.json"
    original = log.read_text()
    features = '"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors"]'
    protocol = f'{{"protocol":{{"minReaderVersion":3,"minWriterVersion":7,{features}}}}}'
    lines = [protocol if line.startswith('{"protocol"') else line for line in original.splitlines()]
    log.write_text("\n".join(lines) + "\n")
    with pytest.raises(InvalidRequest, match="deletion vectors"):
        lake.adopt("a.t", folder / "d", key="id")

    log.write_text(original.replace('"configuration":{}', '"configuration":{"delta.columnMapping.mode":"name"}'))
    with pytest.raises(InvalidRequest, match="column mapping"):
        lake.adopt("a.t", folder / "d", key="id")
    assert lake.tables() == []


def test_what_cannot_be_adopted_is_named(lake: Lake, folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "broken").mkdir()
    (folder / "broken" / "x.parquet").write_bytes(b"not parquet")
    lake.create_table("a.taken", pa.schema([("id", pa.int64())]))

    with pytest.raises(NotFound, match="neither a Delta table nor Parquet files"):
        lake.adopt("a.t", folder / "empty")
    with pytest.raises(Corruption, match=r"x\.parquet"):
        lake.adopt("a.t", folder / "broken")
    with pytest.raises(NotFound, match="nowhere"):
        lake.adopt("a.t", folder / "nowhere")
    with pytest.raises(Conflict, match=r"a\.taken"):
        lake.adopt("a.taken", folder / "empty")
    with pytest.raises(InvalidRequest, match="inside this lake"):
        lake.adopt("a.t", lake.path / "a" / "taken" / "base")
