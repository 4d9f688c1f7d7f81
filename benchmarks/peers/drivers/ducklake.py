"""DuckLake with its catalog in a DuckDB file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import duckdb_extension_ducklake

from benchmarks.peers.drivers import TOTALS, Change, Totals, totals_of

NAME = "lake.orders"


class DuckLake:
    def __init__(self, folder: Path) -> None:
        (extension,) = Path(duckdb_extension_ducklake.__path__[0]).rglob("ducklake.duckdb_extension")
        self._db = duckdb.connect(config={"threads": 2})
        self._db.execute(f"LOAD '{extension}'")
        self._db.execute("SET TimeZone = 'UTC'")
        self._db.execute(f"ATTACH 'ducklake:{folder / 'catalog.ducklake'}' AS lake (DATA_PATH '{folder / 'data'}')")

    def load(self, change: Change) -> object:
        self._db.register("given", change.rows)
        return self._db.execute(f"CREATE TABLE {NAME} AS SELECT * FROM given")

    def upsert(self, change: Change) -> object:
        self._db.register("given", change.rows)
        return self._db.execute(
            f"MERGE INTO {NAME} AS t USING given AS s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET customer = s.customer, amount = s.amount, status = s.status, "
            "placed = s.placed, note = s.note WHEN NOT MATCHED THEN INSERT"
        )

    def delete(self, keys: Sequence[int]) -> object:
        return self._db.execute(f"DELETE FROM {NAME} WHERE id IN (SELECT unnest(?))", [list(keys)])

    def totals(self) -> Totals:
        return totals_of(self._db.execute(TOTALS.format(NAME)).fetchall())

    def get(self, key: int) -> int | None:
        found = self._db.execute(f"SELECT amount FROM {NAME} WHERE id = ?", [key]).fetchone()
        return None if found is None else int(found[0])

    def compact(self) -> object:
        self._db.execute("CALL ducklake_flush_inlined_data('lake')")
        self._db.execute("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")
        return self._db.execute("CALL ducklake_merge_adjacent_files('lake')")

    def close(self) -> object:
        return self._db.close()


make = DuckLake
