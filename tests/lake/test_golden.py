"""A lake that was written before opens after: one of an earlier Lithify is read, written to and looked after."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lithify import Lake, Settings
from lithify.tools import doctor
from support import golden_lake
from support.golden_lake import plain, row, sorted_rows, told

EXPECTED: dict[str, dict[str, Any]] = json.loads(golden_lake.EXPECTED.read_text())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return golden_lake.unpacked(tmp_path)


@pytest.fixture
def lake(path: Path) -> Iterator[Lake]:
    with Lake(path, create=False) as lake:
        yield lake


def test_it_has_something_of_everything() -> None:
    kinds, days = EXPECTED["shop.kinds"], EXPECTED["shop.days"]
    assert len(EXPECTED) == 6
    assert kinds["tags"] == [["loaded", 3]]
    assert {line[0] for line in kinds["history"]} >= {"create table", "upsert", "delete", "fold", "add column"}
    assert len(kinds["rows"]["3"]) == 18
    assert len(kinds["rows"]["5"]) == 17  # one more, two fewer
    assert sum(line[0] == "fold" for line in days["history"]) == 2


def test_it_answers_as_it_did(lake: Lake) -> None:
    """Rows as of every version, changes, positions, tags, history."""
    found = told(lake)

    assert found.keys() == EXPECTED.keys()
    for name, expected in EXPECTED.items():
        for question, answer in expected.items():
            assert found[name][question] == answer, (name, question)


def test_it_is_read_at_every_door(lake: Lake) -> None:
    kinds = lake.table("shop.kinds")

    assert kinds.get(3) is None
    assert kinds.get(4) == row(4, "changed") | {"note": "new"}
    assert kinds.to_arrow(columns=["id"], where="amount = 5.25").to_pylist() == [{"id": 5}]
    counted = lake.sql("select count(*) as n from shop.kinds where at >= timestamp '2026-01-30 16:00:00Z'")
    assert counted.to_pylist() == [{"n": 8}]
    tagged = lake.sql("select * from shop.kinds", as_of="loaded")
    assert sorted_rows(tagged) == EXPECTED["shop.kinds"]["rows"]["3"]
    written = dt.datetime.fromisoformat(next(h for h in EXPECTED["shop.kinds"]["history"] if h[1] == 2)[-1])
    assert kinds.snapshot(as_of=written).seq == 2
    assert lake.table("shop.ordered").get("x") == {"id": "x", "v": 5}  # 4 came late
    assert lake.table("shop.days").options["minor_files_min"] == 3


def test_batches_that_it_remembers_are_not_written_again(lake: Lake) -> None:
    kinds, events = lake.table("shop.kinds"), lake.table("shop.events")

    assert kinds.upsert([row(0, "n0")], batch_id="load-0").replayed
    assert kinds.delete([3, 17], batch_id="gone").replayed
    assert events.append([{"at": None, "name": "c"}], batch_id="twice").replayed
    assert plain(kinds.position()) == EXPECTED["shop.kinds"]["position"]


def test_its_indexes_are_right_and_the_doctor_finds_nothing(lake: Lake, path: Path) -> None:
    """Copied files are other files to an index: a read notices it, and what it says of them is told anew."""
    for name in lake.tables():
        before = lake.table(name).check_index()
        assert (before.missing, before.extra) == ((), ()), name
    told(lake)
    for name in lake.tables():
        check = lake.table(name).check_index()
        assert (check.missing, check.extra, check.different) == ((), (), ()), name
    checks = doctor.check_lake(Settings(), path, lake)
    assert {check.status for check in checks} == {"ok"}, checks
    assert {f"table {name}" for name in EXPECTED} <= {check.name for check in checks}


def test_it_folds(lake: Lake) -> None:
    for name, expected in EXPECTED.items():
        table = lake.table(name)
        table.fold()
        newest = expected["rows"][max(expected["rows"], key=int)]

        assert table.stats().pending_rows == 0
        assert sorted_rows(table.to_arrow()) == newest
        for seq, rows in expected["rows"].items():
            assert sorted_rows(table.to_arrow(as_of=int(seq))) == rows
        base = pa.table(DeltaTable(str(table.base_path)).to_pyarrow_table(columns=table.schema.names))
        assert base.num_rows == len(newest)
        assert table.check_index().different == ()


def test_it_is_written_to_with_what_has_come_since(lake: Lake, path: Path) -> None:
    kinds, days = lake.table("shop.kinds"), lake.table("shop.days")

    kinds.update([{"id": 4, "note": "later"}])
    kinds.rename_column("note", "remark")
    kinds.alter_column("small", type=pa.int64())
    kinds.alter_column("name", default="nameless")
    lake.execute("delete from shop.kinds where id = 5")
    days.upsert([row(30, "fourth"), row(300, "new day")])
    lake.maintain()
    kinds.fold()
    days.fold()
    for table in (kinds, days):
        table.vacuum(retain_hours=168, dry_run=False)
    lake.close()

    with Lake(path) as again:
        kinds, days = again.table("shop.kinds"), again.table("shop.days")
        found = kinds.get(4)
        assert found is not None
        assert (found["remark"], found["name"], kinds.get(5)) == ("later", "changed", None)
        assert sorted_rows(kinds.to_arrow(as_of="loaded")) == EXPECTED["shop.kinds"]["rows"]["3"]
        assert days.get(30) == row(30, "fourth")
        assert days.count() == len(EXPECTED["shop.days"]["rows"]["4"]) + 1
        assert kinds.check_index().different == days.check_index().different == ()
        assert {check.status for check in doctor.check_lake(Settings(), path, again)} == {"ok"}
