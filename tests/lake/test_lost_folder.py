"""A table whose folder disappears under a running process: it is not there, and may be created again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Lake, NotFound, Table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as lake:
        for name in ("a.t", "a.other"):
            lake.create_table(name, SCHEMA, key="id").upsert([{"id": 1, "v": "x"}])
        yield lake


def count(lake: Lake, name: str = "a.t") -> int:
    return int(lake.sql(f"select count(*) as n from {name}").column("n")[0].as_py())


@pytest.mark.parametrize(
    "use",
    [
        lambda table: table.upsert([{"id": 2, "v": "y"}]),
        lambda table: table.delete([1]),
        lambda table: table.to_arrow(),
        lambda table: table.get(1),
        lambda table: table.fold(),
    ],
    ids=["upsert", "delete", "read", "get", "fold"],
)
def test_an_open_table_says_so(lake: Lake, use: Callable[[Table], object]) -> None:
    table = lake.table("a.t")
    table.to_arrow()
    shutil.rmtree(lake.path / "a" / "t")

    with pytest.raises(NotFound, match=r"a[./]t"):
        use(table)

    assert count(lake, "a.other") == 1


def test_sql_says_so_too(lake: Lake) -> None:
    assert count(lake) == 1
    shutil.rmtree(lake.path / "a" / "t")

    with pytest.raises(NotFound, match=r"a\.t does not exist"):
        count(lake)


def test_it_is_created_anew_without_its_past(lake: Lake) -> None:
    assert count(lake) == 1
    shutil.rmtree(lake.path / "a" / "t")

    lake.create_table("a.t", SCHEMA, key="id")

    assert count(lake) == 0
    assert lake.table("a.t").upsert([{"id": 7, "v": "z"}]).seq == 1
    assert count(lake) == 1


def test_a_folder_that_comes_back_is_the_table_again(lake: Lake) -> None:
    assert count(lake) == 1
    aside = lake.path.with_name("aside")
    (lake.path / "a" / "t").rename(aside)
    with pytest.raises(NotFound):
        count(lake)

    aside.rename(lake.path / "a" / "t")

    assert count(lake) == 1
    assert lake.table("a.t").upsert([{"id": 2, "v": "y"}]).upserted == 1
