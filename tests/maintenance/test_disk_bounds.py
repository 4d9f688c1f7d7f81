"""Disk is bounded without anybody asking: tables are vacuumed by maintenance, and what the past takes is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Lake, NotFound, Settings, Table
from lithify.maintenance.table_maintenance import TableMaintenance
from lithify.read.reader import Reader
from support.clocks import HOUR_MS, Clock, lake_with
from support.folders import memory_folder
from support.waiting import eventually

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
SETTINGS = Settings(fold_files_max=1, minor_files_min=2, cache_bytes_max=0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lake(clock: Clock) -> Iterator[Lake]:
    with memory_folder() as folder, lake_with(clock, folder / "lake", SETTINGS) as lake:
        lake.create_table("a.t", SCHEMA, key="id")
        yield lake


def written(table: Table, times: int = 3) -> None:
    for number in range(times):
        table.upsert([{"id": 1, "v": f"v{number}"}])
        table.fold()


def parquet_files(lake: Lake) -> set[Path]:
    return set((lake.path / "a" / "t").glob("**/*.parquet")) - set((lake.path / "a" / "t").glob("**/_delta_log/*"))


def kinds(lake: Lake) -> list[str]:
    return [job.kind for job in lake.maintain().jobs]


def test_maintenance_vacuums_by_itself_once_in_a_while(lake: Lake, clock: Clock) -> None:
    table = lake.table("a.t")
    written(table)
    assert kinds(lake) == []
    before = parquet_files(lake)
    clock.jump(hours=2)
    assert kinds(lake) == ["vacuum"]
    assert parquet_files(lake) == before, "a week is kept where that is little"
    assert kinds(lake) == []
    clock.jump(hours=200)
    assert kinds(lake) == ["vacuum"]
    assert len(parquet_files(lake)) == 1
    clock.jump(hours=200)
    assert kinds(lake) == [], "nothing has changed since"
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": "v2"}]


def test_maintenance_in_the_background_vacuums_too(lake: Lake, clock: Clock) -> None:
    written(lake.table("a.t"))
    lake.maintain()
    clock.jump(hours=400)
    with lake_with(clock, lake.path, SETTINGS) as other:
        other.start_maintenance(every_s=0.05)
        eventually(lambda: len(parquet_files(lake)) == 1, "the vacuum")


def test_it_can_be_turned_off(lake: Lake, clock: Clock) -> None:
    written(lake.table("a.t"))
    lake.maintain()
    clock.jump(hours=400)
    off = lake._runtime.settings.model_copy(update={"vacuum_interval_s": 0})
    with lake_with(clock, lake.path, off) as other:
        assert kinds(other) == []


@pytest.mark.parametrize(
    "options",
    [{"vacuum_retain_versions": 1}, {"vacuum_retain_size_multiple": 0, "vacuum_retain_bytes_min": 0}],
    ids=["versions", "size"],
)
def test_what_is_too_much_goes_after_the_floor(lake: Lake, clock: Clock, options: dict[str, int]) -> None:
    table = lake.table("a.t")
    table.set_options(options)
    written(table, times=6)
    lake.maintain()
    before = parquet_files(lake)
    clock.jump(hours=1.5)
    assert kinds(lake) == ["vacuum"]
    assert len(parquet_files(lake)) <= len(before) / 2, "but for those of the same millisecond as the newest"
    with pytest.raises(NotFound, match="vacuum"):
        table.to_arrow(as_of=1)
    assert table.to_arrow().num_rows == 1


def test_a_higher_floor_keeps_it(lake: Lake, clock: Clock) -> None:
    table = lake.table("a.t")
    table.set_options({"vacuum_retain_versions": 1, "vacuum_retain_hours_min": 48})
    written(table)
    lake.maintain()
    clock.jump(hours=24)
    assert kinds(lake) == ["vacuum"]
    assert table.to_arrow(as_of=1).to_pylist() == [{"id": 1, "v": "v0"}]


def test_a_consumer_of_the_feed_may_be_away_for_as_long_as_the_floor(lake: Lake, clock: Clock) -> None:
    """As docs/spark.md says, and no longer: it is told to begin anew, not given less."""
    table = lake.table("a.t")
    table.set_options({"vacuum_retain_versions": 1, "vacuum_retain_hours_min": 72})
    written(table, 1)
    position = table.position()
    written(table)
    lake.maintain()
    clock.jump(hours=71)
    assert kinds(lake) == ["vacuum"]
    assert table.feed(position).column("v").to_pylist() == ["v0", "v1", "v2"]
    clock.jump(hours=2)
    assert kinds(lake) == ["vacuum"]
    with pytest.raises(NotFound, match="vacuum"):
        table.feed(position)


def test_a_pinned_snapshot_is_spared_by_every_limit(lake: Lake, clock: Clock) -> None:
    table = lake.table("a.t")
    table.set_options({"vacuum_retain_versions": 1})
    written(table, 1)
    with table.pin() as pinned:
        written(table)
        lake.maintain()
        clock.jump(hours=3)
        assert kinds(lake) == ["vacuum"]
        assert table.to_arrow(as_of=pinned).to_pylist() == [{"id": 1, "v": "v0"}]


def test_what_the_past_takes_is_told_from_the_commits(lake: Lake, clock: Clock) -> None:
    table = lake.table("a.t")
    written(table)
    told = lake.table_maintenance("a.t")
    live = {file.path for file in table.snapshot().base}
    dead = [file for file in parquet_files(lake) if not any(str(file).endswith(path) for path in live)]
    assert told["removed_bytes"] > 0
    assert told["removed_files"] >= len(dead)
    assert told["reclaimable_bytes"] == 0
    assert told["write_amplification"] > 0
    clock.jump(hours=200)
    assert lake.table_maintenance("a.t")["reclaimable_bytes"] == lake.table_maintenance("a.t")["removed_bytes"]
    table.vacuum(1, dry_run=False)
    assert lake.table_maintenance("a.t")["removed_bytes"] == 0
    with Lake(lake.path) as elsewhere:
        assert elsewhere.table_maintenance("a.t")["removed_bytes"] == 0


def test_a_vacuum_of_another_process_is_seen(lake: Lake, clock: Clock) -> None:
    table = lake.table("a.t")
    written(table)
    assert lake.table_maintenance("a.t")["removed_bytes"] > 0
    with lake_with(Clock(200 * HOUR_MS), lake.path, SETTINGS) as other:
        assert other.table("a.t").vacuum(1, dry_run=False).files > 0
    assert lake.table_maintenance("a.t")["removed_bytes"] == 0


def test_metrics_have_it_without_a_look_at_any_log(lake: Lake) -> None:
    from lithify.http.metrics import Metrics

    table, told = lake.table("a.t"), Metrics(lake).registry.get_sample_value
    written(table)
    assert told("lithify_removed_bytes") == 0
    TableMaintenance(table._internals.handles, Reader(table._internals.handles)).trim()
    assert (told("lithify_removed_bytes") or 0) > 0
    assert (told("lithify_write_amplification") or 0) > 0
