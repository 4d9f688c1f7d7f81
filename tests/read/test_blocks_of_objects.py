"""A few rows of a large object in a bucket: blocks of it are brought, and not all of it."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Lake, Settings
from lithify.files import local_files
from lithify.files.addresses import BucketPath
from lithify.files.bucket import blocks
from lithify.files.bucket.blocks import BlockReader
from lithify.files.bucket.storage import BucketStorage
from lithify.files.footer_cache import FAR_OPENS_MAX
from lithify.files.read_proof import Vanished
from support.fault_proxy import FaultProxy

pytestmark = pytest.mark.bucket

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("w", pa.string())])
ROWS, BLOCK = 20_000, 32 * 1024


@pytest.fixture(autouse=True)
def _everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_files, "NEAR_BYTES_MAX", 100_000)
    monkeypatch.setattr("lithify.files.open_parquet.WHOLE_BYTES_MAX", 100_000)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", BLOCK)


@pytest.fixture
def lake(proxy: FaultProxy, address: str, folder: Path) -> Iterator[Lake]:
    """One file of many row groups, which nobody has here."""
    values = random.Random(3)
    texts = [values.randbytes(20).hex() for _ in range(ROWS)]
    with Lake(address, settings=Settings(cache_folder=folder / "writer")) as writer:
        table = writer.create_table("shop.orders", SCHEMA, key="id", options={"row_group_rows": 1_024})
        table.upsert(pa.table({"id": range(ROWS), "v": texts, "w": texts}, SCHEMA))
        table.fold()
    with Lake(address, settings=Settings(cache_folder=folder / "cold", cache_bytes_max=0)) as lake:
        yield lake


def fetched_bytes(proxy: FaultProxy, since: int) -> int:
    """Of data files, by the ranges that were asked for."""
    total = 0
    for request in proxy.requests[since:]:
        if request.kind == "GET" and ".parquet" in request.target and "_delta_log" not in request.target:
            start, end = re.fullmatch(r"bytes=(\d*)-(\d+)", request.headers["range"]).groups()  # type: ignore[union-attr]
            total += int(end) - int(start) + 1 if start else int(end)
    return total


@pytest.mark.parametrize("by", ["get", "sql"])
def test_no_more_is_brought_than_the_row_groups_that_can_hold_it(lake: Lake, proxy: FaultProxy, by: str) -> None:
    table = lake.table("shop.orders")
    (file,) = table.snapshot().base

    def read(key: int) -> object:
        if by == "get":
            return table.get(key)
        return lake.sql(f"select * from shop.orders where id = {key}").to_pylist()[0]

    since = len(proxy.requests)
    found = read(12_345)

    assert found["id"] == 12_345  # type: ignore[index]
    assert found["v"] == found["w"]  # type: ignore[index]
    assert 0 < fetched_bytes(proxy, since) < file.size_bytes / 4
    with proxy.counted() as again:
        assert read(12_345) == found
    assert again == {"GET": 2}, "the logs"


def test_a_block_that_is_damaged_is_brought_again(lake: Lake, folder: Path) -> None:
    table = lake.table("shop.orders")
    found = table.get(777)
    damaged = [copy for copy in (folder / "cold/copies").rglob("*.parquet") if copy.stat().st_size == BLOCK]
    assert damaged
    for copy in damaged:
        copy.write_bytes(bytes(BLOCK))

    assert table.get(777) == found


def test_a_whole_copy_is_used_where_there_is_one(lake: Lake, proxy: FaultProxy) -> None:
    table = lake.table("shop.orders")
    assert table.to_arrow().num_rows == ROWS
    since = len(proxy.requests)

    assert table.get(5) is not None
    assert fetched_bytes(proxy, since) == 0


def test_what_is_read_often_is_brought_after_all(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    brought: list[str] = []
    monkeypatch.setattr("lithify.files.footer_cache.bring_soon", lambda wanted: brought.extend(p for p, _ in wanted))
    table = lake.table("shop.orders")
    (file,) = table.snapshot().base
    for key in range(2 * FAR_OPENS_MAX):
        assert table.get(key) is not None

    assert [path.rpartition("/base/")[2] for path in brought] == [file.path]


def test_blocks_of_two_objects_are_never_put_together(lake: Lake, proxy: FaultProxy) -> None:
    storage, path = BucketStorage(), BucketPath(str(lake.path)) / "some.parquet"
    storage.path_guard.trust(BucketPath(str(lake.path)))
    storage.put(path, b"a" * 3 * BLOCK)
    copies = local_files.copies()
    copies.forget(path)
    reader = BlockReader(copies, path, 3 * BLOCK)
    assert reader.read(10) == b"a" * 10
    storage.put(path, b"b" * 3 * BLOCK)
    reader.seek(BLOCK)

    with pytest.raises(Vanished):
        reader.read(10)
    assert BlockReader(copies, path, 3 * BLOCK).read() == b"b" * 3 * BLOCK


def test_it_reads_as_a_file_does(lake: Lake, folder: Path) -> None:
    storage, path = BucketStorage(), BucketPath(str(lake.path)) / "some.parquet"
    content = random.Random(1).randbytes(2 * BLOCK + 77)
    storage.put(path, content)
    local = folder / "local"
    local.write_bytes(content)
    reader, places = BlockReader(local_files.copies(), path, len(content)), random.Random(2)

    with open(local, "rb") as file:
        for _ in range(200):
            start, length = places.randrange(len(content) + 10), places.choice([0, 1, 50, BLOCK, 3 * BLOCK])
            assert reader.seek(start) == file.seek(start)
            assert reader.read(length) == file.read(length)
            assert reader.tell() == file.tell()
