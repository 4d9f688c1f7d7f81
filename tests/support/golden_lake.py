"""A lake as commit 8060612 wrote it, the last one before the rooms, with what it answered: tests/lake/golden.

This module made it, with the code of then. It is not run again: an archive of today's code would show nothing.
Should it be needed:

    git worktree add ../then 8060612
    cd tests && PYTHONPATH=../../then/src python -m support.golden_lake

The values are the same every time; names of files, times of commits and incarnations of tables are not.
"""

from __future__ import annotations

import datetime as dt
import json
import tarfile
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from lithify import Lake

GOLDEN = Path(__file__).parents[1] / "lake" / "golden"
ARCHIVE, EXPECTED = GOLDEN / "lake.tar.gz", GOLDEN / "expected.json"
START = dt.datetime(2026, 1, 30, 6, tzinfo=dt.UTC)
TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("small", pa.int32()),
        ("ratio", pa.float64()),
        ("paid", pa.bool_()),
        ("amount", pa.decimal128(10, 2)),
        ("blob", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("address", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
    ]
)


def row(number: int, name: str) -> dict[str, Any]:
    return {
        "id": number,
        "name": name,
        "small": -number,
        "ratio": number / 8,
        "paid": number % 2 == 0,
        "amount": Decimal(number * 105).scaleb(-2),
        "blob": bytes([number % 256, 0, 255]),
        "day": dt.date(2026, 1, 1) + dt.timedelta(days=number),
        "at": START + dt.timedelta(hours=number),
        "tags": [name, "ünï"] if number % 3 else [],
        "address": {"city": f"c{number}", "zip": None if number % 5 == 0 else number},
    }


def build(folder: Path) -> None:
    with Lake(folder) as lake:
        kinds = lake.create_table("shop.kinds", TYPES, key="id")
        for first in (0, 6, 12):
            kinds.upsert([row(n, f"n{n}") for n in range(first, first + 6)], batch_id=f"load-{first}", actor="loader")
        kinds.fold()
        kinds.tag("loaded")
        kinds.add_column(pa.field("note", pa.string()))
        kinds.upsert([row(4, "changed") | {"note": "new"}, row(40, "late") | {"note": None}], batch_id="after-fold")
        kinds.delete([3, 17], actor="ada", reason="erasure request 17", batch_id="gone")

        options = {"minor_files_min": 3, "fold_rows_min": 7}
        days = lake.create_table("shop.days", TYPES, key="id", time="at", options=options)
        days.upsert([row(n, "first") for n in range(0, 60, 5)])
        days.fold()
        days.upsert([row(n, "second") for n in range(0, 60, 10)])
        days.delete_where("id between 12 and 20")
        days.fold()
        days.replace([row(30, "third")])

        events = lake.create_table("shop.events", pa.schema([TYPES.field("at"), TYPES.field("name")]), time="at")
        events.append([{"at": START, "name": "a"}, {"at": START + dt.timedelta(days=1), "name": "b"}])
        events.fold()
        events.append([{"at": None, "name": "c"}, {"at": START, "name": "a"}], batch_id="twice")

        ordered = lake.create_table(
            "shop.ordered", pa.schema([("id", pa.string()), ("v", pa.int64())]), key="id", order_by="v"
        )
        ordered.upsert([{"id": "x", "v": 5}, {"id": "y", "v": 5}])
        ordered.fold()
        ordered.upsert([{"id": "x", "v": 4}, {"id": "y", "v": 6}, {"id": "z", "v": 1}])

        regions = lake.create_table(
            "shop.regions",
            pa.schema([("region", pa.string()), ("n", pa.int32()), ("v", pa.string())]),
            key=["region", "n"],
            partition_by="region",
        )
        regions.upsert([{"region": r, "n": n, "v": f"{r}{n}"} for r in ("eu", "us/east", "é=1") for n in range(3)])
        regions.delete([("eu", 1)])
        regions.fold()
        regions.upsert([{"region": "us/east", "n": 2, "v": "moved"}])

        lake.create_table("shop.empty", pa.schema([("id", pa.int64())]), key="id")


def plain(values: Any) -> Any:
    """As JSON has it; what it has no word for, as Python writes it."""
    return json.loads(json.dumps(values, default=str))


def told(lake: Any) -> dict[str, Any]:
    """What the lake answers about its tables: the same questions then and now."""
    answer: dict[str, Any] = {}
    for name in lake.tables():
        table = lake.table(name)
        head = table.snapshot().seq
        answer[name] = {
            "rows": {str(seq): sorted_rows(table.to_arrow(as_of=seq)) for seq in range(head + 1)},
            "feed": sorted_rows(table.feed(0)) if head else [],
            "position": table.position(),
            "tags": [[tag.name, tag.seq] for tag in table.tags()],
            "history": [
                [entry.operation, entry.seq, entry.rows, entry.actor, entry.reason, entry.batch_id, str(entry.time)]
                for entry in table.history()
            ],
        }
    return answer


def sorted_rows(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted((plain(line) for line in rows.to_pylist()), key=json.dumps)


def unpacked(folder: Path) -> Path:
    """A copy of the lake, with its links: files of changes that folds took over are those of base."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "lake"


def make() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "lake"
        build(folder)
        with tarfile.open(ARCHIVE, "w:gz") as archive:
            archive.add(folder, "lake")
        with Lake(folder) as lake:
            lines = [f"{json.dumps(name)}: {json.dumps(said, ensure_ascii=False)}" for name, said in told(lake).items()]
    EXPECTED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    make()
