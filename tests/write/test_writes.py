"""What a write answers, records and promises beyond its rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Conflict, InvalidRequest, Lake, NotFound, Settings
from lithify.files.local import LocalStorage
from lithify.lake.internals import internals

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake", settings=Settings(actor="ann")) as lake:
        yield lake


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize(
    "method",
    [
        "append",
        "upsert",
        "replace",
        "delete",
        "delete_where",
    ],
)
def test_the_same_batch_id_answers_as_the_first_time(lake: Lake, method: str, folded: bool) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.upsert([{"id": 1, "v": "x"}])
    arguments = {"delete": [1], "delete_where": "id = 1"}.get(method, [{"id": 1, "v": "y"}, {"id": 2, "v": None}])
    first = getattr(table, method)(arguments, batch_id="b")
    state = table.to_arrow().sort_by("id")
    table.upsert([{"id": 9}], missing="null")
    if folded:
        table.fold()

    with Lake(lake.path) as other:
        again = getattr(other.table("a.t"), method)(arguments, batch_id="b")

    assert (again.seq, again.rows, again.upserted, again.deleted) == (
        first.seq,
        first.rows,
        first.upserted,
        first.deleted,
    )
    assert (first.replayed, again.replayed) == (False, True)
    assert table.to_arrow(where="id <> 9").sort_by("id") == state


def test_the_history_tells_who_deleted_what_when_and_why(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.upsert([{"id": 1}, {"id": 2}], batch_id="load", missing="null")
    started = dt.datetime.now(dt.UTC)
    table.delete([1], actor="bob", reason="asked by the customer")
    table.delete_where("id = 2", reason="GDPR")
    table.add_column(pa.field("w", pa.int64()))
    table.fold()

    newest_first = [(e.operation, e.seq, e.rows, e.actor, e.reason, e.batch_id) for e in table.history()]

    assert newest_first[-5:] == [
        ("add column", 3, None, "ann", None, None),
        ("delete where", 3, 1, "ann", "GDPR", None),
        ("delete", 2, 1, "bob", "asked by the customer", None),
        ("upsert", 1, 2, "ann", None, "load"),
        ("create table", 0, None, "ann", None, None),
    ]
    assert {entry[0] for entry in newest_first[:-5]} == {"fold"}
    deleted = next(e for e in table.history() if e.operation == "delete")
    assert abs(deleted.time - started) < dt.timedelta(minutes=1)
    assert next(e for e in table.history() if e.operation == "delete where").detail == "id = 2"
    assert len(table.history(limit=2)) == 2


def test_a_time_is_as_good_as_a_seq(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    moments = []
    for number in range(3):
        table.upsert([{"id": number}], missing="null")
        (newest,) = table.history(limit=1)
        moments.append(newest.time)
        while dt.datetime.now(dt.UTC) <= newest.time + dt.timedelta(milliseconds=2):
            pass  # the log's clock has milliseconds
    table.fold()
    for number, moment in enumerate(moments):
        for as_of in (moment, moment.isoformat(), moment.replace(tzinfo=None)):
            assert table.to_arrow(as_of=as_of).num_rows == number + 1
    with pytest.raises(NotFound, match="older than its log"):
        table.to_arrow(as_of="2001-01-01")


def test_large_changes_are_read_where_they_lie(lake: Lake) -> None:
    """Bulk loads stand beside base without a merge; later changes of their keys still win."""
    table = lake.create_table("a.t", SCHEMA, key="id")
    for start in (0, 30_000):
        table.append(pa.table({"id": range(start, start + 30_000), "v": ["bulk"] * 30_000}))
    assert len(internals(table).reader.plan(table.snapshot()).clean) == 2
    table.upsert([{"id": 5, "v": "new"}, {"id": 70_000, "v": "new"}])
    table.delete([6, 40_000])

    for _ in range(2):
        assert table.to_arrow().num_rows == 59_999
        assert table.to_arrow(where="v = 'new'").sort_by("id").column("id").to_pylist() == [5, 70_000]
        assert table.to_arrow(where="id in (4, 5, 6)").sort_by("id").to_pylist() == [
            {"id": 4, "v": "bulk"},
            {"id": 5, "v": "new"},
        ]
        assert (table.get(40_000), table.get(40_001), table.get(5)) == (
            None,
            {"id": 40_001, "v": "bulk"},
            {"id": 5, "v": "new"},
        )
        table.fold()


def test_a_first_load_folds_without_writing_a_byte(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.append(pa.table({"id": range(50_000), "v": ["bulk"] * 50_000}))
    plan = table.fold(dry_run=True)
    assert (plan.files_linked, plan.files_rewritten) == (1, 0)

    report = table.fold()

    assert (report.engine, report.bytes_written, report.files_linked, report.inserted) == ("link", 0, 1, 50_000)


def test_a_fold_rewrites_only_the_files_that_hold_a_changed_key(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    for start in range(0, 5000, 1000):
        table.append(pa.table({"id": range(start, start + 1000), "v": ["x"] * 1000}))
    table.fold()
    before = {file.path for file in table.snapshot().base}
    table.upsert([{"id": 1500, "v": "y"}, {"id": 1501, "v": "y"}])
    table.delete([1999, 8888])

    report = table.fold()

    after = {file.path for file in table.snapshot().base}
    assert len(before & after) == 4
    assert (report.updated, report.deleted, report.inserted, report.final_rows) == (2, 1, 0, 4999)
    assert (report.change_rows, report.base_rows, report.files_written) == (4, 5000, 1)


def test_a_plan_that_was_overtaken_still_rewrites_only_what_it_must(lake: Lake) -> None:
    """Giving a job up reads the log too, and must not forget the bounds of its files."""
    table = lake.create_table("a.t", SCHEMA, key="id")
    for start in range(0, 5000, 1000):
        table.append(pa.table({"id": range(start, start + 1000), "v": ["x"] * 1000}))
    table.fold()
    table._internals.handles.base.log.files(())
    table.upsert([{"id": 1500, "v": "y"}])
    assert table.fold(dry_run=True).files_rewritten == 1


@pytest.mark.parametrize("method", ["append", "upsert", "replace", "delete"])
def test_a_write_for_another_schema_is_refused_with_both_fingerprints(lake: Lake, method: str) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id", options={"missing_columns": "null"})
    table.upsert([{"id": 1, "v": "x"}])
    rows = [1] if method == "delete" else [{"id": 1, "v": "y"}]
    before = table.definition.fingerprint
    first = getattr(table, method)(rows, batch_id="b", schema_fingerprint=before)
    with Lake(lake.path) as other:
        other.table("a.t").add_column(pa.field("w", pa.int64()))

    with pytest.raises(Conflict) as refused:
        getattr(table, method)(rows, schema_fingerprint=before)

    now = table.definition.fingerprint
    assert before in str(refused.value)
    assert now in str(refused.value)
    assert now != before
    assert table.snapshot().seq == first.seq
    assert getattr(table, method)(rows, batch_id="b", schema_fingerprint=before).replayed
    assert getattr(table, method)(rows, schema_fingerprint=now).seq == first.seq + 1
    with pytest.raises(InvalidRequest, match="a schema fingerprint is a text"):
        getattr(table, method)(rows, schema_fingerprint=7)


def test_a_schema_that_changes_under_a_write_is_seen_at_its_commit(folder: Path) -> None:
    """The rows were checked against the old columns: the commit looks again."""

    class Overtaken(LocalStorage):
        def step(self, name: str) -> None:
            if name == "write.commit" and not self.done:
                self.done = True
                with Lake(folder / "lake") as other:
                    other.table("a.t").add_column(pa.field("w", pa.int64()))

        done = True

    store = Overtaken()
    with Lake(folder / "lake", store=store) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        fingerprint = table.definition.fingerprint
        store.done = False

        with pytest.raises(Conflict, match="was made for"):
            table.upsert([{"id": 1}], schema_fingerprint=fingerprint, missing="null")

        assert table.to_arrow().num_rows == 0


def test_rows_come_as_lists_and_generators_of_record_batches(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    batches = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]}).to_batches(max_chunksize=1)

    assert table.upsert(batches).rows == 3
    assert table.append(iter(batches)).rows == 3
    assert table.delete(pa.chunked_array([[1], [2]])).deleted == 2
    assert table.to_arrow().to_pylist() == [{"id": 3, "v": "c"}]
