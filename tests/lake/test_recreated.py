"""A name that is dropped and used again, and a lake that is used by several threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Conflict, Lake, NotFound
from lithify.core.names import parse_table_name
from lithify.files.local import LocalStorage

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as opened:
        yield opened


def test_a_batch_id_of_the_dropped_table_is_free_again(lake: Lake) -> None:
    lake.create_table("a.t", SCHEMA, key="id").upsert([{"id": 1}], batch_id="b", missing="null")
    lake.drop_table("a.t")
    table = lake.create_table("a.t", SCHEMA, key="id")

    commit = table.upsert([{"id": 2}], batch_id="b", missing="null")

    assert not commit.replayed
    assert table.to_arrow(["id"]).to_pylist() == [{"id": 2}]


def test_time_travel_ends_where_the_table_was_created(lake: Lake) -> None:
    first = lake.create_table("a.t", SCHEMA, key="id")
    first.upsert([{"id": 1}], missing="null")
    last = first.upsert([{"id": 2}], missing="null").seq
    lake.drop_table("a.t")
    table = lake.create_table("a.t", pa.schema([("id", pa.int64()), ("w", pa.string())]), key="id")
    table.upsert([{"id": 3}], missing="null")

    assert table.to_arrow(as_of=last).to_pylist() == []
    assert table.to_arrow(as_of=last).column_names == ["id", "w"]
    with pytest.raises(NotFound):
        table.to_arrow(as_of=last - 1)


def test_an_interrupted_drop_can_be_run_again(folder: Path) -> None:
    class Stopped(LocalStorage):
        def step(self, name: str) -> None:
            if name == "drop.changes":
                raise KeyboardInterrupt

    with Lake(folder / "lake", store=Stopped()) as broken:
        broken.create_table("a.t", SCHEMA, key="id").upsert([{"id": 1}], missing="null")
        with pytest.raises(KeyboardInterrupt):
            broken.drop_table("a.t")
    with Lake(folder / "lake") as lake:
        lake.drop_table("a.t")

        assert lake.tables() == []
        assert not list((folder / "lake").rglob("*.parquet"))
        with pytest.raises(NotFound):
            lake.drop_table("a.t")


def test_a_half_added_column_goes_on_only_with_its_type(folder: Path) -> None:
    class Stopped(LocalStorage):
        def step(self, name: str) -> None:
            if name == "add_column.committed":
                raise KeyboardInterrupt

    with Lake(folder / "lake", store=Stopped()) as broken:
        table = broken.create_table("a.t", SCHEMA, key="id")
        with pytest.raises(KeyboardInterrupt):
            table.add_column(pa.field("n", pa.int64()))
    with Lake(folder / "lake") as lake:
        table = lake.table("a.t")
        with pytest.raises(Conflict, match="int64"):
            table.add_column(pa.field("n", pa.string()))

        table.add_column(pa.field("n", pa.int64()))
        table.upsert([{"id": 1, "n": 5}], missing="null")
        table.fold()
        assert table.get(1) == {"id": 1, "v": None, "n": 5}


def test_a_reading_thread_cannot_move_the_log_under_a_commit(folder: Path) -> None:
    """Invariants 2 and 3: validated at one version, swapped at that version."""

    class Paused(LocalStorage):
        reader: threading.Thread | None = None

        def step(self, name: str) -> None:
            if name == "write.commit" and self.reader is not None:
                reader, self.reader = self.reader, None
                other.table("a.t").append([{"id": 1, "v": "x"}], batch_id="b")
                reader.start()
                reader.join(0.5)

    store = Paused()
    with Lake(folder / "lake", store=store) as lake, Lake(folder / "lake") as other:
        table = lake.create_table("a.t", SCHEMA)
        store.reader = reader = threading.Thread(target=lambda: lake.table("a.t"))

        commit = table.append([{"id": 1, "v": "x"}], batch_id="b")
        reader.join()

        assert commit.replayed
        assert table.to_arrow().num_rows == 1
        assert [entry.seq for entry in table.history() if entry.operation == "append"] == [1]


def test_threads_that_write_read_and_fold_one_table(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    failures: list[BaseException] = []

    def guarded(work: object, *arguments: object) -> None:
        try:
            work(*arguments)  # type: ignore[operator]
        except BaseException as error:
            failures.append(error)

    def write(start: int) -> None:
        for number in range(10):
            table.upsert([{"id": start + number, "v": "x"}])

    def look() -> None:
        for _ in range(10):
            assert lake.sql("select count(*) = count(distinct id) ok from a.t").to_pylist() == [{"ok": True}]

    def fold() -> None:
        for _ in range(3):
            table.fold()

    work = [(write, 0), (write, 100), (write, 200), (look,), (fold,)]
    threads = [threading.Thread(target=guarded, args=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert table.to_arrow().num_rows == 30
    upserts = [entry for entry in table.history() if entry.operation == "upsert"]
    assert len(upserts) == 30
    assert {entry.seq for entry in upserts} == set(range(1, table.snapshot().seq + 1)), "writers may share a seq"


def test_a_table_that_was_written_to_is_not_dropped_as_unused(lake: Lake) -> None:
    """A failed load gives up the table it created, but not rows that somebody else was acknowledged."""
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.upsert([{"id": 1}], missing="null")

    with pytest.raises(Conflict, match=r"a\.t"):
        lake._catalog.drop(parse_table_name("a.t"), only_at_seq=0)

    assert lake.table("a.t").to_arrow().num_rows == 1


def test_the_list_of_tables_follows_what_others_create_and_drop(folder: Path) -> None:
    schema = pa.schema([("id", pa.int64())])
    with Lake(folder / "lake") as lake, Lake(folder / "lake") as other:
        for _ in range(2):
            other.create_table("a.t", schema)
            assert lake.tables() == ["a.t"] == lake.tables()
            other.drop_table("a.t")
            assert lake.tables() == [] == lake.tables()
