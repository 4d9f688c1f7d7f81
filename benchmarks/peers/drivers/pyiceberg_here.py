"""Iceberg through PyIceberg, with its catalog in SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, In

from benchmarks.peers.drivers import Change, Totals, totals_of


class PyIceberg:
    def __init__(self, folder: Path) -> None:
        (folder / "warehouse").mkdir()
        self._catalog = SqlCatalog(
            "peers", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=f"file://{folder / 'warehouse'}"
        )
        self._catalog.create_namespace("shop")

    def load(self, change: Change) -> object:
        self._table = self._catalog.create_table("shop.orders", schema=change.rows.schema)
        return self._table.append(change.rows)

    def upsert(self, change: Change) -> object:
        return self._table.upsert(change.rows, join_cols=["id"])

    def delete(self, keys: Sequence[int]) -> object:
        return self._table.delete(In("id", list(keys)))

    def totals(self) -> Totals:
        rows = self._table.scan(selected_fields=("status", "amount")).to_arrow()
        rows = pa.table({"status": rows.column("status").cast(pa.string()), "amount": rows.column("amount")})
        found = rows.group_by("status").aggregate([("amount", "count"), ("amount", "sum")])
        columns = (found.column(name).to_pylist() for name in ("status", "amount_count", "amount_sum"))
        return totals_of(list(zip(*columns, strict=True)))

    def get(self, key: int) -> int | None:
        found = self._table.scan(EqualTo("id", key), selected_fields=("amount",)).to_arrow()
        return int(pc.first(found.column("amount")).as_py()) if found.num_rows else None

    def compact(self) -> object:
        """PyIceberg has no compaction: the table is written anew."""
        return self._table.overwrite(self._table.scan().to_arrow())

    def close(self) -> object:
        return self._catalog.close()


make = PyIceberg
