"""In a bucket the files of the next group travel while a commit is under way, and count only if nothing moved."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath

import pyarrow as pa
import pytest

from lithify import Lake
from lithify.files.addresses import path_of
from lithify.files.bucket.storage import BucketStorage
from lithify.files.storage import Data

pytestmark = pytest.mark.bucket

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
WAIT_S = 60


class Held(BucketStorage):
    """Stops the first commit that is tried after `hold` until a second file was written, and something was done."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._meanwhile = meanwhile
        self._holding = False
        self.stopped, self.second = threading.Event(), threading.Event()
        self.ahead = False
        self.written = list[str]()

    def hold(self) -> None:
        self._holding = True

    def step(self, name: str) -> None:
        if name == "log.swap" and self._holding:
            self._holding = False
            self.stopped.set()
            self.ahead = self.second.wait(WAIT_S)
            self._meanwhile()

    def create(self, path: PurePath, data: Data, mode: int | None = None) -> None:
        super().create(path, data, mode)
        if path.suffix == ".parquet":
            self.written.append(path.name)
            if self.stopped.is_set():
                self.second.set()


def write_two(address: str, store: Held) -> list[int]:
    """One is being committed when the other comes; their seqs."""
    with Lake(address, store=store) as lake, ThreadPoolExecutor(2) as pool:
        table = lake.table("a.t")
        table.upsert([{"id": 0, "v": "first"}])
        store.hold()
        one = pool.submit(table.upsert, [{"id": 1, "v": "one"}])
        assert store.stopped.wait(WAIT_S)
        two = pool.submit(table.upsert, [{"id": 1, "v": "two"}, {"id": 2, "v": "two"}])
        return [one.result(WAIT_S).seq, two.result(WAIT_S).seq]


def rows_and_files(address: str) -> tuple[dict[int, str], set[str], set[str]]:
    """What is in the table, the files that its log names, and those that there are."""
    with Lake(address) as lake:
        table = lake.table("a.t")
        rows = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
        named = {file.path for file in table.snapshot().changes}
    folder = path_of(address) / "a/t/changes"
    store = BucketStorage()
    store.path_guard.trust(path_of(address))
    return rows, named, {name for name in store.below(folder) if name.startswith("write-")}


@pytest.fixture
def lake_address(address: str) -> str:
    with Lake(address, create=True) as lake:
        lake.create_table("a.t", SCHEMA, key="id", options={"missing_columns": "null"})
    return address


def test_the_next_files_are_there_before_the_commit_is_done(lake_address: str) -> None:
    store = Held()

    assert write_two(lake_address, store) == [2, 3]

    assert store.ahead
    assert rows_and_files(lake_address) == ({0: "first", 1: "two", 2: "two"}, {*store.written}, {*store.written})


def test_what_was_staged_for_other_columns_is_written_again(lake_address: str) -> None:
    def add_a_column() -> None:
        with Lake(lake_address) as other:
            other.table("a.t").add_column(pa.field("more", pa.float64()))

    store = Held(add_a_column)

    assert write_two(lake_address, store) == [2, 3]

    assert store.ahead
    first, _, _, *again = store.written
    left = {first, *again}
    assert len(again) == 2
    assert rows_and_files(lake_address) == ({0: "first", 1: "two", 2: "two"}, left, left), "what was in vain is gone"
