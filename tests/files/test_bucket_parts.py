"""Parts of a table that are written into a bucket: local until they are whole, and seen as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lithify.errors import Unavailable
from lithify.files.addresses import BucketPath
from lithify.files.local_files import at_hand, copies, keep_copies_in
from lithify.files.open_parquet import open_file, read_footer
from lithify.files.open_storage import storage_of
from lithify.files.parquet import Layout, PartWriter, part_path
from support.fault_proxy import FaultProxy

pytestmark = pytest.mark.bucket

COLUMNS = pa.schema([("id", pa.int64()), ("noise", pa.binary(16))])
LAYOUT = Layout(COLUMNS)


def rows(count: int) -> pa.Table:
    noise = np.random.default_rng(7).bytes(16 * count)
    return pa.table(
        [
            pa.array(range(count)),
            pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), count, [None, pa.py_buffer(noise)]),
        ],
        COLUMNS,
    )


@pytest.fixture
def root(address: str) -> str:
    return f"{address}/shop/orders/base"


@pytest.fixture(autouse=True)
def no_drafts(s3: object) -> Iterator[None]:
    yield
    assert not list(copies().folder.rglob("*.draft"))


def listed(root: str) -> list[str]:
    return list(storage_of(root).below(BucketPath(root)))


def elsewhere(folder: Path) -> None:
    """Nothing that was written here is at hand any more."""
    keep_copies_in(folder / "elsewhere")


@pytest.mark.parametrize("count", [10, 1_500_000], ids=["one request", "in parts"])
def test_a_part_appears_when_it_is_whole(root: str, folder: Path, count: int) -> None:
    writer = PartWriter(part_path(root, "fold-1", "part-0.parquet"), COLUMNS, LAYOUT)
    writer.write(rows(count))
    assert listed(root) == []

    written = writer.close(BucketPath(root))

    assert listed(root) == [written.path]
    assert (written.size_bytes > 2**24) == (count > 10)
    path = BucketPath(root) / written.path
    assert at_hand(path, written.size_bytes) is not None, "it need not be fetched"
    elsewhere(folder)
    assert at_hand(path) is None
    assert read_footer(path, written.size_bytes) == written.footer
    assert open_file(path, written.size_bytes).read() == rows(count)


def test_an_abandoned_part_leaves_nothing(root: str) -> None:
    writer = PartWriter(part_path(root, "fold-1", "part-0.parquet"), COLUMNS, LAYOUT)
    writer.write(rows(10))
    writer.abandon()
    assert listed(root) == []


def test_attempts_at_the_same_part_do_not_meet(root: str) -> None:
    writers = [PartWriter(part_path(root, "fold-1", "part-0.parquet"), COLUMNS, LAYOUT) for _ in range(2)]
    for writer, count in zip(writers, (10, 20), strict=True):
        writer.write(rows(count))
    written = [writer.close(BucketPath(root)) for writer in writers]
    assert sorted(file.path for file in written) == listed(root)
    assert [open_file(BucketPath(root) / file.path, file.size_bytes).metadata.num_rows for file in written] == [10, 20]


@pytest.mark.parametrize("count", [10, 1_500_000], ids=["one request", "in parts"])
def test_a_part_that_cannot_be_uploaded_is_told_and_leaves_nothing(proxy: FaultProxy, root: str, count: int) -> None:
    writer = PartWriter(part_path(root, "fold-1", "part-0.parquet"), COLUMNS, LAYOUT)
    writer.write(rows(count))
    proxy.fail("403", on="PUT" if count == 10 else "POST", at="part-0", times=None)
    with pytest.raises(Unavailable, match="part-0"):
        writer.close(BucketPath(root))
    writer.abandon()
    proxy.heal()
    assert listed(root) == []


@pytest.mark.parametrize("fault", ["503", "drop before", "drop after", "truncate"])
def test_a_part_is_fetched_through_a_bad_line(proxy: FaultProxy, root: str, folder: Path, fault: str) -> None:
    writer = PartWriter(part_path(root, "fold-1", "part-0.parquet"), COLUMNS, LAYOUT)
    writer.write(rows(100_000))
    written = writer.close(BucketPath(root))
    elsewhere(folder)
    proxy.fail(fault, on="GET", at="part-0", times=2)
    assert open_file(BucketPath(root) / written.path, written.size_bytes).read() == rows(100_000)


def test_a_copy_that_came_in_part_is_never_used(proxy: FaultProxy, root: str, folder: Path) -> None:
    writer = PartWriter(part_path(root, "fold-1", "part-0.parquet"), COLUMNS, LAYOUT)
    writer.write(rows(100_000))
    written = writer.close(BucketPath(root))
    elsewhere(folder)
    proxy.fail("truncate", on="GET", at="part-0", times=None)
    path = BucketPath(root) / written.path
    with pytest.raises(Unavailable, match="part-0"):
        open_file(path, written.size_bytes)
    assert at_hand(path) is None
    assert not [file for file in (folder / "elsewhere").rglob("*") if file.is_file() and os.stat(file).st_size]
    proxy.heal()
    assert open_file(path, written.size_bytes).read() == rows(100_000)
