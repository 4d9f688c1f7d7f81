"""Whatever the key's type: a key is found, replaced and deleted where it is, however files are pruned by its bounds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import InvalidRequest, Lake, Settings

pytestmark = pytest.mark.slow

LONG = "k" * 70
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int64": (pa.int64(), [-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1]),
    "int8": (pa.int8(), [-128, -1, 0, 1, 127]),
    "bool": (pa.bool_(), [False, True]),
    "text": (pa.string(), ["", "A", "a", "é", "z", "ﬀ", "𝄞", "\U0010ffff", "it's", 'quo"te', "back\\slash", "\n"]),
    "long text": (pa.string(), [LONG, LONG + "a", LONG + "b", LONG + "\U0010ffff", "l" * 65]),
    "binary": (pa.binary(), [b"", b"\x00", b"a", b"\xff", b"\xff\xff" * 40]),
    "decimal": (
        pa.decimal128(6, 2),
        [Decimal("-9999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("0.10"), Decimal("9999.99")],
    ),
    "wide decimal": (
        pa.decimal128(38, 4),
        [Decimal("-1234567890123456789012345678901234.5678"), Decimal("0.0001"), Decimal("9007199254740993.0001")],
    ),
    "fine decimal": (pa.decimal128(38, 10), [Decimal("-0.0000000001"), Decimal("0E-10"), Decimal("0.0000000001")]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2026, 2, 28), dt.date(9999, 12, 31)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [
            dt.datetime(1, 1, 1, tzinfo=dt.UTC),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC),
            dt.datetime(2026, 1, 1, 0, 0, 0, 1, dt.UTC),
            dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC),
        ],
    ),
    "local timestamp": (
        pa.timestamp("us"),
        [dt.datetime(1, 1, 1), dt.datetime(2026, 1, 1, 0, 0, 0, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)],
    ),
}


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as lake:
        yield lake


WAYS = {"resolved in memory": 20_000_000, "merged by SQL": 1}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def either_lake(folder: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    with Lake(folder / "lake", settings=Settings(resolve_rows_max=request.param)) as lake:
        yield lake


@pytest.mark.parametrize("case", KEYS)
def test_every_key_is_found_replaced_and_deleted(either_lake: Lake, case: str) -> None:
    lake = either_lake
    kind, keys = KEYS[case]
    table = lake.create_table("a.t", pa.schema([("k", kind), ("v", pa.int64())]), key="k")

    def check(expected: dict[Any, int]) -> None:
        found_rows = table.to_arrow().to_pylist()
        assert {row["k"]: row["v"] for row in found_rows} == expected
        assert len(found_rows) == len(expected)
        for key in keys:
            found = table.get(key)
            assert (found and found["v"]) == expected.get(key), key

    expected: dict[Any, int] = {}
    for start in range(min(3, len(keys))):  # base files whose ranges overlap, so that bounds decide
        table.upsert([{"k": key, "v": start} for key in keys[start::3]])
        table.fold()
        expected.update(dict.fromkeys(keys[start::3], start))
    check(expected)
    table.upsert([{"k": key, "v": -1} for key in keys[::2]])
    expected.update(dict.fromkeys(keys[::2], -1))
    check(expected)
    table.delete([{"k": key} for key in keys[1::3]])
    for key in keys[1::3]:
        del expected[key]
    check(expected)
    table.upsert([{"k": key, "v": 7} for key in keys])
    table.fold()
    check(dict.fromkeys(keys, 7))


def test_a_table_with_forty_columns_deletes_by_the_last_one(either_lake: Lake) -> None:
    lake = either_lake
    names = [f"c{number}" for number in range(40)]
    table = lake.create_table("a.t", pa.schema([(name, pa.int64()) for name in names]))
    table.append([dict.fromkeys(names, 1), dict.fromkeys(names, 2)])
    table.fold()
    table.append([dict.fromkeys(names, 2)])
    table.delete([{"c39": 2}])
    assert table.to_arrow().to_pylist() == [dict.fromkeys(names, 1)]
    with pytest.raises(InvalidRequest, match="pending deletes by c39"):
        table.delete([{"c38": 2}])
    table.fold()
    assert table.to_arrow().to_pylist() == [dict.fromkeys(names, 1)]


def test_a_key_that_is_the_fortieth_column(lake: Lake) -> None:
    names = [f"c{number}" for number in range(40)]
    table = lake.create_table("a.t", pa.schema([(name, pa.int64()) for name in names]), key="c39")
    table.upsert([{"c39": 1}, {"c39": 2}], missing="null")
    table.fold()
    table.upsert([{"c39": 2, "c0": 5}], missing="null")
    table.fold()
    assert table.get(2)["c0"] == 5
    assert table.to_arrow().num_rows == 2


def test_empty_text_in_a_partition_column_is_refused(lake: Lake) -> None:
    """Delta cannot tell it from null, so another reader would see another row."""
    table = lake.create_table("a.t", pa.schema([("id", pa.int64()), ("region", pa.string())]), partition_by="region")
    with pytest.raises(InvalidRequest, match="'region' is empty text in row 1"):
        table.append([{"id": 1, "region": "eu"}, {"id": 2, "region": ""}])
    assert table.stats().seq == 0


def test_not_a_number_is_a_value_like_any_other(lake: Lake) -> None:
    table = lake.create_table("a.t", pa.schema([("id", pa.int64()), ("f", pa.float64())]), key="id")
    table.upsert(
        [{"id": 1, "f": float("nan")}, {"id": 2, "f": 1.0}, {"id": 3, "f": float("inf")}, {"id": 4, "f": -0.0}]
    )
    before = {
        condition: sorted(table.to_arrow(where=condition)["id"].to_pylist())
        for condition in ("f > 0", "isnan(f)", "f = 0")
    }
    table.fold()
    after = {condition: sorted(table.to_arrow(where=condition)["id"].to_pylist()) for condition in before}
    assert after == before
    assert before["isnan(f)"] == [1]
