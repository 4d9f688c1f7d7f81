"""Data of a lake in a bucket is read through local copies: few requests, and right answers whatever becomes of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import obstore
import pyarrow as pa
import pytest
from obstore.store import S3Store

from lithify import Corruption, Lake, Settings
from lithify.files.addresses import BucketPath
from lithify.sql import scan_memory
from support.fault_proxy import FaultProxy, Request

pytestmark = pytest.mark.bucket

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
TOTAL = "select count(*) as rows, sum(id) as total, max(v) as newest from shop.orders"
WRITES, ROWS = 6, 500


@contextlib.contextmanager
def opened(address: str, cache: Path, **settings: object) -> Iterator[Lake]:
    """As another machine would: with a cache of its own, unless it is one that was used before. Nothing is kept in
    memory in the background.
    """
    with Lake(address, settings=Settings(cache_folder=cache, cache_bytes_max=0, **settings)) as lake:
        yield lake


def rows_of(write: int) -> pa.Table:
    first = write * ROWS
    return pa.table({"id": range(first, first + ROWS), "v": [f"write {write}"] * ROWS}, SCHEMA)


@pytest.fixture
def filled(address: str, folder: Path) -> str:
    """Files in base and in changes."""
    with opened(address, folder / "writer") as lake:
        table = lake.create_table("shop.orders", SCHEMA, key="id")
        for write in range(WRITES):
            table.upsert(rows_of(write))
            if write == WRITES // 2:
                table.fold()
    return address


ANSWER = {"rows": [WRITES * ROWS], "total": [sum(range(WRITES * ROWS))], "newest": [f"write {WRITES - 1}"]}


def is_fetch(request: Request) -> bool:
    return request.kind == "GET" and ".parquet" in request.target


def copies_in(cache: Path) -> list[Path]:
    return sorted(file for file in (cache / "copies").rglob("*") if file.is_file())


def bucket_of(address: str) -> tuple[S3Store, str]:
    path = BucketPath(address)
    return S3Store(path.bucket, client_options={"allow_http": True}), path.key


# -- requests


def test_a_small_write_is_one_request_for_data_and_one_for_the_commit(
    proxy: FaultProxy, filled: str, folder: Path
) -> None:
    with opened(filled, folder / "cache") as lake:
        table = lake.table("shop.orders")
        table.upsert([{"id": 1, "v": "warm"}])
        for _ in range(3):
            with proxy.counted() as requests:
                table.upsert([{"id": 1, "v": "x"}])
            assert requests == {"PUT": 2}


def test_a_fresh_read_with_copies_at_hand_looks_at_the_two_logs_and_nothing_else(
    proxy: FaultProxy, filled: str, folder: Path
) -> None:
    with opened(filled, folder / "cache") as lake:
        assert lake.sql(TOTAL).to_pydict() == ANSWER
        lake.table("shop.orders").upsert([{"id": 0, "v": "write 0"}])
        since = len(proxy.requests)
        with proxy.counted() as requests:
            assert lake.sql(TOTAL).to_pydict() == ANSWER
        assert requests == {"GET": 2}
        assert lake.table("shop.orders").get(7) == {"id": 7, "v": "write 0"}
        assert not any(map(is_fetch, proxy.requests[since:])), "what was written here need not be fetched"


def test_a_repeated_query_on_a_snapshot_needs_no_request(proxy: FaultProxy, filled: str, folder: Path) -> None:
    with opened(filled, folder / "cache") as lake:
        table = lake.table("shop.orders")
        snapshot = table.snapshot()
        with proxy.counted() as first:
            rows = table.to_arrow(as_of=snapshot).num_rows
        with proxy.counted() as again:
            assert table.to_arrow(as_of=snapshot, where="id >= 0").num_rows == rows == WRITES * ROWS
        assert first["LIST"] <= 2
        assert not again


def test_another_machine_fetches_each_object_once(proxy: FaultProxy, filled: str, folder: Path) -> None:
    with opened(filled, folder / "cache") as lake:
        for _ in range(3):
            assert lake.table("shop.orders").to_arrow(where="id >= 0").num_rows == WRITES * ROWS
    fetched = Counter(request.target for request in proxy.requests if is_fetch(request))
    assert set(fetched.values()) == {1}
    since = len(proxy.requests)
    with opened(filled, folder / "cache") as lake:  # the copies outlive those who brought them
        assert lake.sql(TOTAL).to_pydict() == ANSWER
    assert not any(map(is_fetch, proxy.requests[since:]))


def test_a_fold_and_a_compaction_fetch_nothing_that_was_written_here(
    proxy: FaultProxy, address: str, folder: Path
) -> None:
    with opened(address, folder / "cache") as lake:
        table = lake.create_table("shop.orders", SCHEMA, key="id")
        for write in range(3):
            table.upsert(rows_of(write))
        table.fold()
        table.upsert([{"id": 3, "v": "x"}])
        table.fold()
        table.optimize(["id"])
        assert table.to_arrow().num_rows == 3 * ROWS
    assert not any(map(is_fetch, proxy.requests))


# -- copies that are gone or not right


def test_the_cache_may_be_removed_at_any_time(filled: str, folder: Path) -> None:
    cache = folder / "cache"
    with opened(filled, cache) as lake:
        table = lake.table("shop.orders")
        for turn in range(4):
            assert table.to_arrow(where=f"id >= {-turn}").num_rows == WRITES * ROWS
            assert table.get(turn * ROWS) == {"id": turn * ROWS, "v": f"write {turn}"}
            shutil.rmtree(cache, ignore_errors=True)
        table.upsert([{"id": 0, "v": "still written"}])
        assert table.get(0) == {"id": 0, "v": "still written"}
        shutil.rmtree(cache, ignore_errors=True)
        table.fold()
        assert table.get(0) == {"id": 0, "v": "still written"}


@pytest.mark.parametrize("bytes_max", [scan_memory.BUCKET_RAW_BYTES_MAX, -1], ids=["in memory", "scanned"])
def test_queries_go_on_while_their_copies_are_removed(
    filled: str, folder: Path, bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_memory, "BUCKET_RAW_BYTES_MAX", bytes_max)
    cache, ended = folder / "cache", threading.Event()

    def remove() -> None:
        while not ended.is_set():
            for copy in copies_in(cache):
                copy.unlink(missing_ok=True)

    with opened(filled, cache) as lake:
        remover = threading.Thread(target=remove)
        remover.start()
        try:
            for turn in range(20):
                found = lake.sql(f"{TOTAL} where id >= {-turn}").to_pydict()
                assert found == ANSWER
                assert lake.table("shop.orders").get(turn)["id"] == turn
        finally:
            ended.set()
            remover.join()


@pytest.mark.parametrize("bytes_max", [scan_memory.BUCKET_RAW_BYTES_MAX, -1], ids=["in memory", "scanned"])
def test_a_table_larger_than_the_cache_is_read_whole(
    filled: str, folder: Path, bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_memory, "BUCKET_RAW_BYTES_MAX", bytes_max)
    total = sum(size for size in (file.stat().st_size for file in copies_in(folder / "writer")))
    with opened(filled, folder / "cache", cache_gb_max=total / 4 / 10**9) as lake:
        for turn in range(3):
            assert lake.sql(f"{TOTAL} where id >= {-turn}").to_pydict() == ANSWER
            assert lake.table("shop.orders").to_arrow(where=f"id >= {-turn}").num_rows == WRITES * ROWS
    assert sum(file.stat().st_size for file in copies_in(folder / "cache")) <= total / 4


@pytest.mark.parametrize("query", [TOTAL, f"{TOTAL} where v <> 'nobody'"], ids=["all", "some"])
@pytest.mark.parametrize("damage", ["flipped", "truncated", "empty", "other"])
def test_a_damaged_copy_is_fetched_again(filled: str, folder: Path, query: str, damage: str) -> None:
    cache = folder / "cache"
    with opened(filled, cache) as lake:
        assert lake.sql(query).to_pydict() == ANSWER
    for copy in copies_in(cache):
        data, times = bytearray(copy.read_bytes()), copy.stat()
        if damage == "flipped":
            data[4 : len(data) // 2] = bytes(byte ^ 0xFF for byte in data[4 : len(data) // 2])
        else:
            data = {"truncated": data[:-100], "empty": bytearray(), "other": bytearray(len(data))}[damage]
        copy.write_bytes(data)
        os.utime(copy, ns=(times.st_atime_ns, times.st_mtime_ns))
    with opened(filled, cache) as lake:
        assert lake.sql(query).to_pydict() == ANSWER


def test_a_fold_replaces_damaged_copies(filled: str, folder: Path) -> None:
    cache = folder / "cache"
    with opened(filled, cache) as lake:
        assert lake.sql(TOTAL).to_pydict() == ANSWER
    for copy in copies_in(cache):
        copy.write_bytes(bytes(copy.stat().st_size))
    with opened(filled, cache) as lake:
        report = lake.table("shop.orders").fold()
        assert (report.problem, report.final_rows) == ("", WRITES * ROWS)
        assert lake.sql(TOTAL).to_pydict() == ANSWER


def fold_all(lake: Lake) -> None:
    """What a fold had to stop at is told, or raised where it could do nothing before that."""
    if problem := lake.table("shop.orders").fold().problem:
        raise Corruption(problem)


@pytest.mark.parametrize("read", ["sql", "get", "fold"])
def test_an_object_that_is_gone_or_another_is_named(filled: str, folder: Path, read: str) -> None:
    bucket, key = bucket_of(filled)
    with opened(filled, folder / "cache") as lake:
        changes = f"{key}/shop/orders/changes/{lake.table('shop.orders').snapshot().changes[-1].path}"
    original = bytes(obstore.get(bucket, changes).bytes())

    reads = {
        "sql": lambda lake: lake.sql(TOTAL),
        "get": lambda lake: lake.table("shop.orders").get(WRITES * ROWS - 1),
        "fold": fold_all,
    }

    def fail(cache: Path, words: str) -> None:
        with opened(filled, cache) as lake, pytest.raises(Corruption, match=f"{changes} {words}"):
            reads[read](lake)

    obstore.delete(bucket, changes)
    fail(folder / "gone", "is missing")
    obstore.put(bucket, changes, b"something else")
    fail(folder / "replaced", f".*has 14 bytes instead of {len(original)}")
    obstore.put(bucket, changes, bytes(len(original)))
    fail(folder / "nonsense", "cannot be read as Parquet")
    obstore.put(bucket, changes, original)
    with opened(filled, folder / "restored") as lake:
        assert lake.sql(TOTAL).to_pydict() == ANSWER
