"""`Table.partitions`, and that neither it nor `describe` opens a data file."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lithify import Lake, Table
from lithify.cli.tables import describe_document
from lithify.core.results import PartitionStats
from lithify.core.schema import define
from lithify.core.snapshot import Bounds, DataFile
from lithify.index.partitions import FileFacts, partitions_of

EVENTS = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("country", pa.string())])


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as lake:
        yield lake


def moment(day: int, hour: int = 0) -> dt.datetime:
    return dt.datetime(2026, 11, day, hour, tzinfo=dt.UTC)


def event(number: int, at: dt.datetime | None, country: str | None = "DE") -> dict[str, Any]:
    return {"id": number, "at": at, "country": country}


@pytest.fixture
def events(lake: Lake) -> Table:
    """Two days, two countries, in two folds."""
    table = lake.create_table("log.events", EVENTS, key="id", time="at", partition_by="country")
    table.upsert([event(1, moment(1, 3)), event(2, moment(1, 5)), event(3, moment(2, 1), "FR")])
    table.fold()
    table.upsert([event(4, moment(1, 9)), event(5, None), event(6, moment(2, 7), None)])
    table.fold()
    return table


def make_unreadable(folder: Path) -> None:
    """Every data file; checkpoints are the log's own."""
    files = [path for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts]
    assert files
    for path in files:
        path.write_bytes(b"\0" * path.stat().st_size)


def test_each_partition_with_its_files_rows_and_times(events: Table) -> None:
    found = {tuple(part.values.values()): part for part in events.partitions()}

    first = found[dt.date(2026, 11, 1), "DE"]
    assert (first.values, first.rows) == ({"_day": dt.date(2026, 11, 1), "country": "DE"}, 3)
    assert (first.time_min, first.time_max) == (moment(1, 3), moment(1, 9))
    assert sum(part.files for part in found.values()) == len(events.snapshot().base)
    assert sum(part.size_bytes for part in found.values()) == events.stats().base_bytes
    assert sum(part.rows or 0 for part in found.values()) == 6


def test_partitions_stand_in_the_order_of_their_values_nulls_last(events: Table) -> None:
    values = [tuple(part.values.values()) for part in events.partitions()]

    first, second = dt.date(2026, 11, 1), dt.date(2026, 11, 2)
    assert values == [(first, "DE"), (second, "FR"), (second, None), (None, "DE")]


def test_a_partition_without_any_time_has_no_bounds(events: Table) -> None:
    last = events.partitions()[-1]

    assert (last.rows, last.time_min, last.time_max) == (1, None, None)


def test_pending_changes_are_in_no_partition(events: Table) -> None:
    before = events.partitions()
    events.upsert([event(7, moment(3))])

    assert events.partitions() == before


def test_a_table_with_no_partition_columns_is_one_partition(lake: Lake) -> None:
    table = lake.create_table("a.t", pa.schema([("id", pa.int64())]), key="id")
    assert table.partitions() == []
    table.upsert([{"id": 1}, {"id": 2}])
    table.fold()

    (found,) = table.partitions()

    assert (found.values, found.files, found.rows, found.time_min) == ({}, 1, 2, None)


def test_partitions_of_the_past(events: Table) -> None:
    assert [part.rows for part in events.partitions(as_of=1)] == [2, 1]


def test_neither_partitions_nor_describe_opens_a_data_file(lake: Lake, events: Table) -> None:
    events.upsert([event(7, moment(3))])
    parts, described = events.partitions(), describe_document(lake, "log.events")
    make_unreadable(lake.path)

    with Lake(lake.path) as again:
        assert again.table("log.events").partitions() == parts
        assert describe_document(again, "log.events") == described


