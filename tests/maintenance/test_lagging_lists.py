"""A server that lists objects later than it stores them: maintenance and reads go by what is there all the same."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from lithify import Lake, Table
from lithify.lake.maintenance import Maintenance
from support.clocks import HOUR_MS, Clock, lake_with
from support.fault_proxy import FaultProxy
from support.s3_servers import S3Server

pytestmark = [pytest.mark.bucket, pytest.mark.parametrize("s3", ["versitygw"], indirect=True)]

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
LATER = Clock(2 * HOUR_MS)


@pytest.fixture
def table(address: str) -> Iterator[Table]:
    with Lake(address) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        table.upsert(rows("first"))
        table.fold()
        yield table


def rows(v: str) -> list[dict[str, object]]:
    return [{"id": number, "v": v} for number in range(3)]


def values(table: Table, as_of: int | None = None) -> set[str]:
    return set(table.to_arrow(as_of=as_of).column("v").to_pylist())


def age(s3: S3Server, address: str, hours: float) -> None:
    """Everything that is there, by the server's clock."""
    then_s = time.time() - hours * 3600
    for file in s3.files_of(address).rglob("*"):
        if file.is_file():
            os.utime(file, (then_s, then_s))


def test_what_was_removed_by_a_commit_that_is_not_listed_stays(
    s3: S3Server, proxy: FaultProxy, address: str, table: Table
) -> None:
    age(s3, address, 3)
    table.upsert(rows("second"))
    table.fold()
    proxy.leave_out(r"/_delta_log/0*[2-9]\.json$")
    with Lake(address) as lake:
        lake.table("a.t").vacuum(1, dry_run=False)
        assert values(lake.table("a.t")) == {"second"}
        assert values(lake.table("a.t"), as_of=1) == {"first"}


def test_maintenance_and_reads_go_on(proxy: FaultProxy, address: str, table: Table) -> None:
    proxy.leave_out(r"/_delta_log/0*[3-9]\.|/_delta_log/0*[1-9]\d\.|/pins/|/jobs/|/doomed/|/bulk-|/fold-|/write-")
    for number in range(12):
        table.upsert(rows(f"{number}"))
        if number % 3 == 2:
            table.fold()
        with Lake(address) as lake:
            assert values(lake.table("a.t")) == {f"{number}"}
    with lake_with(LATER, address) as later:
        maintenance = Maintenance(later)
        assert maintenance.cycle.run().healthy
        assert maintenance.cycle.run(vacuum=True).healthy
        assert values(later.table("a.t")) == {"11"}
    table.upsert(rows("last"))
    proxy.heal()
    with lake_with(LATER, address) as later:
        later.table("a.t").fold()
        later.table("a.t").vacuum(1, dry_run=False)
        assert values(later.table("a.t")) == {"last"}
