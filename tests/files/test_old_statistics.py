"""Files of parquet-mr before 1.10 have bounds in the order of signed bytes: no read and no write goes by them."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import Lake, Settings, Table
from support.parquet_footers import as_old_writers_did

COUNT = 40_000
KIND = pa.decimal128(25, 2)


def encoded(value: Decimal) -> bytes:
    return int(value.scaleb(2)).to_bytes(11, "big", signed=True)


@pytest.fixture(params=["index", "no index"])
def lake(folder: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    with Lake(folder / "lake", settings=Settings(cache_bytes_max=0)) as opened:
        yield opened


def adopted(lake: Lake, folder: Path, key: str) -> Table:
    """Two files, the first with bounds that rule out nearly all of its rows."""
    (folder / "p").mkdir()
    for number in range(2):
        ids = range(number * COUNT, (number + 1) * COUNT)
        rows = pa.table(
            {
                "d": pa.array([Decimal(i) - 5 for i in ids], KIND),
                "s": [f"k{i:07d}" for i in ids],
                "v": [f"old {i:040d}" for i in ids],
            }
        )
        pq.write_table(rows, folder / "p" / f"{number}.parquet", row_group_size=10_000)
    low, high = encoded(Decimal(-5)), encoded(Decimal(3))
    as_old_writers_did(folder / "p" / "0.parquet", {0: (low, high), 1: (b"z", b"zz")})
    return lake.adopt("a.t", folder / "p", key=key)


@pytest.fixture
def table(lake: Lake, folder: Path, request: pytest.FixtureRequest) -> Table:
    made = adopted(lake, folder, "d")
    if "no index" in request.node.name:
        for path in (folder / "lake" / "a" / "t" / "index").glob("*"):
            path.unlink()
    return made


WANTED = Decimal(25_000)


def values(table: pa.Table) -> list[Any]:
    return sorted(table.column("d").to_pylist())


def test_reads_find_what_the_bounds_deny(lake: Lake, table: Table) -> None:
    expected = {"d": WANTED, "s": "k0025005", "v": f"old {25_005:040d}"}

    assert table.get(WANTED) == expected
    assert table.to_arrow(where="s = 'k0025005'").to_pylist() == [expected]
    assert lake.sql("select count(*) c from a.t where d > 24999 and d < 25001").to_pylist() == [{"c": 1}]
    assert lake.sql("select max(d) m, min(s) s from a.t where v like 'old%'").to_pylist() == [
        {"m": Decimal(2 * COUNT - 6), "s": "k0000000"}
    ]
    assert lake.sql("select max(d) m, count(*) c from a.t").to_pylist() == [
        {"m": Decimal(2 * COUNT - 6), "c": 2 * COUNT}
    ]
    assert lake.sql("select d from a.t where s < 'k0040000' order by d desc limit 1").to_pylist() == [
        {"d": Decimal(COUNT - 6)}
    ]


def test_an_upsert_takes_the_place_of_its_row(lake: Lake, table: Table) -> None:
    table.upsert([{"d": WANTED, "s": "k", "v": "new"}])
    table.delete([WANTED + 1])

    for _ in range(2):
        assert table.get(WANTED) == {"d": WANTED, "s": "k", "v": "new"}
        assert table.get(WANTED + 1) is None
        assert values(table.to_arrow(where="d between 24999 and 25002")) == [WANTED - 1, WANTED, WANTED + 2]
        assert lake.sql("select count(*) c, count(distinct d) n from a.t").to_pylist() == [
            {"c": 2 * COUNT - 1, "n": 2 * COUNT - 1}
        ]
        table.fold()
    paths = [str(table.base_path / file.path) for file in table.snapshot().base]
    # DuckDB believes such bounds too: it is asked for all rows.
    seen = duckdb.sql(f"select count(*), count(distinct d) from (select * from read_parquet({paths}))").fetchall()
    assert seen == [(2 * COUNT - 1, 2 * COUNT - 1)]
