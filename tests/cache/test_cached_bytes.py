"""Kept answers count what they hold, and hold nothing but their rows."""

from __future__ import annotations

import gc

import pyarrow as pa
import pytest

from lithify.cache.memory_account import MemoryAccount
from lithify.cache.results import ResultCache, copied

MANY = 50_000
TEXTS = [f"value {number}, longer than twelve bytes" for number in range(MANY)]

COLUMNS = {
    "integers": lambda: pa.array(range(MANY)),
    "booleans": lambda: pa.array([number % 3 == 0 for number in range(MANY)]),
    "decimals": lambda: pa.array(range(MANY)).cast(pa.decimal128(30, 2)),
    "strings": lambda: pa.array(TEXTS),
    "nulls": lambda: pa.nulls(MANY, pa.string()),
    "dictionaries": lambda: pa.array(TEXTS).dictionary_encode(),
    "string views": lambda: pa.array(TEXTS, pa.string_view()),
    "lists": lambda: pa.array([[number, number + 1] for number in range(MANY)]),
    "structs": lambda: pa.StructArray.from_arrays([pa.array(TEXTS), pa.array(range(MANY))], ["text", "number"]),
    "structs with dictionaries": lambda: pa.StructArray.from_arrays([pa.array(TEXTS).dictionary_encode()], ["text"]),
    "maps": lambda: pa.array([[("key", number)] for number in range(MANY)], pa.map_(pa.string(), pa.int64())),
    "lists of structs": lambda: pa.array([[{"a": text}] for text in TEXTS]),
}
SMALL = [name for name in COLUMNS if "dictionaries" not in name and "views" not in name]


def allocated_bytes() -> int:
    gc.collect()
    return pa.total_allocated_bytes()


@pytest.mark.parametrize("name", COLUMNS)
def test_what_a_slice_is_counted_as_is_what_its_copy_holds(name: str) -> None:
    before = allocated_bytes()
    part = pa.table({"v": COLUMNS[name]()}).slice(MANY // 2, 3)
    wanted = part.to_pylist()

    copy, counted_bytes = copied(part)
    del part

    assert copy.to_pylist() == wanted
    assert allocated_bytes() - before <= counted_bytes


@pytest.mark.parametrize("name", SMALL)
def test_a_slice_is_copied_without_the_rest(name: str) -> None:
    whole = pa.table({"v": COLUMNS[name]()})
    assert copied(whole.slice(MANY // 2, 3))[1] < 10_000
    assert copied(whole)[1] >= whole.nbytes


def test_chunks_with_dictionaries_of_their_own_stay_what_they_are() -> None:
    chunks = [pa.array(texts).dictionary_encode() for texts in (["a", "b"], ["c"], ["b", "d"])]
    rows = pa.table({"v": pa.chunked_array(chunks)})
    assert copied(rows)[0].equals(rows)


def test_no_rows_keep_their_columns() -> None:
    rows = pa.table({name: make().slice(0, 0) for name, make in COLUMNS.items()})
    assert copied(rows)[0].equals(rows)


def test_the_text_of_a_query_is_counted_too() -> None:
    cache = ResultCache(MemoryAccount(2**30))
    rows = pa.table({"v": [1]})
    for number in range(10):
        cache.keep((f"select {number} /*{'x' * 100_000}*/", None), rows, False, {}, {})
    assert cache.stats().count == 10
    assert cache.stats().bytes > 1_000_000


def test_answers_stay_within_their_share() -> None:
    cache = ResultCache(MemoryAccount(16 * 2**20))  # of which a sixteenth is theirs
    before = allocated_bytes()
    whole = pa.table({"v": TEXTS})
    for number in range(2_000):
        cache.keep((str(number),), whole.slice(number, 100), False, {}, {})
    del whole

    assert 0 < cache.stats().count < 2_000
    assert allocated_bytes() - before <= cache.stats().bytes <= 2**20
    cache.clear()
    assert allocated_bytes() <= before
