"""Streams of the data source, as Spark calls them but without Spark."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from lithify import InvalidRequest, Lake, LimitExceeded, LithifyDataSource, NotFound, Table
from lithify.spark.datasource import plan as source_plan
from lithify.spark.datasource import write as source_write
from lithify.spark.datasource.stream import FeedReader
from lithify.spark.datasource.write import RowsMessage
from lithify.spark.schemas import spark_schema

COLUMNS = pa.schema([("id", pa.int64()), ("region", pa.string())])
EVENTS = pa.schema([*COLUMNS, ("op", pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with Lake(tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def orders(lake: Lake) -> Table:
    return lake.create_table("shop.orders", COLUMNS, key="id")


def source(lake: Lake, **options: str) -> LithifyDataSource:
    return LithifyDataSource(CaseInsensitiveDict({"path": f"{lake.path}/shop/orders", **options}))


def rows(ids: Sequence[int], region: str = "north") -> list[dict[str, Any]]:
    return [{"id": number, "region": region} for number in ids]


@pytest.fixture
def streams() -> Iterator[list[FeedReader]]:
    opened: list[FeedReader] = []
    yield opened
    for stream in opened:
        stream.stop()


def stream_of(opened: LithifyDataSource, streams: list[FeedReader]) -> FeedReader:
    reader = opened.streamReader(opened.schema())
    assert isinstance(reader, FeedReader)
    streams.append(reader)
    return reader


def changes(reader: FeedReader, start: dict[str, str], end: dict[str, str]) -> list[tuple[Any, ...]]:
    """What tasks get to see: reader and partitions have been pickled."""
    shipped, parts = pickle.loads(pickle.dumps((reader, reader.partitions(start, end))))
    found = [row for part in parts for batch in shipped.read(part) for row in batch.to_pylist()]
    return [(row["_seq"], row["_kind"], row["id"]) for row in found]


# -- out


def test_a_stream_goes_on_over_folds_and_restarts(lake: Lake, orders: Table, streams: list[FeedReader]) -> None:
    orders.upsert(rows([1, 2]))
    orders.fold()
    first = stream_of(source(lake, changes="true"), streams)
    start = first.initialOffset()
    middle = first.latestOffset(start, ReadAllAvailable())
    seen = changes(first, start, middle)
    first.stop()

    orders.upsert(rows([2, 3], region="south"))
    orders.delete([1])
    orders.fold()
    orders.compact()
    second = stream_of(source(lake, changes="true"), streams)
    # Spark hands a checkpoint back as JSON.
    end = second.latestOffset(json.loads(json.dumps(middle)), ReadAllAvailable())
    seen += changes(second, middle, end)

    assert seen == [
        (1, "insert", 1),
        (1, "insert", 2),
        (2, "update", 2),
        (2, "insert", 3),
        (3, "delete", 1),
    ]
    assert second.latestOffset(end, ReadAllAvailable()) == end
    assert changes(second, end, end) == []


def test_a_batch_has_about_as_many_rows_as_asked_for_in_whole_commits(
    lake: Lake, orders: Table, streams: list[FeedReader]
) -> None:
    for number in range(6):
        orders.upsert(rows(range(number * 10, number * 10 + 10)))
    reader = stream_of(source(lake, rowsPerBatch="20"), streams)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)

    ends = [reader.initialOffset()]
    while (end := reader.latestOffset(ends[-1], limit)) != ends[-1]:
        ends.append(end)

    assert [int(end["position"].rpartition(":")[2]) for end in ends] == [0, 2, 4, 6]
    assert reader.latestOffset(ends[0], ReadAllAvailable()) == ends[-1]


def test_what_was_laid_down_for_a_batch_goes_when_it_is_through(
    lake: Lake, orders: Table, streams: list[FeedReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_plan, "INLINE_BYTES_MAX", 10)
    reader = stream_of(source(lake, changes="true"), streams)
    ends = [reader.initialOffset()]
    for number in range(2):
        orders.upsert(rows([number]))
        ends.append(reader.latestOffset(ends[-1], ReadAllAvailable()))
        assert len(changes(reader, ends[-2], ends[-1])) == 1
    index = lake.path / "shop/orders/index"
    laid_down = set(index.glob("feed-*"))

    reader.commit(ends[1])
    left = set(index.glob("feed-*"))
    reader.stop()

    assert len(laid_down) == 2
    assert len(left) == 1
    assert set(index.glob("feed-*")) == set()


def test_available_now_ends_where_the_table_stood_when_it_began(
    lake: Lake, orders: Table, streams: list[FeedReader]
) -> None:
    orders.upsert(rows([1]))
    reader = stream_of(source(lake, changes="true"), streams)
    reader.prepareForTriggerAvailableNow()
    stood = reader.reportLatestOffset()
    orders.upsert(rows([2]))

    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable()) == stood
    assert reader.latestOffset(stood, ReadAllAvailable()) == stood


@pytest.mark.parametrize(("start", "seqs"), [("earliest", [1, 2]), ("latest", []), ("1", [2])])
def test_a_stream_begins_where_it_is_told(
    lake: Lake, orders: Table, streams: list[FeedReader], start: str, seqs: list[int]
) -> None:
    orders.upsert(rows([1]))
    orders.upsert(rows([2]))
    reader = stream_of(source(lake, startingPosition=start), streams)
    begin = reader.initialOffset()

    found = changes(reader, begin, reader.latestOffset(begin, ReadAllAvailable()))

    assert [seq for seq, _, _ in found] == seqs


def test_a_checkpoint_of_another_table_or_an_earlier_one_of_that_name_is_refused(
    lake: Lake, orders: Table, streams: list[FeedReader]
) -> None:
    orders.upsert(rows([1]))
    old = orders.position()
    lake.drop_table("shop.orders")
    lake.create_table("shop.orders", COLUMNS, key="id").upsert(rows([1]))
    reader = stream_of(source(lake, changes="true"), streams)

    with pytest.raises(InvalidRequest, match="dropped and created again"):
        reader.latestOffset({"position": old}, ReadAllAvailable())
    with pytest.raises(InvalidRequest, match=r"is of table shop\.other"):
        reader.latestOffset({"position": old.replace("orders", "other")}, ReadAllAvailable())


def test_a_checkpoint_that_vacuum_has_passed_says_how_to_start_again(
    lake: Lake, orders: Table, streams: list[FeedReader]
) -> None:
    orders.upsert(rows([1]))
    reader = stream_of(source(lake, changes="true"), streams)
    start = reader.initialOffset()
    orders.upsert(rows([1], region="south"))
    orders.fold()
    for file in (lake.path / "shop/orders/changes").glob("write-*.parquet"):
        file.unlink()

    end = reader.latestOffset(start, ReadAllAvailable())

    with pytest.raises(NotFound, match="Start again: read the whole table"):
        reader.partitions(start, end)


def test_a_stream_without_changes_asked_for_is_refused(lake: Lake, orders: Table) -> None:
    opened = source(lake)

    with pytest.raises(InvalidRequest, match="a stream reads changes"):
        opened.streamReader(opened.schema())


# -- in


def sent(lake: Lake, events: Sequence[Sequence[dict[str, Any]]], epoch: int, query: str | None, **options: str) -> None:
    """One micro-batch: a task for each sequence of rows, then the commit in a process of its own."""
    columns = EVENTS if "opColumn" in options else COLUMNS
    writer = source(lake, **options).streamWriter(spark_schema(columns), overwrite=False)
    messages = []
    for rows_of_task in events:
        batches = pa.Table.from_pylist(list(rows_of_task), schema=columns).to_batches()
        message = pickle.loads(pickle.dumps(writer)).write(iter(batches))
        messages.append(RowsMessage(message.rows, query, message.error))
    source(lake, **options).streamWriter(spark_schema(columns), overwrite=False).commit(messages, epoch)


def test_a_micro_batch_that_is_sent_again_is_written_once(lake: Lake, orders: Table) -> None:
    sent(lake, [rows([1]), rows([2])], 0, "q")
    sent(lake, [rows([1]), rows([2])], 0, "q")
    sent(lake, [rows([3])], 1, "q")

    assert orders.stats().seq == 2
    assert sorted(orders.to_arrow().column("id").to_pylist()) == [1, 2, 3]


def test_events_delete_in_the_order_in_which_they_came(lake: Lake, orders: Table) -> None:
    first = [{"id": 1, "region": "a", "op": "insert"}, {"id": 2, "region": "a", "op": "insert"}]
    then = [{"id": 1, "op": "delete"}, {"id": 2, "op": "delete"}, {"id": 2, "region": "b", "op": "update"}]

    sent(lake, [first, then], 0, "q", opColumn="op")

    assert orders.to_arrow().to_pylist() == [{"id": 2, "region": "b"}]


def test_an_empty_micro_batch_moves_the_query_on(lake: Lake, orders: Table) -> None:
    sent(lake, [[]], 0, "q")
    sent(lake, [rows([1])], 1, "q")

    assert orders.to_arrow().num_rows == 1


def test_the_query_is_known_by_its_checkpoint_where_no_task_could_tell(
    lake: Lake, orders: Table, tmp_path: Path
) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint/metadata").write_text('{"id":"0c1d"}')
    for _ in range(2):
        sent(lake, [rows([1])], 0, None, checkpointLocation=f"file://{tmp_path}/checkpoint")

    assert orders.stats().seq == 1
    with pytest.raises(InvalidRequest, match=r"\.option\('name'"):
        sent(lake, [rows([1])], 0, None)


def test_a_query_that_goes_on_with_another_mode_or_table_is_refused(lake: Lake, orders: Table) -> None:
    sent(lake, [rows([1])], 0, "q", mode="upsert")

    with pytest.raises(InvalidRequest, match="other settings"):
        sent(lake, [rows([2])], 1, "q", mode="append")
    with pytest.raises(InvalidRequest, match="epochs are missing"):
        sent(lake, [rows([2])], 7, "another")


def test_null_keys_fail_the_batch_or_are_set_aside(lake: Lake, orders: Table) -> None:
    bad = [*rows([1]), {"id": None, "region": "lost"}]

    with pytest.raises(InvalidRequest, match="null"):
        sent(lake, [bad], 0, "q")
    sent(lake, [bad], 0, "q", nullKeys="quarantine")

    assert orders.to_arrow().to_pylist() == rows([1])
    assert "lost" in next((lake.path / "shop/orders/quarantine").rglob("*.json")).read_text()


def test_a_micro_batch_that_is_too_large_for_messages_says_what_to_do(
    lake: Lake, orders: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_write, "TASK_BYTES_MAX", 1000)

    with pytest.raises(LimitExceeded, match="foreachBatch"):
        sent(lake, [rows(range(1000))], 0, "q")

    assert orders.stats().seq == 0


def test_columns_of_a_stream_are_checked_before_it_starts(lake: Lake, orders: Table) -> None:
    with pytest.raises(InvalidRequest, match="no column 'op'"):
        source(lake, opColumn="op").streamWriter(spark_schema(COLUMNS), overwrite=False)
    with pytest.raises(InvalidRequest, match="'op' is not in the table"):
        source(lake).streamWriter(spark_schema(EVENTS), overwrite=False)
