"""Folds that meet damaged changes, or too little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Corruption, Lake, OutOfResources, Settings, Table
from lithify.core.names import parse_table_name
from lithify.maintenance.fold import FoldJob
from lithify.read.reader import Reader
from lithify.tables.handles import Handles
from support.leftovers import unsettled

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as lake:
        yield lake


def table_with_changes(lake: Lake, changes: int = 4) -> Table:
    """Rows 0 to 9 in base, then one change of row n in commit n + 2."""
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.upsert([{"id": i, "v": "base"} for i in range(10)])
    table.fold()
    for number in range(changes):
        table.upsert([{"id": number, "v": f"change {number}"}])
    return table


def change_file(table: Table, seq: int) -> Path:
    (path,) = [file.path for file in table.snapshot().changes if file.seq == seq]
    return table.base_path.parent / "changes" / path


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [flip_a_byte, lambda path: path.write_bytes(b""), lambda path: path.unlink()])
def test_nothing_folds_past_a_damaged_change(lake: Lake, damage: Callable[[Path], Any]) -> None:
    table = table_with_changes(lake)
    damaged = change_file(table, 4)
    damage(damaged)

    report = lake.table("a.t").fold()

    assert report.seq == 3
    assert str(damaged) in report.problem
    assert [file.seq for file in table.snapshot().changes] == [4, 5]
    assert table.snapshot().watermark == 3
    assert unsettled(lake.path) == []


def test_a_damaged_oldest_change_is_named_and_nothing_is_folded(lake: Lake) -> None:
    table = table_with_changes(lake)
    damaged = change_file(table, 2)
    flip_a_byte(damaged)

    with pytest.raises(Corruption, match=damaged.name):
        table.fold()

    assert table.snapshot().watermark == 1
    assert [file.seq for file in table.snapshot().changes] == [2, 3, 4, 5]
    assert unsettled(lake.path) == []


class Small:
    """A computer that merges at most so many new rows into a file."""

    def __init__(self, rows_max: int) -> None:
        self.rows_max, self.asked = rows_max, []  # type: ignore[var-annotated]

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        self.asked.append(sum(task.rows.length for task in tasks if task.rows))
        if self.asked[-1] > self.rows_max:
            raise OutOfResources("no memory left")
        return [function(task) for task in tasks]

    def run_on_driver(self, function: Callable[[Any, Any], Any], task: Any) -> Any:
        raise AssertionError

    def close(self) -> None: ...


def folder_with(lake: Lake, compute: Small) -> FoldJob:
    runtime = replace(lake._runtime, compute=compute, settings=Settings(local_job_bytes_max=0))
    handles = Handles(runtime, parse_table_name("a.t"))
    return FoldJob(handles, Reader(handles))


def test_where_memory_runs_out_a_fold_takes_shorter_prefixes(lake: Lake) -> None:
    table = table_with_changes(lake, changes=8)
    compute = Small(rows_max=2)

    report = folder_with(lake, compute).run()

    assert compute.asked == [8, 4, 2, 2, 2, 2]
    assert (report.seq, report.updated, report.final_rows) == (9, 8, 10)
    assert {row["v"] for row in table.to_arrow().to_pylist()} == {"base", *(f"change {n}" for n in range(8))}
    assert unsettled(lake.path) == []


def test_a_single_change_that_does_not_fit_fails_with_the_reason(lake: Lake) -> None:
    table = table_with_changes(lake, changes=1)

    with pytest.raises(OutOfResources, match="no memory left"):
        folder_with(lake, Small(rows_max=0)).run()

    assert table.stats().pending_files == 1
    assert table.get(0) == {"id": 0, "v": "change 0"}
    assert unsettled(lake.path) == []


def test_a_file_that_is_in_order_only_at_first_is_rewritten(lake: Lake) -> None:
    columns = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    table = lake.create_table("a.clustered", columns, key="id", options={"row_group_rows": 1024})
    table.upsert(pa.table({"id": list(range(4096)), "v": [i % 2 for i in range(4096)]}))
    table.fold()
    table.optimize(by="v")  # even keys, then odd ones
    table.upsert([{"id": 3, "v": 9}, {"id": 5000, "v": 0}])

    report = table.fold()

    assert (report.updated, report.inserted, report.final_rows) == (1, 1, 4097)
    rows = table.to_arrow().sort_by("id")
    assert rows.column("id").to_pylist() == [*range(4096), 5000]
    assert rows.column("v").to_pylist() == [9 if i == 3 else i % 2 for i in [*range(4096), 5000]]
