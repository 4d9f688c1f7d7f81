"""Delta Lake through delta-rs: merge for changes, its own DataFusion for reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from benchmarks.peers.drivers import TOTALS, Change, Totals, totals_of


class DeltaRs:
    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "orders")

    def load(self, change: Change) -> object:
        write_deltalake(self._path, change.rows)
        self._table = DeltaTable(self._path)
        return self._table

    def upsert(self, change: Change) -> object:
        merge = self._table.merge(change.rows, "t.id = s.id", source_alias="s", target_alias="t")
        return merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def delete(self, keys: Sequence[int]) -> object:
        return self._table.delete(f"id IN ({', '.join(map(str, keys))})")

    def totals(self) -> Totals:
        found = self._asked(TOTALS.format("orders"))
        return totals_of(list(zip(*(column.to_pylist() for column in found.columns), strict=True)))

    def get(self, key: int) -> int | None:
        found = self._asked(f"SELECT amount FROM orders WHERE id = {key}")
        return int(found.column("amount")[0].as_py()) if found.num_rows else None

    def compact(self) -> object:
        return self._table.optimize.compact()

    def close(self) -> None: ...

    def _asked(self, query: str) -> pa.Table:
        return pa.table(QueryBuilder().register("orders", self._table).execute(query).read_all())


make = DeltaRs
