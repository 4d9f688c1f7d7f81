"""Keys that fill a row group are known to be there: a statement that needs no more than them reads no file of base."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lithify import Lake, LithifyError, Settings, Table
from support.faults import FaultyStore, Gate

COLUMNS = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.string())])


def rows(*ids: int) -> list[dict[str, object]]:
    return [{"id": n, "a": n, "b": f"b{n}"} for n in ids]


@pytest.fixture
def table(lake: Lake) -> Table:
    made = lake.create_table("s.t", COLUMNS, key="id")
    made.upsert(rows(*range(100)))
    made.fold()
    return made


@contextmanager
def unreadable(table: Table) -> Iterator[None]:
    """No file of base is where it should be."""
    files = [Path(table.base_path) / file.path for file in table.snapshot().base]
    assert files
    for file in files:
        file.rename(f"{file}.away")
    try:
        yield
    finally:
        for file in files:
            Path(f"{file}.away").rename(file)


def values(table: Table, *ids: int) -> dict[int, object]:
    found = {row["id"]: row["a"] for row in table.to_arrow().to_pylist()}
    return {number: found[number] for number in ids if number in found}


@pytest.mark.parametrize(
    ("text", "done", "left"),
    [
        ("UPDATE s.t SET a = -1 WHERE id IN (3, 4, 200)", (0, 2, 0), {3: -1, 4: -1}),
        ("UPDATE s.t SET a = id + 1000 WHERE id = 3 AND id < 50", (0, 1, 0), {3: 1003, 4: 4}),
        ("DELETE FROM s.t WHERE id IN (4, 3, -1)", (0, 0, 2), {}),
        (
            "MERGE INTO s.t USING (VALUES (3, -3), (200, -200)) AS s(id, a) ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET a = s.a WHEN NOT MATCHED THEN INSERT (id, a) VALUES (s.id, s.a)",
            (1, 1, 0),
            {3: -3, 4: 4, 200: -200},
        ),
        (
            "MERGE INTO s.t USING (VALUES (3)) AS s(id) ON t.id = s.id WHEN MATCHED THEN DELETE",
            (0, 0, 1),
            {4: 4},
        ),
        (
            "INSERT INTO s.t (id, a) VALUES (3, -3), (200, -200) ON CONFLICT DO NOTHING",
            (1, 0, 0),
            {3: 3, 4: 4, 200: -200},
        ),
        (
            "INSERT INTO s.t (id, a) VALUES (3, -3), (200, -200) ON CONFLICT (id) DO UPDATE SET a = excluded.a",
            (1, 1, 0),
            {3: -3, 4: 4, 200: -200},
        ),
    ],
)
def test_what_needs_no_more_than_the_keys_reads_no_file(
    lake: Lake, table: Table, text: str, done: tuple[int, int, int], left: dict[int, int]
) -> None:
    with unreadable(table):
        found = lake.execute(text)

    assert (found.inserted, found.updated, found.deleted) == done
    assert values(table, 3, 4, 200) == left


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE s.t SET a = a + 1 WHERE id = 3",
        "UPDATE s.t SET a = 1 WHERE id = 3 AND b = 'b3'",
        "UPDATE s.t SET a = 1 WHERE a = 3",
        "INSERT INTO s.t (id, a) VALUES (3, 1) ON CONFLICT (id) DO UPDATE SET a = t.a + 1",
    ],
)
def test_what_needs_more_reads_the_file(lake: Lake, table: Table, text: str) -> None:
    with unreadable(table), pytest.raises(LithifyError):
        lake.execute(text)
    assert lake.execute(text).updated == 1


def test_what_is_pending_counts_before_what_is_known_of_base(lake: Lake, table: Table) -> None:
    table.delete([3])
    table.upsert(rows(150))
    table.update([{"id": 5, "b": "five"}])
    with unreadable(table):
        assert lake.execute("UPDATE s.t SET a = -1 WHERE id IN (3, 4, 5, 150, 151)").updated == 3
        assert lake.execute("INSERT INTO s.t (id) VALUES (3), (4) ON CONFLICT DO NOTHING").inserted == 1
    assert values(table, 3, 4, 5, 150, 151) == {3: None, 4: -1, 5: -1, 150: -1}


def test_where_a_number_is_missing_the_file_is_read(lake: Lake, table: Table) -> None:
    table.delete([50])
    table.fold()
    text = "UPDATE s.t SET a = -1 WHERE id IN (49, 50, 51)"
    with unreadable(table), pytest.raises(LithifyError):
        lake.execute(text)
    assert lake.execute(text).updated == 2
    assert values(table, 49, 50, 51) == {49: -1, 51: -1}


def test_a_row_that_has_expired_is_not_there_however_full_its_row_group_is(lake: Lake) -> None:
    schema = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    lake.create_table("s.t", schema, key="id", expires="at + interval '10 days'")
    lake.execute("INSERT INTO s.t VALUES (1, 1, now()), (2, 2, timestamp '2001-01-01 00:00:00'), (3, 3, now())")
    assert lake.execute("UPDATE s.t SET a = -1 WHERE id IN (1, 2, 3)").updated == 2


def test_others_may_have_written_a_key_twice_into_an_adopted_base(lake: Lake, folder: Path) -> None:
    given = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "a": pa.array([1, 2, 3], pa.int64())})
    write_deltalake(str(folder / "given"), given)
    table = lake.adopt("s.given", folder / "given", key="id")
    with unreadable(table), pytest.raises(LithifyError):
        lake.execute("UPDATE s.given SET a = 0 WHERE id = 2")
    assert lake.execute("UPDATE s.given SET a = 0 WHERE id = 2").updated == 1


def test_who_was_overtaken_looks_at_the_keys_again(folder: Path) -> None:
    """The other one deletes the row between the decision and the commit."""
    with Lake(folder / "lake") as other:
        made = other.create_table("s.t", COLUMNS, key="id")
        made.upsert(rows(*range(100)))
        made.fold()
        gate = Gate()
        with (
            Lake(folder / "lake", settings=Settings(), store=FaultyStore("write.files", gate.hold)) as lake,
            ThreadPoolExecutor(1) as pool,
        ):
            waiting = pool.submit(lake.execute, "UPDATE s.t SET a = -1 WHERE id IN (3, 4)")
            gate.wait()
            other.table("s.t").delete([3])
            gate.open()
            done = waiting.result(60)

        assert done.updated == 1
        assert values(other.table("s.t"), 3, 4) == {4: -1}


def test_more_pending_changes_than_are_resolved_in_memory(folder: Path) -> None:
    with Lake(folder / "lake", settings=Settings(resolve_rows_max=10)) as lake:
        made = lake.create_table("s.t", COLUMNS, key="id")
        made.upsert(rows(*range(100)))
        made.fold()
        made.delete(list(range(20)))
        assert lake.execute("UPDATE s.t SET a = -1 WHERE id IN (3, 40, 200)").updated == 1
        assert values(made, 3, 40, 200) == {40: -1}
