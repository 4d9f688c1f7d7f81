"""Relations of a read plan."""

from __future__ import annotations

import pyarrow as pa
import pytest
from datafusion import SessionContext

from lithify.sql.scan_files import in_memory, without


@pytest.mark.parametrize("by", [["t"], ["h"], ["t", "v"], ["b", "t", "h"]])
def test_key_columns_may_have_any_name(by: list[str]) -> None:
    ctx = SessionContext()
    rows = pa.table({name: pa.array([1, 2, 3]) for name in ("t", "h", "b", "v")})

    found = without(ctx, in_memory(ctx, rows), rows.select(by).slice(0, 1), by).to_arrow_table()

    assert sorted(found.column("v").to_pylist()) == [2, 3]
