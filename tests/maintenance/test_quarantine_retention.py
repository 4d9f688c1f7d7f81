"""Records that were set aside stay until they are purged, or as long as the table says."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Lake

SCHEMA = pa.schema([("id", pa.int64())])
HOUR_S = 3_600


def set_aside(lake: Lake, folder: Path, hours: float) -> str:
    """So long ago."""
    (folder / "in.json").write_text('{"id": "x"}\n{"id": 1}\n')
    table = lake.table("s.t")
    before = {each.name for each in table.quarantine()}
    lake.ingest("s.t", str(folder / "in.json"), on_bad_record="quarantine")
    (name,) = {each.name for each in table.quarantine()} - before
    for part in Path(lake.path, "s/t/quarantine", name).iterdir():
        os.utime(part, (time.time() - hours * HOUR_S,) * 2)
    return name


@pytest.mark.parametrize("by_lake", [True, False])
def test_what_is_older_than_the_table_keeps_it_goes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, by_lake: bool
) -> None:
    if by_lake:
        monkeypatch.setenv("LITHIFY_QUARANTINE_RETAIN_HOURS", "24")
    with Lake(folder / "lake") as lake:
        options = {} if by_lake else {"quarantine_retain_hours": 24}
        lake.create_table("s.t", SCHEMA, key="id", options=options)
        old, young = set_aside(lake, folder, 25), set_aside(lake, folder, 23)
        assert {each.name for each in lake.table("s.t").quarantine()} == {old, young}
        lake.maintain()
        assert [each.name for each in lake.table("s.t").quarantine()] == [young]


def test_by_default_nothing_goes(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        lake.create_table("s.t", SCHEMA, key="id")
        old = set_aside(lake, folder, 100_000)
        lake.maintain()
        assert [each.name for each in lake.table("s.t").quarantine()] == [old]
