"""Lists of files, as policies see them: a base file, a change file, files of one hour, and snapshots of them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa

from lithify.core.schema import TableSchema, define
from lithify.core.snapshot import Bounds, DataFile, Snapshot
from lithify.options.policy import MaintenancePolicy

KB, MB, GB = 2**10, 2**20, 2**30
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
KEYED = define(pa.schema([("k", pa.int64()), ("v", pa.string())]), "k")
KEYLESS = define(pa.schema([("k", pa.int64()), ("v", pa.string())]))
TIMED = define(pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "UTC"))]), "k", time="at")
DATED = define(pa.schema([("k", pa.int64()), ("at", pa.date32())]), "k", time="at")
POLICY = MaintenancePolicy()
DAY = dt.date(2026, 11, 15)
MIDNIGHT = dt.datetime(2026, 11, 15, tzinfo=dt.UTC)
MIDNIGHT_MS = int(MIDNIGHT.timestamp() * 1000)
NOW = MIDNIGHT_MS + 30 * DAY_MS


def folder(origin: str, number: int) -> str:
    return f"{origin}-{number:032x}"


def base(number: int, low: int = 0, high: int = 0, size: int = MB, origin: str = "fold", **more: Any) -> DataFile:
    path = f"{folder(origin, number)}/part-0.parquet"
    values = {"rows": 1_000_000, "bounds": {"k": Bounds(low, high, 0)}} | more
    return DataFile(path, path, size, **values)


def change(seq: int, low: int = 0, high: int = 0, rows: int = 1_000, size: int = 10 * KB, **more: Any) -> DataFile:
    path = more.pop("path", f"write-{seq:032x}.parquet")
    values = {"bounds": {"k": Bounds(low, high, 0)}, "time_ms": NOW} | more
    return DataFile(path, path, size, rows, seq=seq, **values)


def timed(
    number: int,
    first: float = 9.0,
    last: float | None = None,
    size: int = MB,
    origin: str = "fold",
    day: dt.date | None = DAY,
) -> DataFile:
    """A file of TIMED with rows from hour `first` to hour `last` of its day."""
    start = MIDNIGHT + (day - DAY if day else dt.timedelta())
    times = Bounds(start + dt.timedelta(hours=first), start + dt.timedelta(hours=first if last is None else last), 0)
    return base(number, size=size, origin=origin, bounds={"at": times}, partition={"_day": day})


def snapshot(
    schema: TableSchema, base_files: list[DataFile] | None = None, changes: list[DataFile] | None = None
) -> Snapshot:
    pending = tuple(changes or ())
    return Snapshot(
        "shop.orders", schema, 1, 1, max((f.seq for f in pending), default=0), 0, pending, tuple(base_files or ())
    )


def hour_of_files(count: int, hour: float = 9.0, start: int = 0, **more: Any) -> list[DataFile]:
    return [timed(start + n, hour + n / 1000, **more) for n in range(count)]
