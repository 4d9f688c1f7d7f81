"""After each of many changes, a hot table answers as its files do, here and in a query process (invariant 10)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Lake, Settings
from lithify.cache import hot_rows
from lithify.cache import load as hot_load
from lithify.cache.hot_rows import ALIVE, HotRows
from lithify.cache.strings import DICTIONARY, VIEW
from support.effort import examples

ROWS, BLOCK_ROWS = 2_000, 256
CHANGES = 30
Key = tuple[list[tuple[str, pa.DataType]], Callable[[int], tuple[Any, ...]]]
KEYS: dict[str, Key] = {
    "int": ([("k", pa.int64())], lambda n: (n * 3 - 1_000,)),
    "text": ([("k", pa.string())], lambda n: (f"é{n:05d}",)),
    "bytes": ([("k", pa.binary())], lambda n: (n.to_bytes(2),)),
    "composite": (
        [("a", pa.string()), ("b", pa.int32()), ("c", pa.date32())],
        lambda n: (f"{n % 7}", n // 50, n % 50),
    ),
}
REST = [("short", pa.string()), ("long", pa.string()), ("v", pa.int64())]
QUERIES = (
    "SELECT * FROM a.t",
    "SELECT short, count(*) AS n, sum(v) AS v, max(long) AS m FROM a.t GROUP BY short",
    "SELECT count(*) AS n FROM a.t WHERE v % 2 = 0",
    "SELECT v FROM a.t WHERE short = 's3' AND v > 500",
    "SELECT x.v, y.short FROM a.t x JOIN a.t y ON x.v = y.v AND x.short < y.short",
    "SELECT arrow_typeof(short) AS a, arrow_typeof(long) AS b, array_agg(long) AS c FROM a.t WHERE v < 3 GROUP BY 1, 2",
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks of 256 rows, and strings kept in each of the three ways."""
    for module in (hot_rows, hot_load):
        monkeypatch.setattr(module, "BLOCK_ROWS_MAX", BLOCK_ROWS)
    monkeypatch.setattr(hot_rows, "SMALL_BLOCK_ROWS", BLOCK_ROWS // 4)
    monkeypatch.setattr(hot_load, "SAMPLE_ROWS_MIN", 100)
    monkeypatch.setattr(hot_load, "SAVED_BYTES_MIN", 0)
    return


def made(key: Key, numbers: list[int], dice: random.Random) -> pa.Table:
    names, of = key
    schema = pa.schema([*names, *REST])
    keys = zip(*(of(n) for n in numbers), strict=True) if numbers else [() for _ in names]
    rest = [
        [None if dice.random() < 0.05 else f"s{dice.randrange(9)}" for _ in numbers],
        [f"a text that is longer {dice.randrange(5)}" for _ in numbers],
        [dice.randrange(1_000) for _ in numbers],
    ]
    columns = [pa.array(list(values)) for values in (*keys, *rest)]
    return pa.table([_cast(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values.cast(pa.int32()).cast(kind) if pa.types.is_date(kind) else values.cast(kind)


def sorted_rows(answer: pa.Table) -> list[str]:
    return sorted(
        repr([sorted(v, key=repr) if isinstance(v, list) else v for v in row.values()]) for row in answer.to_pylist()
    )


def chosen(dice: random.Random) -> list[int]:
    """Keys of one change: scattered ones, a stretch that ends where a block does, or nearly all of a block."""
    match dice.randrange(4):
        case 0:
            return sorted(dice.sample(range(ROWS + 200), dice.randrange(1, 80)))
        case 1:
            end = dice.randrange(1, ROWS // BLOCK_ROWS) * BLOCK_ROWS
            return list(range(end - dice.randrange(1, 40), end + dice.randrange(0, 3)))
        case 2:
            start = dice.randrange(ROWS // BLOCK_ROWS) * BLOCK_ROWS
            # One row in eight, give or take one: where a block is copied.
            return sorted(dice.sample(range(start, start + BLOCK_ROWS), BLOCK_ROWS // 8 + dice.randrange(-1, 2)))
        case _:
            start = dice.randrange(ROWS)
            return list(range(start, start + dice.randrange(1, BLOCK_ROWS + 50)))


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("seed", range(examples(1, soak=40)))
def test_hot_is_cold_after_each_change(kind: str, seed: int, tmp_path: Path) -> None:
    dice = random.Random(f"{kind} {seed}")
    key = KEYS[kind]
    names = [name for name, _ in key[0]]
    copied = kept = 0
    with Lake(tmp_path, settings=Settings(cache_bytes_max=0)) as cold, Lake(tmp_path) as hot:
        table = cold.create_table("a.t", pa.schema([*key[0], *REST]), key=names)
        table.upsert(made(key, list(range(ROWS)), dice))
        table.fold()
        hot.cache.pin("a.t")
        assert _rows(hot).columns.types[-3:] == [VIEW, DICTIONARY, pa.int64()]
        for change in range(CHANGES):
            before = _blocks(hot)
            rows = made(key, chosen(dice), dice)
            if dice.random() < 0.3:
                hot.table("a.t").delete(rows.select(names))
            else:
                hot.table("a.t").upsert(rows)
            if dice.random() < 0.1:
                cold.table("a.t").fold()
            _same(cold, hot, f"{kind} {seed} after change {change}", in_a_process=change % 10 == 9)
            kept += len(before & _blocks(hot))
            copied += len(before - _blocks(hot))
        assert hot.cache.stats().loads == 1, "changes are applied, not loaded again"
    assert kept > copied > 0


def _blocks(lake: Lake) -> set[int]:
    return {id(segment.block) for segment in _rows(lake).segments}


def _rows(lake: Lake) -> HotRows:
    return lake._runtime.hot._tables["a.t"].cached.rows


def _same(cold: Lake, hot: Lake, when: str, *, in_a_process: bool) -> None:
    for query in QUERIES:
        expected, found = cold.sql(query), hot.sql(query)
        answers = [found, hot.query(query).rows] if in_a_process else [found]
        for answer in answers:
            assert answer.schema.types == expected.schema.types, f"{when}: {query}"
            assert answer.column_names == expected.column_names
            assert ALIVE not in answer.column_names
            assert sorted_rows(answer) == sorted_rows(expected), f"{when}: {query}"
    assert hot.table("a.t").to_arrow().schema == cold.table("a.t").to_arrow().schema
    assert sorted_rows(hot.table("a.t").to_arrow()) == sorted_rows(cold.table("a.t").to_arrow())
