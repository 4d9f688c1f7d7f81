"""A lake that has a bucket for itself, without a prefix."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from lithify import InvalidRequest, Lake
from support.clocks import HOUR_MS, Clock, lake_with
from support.s3_servers import S3Server

pytestmark = pytest.mark.bucket

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def bucket(s3: S3Server) -> str:
    name = f"b{uuid.uuid4().hex}"
    s3.make_bucket(name)
    return f"s3://{name}"


@pytest.mark.parametrize("slash", ["", "/"])
def test_it_is_one_as_any_other(bucket: str, slash: str) -> None:
    with Lake(bucket + slash) as lake:
        assert str(lake.path) == bucket
        table = lake.create_table("a.t", SCHEMA, key="id")
        table.upsert([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
        table.fold()
        table.tag("one")
        table.upsert([{"id": 1, "v": "c"}])
        table.fold()
    with lake_with(Clock(2 * HOUR_MS), bucket) as later:
        assert later.tables() == ["a.t"]
        later.table("a.t").vacuum(1, dry_run=False)
        later.maintain()
        assert later.sql("select v from a.t order by id").to_pydict() == {"v": ["c", "b"]}
        assert later.table("a.t").get(1) == {"id": 1, "v": "c"}
        assert later.table("a.t").to_arrow(as_of="one").num_rows == 2
        later.drop_table("a.t")
        assert later.tables() == []
        again = later.create_table("a.t", SCHEMA, key="id")
        assert again.to_arrow().num_rows == 0


def test_one_that_holds_something_else_is_refused(s3: S3Server, bucket: str) -> None:
    s3.put(f"{bucket}/report.csv", b"a,b")

    with pytest.raises(InvalidRequest, match=bucket):
        Lake(bucket)


def test_nothing_in_it_can_be_adopted(s3: S3Server, bucket: str) -> None:
    with Lake(bucket) as lake:
        s3.put(f"{bucket}/given/part.parquet", b"")
        with pytest.raises(InvalidRequest, match="lies inside this lake"):
            lake.adopt("a.t", f"{bucket}/given", key="id")