def test_rows_that_the_log_does_not_tell_are_told_by_the_sidecar(lake: Lake, folder: Path) -> None:
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "c": ["x", "x", "y"]})
    write_deltalake(folder / "plain", rows, partition_by=["c"], configuration={"delta.dataSkippingNumIndexedCols": "0"})
    _forget_statistics(folder / "plain")
    table = lake.adopt("a.t", folder / "plain", key="id", verify=False)
    assert {file.rows for file in table.snapshot().base} == {-1}
    table.build_index()
    make_unreadable(folder)

    assert [(part.values, part.rows) for part in table.partitions()] == [({"c": "x"}, 2), ({"c": "y"}, 1)]


def test_times_that_another_writer_cut_in_the_log_are_told_by_the_sidecar(lake: Lake) -> None:
    table = lake.create_table("log.events", EVENTS, key="id", time="at")
    times = [moment(1).replace(microsecond=1), moment(1, 5).replace(microsecond=123_456), None]
    rows = pa.table({"id": [1, 2, 3], "at": times, "country": ["DE"] * 3}, EVENTS)
    days = pa.array([dt.date(2026, 11, 1)] * 3)
    write_deltalake(table.base_path, rows.append_column("_day", days), mode="append")
    (before,) = table.partitions()
    table.build_index()
    make_unreadable(lake.path)

    (after,) = table.partitions()

    assert (before.rows, before.time_min, before.time_max) == (3, None, None)
    assert (after.rows, after.time_min, after.time_max) == (3, times[0], times[1])


def test_a_damaged_sidecar_leaves_unknown_what_only_it_could_tell(lake: Lake) -> None:
    table = lake.create_table("log.events", EVENTS, key="id", time="at")
    rows = pa.table({"id": [1], "at": [moment(1)], "country": ["DE"]}, EVENTS)
    write_deltalake(table.base_path, rows.append_column("_day", pa.array([dt.date(2026, 11, 1)])), mode="append")
    table.build_index()
    (sidecar,) = lake.path.rglob("base.pm")
    sidecar.write_bytes(b"\0" * sidecar.stat().st_size)

    with Lake(lake.path) as again:
        (found,) = again.table("log.events").partitions()

    assert (found.rows, found.time_min) == (1, None)


def _forget_statistics(path: Path) -> None:
    (commit,) = (path / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    commit.write_text("\n".join(json.dumps(action) for action in actions) + "\n")


class TestUnknownFacts:
    schema = define(EVENTS, "id", time="at")

    def partition(self, *files: DataFile, known: dict[str, FileFacts] | None = None) -> PartitionStats:
        (found,) = partitions_of(files, self.schema, lambda asked: known or {})
        return found

    def file(self, path: str, rows: int = 5, low: Any = None, high: Any = None, nulls: int | None = 0) -> DataFile:
        return DataFile(path, path, 10, rows, {"at": Bounds(low, high, nulls)}, {"_day": dt.date(2026, 11, 1)})

    def test_one_file_of_unknown_rows_leaves_the_sum_unknown(self) -> None:
        found = self.partition(self.file("a"), self.file("b", rows=-1))

        assert (found.rows, found.size_bytes, found.files) == (None, 20, 2)

    def test_one_file_of_unknown_times_leaves_the_bounds_unknown(self) -> None:
        ours = "fold-" + "0" * 32 + "/part.parquet"
        found = self.partition(self.file(ours, low=moment(1), high=moment(1, 5)), self.file("b"))

        assert (found.time_min, found.time_max) == (None, None)

    def test_times_that_another_writer_cut_to_milliseconds_are_not_shown(self) -> None:
        cut = self.file("foreign.parquet", low=moment(1), high=moment(1, 5))

        assert self.partition(cut).time_max is None
        exact = {"foreign.parquet": FileFacts(5, moment(1), moment(1, 4))}
        assert self.partition(cut, known=exact).time_max == moment(1, 4)

    def test_a_file_whose_times_are_all_null_does_not_hide_those_of_others(self) -> None:
        ours = "fold-" + "0" * 32 + "/part.parquet"
        found = self.partition(self.file(ours, low=moment(1), high=moment(1, 5)), self.file("b", nulls=5))

        assert (found.time_min, found.time_max) == (moment(1), moment(1, 5))
