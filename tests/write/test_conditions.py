"""What a write depends on is asked and recorded alike, whichever way the rows come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Conflict, InvalidRequest, Lake, Table
from lithify.core.ops import Op
from lithify.core.results import Commit
from lithify.core.schema import TableSchema
from lithify.delta.batch_txns import BoundId
from lithify.files.parquet import Layout, PartWriter, part_path
from lithify.write.batch_ids import conditions_of
from lithify.write.bulk import Files, write_files
from lithify.write.conditions import AtSeq, Condition, SeqMoved, Write
from lithify.write.small_writes import Request

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
LANE = f"lane-{'a' * 32}"
Put = Callable[..., Commit]


@pytest.fixture
def table(folder: Path) -> Iterator[Table]:
    with Lake(folder / "lake") as lake:
        yield lake.create_table("a.t", SCHEMA, key="id")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "v": ["x"] * len(ids)}, schema=SCHEMA)


def small(table: Table, batch: pa.Table, *conditions: Condition) -> Commit:
    return table._internals.write(Request(Write("upsert", {}, conditions), {Op.UPSERT: batch}))


def bulk(
    table: Table, batch: pa.Table, *conditions: Condition, meanwhile: Callable[[], object] = lambda: None
) -> Commit:
    def produce(schema: TableSchema, root: str, folder: str) -> Files:
        meanwhile()
        writer = PartWriter(part_path(root, folder, "part-00000.parquet"), schema.columns, Layout.of(schema))
        writer.write(batch.cast(schema.columns))
        return [(writer.close(Path(root)), Op.UPSERT)]

    return write_files(table._internals.handles, Write("upsert", {}, conditions), produce)


WAYS = {"small": small, "bulk": bulk}
both = pytest.mark.parametrize("put", WAYS.values(), ids=WAYS)
again = pytest.mark.parametrize("repeat", WAYS.values(), ids=[f"again {name}" for name in WAYS])


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


@both
@again
def test_a_batch_is_written_once(table: Table, put: Put, repeat: Put) -> None:
    first = put(table, rows(1, 2), *conditions_of("b"))

    second = repeat(table, rows(3), *conditions_of("b"))

    assert (first.replayed, second.replayed) == (False, True)
    assert (second.seq, second.operation, second.rows, second.upserted, second.deleted, second.batch_id) == (
        first.seq,
        "upsert",
        2,
        2,
        0,
        "b",
    )
    assert ids(table) == [1, 2]


@both
@again
def test_the_ids_of_a_lane_go_up(table: Table, put: Put, repeat: Put) -> None:
    put(table, rows(1), *conditions_of(f"{LANE}.5"))

    with pytest.raises(Conflict, match="only go up"):
        repeat(table, rows(2), *conditions_of(f"{LANE}.4"))

    assert not repeat(table, rows(3), *conditions_of(f"{LANE}.6")).replayed
    assert ids(table) == [1, 3]


@both
@again
def test_a_bound_id_stands_for_one_write(table: Table, put: Put, repeat: Put) -> None:
    put(table, rows(1), *conditions_of(BoundId("b", 7)))

    with pytest.raises(Conflict, match="used for another write"):
        repeat(table, rows(2), *conditions_of(BoundId("b", 8)))

    assert repeat(table, rows(1), *conditions_of(BoundId("b", 7))).replayed
    assert ids(table) == [1]


@both
def test_what_is_written_at_one_seq_is_not_written_at_another(table: Table, put: Put) -> None:
    small(table, rows(1))

    with pytest.raises(SeqMoved):
        put(table, rows(2), AtSeq(0))

    assert put(table, rows(3), AtSeq(1)).seq == 2
    assert ids(table) == [1, 3]


@both
def test_rows_for_another_schema_are_refused_and_leave_no_file(table: Table, put: Put) -> None:
    before = set(Path(table._internals.handles.changes.log.path).rglob("*.parquet"))

    with pytest.raises(Conflict, match="look at the columns"):
        put(table, rows(1), *conditions_of(None, "another"))

    assert put(table, rows(2), *conditions_of(None, table.definition.fingerprint)).seq == 1
    assert len(set(Path(table._internals.handles.changes.log.path).rglob("*.parquet")) - before) == 1


@both
def test_a_batch_that_was_written_is_answered_as_then_whatever_the_schema_is_now(table: Table, put: Put) -> None:
    fingerprint = table.definition.fingerprint
    first = put(table, rows(1), *conditions_of("b", fingerprint))
    table.add_column(pa.field("w", pa.string()))

    assert put(table, rows(1), *conditions_of("b", fingerprint)).seq == first.seq


@both
def test_the_commit_says_what_the_write_and_its_conditions_say(table: Table, put: Put) -> None:
    put(table, rows(1, 2), *conditions_of("b"))

    newest = table.history(limit=1)[0]

    assert (newest.operation, newest.rows, newest.batch_id) == ("upsert", 2, "b")


def test_a_bulk_write_asks_again_when_its_files_are_written(table: Table) -> None:
    batch = conditions_of("b")

    answer = bulk(table, rows(1, 2), *batch, meanwhile=lambda: small(table, rows(7), *batch))

    assert (answer.replayed, answer.rows) == (True, 1)
    with pytest.raises(SeqMoved):
        bulk(table, rows(3), AtSeq(1), meanwhile=lambda: small(table, rows(8)))
    assert ids(table) == [7, 8]
    assert not list(Path(table._internals.handles.changes.log.path).rglob("part-*.parquet"))


@pytest.mark.parametrize("wrong", ["", 5, "x" * 1000])
def test_what_cannot_be_a_batch_id_is_refused_before_anything_is_done(wrong: object) -> None:
    with pytest.raises(InvalidRequest, match="batch_id"):
        conditions_of(wrong)  # type: ignore[arg-type]
