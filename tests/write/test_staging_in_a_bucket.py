"""Files of a write whose upload is not answered: no commit names them, so nothing is in doubt for who wrote."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lithify import CommitUnknown, Lake
from lithify.errors import Unavailable
from lithify.files.bucket import storage as bucket_module
from lithify.files.os_errors import InDoubt
from support.fault_proxy import FaultProxy

pytestmark = pytest.mark.bucket
COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])


def test_a_file_that_may_be_there_is_no_write_that_may_be(
    proxy: FaultProxy, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_module, "DOUBT_S_MAX", 0.5)
    with Lake(address) as lake:
        table = lake.create_table("a.t", COLUMNS, key="id")
        table.upsert([{"id": 1, "v": "x"}])
        proxy.fail("500 after", "PUT", r"write-.*\.parquet", times=None)

        with pytest.raises(Unavailable, match="nothing was written to the table: try again") as refused:
            table.upsert([{"id": 2, "v": "y"}])

        assert not isinstance(refused.value, InDoubt | CommitUnknown)
        proxy.heal()
        assert table.to_arrow().to_pylist() == [{"id": 1, "v": "x"}]
        assert table.upsert([{"id": 2, "v": "y"}]).seq == 2
