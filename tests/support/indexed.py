"""A table of several files with several row groups each, and what a pruned read of it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lithify import Lake, Settings, Table
from lithify.core.predicates import Compare, IsNull, Predicate, Prefix, both
from lithify.core.read_plan import ReadPlan
from lithify.files.local import LocalStorage
from lithify.index.table_index import TableIndex

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string()), ("x", pa.float64())])
SETTINGS = Settings(actor="index", row_group_rows=1024, pack_files_min=2)
FILE_ROWS = 2_500
FILES = 4

Row = Mapping[str, Any]
# Each with what it means, row by row.
CONDITIONS: tuple[tuple[Predicate, Callable[[Row], bool]], ...] = (
    (Compare("id", "=", 1_234), lambda row: row["id"] == 1_234),
    (Compare("id", "<", 1_100), lambda row: row["id"] < 1_100),
    (both([Compare("id", ">", 2_600), Compare("id", "<=", 4_000)]), lambda row: 2_600 < row["id"] <= 4_000),
    (Compare("x", ">", 0.9 * FILES), lambda row: row["x"] is not None and row["x"] > 0.9 * FILES),
    (Prefix("v", "changed"), lambda row: row["v"].startswith("changed")),
    (IsNull("x"), lambda row: row["x"] is None),
)


def rows(first: int, count: int, v: str = "row") -> pa.Table:
    ids = range(first, first + count)
    values = {
        "id": ids,
        "v": [f"{v} {i:06d}" for i in ids],
        "x": [None if i % 997 == 5 else i / FILE_ROWS for i in ids],
    }
    return pa.table(values, schema=COLUMNS)


def create(lake: Lake, name: str = "a.t", files: int = FILES, **options: Any) -> Table:
    """Ids from 0 on, in files that folds have linked."""
    table = lake.create_table(name, COLUMNS, key="id", **options)
    for number in range(files):
        table.upsert(rows(number * FILE_ROWS, FILE_ROWS))
        table.fold()
    return table


def index_of(table: Table) -> TableIndex:
    return table._internals.handles.base_index


def read(plan: ReadPlan) -> list[dict[str, Any]]:
    """Rows of the row groups that a plan names, merged as the plan says."""
    assert plan.overlay is not None
    key = plan.by
    hidden = {tuple(row.values()) for row in plan.overlay.hidden.select(list(key)).to_pylist()} if key else set()
    found = plan.overlay.rows.to_pylist()
    for sources, merged in ((plan.clean, False), (plan.touched, True)):
        for source in sources:
            file = pq.ParquetFile(source.path)
            groups = range(file.num_row_groups) if source.groups is None else source.groups
            for row in file.read_row_groups(list(groups)).to_pylist():
                whole = {**row, **dict(source.constants)}
                if not (merged and tuple(whole[name] for name in key) in hidden):
                    found.append(whole)
    return found


def wrong_answers(table: Table, expected: Iterable[Row], as_of: int | None = None) -> list[str]:
    """Conditions that a pruned read answers otherwise than these rows do."""
    expected, planned = list(expected), table._internals.opened.planned(as_of)
    wrong = []
    for predicate, holds in CONDITIONS:
        left = [row for row in read(planned.plan(predicate)) if holds(row)]
        if _sorted(left) != _sorted(row for row in expected if holds(row)):
            wrong.append(str(predicate))
    if as_of is None:
        for row in [*expected[:: max(1, len(expected) // 7)], {"id": -1}]:
            if table.get(row["id"]) != (row if row["id"] >= 0 else None):
                wrong.append(f"get {row['id']}")
    return wrong


def _sorted(found: Iterable[Row]) -> list[Row]:
    return sorted(found, key=lambda row: row["id"])


def change_and_fold(store: LocalStorage, path: str) -> None:
    """In a child: two folds, one of which rewrites a file, and a compaction."""
    with Lake(path, settings=SETTINGS, store=store) as lake:
        table = lake.table("a.t")
        table.upsert(rows(10, 20, v="changed"))
        table.fold()
        table.upsert(rows(FILES * FILE_ROWS, 1_500))
        table.fold()
        table.compact()


def commit_often(path: str, times: int) -> None:
    """In a child: one file per fold, each above the others."""
    with Lake(path, settings=SETTINGS) as lake:
        table = lake.table("a.t")
        for number in range(times):
            table.upsert(rows((FILES + number) * FILE_ROWS, FILE_ROWS))
            table.fold()


def index_path(lake: Path) -> Path:
    return lake / "a" / "t" / "index" / "base.pm"
