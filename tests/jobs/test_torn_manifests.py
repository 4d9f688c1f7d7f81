"""A job that died within the first write of its manifest leaves nothing that can be read, and that goes in time."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Lake
from lithify.jobs.recovery import TORN_MS


@pytest.mark.parametrize("content", [b"", b'{"id": "5'], ids=["empty", "cut off"])
def test_a_torn_manifest_goes_when_no_write_can_be_under_way(folder: Path, content: bytes) -> None:
    with Lake(folder / "lake", create=True) as lake:
        table = lake.create_table("a.t", pa.schema([("id", pa.int64())]), key="id")
        torn = Path(lake.path) / "_lithify" / "jobs" / ".5f.json.1.1"
        torn.parent.mkdir(exist_ok=True)
        torn.write_bytes(content)
        table.upsert([{"id": 1}])
        table.fold()
        lake.maintain()
        assert torn.exists(), "it may be a write that is under way"

        before_s = torn.stat().st_mtime - TORN_MS / 1000 - 1
        os.utime(torn, (before_s, before_s))
        table.upsert([{"id": 2}])
        table.fold()
        lake.maintain()

        assert not torn.exists()
        assert table.count() == 2
