"""Options of a table: checked before anything changes, kept in the changes log, durable, seen by every process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import InvalidRequest, Lake, NotFound, Settings
from support.faults import FaultyStore, Gate, RecordingStore

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("tags", pa.list_(pa.string()))])


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "lake"


def test_options_given_at_creation_hold_from_the_first_write(path: Path) -> None:
    with Lake(path) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id", options={"row_group_rows": 2048, "bloom_columns": []})
        assert (table.options["row_group_rows"], table.options["bloom_columns"]) == (2048, ())
        assert table.options["compression_level"] == 3
    with Lake(path) as lake:
        assert lake.table("a.t").options["row_group_rows"] == 2048


def test_setting_is_one_commit_that_the_history_shows(path: Path) -> None:
    with Lake(path, settings=Settings(actor="ann")) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        table.upsert([{"id": 1}], missing="null")
        before = table.snapshot().changes_version
        table.set_options({"compression_level": "9", "bloom_columns": ["v"]})
        assert table.snapshot().changes_version == before + 1
        assert table.options["compression_level"] == 9
        newest = table.history()[0]
        assert (newest.operation, newest.actor, newest.seq) == ("set options", "ann", 1)
        assert newest.detail == 'bloom_columns=["v"], compression_level=9'
        assert table.upsert([{"id": 2}], missing="null").seq == 2
        assert table.snapshot(as_of=1).pending_rows == 1


def test_none_goes_back_to_the_lakes_setting(path: Path) -> None:
    with Lake(path, settings=Settings(compression_level=5)) as lake:
        table = lake.create_table("a.t", SCHEMA, options={"compression_level": 9})
        table.set_options({"compression_level": None})
        assert table.options["compression_level"] == 5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"compression_level": 5, "bloom_fpp": 2}, "option bloom_fpp cannot be 2"),
        ({"colour": "red"}, "there is no table option 'colour'"),
        ({"bloom_columns": ["nowhere"]}, "bloom_columns names 'nowhere': the table has id, v, tags"),
        ({"bloom_columns": ["tags"]}, "bloom_columns names 'tags', which is list"),
        ({}, "no option was given"),
    ],
)
def test_a_bad_option_changes_nothing(path: Path, values: dict[str, Any], message: str) -> None:
    with Lake(path) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        before = (table.snapshot().changes_version, table.options)
        with pytest.raises(InvalidRequest, match=message):
            table.set_options(values)
        assert (table.snapshot().changes_version, table.options) == before
        if values:
            with pytest.raises(InvalidRequest, match=message):
                lake.create_table("a.other", SCHEMA, key="id", options=values)
            assert lake.tables() == ["a.t"]


def test_setting_while_another_process_writes_loses_neither(path: Path) -> None:
    gate = Gate()
    with Lake(path) as first:
        first.create_table("a.t", SCHEMA, key="id")
        with Lake(path, store=FaultyStore("write.commit", gate.hold)) as second:
            table = second.table("a.t")
            writing = threading.Thread(target=lambda: table.upsert([{"id": 1}], missing="null"))
            writing.start()
            gate.wait()
            first.table("a.t").set_options({"compression_level": 9})
            gate.open()
            writing.join()
            assert table.options["compression_level"] == 9
        assert first.table("a.t").get(1) is not None


def test_setting_is_durable_before_it_returns(path: Path) -> None:
    store = RecordingStore()
    with Lake(path, store=store) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        table.upsert([{"id": 1}], missing="null")
        store.points.clear()
        table.set_options({"compression_level": 9})
        assert store.points == [
            "set_options.commit",
            "log.swap",
            "set_options.committed",
            "store.sync",
            "store.sync",
            "set_options.durable",
        ]


def test_a_dropped_table_takes_no_options_and_a_new_one_begins_without(path: Path) -> None:
    with Lake(path) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id", options={"compression_level": 9})
        lake.drop_table("a.t")
        with pytest.raises(NotFound):
            table.set_options({"compression_level": 8})
        assert lake.create_table("a.t", SCHEMA, key="id").options["compression_level"] == 3


@pytest.mark.parametrize(
    "tiers",
    [
        [{"name": "mine", "window": "6h", "age_min_s": 0, "files_min": 2, "target_bytes": 2**20}],
        [{"name": "weekly", "window": "day", "enabled": True}],
    ],
    ids=["unknown to the lake", "as long as another"],
)
def test_tiers_that_do_not_fit_the_lakes_are_refused(path: Path, tiers: list[dict[str, Any]]) -> None:
    lake = Lake(path)
    table = lake.create_table("a.t", pa.schema([("id", pa.int64())]), key="id")

    with pytest.raises(InvalidRequest):
        table.set_options({"tiers": tiers})
    with pytest.raises(InvalidRequest):
        lake.create_table("a.u", pa.schema([("id", pa.int64())]), key="id", options={"tiers": tiers})

    assert table.options["tiers"] == ()
    assert lake.tables() == ["a.t"]
    lake.close()
