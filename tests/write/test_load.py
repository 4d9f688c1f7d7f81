"""Many rows of Arrow in this process: several files, one commit, the same rows as any other write."""

from __future__ import annotations

import datetime as dt
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import Conflict, InvalidRequest, Lake, Table
from lithify.files.encoders import Encoders, QueuedWriter
from lithify.files.parquet import Layout, PartWriter
from lithify.lake.internals import internals
from lithify.write.batch_ids import conditions_of
from lithify.write.conditions import AtSeq, SeqMoved, Write
from lithify.write.load import LOAD_ROWS_MIN, Bounds, load

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
ORDERED = pa.schema([("id", pa.int64()), ("at", pa.int32()), ("v", pa.string())])
TINY = Bounds(file_bytes=20_000, run_bytes=60_000, range_bytes=10_000, held_bytes_max=150_000)
SEEDS = range(4)


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as lake:
        yield lake


def many(rows: int = LOAD_ROWS_MIN, v: str = "x") -> pa.Table:
    return pa.table({"id": np.arange(rows), "v": pa.array([v]).take(pa.array(np.zeros(rows, np.int8)))})


def loaded(table: Table, data: Any, **more: Any) -> Any:
    return load(internals(table).handles, data, Write("upsert"), bounds=TINY, **more)


def rows_in(table: Table) -> list[dict[str, Any]]:
    return table.to_arrow().sort_by([(name, "ascending") for name in table.definition.names]).to_pylist()


def nothing_left_behind(lake: Lake) -> bool:
    jobs = [path for path in (lake.path / "_lithify" / "jobs").iterdir() if path.suffix == ".json"]
    return not jobs and not list((lake.path / "a" / "t" / "changes").glob("bulk-*"))


# -- which way rows take


def test_a_large_table_is_a_job_whose_files_a_fold_links(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")

    commit = table.upsert(many())

    assert (commit.seq, commit.upserted) == (1, LOAD_ROWS_MIN)
    assert all(file.path.startswith("bulk-") for file in table.snapshot().changes)
    report = table.fold()
    assert (report.bytes_written, report.final_rows) == (0, LOAD_ROWS_MIN)


def test_a_stream_is_looked_at_before_it_is_decided(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    few, much = many(1_000), many(LOAD_ROWS_MIN + 1, "y")

    table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, few.cast(SCHEMA).to_batches(max_chunksize=300)))
    table.upsert(batch for batch in few.to_batches(max_chunksize=300))
    table.upsert({"id": n, "v": "z"} for n in range(10))
    table.upsert(batch for batch in much.to_batches(max_chunksize=50_000))
    table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, many(v="w").cast(SCHEMA).to_batches()))

    ways = [file.path.split("-")[0] for file in sorted(table.snapshot().changes, key=lambda file: file.seq)]
    assert ways[:3] == ["write"] * 3
    assert set(ways[3:]) == {"bulk"}
    assert lake.sql("select v, count(*) n from a.t group by v order by v").to_pylist() == [
        {"v": "w", "n": LOAD_ROWS_MIN},
        {"v": "y", "n": 1},
    ]


