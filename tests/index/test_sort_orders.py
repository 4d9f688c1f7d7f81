"""In which order the rows of a file are: what its footer states, counted over files, and nothing more."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lithify.files.open_parquet import footer_of, read_footer
from lithify.index.block import Block, parse
from lithify.index.block_builder import merge
from lithify.index.footers import Entries
from lithify.index.sort_orders import Order, SortColumn, orders_of
from support.parquet_footers import ROW_GROUPS, edited
from support.sidecars import entry, footer

SORTING_COLUMNS = 4
TABLE = pa.table({"part": [{"of": 1, "by": 2}] * 4, "city": ["a", "b", "b", None], "at": [4, 2, 1, 3]})
CITY, AT = 2, 3  # leaves


def told(*blocks: bytes) -> Counter[Order]:
    return orders_in(parse(merge([(parse(block), None) for block in blocks])))


def orders_in(block: Block) -> Counter[Order]:
    return orders_of(block, np.ones(block.files, np.bool_))


def file(path: str, *columns: Any, table: pa.Table = TABLE) -> bytes:
    return entry(path, table, row_group_size=2, sorting_columns=[pq.SortingColumn(*column) for column in columns])


def test_a_file_has_the_order_that_all_its_row_groups_state() -> None:
    stated = file("f", (CITY, False, False), (AT, True, True))

    assert orders_in(parse(stated)) == {(SortColumn("city"), SortColumn("at", True, True)): 1}
    assert [str(column) for column in next(iter(orders_in(parse(stated))))] == ["city", "at desc nulls first"]


def test_a_file_that_states_none_has_none() -> None:
    assert orders_in(parse(file("f"))) == {(): 1}


def test_files_are_counted_by_their_orders_when_blocks_are_merged() -> None:
    found = told(file("a", (AT,)), file("b", (CITY,), (AT,)), file("c", (AT,)), file("d"), file("e", (AT, True)))

    assert found == {
        (SortColumn("at"),): 2,
        (SortColumn("city"), SortColumn("at")): 1,
        (SortColumn("at", True),): 1,
        (): 1,
    }


def test_files_that_are_gone_are_not_counted() -> None:
    block = parse(merge([(parse(file("a", (AT,))), None), (parse(file("b")), None), (parse(file("c", (AT,))), None)]))

    assert orders_of(block, np.array([True, False, False])) == {(SortColumn("at"),): 1}
    assert orders_of(block, np.array([False, False, False])) == {}


def test_columns_of_one_name_and_another_type_keep_their_own_order() -> None:
    texts = pa.table({"city": ["a", "b"], "at": ["1", "2"]})

    found = told(file("a", (AT,)), file("b", (0,), (1, True), table=texts))

    assert found == {(SortColumn("at"),): 1, (SortColumn("city"), SortColumn("at", True)): 1}


def test_row_groups_that_contradict_each_other_say_nothing(folder: Path) -> None:
    path = folder / "f.parquet"
    pq.write_table(TABLE, path, row_group_size=2, sorting_columns=[pq.SortingColumn(AT)])
    edited(path, lambda found: found[ROW_GROUPS][1][1][1].pop(SORTING_COLUMNS))

    entries = Entries()
    entries.add(footer_of(read_footer(path), path), "f", path.stat().st_size)

    assert pq.read_metadata(path).row_group(0).sorting_columns
    assert orders_in(parse(entries.block())) == {(): 1}


def test_an_order_ends_at_a_column_that_the_index_does_not_have() -> None:
    """Of two columns of one name it keeps neither."""
    twice = pa.table([[1, 2], [1, 2], [1, 2]], names=["a", "b", "b"])
    metadata, size = footer(twice, sorting_columns=[pq.SortingColumn(0), pq.SortingColumn(1), pq.SortingColumn(2)])
    entries = Entries()
    entries.add(metadata, "f", size)

    assert orders_in(parse(entries.block())) == {(SortColumn("a"),): 1}


def test_a_file_without_row_groups_has_no_order(folder: Path) -> None:
    path = folder / "f.parquet"
    pq.ParquetWriter(path, TABLE.schema, sorting_columns=[pq.SortingColumn(AT)]).close()
    entries = Entries()
    entries.add(footer_of(read_footer(path), path), "f", path.stat().st_size)

    assert told(file("a", (AT,)), entries.block(), file("b", (AT,))) == {(SortColumn("at"),): 2, (): 1}
