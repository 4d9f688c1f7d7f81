"""Tables that lie in a bucket already become tables of a lake there; days go out of it and come back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lithify import InvalidRequest, Lake, NotFound
from lithify.files.addresses import BucketPath
from lithify.files.open_storage import storage_of

pytestmark = pytest.mark.bucket


@pytest.fixture
def lake(address: str) -> Iterator[Lake]:
    with Lake(f"{address}/lake") as opened:
        yield opened


def people() -> pa.Table:
    return pa.table({"id": list(range(6)), "land": ["de", "fr"] * 3, "v": [1.5] * 6})


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def put_files(folder: Path, address: str) -> None:
    for file in folder.rglob("*.parquet"):
        path = BucketPath(address) / file.relative_to(folder).as_posix()
        storage_of(path).upload(file, path)


@pytest.mark.parametrize("partition_by", [None, ["land"]])
def test_a_delta_table_becomes_the_base_where_it_is(lake: Lake, address: str, partition_by: list[str] | None) -> None:
    write_deltalake(f"{address}/d", people(), partition_by=partition_by)
    table = lake.adopt("a.t", f"{address}/d", key="id")
    table.upsert([{"id": 2, "land": "es", "v": 9.0}, {"id": 7, "land": "de", "v": 0.0}])
    table.delete([3])
    expected = rows(table.to_arrow())

    report = table.fold()

    assert [row["id"] for row in expected] == [0, 1, 2, 4, 5, 7]
    assert (report.inserted, report.updated, report.deleted) == (1, 1, 1)
    assert rows(table.to_arrow()) == expected
    assert table.get(4) == {"id": 4, "land": "de", "v": 1.5}
    assert rows(DeltaTable(f"{address}/d").to_pyarrow_table().select(["id", "land", "v"])) == expected
    with Lake(f"{address}/lake") as again:
        assert rows(again.table("a.t").to_arrow()) == expected


@pytest.mark.parametrize("where", ["in the bucket", "here"])
def test_a_folder_of_parquet_files_is_copied_into_a_new_base(
    lake: Lake, address: str, folder: Path, where: str
) -> None:
    for land in ("de", "fr"):
        (folder / "p" / f"land={land}").mkdir(parents=True)
        part = people().filter(pa.compute.equal(people()["land"], land)).drop_columns(["land"])
        pq.write_table(part, folder / "p" / f"land={land}" / "part.parquet")
    put_files(folder / "p", f"{address}/p")

    table = lake.adopt("a.t", folder / "p" if where == "here" else f"{address}/p", key="id")
    table.upsert([{"id": 0, "land": "de", "v": 2.5}])

    expected = [{**row, "v": 2.5} if row["id"] == 0 else row for row in people().to_pylist()]
    assert rows(table.to_arrow().select(["id", "land", "v"])) == expected
    table.fold()
    assert rows(table.to_arrow().select(["id", "land", "v"])) == expected


def test_what_cannot_be_adopted_is_told(lake: Lake, address: str, folder: Path) -> None:
    write_deltalake(folder / "d", people())
    write_deltalake(f"{address}/d", people())
    with pytest.raises(InvalidRequest, match=r"lies on this machine, and this lake in a bucket.*copy it"):
        lake.adopt("a.t", folder / "d", key="id")
    with Lake(folder / "lake") as here, pytest.raises(InvalidRequest, match="lies in a bucket, and this lake does not"):
        here.adopt("a.t", f"{address}/d", key="id")
    with pytest.raises(NotFound, match=f"{address}/nothing is no folder"):
        lake.adopt("a.t", f"{address}/nothing", key="id")
    with pytest.raises(InvalidRequest, match="land is no key"):
        lake.adopt("a.t", f"{address}/d", key="land")
    assert lake.tables() == []


def test_a_day_goes_out_and_comes_back(lake: Lake, folder: Path) -> None:
    columns = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    table = lake.create_table("a.events", columns, key="id", time="at")
    days = [dt.datetime(2026, 11, day, 12, tzinfo=dt.UTC) for day in (14, 15)]
    table.upsert([{"id": number, "at": days[number % 2]} for number in range(10)])

    report = table.detach("2026-11-15", folder / "day")

    assert report.rows == 5
    assert {row["id"] for row in table.to_arrow().to_pylist()} == {0, 2, 4, 6, 8}
    assert sum(pq.read_metadata(file).num_rows for file in (folder / "day").iterdir()) == 5
    table.attach(folder / "day")
    assert table.to_arrow().num_rows == 10
