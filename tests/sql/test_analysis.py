"""A query that comes again is not planned twice, and still means what it means now."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Forbidden, Lake, NotFound, Settings
from lithify.lake.internals import internals
from lithify.lake.queries import run_query
from lithify.tables.handles import live_snapshots

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.int64())])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with Lake(tmp_path / "lake", settings=Settings(cache_bytes_max=0)) as opened:
        opened.create_table("a.t", COLUMNS, key="id").upsert([{"id": 1, "v": 10}, {"id": 2, "v": 20}])
        yield opened


def test_changed_rows_are_seen(lake: Lake) -> None:
    query = "select sum(v) as v from a.t where id > 0"
    assert lake.sql(query).to_pylist() == [{"v": 30}]
    lake.table("a.t").upsert([{"id": 2, "v": 5}])
    assert lake.sql(query).to_pylist() == [{"v": 15}]
    lake.table("a.t").fold()
    assert lake.sql(query).to_pylist() == [{"v": 15}]


def test_a_new_column_is_seen(lake: Lake) -> None:
    assert lake.sql("select * from a.t").column_names == ["id", "v"]
    lake.table("a.t").add_column(pa.field("w", pa.string()))
    assert lake.sql("select * from a.t").column_names == ["id", "v", "w"]


def test_other_types_under_the_same_name_are_seen(lake: Lake) -> None:
    query = "select v + 1 as v from a.t where id = 1"
    assert lake.sql(query).schema.field("v").type == pa.int64()
    lake.drop_table("a.t")
    with pytest.raises(NotFound):
        lake.sql(query)
    lake.create_table("a.t", pa.schema([("id", pa.int64()), ("v", pa.float64())])).append([{"id": 1, "v": 0.5}])
    assert lake.sql(query).to_pylist() == [{"v": 1.5}]


def test_the_clock_goes_on(lake: Lake) -> None:
    query = "select now() as now from a.t"
    assert lake.sql(query) != lake.sql(query)


def test_who_may_not_read_a_table_is_told_again(lake: Lake) -> None:
    lake.query("select v from a.t")
    with pytest.raises(Forbidden):
        run_query(internals(lake), "select v from a.t", may_read=lambda name: False)


def test_no_snapshot_is_held_by_what_is_kept(lake: Lake) -> None:
    lake.sql("select v from a.t where v > 3")
    lake.table("a.t").upsert([{"id": 3, "v": 1}])
    lake.sql("select v from a.t where v > 4")
    lake.table("a.t")._internals.reader.forget_plans()
    gc.collect()
    assert live_snapshots(lake.table("a.t")._internals.incarnation) == []
