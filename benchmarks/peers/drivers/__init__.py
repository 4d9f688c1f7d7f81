"""How each peer is used. A driver imports nothing but its own engine, and only when it is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

import pyarrow as pa

TOTALS = "SELECT status, count(*) AS n, sum(amount) AS cents FROM {} GROUP BY status"
Totals = dict[str, list[int]]


@dataclass(frozen=True)
class Change:
    """A batch of rows: as engines in the process take it, and as Spark does."""

    file: Path
    rows: pa.Table


class Driver(Protocol):
    def load(self, change: Change) -> object:
        """The first rows, into a table that is made for them."""

    def upsert(self, change: Change) -> object: ...

    def delete(self, keys: Sequence[int]) -> object: ...

    def totals(self) -> Totals: ...

    def get(self, key: int) -> int | None:
        """The cents of an order."""

    def compact(self) -> object:
        """Whatever it has to make reading fast again, to its end."""

    def close(self) -> object: ...


@dataclass(frozen=True)
class Peer:
    """`needs`: what is installed for it. `durable`: whether a change that was answered outlives a power cut."""

    name: str
    title: str
    module: str
    needs: tuple[str, ...]
    durable: bool
    spark: bool = False

    def driver(self, folder: Path) -> Driver:
        make: Callable[[Path], Driver] = import_module(f"benchmarks.peers.drivers.{self.module}").make
        return make(folder)


_ARROW = ("pyarrow==26.0.1", "numpy>=2")
PEERS = [
    Peer("lithify", "Lithify", "lithify_here", ("lithify",), durable=True),
    Peer(
        "ducklake", "DuckLake", "ducklake", (*_ARROW, "duckdb==1.5.5", "duckdb-extension-ducklake==1.5.5"), durable=True
    ),
    Peer("delta-rs", "Delta (delta-rs)", "delta_rs", (*_ARROW, "deltalake==1.6.6"), durable=False),
    Peer(
        "pyiceberg",
        "Iceberg (PyIceberg)",
        "pyiceberg_here",
        (*_ARROW, "pyiceberg[sql-sqlite,pyarrow]==0.12.0"),
        durable=False,
    ),
    Peer("lithify-spark", "Lithify", "lithify_spark", ("lithify",), durable=True, spark=True),
    Peer("delta-spark", "Delta", "delta_spark", (*_ARROW, "pyspark==4.1.4"), durable=False, spark=True),
    Peer("iceberg-spark", "Iceberg", "iceberg_spark", (*_ARROW, "pyspark==4.1.4"), durable=False, spark=True),
    Peer("hudi-spark", "Hudi", "hudi_spark", (*_ARROW, "pyspark==3.5.8", "setuptools<81"), durable=False, spark=True),
    Peer(
        "paimon-spark",
        "Paimon",
        "paimon_spark",
        (*_ARROW, "pyspark==3.5.8", "setuptools<81"),
        durable=False,
        spark=True,
    ),
]


def totals_of(rows: Sequence[tuple[str, int, int]]) -> Totals:
    return {status: [int(count), int(cents)] for status, count, cents in rows}
