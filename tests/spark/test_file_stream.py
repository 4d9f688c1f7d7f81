"""Files of a folder as a stream: each taken once, in the order they were written, none of their records lost."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from lithify import InvalidRequest, Lake
from lithify.cli.main import app
from lithify.streams.folder import FileStream
from support.streams import SCHEMA, applied, events_of, write_file

pytestmark = pytest.mark.spark


def test_files_are_taken_once_and_in_the_order_they_were_written(lake: Lake, tmp_path: Path) -> None:
    """Without order_by, so that the order of the files in one batch decides; names say the contrary."""
    table = lake.create_table("s.t", SCHEMA, key="id")
    first, second = events_of(1, 80), events_of(2, 10)
    write_file(tmp_path / "in", 9, first)
    write_file(tmp_path / "in", 1, second)
    for number, name in enumerate(("0009", "0001")):
        os.utime(tmp_path / "in" / f"{name}.json", (1_700_000_000 + number,) * 2)

    report = FileStream(table._internals, str(tmp_path / "in"), op_column="op").run()

    found = {row["id"]: row for row in table.to_arrow().to_pylist()}
    assert found == applied([*first, *second], ordered=False)
    assert (report.batches, report.seq) == (1, 1)

    third = events_of(3, 200)
    write_file(tmp_path / "in", 10, third)
    again = FileStream(table._internals, str(tmp_path / "in"), op_column="op", rows_max=50).run()

    found = {row["id"]: row for row in table.to_arrow().to_pylist()}
    assert found == applied([*first, *second, *third], ordered=False)
    assert (again.batches, again.seq) == (1, 2)

    for number, text in ((11, ""), (12, "\n\n")):
        (tmp_path / "in" / f"{number:04}.json").write_text(text)
        empty = FileStream(table._internals, str(tmp_path / "in"), op_column="op").run()
        assert (empty.batches, empty.rows, empty.seq) == (1, 0, number - 8)
    with pytest.raises(InvalidRequest, match=r"belongs to a stream from .* with mode upsert and op_column op"):
        FileStream(table._internals, str(tmp_path / "in"), checkpoint=report.checkpoint)


def test_records_that_do_not_fit_stop_the_stream_until_they_are_set_aside(lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("s.t", pa.schema([("id", pa.int64()), ("day", pa.date32())]), key="id")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("day,id\n2026-11-15,1\nyesterday,2\n2026-11-16,\n")

    with pytest.raises(InvalidRequest, match=r"a\.csv, line 3, column 'day': 'yesterday' does not fit date"):
        FileStream(table._internals, str(tmp_path / "in")).run()
    assert table.snapshot().seq == 0
    command = ["--lake", str(lake.path), "stream", f"{tmp_path}/in/*.csv", "s.t", "--once", "--json"]
    answer = CliRunner().invoke(app, [*command, "--null-keys", "quarantine"])

    assert answer.exit_code == 0, answer.output
    batch, done = (json.loads(line) for line in answer.stdout.splitlines())
    assert (batch["batch"], batch["rows"], batch["seq"], done["rows"]) == (0, 1, 1, 1)
    assert [row["id"] for row in table.to_arrow().to_pylist()] == [1]
    aside = [json.loads(line) for file in lake.path.rglob("quarantine/*/*.json") for line in file.open()]
    assert sorted(line["record"] for line in aside) == ["yesterday,2", '{"id": null, "day": "2026-11-16"}']
    assert str(table.history(1)[0].detail).endswith(" 0, 2 records set aside")


def test_a_record_that_lacks_a_required_value_is_set_aside_unless_it_is_a_delete(lake: Lake, tmp_path: Path) -> None:
    columns = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.string(), nullable=False)])
    table = lake.create_table("s.t", columns, key="id")
    table.upsert([{"id": 1, "v": "one"}, {"id": 2, "v": "two"}])
    (tmp_path / "in").mkdir()
    events = [{"op": "D", "id": 1}, {"op": "u", "id": 2}, {"op": "c", "id": 3, "v": "three"}]
    (tmp_path / "in" / "a.json").write_text("\n".join(map(json.dumps, events)))

    with pytest.raises(InvalidRequest, match=r"a\.json, line 2, column 'v': null, and it needs a value"):
        FileStream(table._internals, str(tmp_path / "in"), op_column="op").run()
    FileStream(table._internals, str(tmp_path / "in"), op_column="op", null_keys="quarantine").run()

    assert table.to_arrow().to_pylist() == [{"id": 2, "v": "two"}, {"id": 3, "v": "three"}]
    aside = [json.loads(line) for file in lake.path.rglob("quarantine/*/*.json") for line in file.open()]
    assert [(line["line"], line["column"], line["why"]) for line in aside] == [(2, "v", "null, and it needs a value")]


PEOPLE = pa.schema([("id", pa.int64()), ("name", pa.string()), ("city", pa.string()), ("n", pa.int64())])
THERE = [{"id": id, "name": "old", "city": "Rome", "n": 1} for id in (1, 2, 3)]


def json_file(path: Path) -> None:
    path.write_text('{"id": 1, "name": "new"}\n{"id": 2, "city": null, "n": 2}\n{"id": 4, "name": "x"}\n')


def csv_files(path: Path) -> None:
    path.write_text("id,name\n1,new\n4,x\n")
    (path.parent / "second.csv").write_text("n,id,city\n2,2,\n")


def parquet_files(path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 4], "name": ["new", "x"]}), path)
    pq.write_table(pa.table({"n": [2], "id": [2], "city": pa.nulls(1, pa.string())}), path.parent / "second.parquet")


@pytest.mark.parametrize("rows_max", [None, 0], ids=["here", "on Spark"])
@pytest.mark.parametrize(
    ("name", "write"), [("first.json", json_file), ("first.csv", csv_files), ("first.parquet", parquet_files)]
)
def test_an_update_sets_the_columns_that_records_or_their_files_have(
    lake: Lake, tmp_path: Path, name: str, write: Callable[[Path], None], rows_max: int | None
) -> None:
    table = lake.create_table("s.t", PEOPLE, key="id")
    table.upsert(THERE)
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / name)

    FileStream(table._internals, str(tmp_path / "in"), mode="update", rows_max=rows_max).run()

    expected = [
        {"id": 1, "name": "new", "city": "Rome", "n": 1},
        {"id": 2, "name": "old", "city": None, "n": 2},
        THERE[2],
        {"id": 4, "name": "x", "city": None, "n": None},
    ]
    assert table.to_arrow().sort_by("id").to_pylist() == expected
    table.fold()
    assert table.to_arrow().sort_by("id").to_pylist() == expected


def test_updates_of_a_folder_may_delete_and_set_aside(lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("s.t", PEOPLE, key="id")
    table.upsert(THERE)
    (tmp_path / "in").mkdir()
    events = [{"op": "u", "id": 1, "n": 5}, {"op": "d", "id": 2}, {"op": "u", "id": 3, "n": "x"}, {"op": "u", "n": 1}]
    (tmp_path / "in" / "a.json").write_text("\n".join(map(json.dumps, events)))
    command = ["--lake", str(lake.path), "stream", f"{tmp_path}/in", "s.t", "--mode", "update", "--op-column", "op"]

    answer = CliRunner().invoke(app, [*command, "--on-bad-record", "quarantine", "--once", "--json"])

    assert answer.exit_code == 0, answer.output
    assert table.to_arrow().sort_by("id").to_pylist() == [{**THERE[0], "n": 5}, THERE[2]]
    aside = [json.loads(line) for file in lake.path.rglob("quarantine/*/*.json") for line in file.open()]
    assert len(aside) == 2
    assert not any("_lithify_given" in line["record"] for line in aside)


def test_messages_of_a_folder_that_lack_a_column_leave_it(lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("s.t", PEOPLE, key="id")
    table.upsert(THERE)
    (tmp_path / "in").mkdir()
    after = {"id": 1, "name": "new", "city": "__debezium_unavailable_value"}
    (tmp_path / "in" / "a.json").write_text(json.dumps({"op": "u", "before": None, "after": after}))

    FileStream(table._internals, str(tmp_path / "in"), mode="update", envelope="debezium").run()

    assert table.get(1) == {**THERE[0], "name": "new"}


def test_a_stream_that_goes_on_takes_what_appears_until_it_is_stopped(lake: Lake, tmp_path: Path) -> None:
    table, taken = lake.create_table("s.log", pa.schema([("id", pa.int64())])), threading.Semaphore(0)
    (tmp_path / "in").mkdir()
    stream = FileStream(
        table._internals, str(tmp_path / "in"), format="json", mode="append", on_batch=lambda batch: taken.release()
    )
    running = threading.Thread(target=stream.run, args=(0.1,))
    running.start()
    for number in range(2):
        hidden = tmp_path / "in" / f".{number}"
        hidden.write_text(f'{{"id": {number}}}\n')
        hidden.rename(tmp_path / "in" / f"{number}.json")
        assert taken.acquire(timeout=120)
    stream.stop()
    running.join(120)

    assert not running.is_alive()
    assert sorted(table.to_arrow().column("id").to_pylist()) == [0, 1]


def test_a_stream_with_much_to_do_stops_after_the_batch_under_way(lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("s.log", pa.schema([("id", pa.int64())]))
    (tmp_path / "in").mkdir()
    for number in range(4):
        (tmp_path / "in" / f"{number}.json").write_text(f'{{"id": {number}}}\n')
    stream = FileStream(
        table._internals, str(tmp_path / "in"), mode="append", files_max=1, on_batch=lambda batch: stream.stop()
    )

    assert (stream.run().batches, table.snapshot().seq) == (1, 1)
    rest = FileStream(table._internals, str(tmp_path / "in"), mode="append", files_max=1).run()

    assert (rest.batches, rest.rows) == (3, 3)
    assert sorted(table.to_arrow().column("id").to_pylist()) == [0, 1, 2, 3]
