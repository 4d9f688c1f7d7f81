"""Tables whose files or features Lithify cannot take are refused by name, and nothing is left of the attempt."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from lithify import Conflict, Corruption, InvalidRequest, Lake
from support.parquet_footers import I64, NUM_ROWS, edited

TABLE = pa.table({"id": [1, 2], "v": [3, 4]})


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as opened:
        yield opened


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_table_with_a_file_that_contradicts_itself_is_not_adopted(lake: Lake, folder: Path, kind: str) -> None:
    if kind == "delta":
        write_deltalake(folder / "t", TABLE)
    else:
        (folder / "t").mkdir()
        pq.write_table(TABLE, folder / "t" / "x.parquet")
    (path,) = (folder / "t").glob("*.parquet")
    edited(path, lambda footer: footer.update({NUM_ROWS: (I64, 1)}))

    with pytest.raises(Corruption, match=f"{path.name} cannot be read as Parquet .its footer says 1 rows"):
        lake.adopt("a.t", folder / "t", key="id")

    assert lake.tables() == []


def test_columns_of_one_name_are_not_adopted(lake: Lake, folder: Path) -> None:
    (folder / "t").mkdir()
    pq.write_table(pa.table([[1], [2]], names=["id", "id"]), folder / "t" / "x.parquet")

    with pytest.raises(InvalidRequest, match=r"cannot be adopted: .*more than one column 'id'"):
        lake.adopt("a.t", folder / "t", key="id")


def with_protocol(path: Path, protocol: dict[str, Any]) -> None:
    (commit,) = (path / "_delta_log").glob("*.json")
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    lines = [{"protocol": protocol} if "protocol" in line else line for line in lines]
    commit.write_text("\n".join(map(json.dumps, lines)))


@pytest.mark.parametrize(
    ("protocol", "named"),
    [
        (
            {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["later"], "writerFeatures": ["later"]},
            "later",
        ),
        ({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["laterStill"]}, "laterStill"),
        ({"minReaderVersion": 5, "minWriterVersion": 9}, "reader version 5"),
        ({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]}, "(?i)rowTracking"),
    ],
)
def test_a_feature_of_delta_that_is_not_known_is_named_and_no_damage(
    lake: Lake, folder: Path, protocol: dict[str, Any], named: str
) -> None:
    write_deltalake(folder / "t", TABLE)
    with_protocol(folder / "t", protocol)

    with pytest.raises(InvalidRequest, match=named):
        lake.adopt("a.t", folder / "t", key="id")

    assert lake.tables() == []


def test_a_link_that_leads_into_the_lake_is_no_way_around(lake: Lake, folder: Path) -> None:
    """Two tables on one base would take each other's watermark for their own; and what is detached is the user's."""
    columns = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    table = lake.create_table("a.t", columns, key="id", time="at")
    table.upsert([{"id": 1, "at": dt.datetime(2026, 11, 1, tzinfo=dt.UTC)}])
    table.fold()
    (folder / "link").symlink_to(lake.path)

    with pytest.raises(InvalidRequest, match="lies inside this lake"):
        lake.adopt("a.u", folder / "link" / "a" / "t" / "base", key="id")
    with pytest.raises(InvalidRequest, match="lies inside this lake"):
        table.detach("2026-11-01", folder / "link" / "day")

    assert lake.tables() == ["a.t"]


def test_the_base_of_a_table_of_another_lake_is_not_adopted(lake: Lake, folder: Path) -> None:
    """A fold of the second table would drop what the first one has not folded yet. A copy is nobody's."""
    with Lake(folder / "other") as other:
        table = other.create_table("a.t", pa.schema([("id", pa.int64())]), key="id")
        table.upsert([{"id": 1}])
        table.fold()
        base = other.path / "a" / "t" / "base"

        with pytest.raises(Conflict, match=r"is the base of a table of the lake .*other already"):
            lake.adopt("b.u", base, key="id")
        shutil.copytree(base, folder / "copy")
        lake.adopt("b.u", folder / "copy", key="id")
        lake.table("b.u").upsert([{"id": 2}])
        lake.table("b.u").fold()
        table.upsert([{"id": 3}])

        assert sorted(table.to_arrow().column("id").to_pylist()) == [1, 3]
        assert sorted(lake.table("b.u").to_arrow().column("id").to_pylist()) == [1, 2]
