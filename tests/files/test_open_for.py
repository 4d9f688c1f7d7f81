"""Of a far object, a reader of little brings little, and a reader of most of it brings a copy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify.files.addresses import BucketPath
from lithify.files.bucket.storage import BucketStorage
from lithify.files.footer_cache import open_for
from lithify.files.local_files import NEAR_BYTES_MAX, at_hand, copies

pytestmark = pytest.mark.bucket

ROWS, GROUPS = 800_000, 4


@pytest.fixture
def rows() -> pa.Table:
    noise = np.random.default_rng(7)
    return pa.table({name: noise.integers(0, 1 << 62, ROWS) for name in ("a", "b", "c", "d")})


@pytest.fixture
def far(address: str, rows: pa.Table, tmp_path: Path) -> tuple[BucketPath, int]:
    """An object of which no copy is here, and its size."""
    file = tmp_path / "file.parquet"
    pq.write_table(rows, file, row_group_size=ROWS // GROUPS, write_page_checksum=True)
    path, store = BucketPath(address) / "far.parquet", BucketStorage()
    store.put(path.with_name("other"), file.read_bytes())  # of data files, a copy is kept
    store.copy(path.with_name("other"), path)
    assert file.stat().st_size > NEAR_BYTES_MAX
    assert at_hand(path) is None
    return path, file.stat().st_size


def test_of_one_column_of_one_row_group_blocks_are_brought(far: tuple[BucketPath, int], rows: pa.Table) -> None:
    path, size_bytes = far
    found = open_for(path, size_bytes, ["b"], lambda _: [2]).read_row_group(2, columns=["b"])
    assert found.equals(rows.select(["b"]).slice(2 * ROWS // GROUPS, ROWS // GROUPS))
    assert at_hand(path) is None
    assert copies().used_bytes() < size_bytes / 2


def test_of_most_of_it_a_copy_is_made(far: tuple[BucketPath, int], rows: pa.Table) -> None:
    path, size_bytes = far
    assert open_for(path, size_bytes, ["a", "b", "c"], range).read().equals(rows)
    assert at_hand(path) is not None
