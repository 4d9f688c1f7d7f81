"""Files from before a column was added hold nulls in it: conditions on it rule them out, and nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import Lake, Table
from lithify.core.predicates import Compare
from lithify.core.read_plan import Source
from lithify.core.schema import TableSchema
from lithify.core.snapshot import DataFile
from lithify.files.open_parquet import footer_of, read_footer
from lithify.index.block import parse
from lithify.index.block_builder import merge
from lithify.index.footers import entry_of
from lithify.index.lookup import Coverage, Files
from lithify.settings import load_settings

OLD = pa.schema([("id", pa.int64()), ("name", pa.string())])
ADDED = pa.schema([("price", pa.decimal128(12, 2)), ("note", pa.string()), ("x", pa.float64())])


@pytest.fixture
def table(folder: Path) -> Iterator[Table]:
    """Three files from before three columns were added, two from after, of which one holds nulls; and a pending row."""
    with Lake(folder / "lake", settings=load_settings(cache_bytes_max=0)) as lake:
        table = lake.create_table("s.t", OLD, key="id")
        for start in range(0, 300, 100):
            table.upsert([{"id": n, "name": f"n{n}"} for n in range(start, start + 100)])
            table.fold()
        for column in ADDED:
            table.add_column(column)
        for start in (300, 400):
            given = start == 300
            table.upsert(
                [
                    {"id": n, "name": f"n{n}", "price": f"{n}.50" if given else None, "note": "a" if given else None}
                    for n in range(start, start + 100)
                ],
                missing="null",
            )
            table.fold()
        table.upsert([{"id": 7, "name": "n7", "price": "7.00"}], missing="null")
        yield table


def read(table: Table, where: str) -> tuple[int, list[int]]:
    """Files read, and ids found."""
    lake = table._internals.handles.runtime.serving
    uses = lake.explain(
        "SELECT id FROM s.t WHERE " + where, lambda *_: table._internals.opened.planned(), lambda: {"s": {"t"}}
    )
    plan = uses[0].plan
    found = sorted(table.to_arrow(where=where).column("id").to_pylist())
    return len(plan.clean) + len(plan.touched), found


@pytest.mark.parametrize(
    ("where", "files", "found"),
    [
        ("price = 301.50", 1, [301]),
        ("price > 398", 1, [398, 399]),
        ("price < 8.00", 0, [7]),
        ("price IN (301.5, 302.5, 7)", 1, [7, 301, 302]),
        ("note LIKE 'a%' AND id < 302", 1, [300, 301]),
        ("note IS NOT NULL AND id < 302", 1, [300, 301]),
        ("price IS NULL AND id IN (1, 7, 301, 401)", 4, [1, 401]),
        ("(price IS DISTINCT FROM 1) AND id IN (1, 401)", 2, [1, 401]),
        ("coalesce(price, 0) = 0 AND id IN (1, 401)", 5, [1, 401]),
        ("price = 301.50 OR name = 'n5'", 2, [5, 301]),
        ("x > 0.5", 0, []),
    ],
)
def test_older_files_are_read_only_where_a_null_can_matter(
    table: Table, where: str, files: int, found: list[int]
) -> None:
    assert read(table, where)[1] == found
    assert read(table, where)[0] <= files


def test_counts_and_bounds_know_of_the_nulls(table: Table) -> None:
    table.fold()

    counts = table.to_arrow(columns=["price", "x", "id"])
    answer = "SELECT count(price) AS p, count(x) AS x, count(*) AS n, min(note) AS least FROM s.t"
    lake = table._internals.handles.runtime.serving
    rows = lake.sql(answer, lambda *_: table._internals.opened.planned(), lambda: {"s": {"t"}}).to_pylist()

    assert rows == [{"p": counts.num_rows - counts.column("price").null_count, "x": 0, "n": 500, "least": "a"}]


NUMBERS = pa.array([1, 2], pa.int64())
FILES = {
    "lacks it": (pa.table({"id": NUMBERS}), False),
    "has it": (pa.table({"id": NUMBERS, "price": NUMBERS}), False),
    "has it, and its value": (pa.table({"id": NUMBERS, "price": pa.array([5, 9], pa.int64())}), True),
    # Spark reads it.
    "in another letter case": (pa.table({"id": NUMBERS, "Price": NUMBERS}), True),
    # Nobody knows which of them is read.
    "twice": (pa.Table.from_arrays([NUMBERS] * 3, ["id", "price", "price"]), True),
    "of another type": (pa.table({"id": NUMBERS, "price": pa.array(["1", "2"])}), True),
    "nested": (pa.table({"id": NUMBERS, "price": pa.array([{"x": 1}, {"x": 2}])}), True),
}


@pytest.mark.parametrize("beside", [[], ["lacks it"], ["has it"]], ids=str)
@pytest.mark.parametrize("name", FILES)
def test_only_a_file_that_is_sure_to_lack_a_column_is_ruled_out(folder: Path, name: str, beside: list[str]) -> None:
    entries, blocks = [], []
    for number, other in enumerate([name, *beside]):
        path = folder / f"{number}.parquet"
        pq.write_table(FILES[other][0], path)
        size = path.stat().st_size
        entries.append((DataFile(path.name, path.name, size, 2), Source(str(path), 2, size)))
        blocks.append(entry_of(footer_of(read_footer(path), path), path.name, size))
    schema = TableSchema(pa.schema([("id", pa.int64()), ("price", pa.int64())]))
    coverage = Coverage(Files(entries), schema, [(parse(merge([(parse(block), None) for block in blocks])), None)])

    left = coverage.select(Compare("price", "=", 5)).positions

    assert (0 in left) is FILES[name][1]
