"""What an operator asks of a service through the client: jobs ended, events, series, the doctor, options, columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lithify import InvalidRequest, Lake
from lithify.client.lake import RemoteLake

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("amount", pa.int32())])


@pytest.fixture
def table(lake: Lake, name: str) -> str:
    lake.create_table(name, SCHEMA, key="id").upsert([{"id": 1, "amount": 1}])
    return name


@pytest.mark.parametrize("id", ["3f0c9a4e5b7d4c1e8a2b6d9f0e1c2b3a", "../jobs", "a b"])
def test_a_job_that_is_not_there_cannot_be_ended(lake: Lake, remote: RemoteLake, id: str) -> None:
    assert [each.cancel_job(id) for each in (lake, remote)] == [False, False]


def test_what_happened_a_moment_ago(lake: Lake, remote: RemoteLake, table: str) -> None:
    before = remote.events(limit=1)["last"]
    seq = lake.table(table).upsert([{"id": 2, "amount": 2}]).seq
    found = remote.events(after=before)
    assert [(each["event"], each["table"], each["facts"]["seq"]) for each in found["events"]] == [
        ("written", table, seq)
    ]
    assert remote.events(after=found["last"])["events"] == []


def test_series_and_doctor(remote: RemoteLake, table: str) -> None:
    assert {"times", "lines", "interval_s"} <= remote.series().keys()
    assert remote.series(since=1e10)["times"] == []
    assert f"table {table}" in {check["name"] for check in remote.doctor()["checks"]}


def test_options_are_set_and_go_back(lake: Lake, remote: RemoteLake, table: str) -> None:
    for value in (9, 3):
        remote.table(table).set_options({"compression_level": value if value == 9 else None})
        assert lake.table(table).options["compression_level"] == value
    with pytest.raises(InvalidRequest, match="there is no table option"):
        remote.table(table).set_options({"compression_levl": 3})
    with pytest.raises(InvalidRequest, match="mapping of names to values"):
        remote.table(table).set_options({})


def test_columns_change_as_they_do_here(lake: Lake, remote: RemoteLake, table: str) -> None:
    there = remote.table(table)
    there.add_column(pa.field("note", pa.string()))
    there.rename_column("note", "remark")
    there.alter_column("amount", type="int64")
    there.drop_column("remark")
    assert lake.table(table).definition.columns == pa.schema([SCHEMA.field("id"), pa.field("amount", pa.int64())])
