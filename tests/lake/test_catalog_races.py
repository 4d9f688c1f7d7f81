"""Creating and dropping tables where nobody can hold a lock, and where a lock did not hold."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Conflict, Lake, LithifyError
from lithify.files.addresses import path_of
from lithify.files.bucket.storage import BucketStorage
from lithify.files.local import LocalStorage

WIDE = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.string())])
NARROW = pa.schema([pa.field("id", pa.int64(), nullable=False)])


class Careless(LocalStorage):
    """Whoever asks for a lock has it, as if each holder had slept past its end. `at`: what to do at a named place."""

    def __init__(self) -> None:
        self.at: dict[str, Callable[[], None]] = {}

    @contextlib.contextmanager
    def lock(self, *args: object, **options: object) -> Iterator[None]:
        yield

    def step(self, name: str) -> None:
        if act := self.at.pop(name, None):
            act()


@pytest.mark.bucket
def test_of_many_who_create_a_table_one_does(address: str) -> None:
    Lake(address).close()
    barrier = threading.Barrier(4)

    def create(number: int) -> str:
        with Lake(address) as lake:
            barrier.wait(60)
            try:
                lake.create_table("a.t", WIDE if number % 2 else NARROW, key="id").upsert(
                    [{"id": number}], missing="null"
                )
            except Conflict:
                return "exists"
            return "created"

    with ThreadPoolExecutor(4) as pool:
        told = sorted(pool.map(create, range(4)))

    assert told == ["created", "exists", "exists", "exists"]
    with Lake(address) as lake:
        assert lake.table("a.t").count() == 1


@pytest.mark.bucket
def test_a_dropped_table_leaves_nothing_but_its_logs(address: str) -> None:
    with Lake(address) as lake:
        table = lake.create_table("a.t", WIDE, key="id")
        table.upsert([{"id": 1, "a": "x"}])
        table.fold()
        table.upsert([{"id": 2, "a": "x"}])
        lake.drop_table("a.t")
        left = list(BucketStorage().below(path_of(address) / "a"))

        assert left
        assert all("/_delta_log/" in name for name in left)
        assert lake.tables() == []
        assert lake.create_table("a.t", NARROW, key="id").count() == 0


@pytest.mark.parametrize("point", ["drop.changes", "drop.emptied", "drop.listed"])
def test_who_slept_in_a_drop_takes_nothing_of_the_next_table(folder: Path, point: str) -> None:
    store = Careless()
    with Lake(folder / "lake", store=store) as lake, Lake(folder / "lake", store=Careless()) as other:
        lake.create_table("a.t", WIDE, key="id").upsert([{"id": 1, "a": "old"}])

        def create_anew() -> None:
            table = other.create_table("a.t", WIDE, key="id")
            table.upsert([{"id": 2, "a": "new"}])
            table.fold()
            table.upsert([{"id": 3, "a": "new"}])

        store.at[point] = create_anew
        lake.drop_table("a.t")

        assert other.table("a.t").to_arrow().sort_by("id").to_pylist() == [
            {"id": 2, "a": "new"},
            {"id": 3, "a": "new"},
        ]
    with Lake(folder / "lake") as again:
        assert again.table("a.t").count() == 2


@pytest.mark.parametrize("point", ["create.start", "create.base"])
def test_who_slept_in_a_creation_does_not_replace_the_next_table(folder: Path, point: str) -> None:
    store = Careless()
    with Lake(folder / "lake", store=store) as lake, Lake(folder / "lake", store=Careless()) as other:

        def create_first() -> None:
            other.create_table("a.t", WIDE, key="id").upsert([{"id": 2, "a": "new"}])

        store.at[point] = create_first
        with pytest.raises(LithifyError):
            lake.create_table("a.t", NARROW, key="id")

        assert other.table("a.t").to_arrow().to_pylist() == [{"id": 2, "a": "new"}]
        other.table("a.t").fold()
        assert other.table("a.t").to_arrow().to_pylist() == [{"id": 2, "a": "new"}]
