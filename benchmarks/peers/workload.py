"""Rows, changes and the right answers, made once and read by every peer from the same files.

Orders in no order; then batches of changes, nine of ten to keys that are there; look-ups of keys that were changed,
that were not, and that never were; deletes. Amounts are whole cents, so that sums can be compared to the last digit.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

STATUSES = np.array(["delivered", "new", "packed", "paid", "returned", "shipped"])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int64()),
        ("amount", pa.int64()),
        ("status", pa.string()),
        ("placed", pa.timestamp("us", tz="UTC")),
        ("note", pa.string()),
    ]
)
FIRST_PLACED_S, LAST_PLACED_S = 1_700_000_000, 1_780_000_000
LOADED = "load.parquet"
EXPECTED = "expected.json"


@dataclass(frozen=True)
class Sizes:
    rows: int = 3_000_000
    change_rows: int = 1_000
    first_changes: int = 20
    further_changes: int = 10
    lookups: int = 100

    @property
    def changes(self) -> int:
        return self.first_changes + self.further_changes


@dataclass(frozen=True)
class Expected:
    """`totals`: by status, how many orders and their cents, after the load and after each batch of changes; at last
    after the deletes. `lookups`: the cents of an order, or None.
    """

    sizes: Sizes
    totals: list[dict[str, list[int]]]
    lookups: dict[int, int | None]
    deletes: list[int]

    @classmethod
    def read(cls, folder: Path) -> Expected:
        said = json.loads((folder / EXPECTED).read_text())
        return cls(
            Sizes(**said["sizes"]),
            said["totals"],
            {int(key): cents for key, cents in said["lookups"].items()},
            said["deletes"],
        )


def change_file(number: int) -> str:
    return f"change-{number:03d}.parquet"


def make(folder: Path, sizes: Sizes, seed: int = 7) -> None:
    random = np.random.default_rng(seed)
    capacity = sizes.rows + sizes.changes * sizes.change_rows
    amounts, statuses = np.zeros(capacity, np.int64), np.full(capacity, -1)  # -1: no such order

    def write(ids: np.ndarray[Any, Any], name: str) -> None:
        rows = _rows(ids, random)
        amounts[ids], statuses[ids] = rows["amount"].to_numpy(), np.searchsorted(STATUSES, rows["status"].to_numpy())
        pq.write_table(rows, folder / name)

    write(random.permutation(sizes.rows), LOADED)
    totals = [_totals(amounts, statuses)]
    newest, changed = sizes.rows, []
    for number in range(sizes.changes):
        new = sizes.change_rows // 10
        there = random.choice(sizes.rows, sizes.change_rows - new, replace=False)
        write(np.concatenate([there, np.arange(newest, newest + new)]), change_file(number))
        newest += new
        changed.append(there)
        totals.append(_totals(amounts, statuses))
    looked_up = _lookups(np.concatenate(changed), sizes, random)
    cents = {key: int(amounts[key]) if key < newest else None for key in looked_up}
    deletes = random.choice(sizes.rows, sizes.change_rows, replace=False)
    statuses[deletes] = -1
    totals.append(_totals(amounts, statuses))
    said = Expected(sizes, totals, cents, [int(key) for key in deletes])
    (folder / EXPECTED).write_text(json.dumps(asdict(said)))


def _rows(ids: np.ndarray[Any, Any], random: np.random.Generator) -> pa.Table:
    count = len(ids)
    return pa.table(
        [
            ids,
            random.integers(0, 100_000, count),
            random.integers(100, 100_000, count),
            STATUSES[random.integers(0, len(STATUSES), count)],
            pa.array(random.integers(FIRST_PLACED_S, LAST_PLACED_S, count) * 1_000_000).cast(
                SCHEMA.field("placed").type
            ),
            [f"order {number}" for number in random.integers(0, count * 10, count)],
        ],
        schema=SCHEMA,
    )


def _totals(amounts: np.ndarray[Any, Any], statuses: np.ndarray[Any, Any]) -> dict[str, list[int]]:
    found = {}
    for number, status in enumerate(STATUSES):
        chosen = statuses == number
        if chosen.any():
            found[str(status)] = [int(chosen.sum()), int(amounts[chosen].sum())]
    return found


def _lookups(changed: np.ndarray[Any, Any], sizes: Sizes, random: np.random.Generator) -> list[int]:
    """A third were changed, most of the others were not, and every tenth never was."""
    keys = [int(key) for key in random.choice(changed, sizes.lookups // 3)]
    keys += [sizes.rows * 10 + number for number in range(sizes.lookups // 10)]
    keys += [int(key) for key in random.choice(sizes.rows, sizes.lookups - len(keys), replace=False)]
    random.shuffle(keys)
    return keys
