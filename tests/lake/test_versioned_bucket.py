"""A lake in a bucket that keeps versions: it works as in any other, and what was deleted is still there to be paid for,
as docs/object-stores.md says.
"""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from lithify import Lake, Settings
from support.clocks import Clock, lake_with
from support.s3_servers import S3Server

pytestmark = pytest.mark.bucket

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
SETTINGS = Settings(lease_s=1, lock_wait_s_max=5)


@pytest.fixture
def address(s3: S3Server) -> str:
    bucket = f"versions-{uuid.uuid4().hex[:12]}"
    s3.make_bucket(bucket)
    s3.keep_versions(bucket)
    return f"s3://{bucket}/lake"


@pytest.mark.parametrize("s3", ["SeaweedFS"], indirect=True)
def test_the_life_of_a_table(s3: S3Server, address: str) -> None:
    clock = Clock()
    with lake_with(clock, address, SETTINGS) as lake:
        table = lake.create_table("shop.orders", SCHEMA, key="id")
        for number in range(5):
            table.upsert([{"id": number % 3, "v": str(number)}])
            table.fold()
        table.tag("then", as_of=2)
        table.delete([0])
        assert lake.sql("select id, v from shop.orders order by id").to_pylist() == [
            {"id": 1, "v": "4"},
            {"id": 2, "v": "2"},
        ]
        clock.jump(hours=3)
        removed = table.vacuum(1, dry_run=False)
        assert removed.files > 0
        assert table.to_arrow(as_of="then").sort_by("id").to_pylist() == [{"id": 0, "v": "0"}, {"id": 1, "v": "1"}]

        before = s3.versions(address)
        lake.drop_table("shop.orders")
        assert lake.tables() == []
        assert len(s3.versions(address)) > len(before), "marks of deletions come on top of what is kept"

        again = lake.create_table("shop.orders", SCHEMA, key="id")
        again.upsert([{"id": 7, "v": "new"}])
        assert again.to_arrow().to_pylist() == [{"id": 7, "v": "new"}]
    with Lake(address) as elsewhere:
        assert elsewhere.table("shop.orders").to_arrow().to_pylist() == [{"id": 7, "v": "new"}]
