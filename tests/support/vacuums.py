"""A table with something to vacuum, and vacuums that child processes run and die in."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from lithify import Lake
from lithify.files.local import LocalStorage
from support.bags import bag
from support.clocks import Clock, lake_with
from support.faults import FaultyStore, kill_process
from support.leftovers import LOGS

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
LATER = Clock(200 * 3_600_000)
OLD_PIN = "a.t-" + "9" * 32 + ".json"


def rows(*ids: int, v: str = "x") -> list[dict[str, Any]]:
    return [{"id": i, "v": v} for i in ids]


def fill(lake: Lake) -> None:
    """Seqs 1 to 4. Two folds, the second of which has replaced the first one's file; seqs 3 and 4 are pending."""
    table = lake.create_table("a.t", SCHEMA, key="id")
    table.upsert(rows(1, 2, 3))
    table.fold()
    table.upsert(rows(2, v="y"))
    table.fold()
    table.upsert(rows(4))
    table.delete([1])


def ids(lake: Lake, as_of: Any = None) -> list[int]:
    return sorted(lake.table("a.t").to_arrow(columns=["id"], as_of=as_of).column("id").to_pylist())


def data_files(lake: Lake) -> set[str]:
    """Paths of all data files, relative to the table's folder."""
    folder = lake.path / "a" / "t"
    return {str(p.relative_to(folder)) for p in folder.rglob("*.parquet") if not set(LOGS) & set(p.parts)}


def live_files(lake: Lake) -> set[str]:
    snapshot = lake.table("a.t").snapshot()
    return {f"changes/{f.path}" for f in snapshot.changes} | {f"base/{f.path}" for f in snapshot.base}


# -- in child processes


def prepare(path: Path) -> None:
    """Two folds, orphans of both kinds, an old pin: something of everything that a vacuum deletes."""
    with lake_with(Clock(), path) as lake:
        fill(lake)
        with lake.table("a.t").pin():
            (pin,) = (path / "_lithify" / "pins").glob("*.json")
            text = pin.read_text()
    owner = f'"started": "{lake._runtime.owner.started}"'
    assert owner in text
    (path / "_lithify" / "pins" / OLD_PIN).write_text(
        text.replace(owner, '"started": "long ago"').replace(pin.stem.removeprefix("a.t-"), "9" * 32)
    )
    changes, base = path / "a" / "t" / "changes", path / "a" / "t" / "base"
    (changes / f"write-{'a' * 32}.parquet").write_bytes(b"dead")
    (base / f"fold-{'b' * 32}" / "_day=2026-11-15").mkdir(parents=True)
    (base / f"fold-{'b' * 32}" / "_day=2026-11-15" / "part-0.parquet").write_bytes(b"dead")


def run(path: str, store: LocalStorage | None = None) -> Counter[Any]:
    with lake_with(LATER, Path(path), store=store) as lake:
        lake.table("a.t").vacuum(dry_run=False)
    return state_of(Path(path))


def run_with(store: LocalStorage, path: str) -> None:
    run(path, store)


def run_until_killed(path: str, point: str, nth: int) -> None:
    run(path, FaultyStore(point, kill_process, nth))


def vacuum_ahead(path: str, hours: float) -> None:
    clock = Clock()
    clock.jump(hours)
    with lake_with(clock, Path(path)) as lake:
        lake.table("a.t").vacuum(dry_run=False)


def state_of(path: Path) -> Counter[Any]:
    with lake_with(Clock(), path) as lake:
        return bag(lake.table("a.t").to_arrow().to_pylist())


def leftovers(path: Path) -> list[str]:
    """What a vacuum should have removed: files that are not live, empty folders, pins."""
    with lake_with(Clock(), path) as lake:
        live = live_files(lake)
    folder = path / "a" / "t"
    found = [p for p in folder.rglob("*") if not {*LOGS, "index"} & set(p.parts) and p.parent != folder]
    left = [str(p) for p in found if (p.is_file() and str(p.relative_to(folder)) not in live)]
    left += [str(p) for p in found if p.is_dir() and not any(p.iterdir())]
    return left + [str(p) for p in (path / "_lithify" / "pins").glob("*.json")]
