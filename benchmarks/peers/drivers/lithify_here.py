"""Lithify in this process: rows as Arrow, reads by SQL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.drivers import TOTALS, Change, Totals, totals_of
from lithify import Lake, Settings

NAME = "shop.orders"


class LithifyHere:
    def __init__(self, folder: Path) -> None:
        # Nothing is kept hot and no answer is kept: peers have neither.
        self._lake = Lake(folder / "lake", settings=Settings(cache_bytes_max=0))

    def load(self, change: Change) -> object:
        self._table = self._lake.create_table(NAME, change.rows.schema, key="id")
        return self._table.upsert(change.rows)

    def upsert(self, change: Change) -> object:
        return self._table.upsert(change.rows)

    def delete(self, keys: Sequence[int]) -> object:
        return self._table.delete(list(keys))

    def totals(self) -> Totals:
        found = self._lake.sql(TOTALS.format(NAME))
        return totals_of(list(zip(*(column.to_pylist() for column in found.columns), strict=True)))

    def get(self, key: int) -> int | None:
        row = self._table.get(key)
        return None if row is None else int(row["amount"])

    def compact(self) -> object:
        return self._table.fold(), self._table.compact()

    def close(self) -> object:
        return self._lake.close()


make = LithifyHere
