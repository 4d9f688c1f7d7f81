"""A query that comes again over unchanged tables is answered from memory, and never otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Forbidden, Lake, Settings, Table
from lithify.lake.internals import internals
from lithify.lake.queries import run_query

pytestmark = pytest.mark.slow

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.int64())])
QUERY = "SELECT sum(v) AS v FROM a.t WHERE id >= 0"


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake", settings=Settings(cache_bytes_max=64 * 2**20)) as opened:
        yield opened


@pytest.fixture
def table(lake: Lake) -> Table:
    made = lake.create_table("a.t", COLUMNS, key="id")
    made.upsert([{"id": i, "v": 1} for i in range(50)])
    lake.create_table("a.u", COLUMNS, key="id").upsert([{"id": 0, "v": 7}])
    return made


def hits(lake: Lake) -> int:
    return lake.cache.stats().answers.hits


def test_the_same_query_again_is_answered_at_once(lake: Lake, table: Table) -> None:
    first, again = lake.query(QUERY), lake.query(QUERY)

    assert (first.source, again.source) == ("files", "answer")
    assert first.rows == again.rows
    assert first.snapshots == again.snapshots == {"a.t": 1}
    assert hits(lake) == 1


@pytest.mark.parametrize(
    "same", ["select sum(v) as v\n  from A.T where id >= 0 ;", "SELECT sum(v) AS v FROM a.t /* same */ WHERE id >= 0"]
)
def test_spelling_does_not_matter(lake: Lake, table: Table, same: str) -> None:
    lake.sql(QUERY)
    lake.sql(same)
    assert hits(lake) == 1


def test_a_change_of_any_table_of_the_query_is_seen(lake: Lake, table: Table) -> None:
    both = "SELECT sum(t.v + u.v) AS v FROM a.t t JOIN a.u u ON t.id = u.id"
    assert lake.sql(both).to_pylist() == lake.sql(both).to_pylist() == [{"v": 8}]
    lake.table("a.u").upsert([{"id": 0, "v": 8}])
    assert lake.sql(both).to_pylist() == [{"v": 9}]
    table.delete([0])
    assert lake.sql(both).to_pylist() == [{"v": None}]
    assert hits(lake) == 1


def test_a_change_of_another_table_leaves_it(lake: Lake, table: Table) -> None:
    lake.sql(QUERY)
    lake.table("a.u").upsert([{"id": 5, "v": 8}])
    lake.sql(QUERY)
    assert hits(lake) == 1


def test_an_earlier_state_is_another_question(lake: Lake, table: Table) -> None:
    table.upsert([{"id": 0, "v": 100}])
    assert lake.sql(QUERY).to_pylist() == [{"v": 149}]
    assert lake.sql(QUERY, as_of=1).to_pylist() == [{"v": 50}]
    assert lake.sql(QUERY).to_pylist() == [{"v": 149}]


def test_a_row_limit_is_another_question(lake: Lake, table: Table) -> None:
    everything = "SELECT id FROM a.t"
    cut = lake.query(everything, rows_max=3)
    whole = lake.query(everything, rows_max=1_000)
    again = lake.query(everything, rows_max=3)

    assert (cut.rows.num_rows, cut.cut) == (again.rows.num_rows, again.cut) == (3, True)
    assert (whole.rows.num_rows, whole.cut) == (50, False)
    assert again.source == "answer"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT random() AS r, count(*) FROM a.t WHERE v > 0",
        "SELECT now() AS n, count(*) FROM a.t WHERE v > 0",
        "SELECT uuid() AS u FROM a.t",
        "SELECT current_timestamp AS c FROM a.t",
    ],
)
def test_chance_and_time_are_never_kept(lake: Lake, table: Table, query: str) -> None:
    assert lake.sql(query).to_pylist() != lake.sql(query).to_pylist()
    assert lake.cache.stats().answers.count == 0


def test_a_kept_answer_is_not_for_those_who_may_not_read_the_table(lake: Lake, table: Table) -> None:
    lake.sql(QUERY)
    lake.query(QUERY)
    with pytest.raises(Forbidden, match=r"a\.t"):
        run_query(internals(lake), QUERY, may_read=lambda name: name != "a.t")


def test_answers_are_bounded(lake: Lake, table: Table) -> None:
    for number in range(400):
        lake.sql(f"SELECT id, v, '{'x' * 500}' AS x FROM a.t WHERE id <> {number}")
    stats = lake.cache.stats()
    assert stats.answers.bytes <= stats.bytes_max // 16
    assert stats.answers.count < 400
    assert stats.bytes >= stats.answers.bytes


def test_a_large_answer_is_not_kept(lake: Lake, table: Table) -> None:
    lake.sql(f"SELECT id, '{'x' * 20_000}' AS x FROM a.t")
    assert lake.cache.stats().answers.count == 0


def test_a_dropped_table_has_no_answers(lake: Lake, table: Table) -> None:
    lake.sql(QUERY)
    lake.drop_table("a.t")
    with pytest.raises(Exception, match="does not exist"):
        lake.sql(QUERY)
    lake.create_table("a.t", COLUMNS, key="id").upsert([{"id": 1, "v": 5}])
    assert lake.sql(QUERY).to_pylist() == [{"v": 5}]


def test_evicting_everything_forgets_answers(lake: Lake, table: Table) -> None:
    lake.sql(QUERY)
    assert lake.cache.evict() > 0
    assert lake.cache.stats().answers.count == 0
    assert lake.cache.stats().bytes == 0


def test_the_letter_case_of_a_column_that_is_replaced_counts(lake: Lake, table: Table) -> None:
    replaced = lake.sql("SELECT * REPLACE (5 AS v) FROM a.u").to_pylist()
    assert replaced == [{"id": 0, "v": 5}]
    assert lake.query("SELECT * REPLACE (5 AS V) FROM a.u").source != "answer"


def test_a_closed_lake_keeps_no_answers(folder: Path) -> None:
    with Lake(folder / "other", settings=Settings(cache_bytes_max=64 * 2**20)) as lake:
        lake.create_table("a.t", COLUMNS, key="id").upsert([{"id": 1, "v": 1}])
        lake.sql(QUERY)
        assert lake.cache.stats().answers.count == 1
    assert (lake.cache.stats().answers.count, lake.cache.stats().bytes) == (0, 0)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_an_answer_does_not_keep_the_batches_alive_that_it_was_cut_from(folder: Path) -> None:
    """One row of twenty columns came as a view of a megabyte."""
    columns = pa.schema([("id", pa.int64()), *((f"v{number}", pa.int64()) for number in range(20))])
    with Lake(folder / "wide", settings=Settings(cache_bytes_max=2**30)) as lake:
        table = lake.create_table("a.t", columns, key="id")
        table.upsert(pa.table([range(20_000)] * len(columns), columns))
        table.fold()
        for number in range(100):
            lake.sql(f"SELECT * FROM a.t WHERE id = {number}")
        before = resident_bytes()
        for number in range(100, 250):
            lake.sql(f"SELECT * FROM a.t WHERE id = {number}")
        assert lake.cache.stats().answers.count == 250
        assert resident_bytes() - before < 50 * 2**20
