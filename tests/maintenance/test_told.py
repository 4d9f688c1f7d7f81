"""What writes, folds and compactions say of themselves: log lines, counters, reports, candidates."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Lake, Settings, Table
from lithify.jobs import jobs, recovery
from lithify.lake.maintenance import maintenance_of
from lithify.maintenance.reports import job_totals
from support.untrusted import DEAD

SETTINGS = Settings(pack_files_min=2, fold_files_max=1_000, minor_files_min=3, actor="test")


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake", settings=SETTINGS) as lake:
        yield lake


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.create_table("shop.orders", pa.schema({"id": pa.int64(), "v": pa.string()}), key="id")


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Events with their facts, in order."""
    found: list[tuple[str, dict[str, Any]]] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if event := getattr(record, "lithify_event", None):
                found.append((event, record.lithify_facts))

    logger, handler = logging.getLogger("lithify"), Handler()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(before)


def _named(told: list[tuple[str, dict[str, Any]]], event: str) -> list[dict[str, Any]]:
    return [facts for name, facts in told if name == event]


def _counted(lake: Lake, name: str) -> dict[str, float]:
    families = {family.name: family for family in lake._runtime.counters.registry.collect()}
    return {s.labels["tier"]: s.value for s in families[name].samples if s.name.endswith("_total") and s.value}


def _file(table: Table, start: int) -> None:
    """One more file of base, out of reach of the others."""
    table.upsert([{"id": start + n, "v": "secret"} for n in range(50)])
    table.fold()


def test_every_write_says_what_it_wrote(table: Table, told: list[tuple[str, dict[str, Any]]]) -> None:
    table.upsert([{"id": 1, "v": "secret"}, {"id": 2, "v": "secret"}])
    table.delete([1])
    first, second = _named(told, "write done")
    assert (first["table"], first["seq"], first["operation"]) == ("shop.orders", 1, "upsert")
    assert (first["writes"], first["upserted"], first["deleted"]) == (1, 2, 0)
    assert first["bytes"] > 0
    assert (second["seq"], second["operation"], second["deleted"]) == (2, "delete", 1)
    assert "secret" not in str(told)


def test_a_fold_says_what_it_merged(table: Table, told: list[tuple[str, dict[str, Any]]]) -> None:
    _file(table, 0)
    table.upsert([{"id": 1, "v": "new"}])
    table.delete([2, 3])
    table.delete([999])
    told.clear()
    report = table.fold()
    assert (report.change_files, report.tombstones, report.deleted, report.updated) == (3, 3, 2, 1)
    (line,) = _named(told, "fold done")
    assert (line["table"], line["change_files"], line["tombstones"], line["rows"]) == ("shop.orders", 3, 3, 4)
    assert line["bytes_out"] == report.bytes_written
    assert table.fold().tombstones == 0


def test_a_fold_that_links_merges_change_files_without_tombstones(table: Table) -> None:
    table.append([{"id": n, "v": "x"} for n in range(30_000)])
    report = table.fold()
    assert (report.engine, report.change_files, report.tombstones) == ("link", 1, 0)


def test_compactions_count_what_they_gained_by_tier(
    lake: Lake, table: Table, told: list[tuple[str, dict[str, Any]]]
) -> None:
    for number in range(4):
        _file(table, number * 1_000)
    before = table.stats()
    (report,) = table.compact()
    assert _counted(lake, "lithify_compacted_files") == {"pack": 4}
    assert _counted(lake, "lithify_compaction_saved_bytes") == {"pack": before.base_bytes - table.stats().base_bytes}
    (line,) = _named(told, "pack done")
    assert (line["files_in"], line["files_out"], line["rows"]) == (4, 1, report.rows)
    totals = job_totals(lake.ended_jobs())
    assert totals["pack"]["done"] == 1
    assert (totals["pack"]["files_in"], totals["pack"]["files_out"]) == (4, 1)
    assert totals["pack"]["bytes_saved"] == before.base_bytes - table.stats().base_bytes
    assert totals["fold"]["done"] == 4


def test_jobs_of_processes_that_are_gone_are_counted(lake: Lake, table: Table) -> None:
    from dataclasses import replace

    runtime = lake._runtime
    gone = replace(runtime.owner, pid=DEAD["pid"], started=DEAD["started"])
    for kind in ("fold", "hourly", "hourly"):
        job = jobs.begin(replace(runtime, owner=gone), "shop.orders", kind, "base")
        jobs._under_way.discard(job.id)
    assert len(recovery.recover(runtime)) == 3
    assert _counted(lake, "lithify_jobs_recovered") == {"fold": 1, "hourly": 2}
    assert job_totals(lake.ended_jobs())["hourly"]["recovered"] == 2


def test_candidates_name_their_files_and_batches(lake: Lake) -> None:
    table = lake.create_table(
        "shop.packed", pa.schema({"id": pa.int64()}), key="id", options={"batch_files_max": 3, "pack_files_min": 2}
    )
    for number in range(6):
        table.upsert([{"id": number * 1_000 + n} for n in range(50)])
        table.fold()
    assert len(table.snapshot().base) == 6
    found, skipped = maintenance_of(lake).candidates(["shop.packed"])
    assert skipped == []
    assert [(one.tier, one.files, one.batch, one.batches) for one in found] == [("pack", 3, 1, 2), ("pack", 3, 2, 2)]
    named = [path for one in found for path in one.paths]
    assert sorted(named) == sorted(file.path for file in table.snapshot().base)
    assert {one.window_s for one in found} == {None}


def test_candidates_of_a_tier_have_its_window(lake: Lake) -> None:
    import datetime as dt

    hour = dt.datetime(2026, 1, 1, 5, tzinfo=dt.UTC)
    options = {"tiers": [{"name": "hourly", "enabled": True, "files_min": 2, "age_min_s": 1}]}
    schema = pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "UTC")})
    table = lake.create_table("shop.timed", schema, key="id", time="at", options=options)
    for number in range(3):
        table.upsert([{"id": number, "at": hour + dt.timedelta(minutes=number)}])
        table.fold()
        table.upsert([{"id": 100 + number, "at": hour + dt.timedelta(hours=5, minutes=number)}])
        table.fold()
    found, _ = maintenance_of(lake).candidates(["shop.timed"], "hourly")
    assert found
    assert {one.window_s for one in found} == {3_600.0}
    assert all(one.paths and one.batch <= one.batches for one in found)