def test_a_stream_with_no_batch_is_empty(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    for nothing in (pa.RecordBatchReader.from_batches(SCHEMA, []), iter([])):
        with pytest.raises(InvalidRequest, match="empty"):
            table.upsert(nothing)


def test_something_else_among_many_batches_is_refused(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    with pytest.raises(InvalidRequest, match="dict stands among record batches"):
        table.upsert(part for part in (many(), {"id": 1, "v": "x"}))
    assert nothing_left_behind(lake)
    assert table.snapshot().seq == 0


# -- the rows


@pytest.mark.parametrize("order_by", [None, "at"])
@pytest.mark.parametrize("shape", ["held", "stream", "nearly in order"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_load_leaves_what_an_upsert_of_the_same_rows_leaves(
    lake: Lake, order_by: str | None, shape: str, seed: int
) -> None:
    """Against the writer of small batches, which is tested against a model: duplicates, ties, nulls in order_by."""
    rng = np.random.default_rng(seed)
    count = int(rng.choice([500, 5_000, 12_000]))
    ids = np.sort(rng.choice(count * 2, count, replace=False)) if shape == "nearly in order" else np.arange(count)
    if shape != "nearly in order":
        ids = rng.integers(0, count, count)
    elif seed:
        ids[-1] = ids[rng.integers(0, count // 2)]  # the last row of all is an older key
    at = pa.array(rng.integers(0, 3, count), pa.int32(), mask=rng.random(count) < 0.2)
    rows = pa.table({"id": ids, "at": at, "v": [f"{n}" for n in range(count)]}).cast(ORDERED)
    wanted = lake.create_table("a.wanted", ORDERED, key="id", order_by=order_by)
    table = lake.create_table("a.t", ORDERED, key="id", order_by=order_by)
    wanted.upsert(rows)

    commit = loaded(table, rows if shape == "held" else rows.to_batches(max_chunksize=int(rng.integers(50, 3_000))))

    assert commit.rows == wanted.snapshot().pending_rows
    assert rows_in(table) == rows_in(wanted)
    spans = sorted((file.bound("id").low, file.bound("id").high) for file in table.snapshot().changes)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(spans)), "files overlap"
    for file in table.snapshot().changes:
        ids = pq.read_table(lake.path / "a/t/changes" / file.path).column("id").to_numpy()
        assert (np.diff(ids) > 0).all(), "a file is not in the order of its keys"
    report = table.fold()
    assert report.bytes_written == 0
    assert rows_in(table) == rows_in(wanted)
    assert not list((lake.path / "a/t/changes").glob("bulk-*/run-*"))


@pytest.mark.parametrize("held", [True, False])
def test_parts_that_are_in_order_by_themselves_alone_are_sorted(lake: Lake, held: bool) -> None:
    first, second = many(1_200).cast(SCHEMA), many(1_200, "newer").cast(SCHEMA).slice(1_100)
    table = lake.create_table("a.t", SCHEMA, key="id")

    commit = loaded(table, pa.concat_tables([first, second]) if held else [first, second])

    assert commit.rows == table.count() == 1_200
    assert table.count("v = 'newer'") == 100


def test_a_composite_key_of_text_and_dates(lake: Lake) -> None:
    schema = pa.schema([("name", pa.string()), ("day", pa.date32()), ("v", pa.int64())])
    rng = np.random.default_rng(3)
    names = pa.array([f"n{n}" for n in rng.integers(0, 40, 6_000)])
    days = pa.array(rng.integers(0, 90, 6_000).astype(np.int32)).cast(pa.date32())
    rows = pa.table({"name": names, "day": days, "v": np.arange(6_000)})
    wanted = {(row["name"], row["day"]): row["v"] for row in rows.to_pylist()}
    table = lake.create_table("a.t", schema, key=["name", "day"])

    loaded(table, rows.to_batches(max_chunksize=700))

    assert {(row["name"], row["day"]): row["v"] for row in table.to_arrow().to_pylist()} == wanted
    assert len(table.to_arrow()) == len(wanted)


@pytest.mark.parametrize("key", ["id", None])
def test_a_time_table_gets_files_of_one_day_each(lake: Lake, key: str | None) -> None:
    schema = SCHEMA.append(pa.field("at", pa.timestamp("us", "UTC")))
    table = lake.create_table("a.t", schema, key=key, time="at")
    days = [dt.datetime(2026, 11, 1 + n % 3, tzinfo=dt.UTC) for n in range(3_000)]
    ids = np.random.default_rng(1).permutation(3_000)
    rows = pa.table({"id": ids, "v": ["x"] * 3_000, "at": days}).cast(schema)

    loaded(table, rows.to_batches(max_chunksize=400))

    report = table.fold()
    assert (report.bytes_written, report.final_rows) == (0, 3_000)
    assert {str(each.values["_day"]): each.rows for each in table.partitions()} == {
        f"2026-11-0{day}": 1_000 for day in (1, 2, 3)
    }


def test_rows_without_a_key_all_stay(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA)
    rows = pa.table({"id": [5, 1, 5, 2] * 1_000, "v": ["x"] * 4_000})

    table.append(rows)
    load(internals(table).handles, rows.to_batches(max_chunksize=900), Write("append"), bounds=TINY)

    assert rows_in(table) == sorted(rows.to_pylist() * 2, key=lambda row: row["id"])


def test_other_types_are_cast_batch_by_batch_or_refused_with_their_place(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    loaded(table, pa.table({"id": pa.array(range(2_000), pa.int16()), "v": ["x"] * 2_000}))
    assert lake.sql("select count(*) n, max(id) m from a.t").to_pylist() == [{"n": 2_000, "m": 1_999}]

    good = pa.table({"id": range(1_000), "v": ["x"] * 1_000})
    bad = pa.table({"id": pa.array([1, None]), "v": ["x", "x"]})
    with pytest.raises(InvalidRequest, match=r"'id' is null in row 1.*counted from row 1,000 of all"):
        loaded(table, [good, bad])
    assert table.snapshot().seq == 1
    assert not list((lake.path / "_lithify" / "jobs").iterdir())


def test_duplicates_can_be_refused(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    rows = pa.table({"id": [3, 1, 2, 1] * 50, "v": ["x"] * 200})
    for data in (rows, rows.to_batches(max_chunksize=2)):
        with pytest.raises(InvalidRequest, match=r"more than one row for the same key, e\.g\. 1") as refused:
            loaded(table, data, distinct=True)
        assert "e.g." not in refused.value.public
    assert nothing_left_behind(lake)
    assert table.snapshot().seq == 0


# -- commits


def test_a_batch_id_is_answered_as_the_first_time(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    first = table.upsert(many(), batch_id="b")
    again = table.upsert(many(v="other"), batch_id="b")
    assert (again.seq, again.rows, again.replayed) == (first.seq, first.rows, True)
    assert lake.sql("select distinct v from a.t").to_pylist() == [{"v": "x"}]


def test_a_lost_race_gives_the_files_another_number(lake: Lake) -> None:
    """Invariants 2 and 3: the files are not written again."""
    table = lake.create_table("a.t", SCHEMA, key="id")
    with Lake(lake.path) as other:

        def batches() -> Iterator[pa.Table]:
            yield many(5_000)
            other.table("a.t").upsert([{"id": 1, "v": "rival"}, {"id": -1, "v": "rival"}])

        commit = loaded(table, batches())
    assert commit.seq == 2
    assert table.get(1) == {"id": 1, "v": "x"}
    assert table.get(-1) == {"id": -1, "v": "rival"}


def test_columns_that_change_meanwhile_stop_it(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")

    def batches() -> Iterator[pa.Table]:
        yield many(5_000)
        table.rename_column("v", "w")

    with pytest.raises(Conflict, match=r"columns of table a\.t changed"):
        loaded(table, batches())
    assert nothing_left_behind(lake)
    assert table.snapshot().changes == ()


def test_conditions_are_asked(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.upsert([{"id": 1, "v": "x"}])
    write = Write("upsert", conditions=(*conditions_of("b"), AtSeq(0)))
    with pytest.raises(SeqMoved):
        load(internals(table).handles, many(10), write)
    assert table.snapshot().seq == 1


def test_a_source_that_fails_leaves_nothing(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")

    def batches() -> Iterator[pa.Table]:
        yield many(5_000)
        yield many(5_000)  # out of order: files that were written are read again
        raise ConnectionError("the source is gone")

    with pytest.raises(ConnectionError):
        loaded(table, batches())
    assert nothing_left_behind(lake)
    assert table.snapshot().seq == 0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lithify-encode")]


# -- threads


def test_what_waits_for_the_threads_is_bounded_and_their_error_is_told(folder: Path) -> None:
    rows = many(1_000).cast(SCHEMA)
    taken: list[int] = []
    go_on = threading.Event()

    class Stuck(PartWriter):
        def write(self, table: pa.Table) -> None:
            go_on.wait(60)
            raise OSError("the disk is full")

    with Encoders(rows.nbytes) as encoders:
        writer = QueuedWriter(Stuck(folder / "x.parquet", SCHEMA, Layout(SCHEMA)), encoders)

        full = threading.Event()

        def bring() -> None:
            for number in range(10):
                writer.write(rows)
                taken.append(number)
                if number == encoders.threads - 1:
                    full.set()

        def told() -> None:
            with pytest.raises(OSError, match="the disk is full"):
                bring()

        bringing = threading.Thread(target=told)
        bringing.start()
        assert full.wait(60)
        bringing.join(0.05)
        assert len(taken) == encoders.threads
        go_on.set()
        bringing.join(60)
        assert not bringing.is_alive()
        with pytest.raises(OSError, match="the disk is full"):
            encoders.result(writer.close(folder))
    writer.abandon()
    assert not (folder / "x.parquet").exists()


@pytest.mark.bucket
def test_rows_in_no_order_are_sorted_here_and_loaded_into_a_bucket(address: str) -> None:
    rows = pa.table({"id": np.random.default_rng(5).permutation(8_000), "v": ["x"] * 8_000})
    with Lake(address) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        loaded(table, rows.to_batches(max_chunksize=900))
        assert table.fold().bytes_written == 0
        assert table.to_arrow(["id"]).column("id").to_pylist() == list(range(8_000))
