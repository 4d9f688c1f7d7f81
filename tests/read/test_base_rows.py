"""Base rows that updates ask for are looked up once, and never too many are kept."""

from __future__ import annotations

import pyarrow as pa

from lithify.read.base_rows import BaseRows

COLUMNS = pa.schema([("id", pa.int64()), ("s", pa.string())])
BASE = {1: "a", 2: "b", 3: "c"}


class Asked:
    def __init__(self) -> None:
        self.keys: list[list[int]] = []

    def __call__(self, keys: pa.Table) -> pa.Table:
        wanted = keys.column("id").to_pylist()
        self.keys.append(wanted)
        return pa.Table.from_pylist([{"id": id, "s": BASE[id]} for id in wanted if id in BASE], schema=COLUMNS)


def keys(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def test_only_keys_that_are_new_are_looked_up() -> None:
    known, asked = BaseRows(), Asked()
    assert known.of("v1", keys(1, 9), COLUMNS, asked).to_pylist() == [{"id": 1, "s": "a"}]
    found = known.of("v1", keys(1, 9, 2), COLUMNS, asked).sort_by("id").to_pylist()
    assert found == [{"id": 1, "s": "a"}, {"id": 2, "s": "b"}]
    assert known.of("v1", keys(2), COLUMNS, asked).to_pylist() == [{"id": 2, "s": "b"}]
    assert asked.keys == [[1, 9], [2]]


def test_another_state_of_base_is_asked_again() -> None:
    known, asked = BaseRows(), Asked()
    known.of("v1", keys(1), COLUMNS, asked)
    known.of("v2", keys(1), COLUMNS, asked)
    assert asked.keys == [[1], [1]]


def test_what_is_too_much_is_not_kept() -> None:
    known, asked = BaseRows(bytes_max=1), Asked()
    for _ in range(2):
        assert known.of("v1", keys(3), COLUMNS, asked).to_pylist() == [{"id": 3, "s": "c"}]
    assert asked.keys == [[3], [3]]
