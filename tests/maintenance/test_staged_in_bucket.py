"""What drivers have laid down in a bucket for their executors goes once nobody needs it any more."""

from __future__ import annotations

import os
import time

import pyarrow as pa
import pytest

from lithify import Lake
from lithify.files.addresses import path_of
from lithify.files.open_storage import storage_of
from lithify.files.staging import UNUSED_HOURS_MAX, stage_folder, still_needed
from support.s3_servers import S3Server

pytestmark = [pytest.mark.bucket, pytest.mark.parametrize("s3", ["versitygw"], indirect=True)]


def test_a_vacuum_takes_away_what_a_dead_driver_has_left(s3: S3Server, address: str) -> None:
    with Lake(address) as lake:
        table = lake.create_table("a.t", pa.schema([("id", pa.int64())]), key="id")
        table.upsert([{"id": 1}])
        index = lake._runtime.root / "a/t/index"
        for name in ("overlay-gone-7-1-0", "overlay-lives-7-1-0", "scan-gone", "overlay-young-7-1-0"):
            stage_folder(index / name, {"rows.parquet": pa.table({"id": [1]})}, 100)
        s3.put(f"{index}/overlay-cut-7-1-0/rows.parquet", b"died before it was done")
        then_s = time.time() - (UNUSED_HOURS_MAX + 1) * 3600
        for file in s3.files_of(str(index)).rglob("*"):
            if file.is_file() and "young" not in str(file):
                os.utime(file, (then_s, then_s))
        still_needed(index / "overlay-lives-7-1-0")

        table.vacuum(dry_run=True)
        assert len(lake._runtime.store.names(index)) == 5
        table.vacuum(dry_run=False)

        assert lake._runtime.store.names(index) == ["overlay-lives-7-1-0", "overlay-young-7-1-0"]
        assert table.get(1) == {"id": 1}


def test_a_driver_says_of_what_it_has_staged_that_it_is_needed(
    s3: S3Server, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lithify.spark import overlay, read

    done, folder = (
        s3.files_of(f"{address}/index/overlay-here-7-1-0/done"),
        path_of(f"{address}/index/overlay-here-7-1-0"),
    )
    storage_of(folder).path_guard.trust(path_of(address))
    staged = overlay.stage(folder, pa.table({"id": [1]}), pa.table({"id": [1]}), null_safe=False)
    monkeypatch.setitem(read._staged, folder, staged)
    os.utime(done, (1, 1))

    read.renew()

    assert time.time() - done.stat().st_mtime < 3600
