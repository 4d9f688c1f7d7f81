"""Delta tables of many files, written once and linked into as many tables as a suite needs.

Their keys have gaps of random size. Keys without gaps would take next to nothing on disk, 450 bytes in a row group of
131,072 rows, and make looking one up cheaper than it is in any real table.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import Schema
from deltalake.transaction import AddAction, create_table_with_add_actions

from benchmarks.data import changes, columns
from lithify.core.schema import define
from lithify.files.parquet import Layout, encode

SCHEMA = columns(pa.int64())
LAYOUT = Layout.of(define(SCHEMA, "id", None, None, []))
ROWS_AT_ONCE = 500_000
WRITERS = 2
KEY_GAP_MAX = 1_000


@dataclass(frozen=True)
class OrderFile:
    path: Path
    size_bytes: int
    stats: str


def write_files(folder: Path, files: int, rows_per_file: int) -> list[OrderFile]:
    """Orders in the order of their keys, laid out as Lithify writes them, durable."""
    folder.mkdir(parents=True)

    def write(job: tuple[int, pa.Table]) -> OrderFile:
        number, rows = job
        data, stats = encode(rows, LAYOUT)
        path = folder / f"part-{number:05d}.parquet"
        path.write_bytes(data)
        return OrderFile(path, len(data), stats)

    with ThreadPoolExecutor(WRITERS) as pool:
        written = list(pool.map(write, _parts(files, rows_per_file)))
    os.sync()
    return written


def _parts(files: int, rows_per_file: int) -> Iterator[tuple[int, pa.Table]]:
    at_once = max(1, ROWS_AT_ONCE // rows_per_file)
    for first in range(0, files, at_once):
        last = min(files, first + at_once)
        rows = changes(key_of(np.arange(first * rows_per_file, last * rows_per_file)), False, first)
        for number in range(first, last):
            yield number, rows.slice((number - first) * rows_per_file, rows_per_file)


def key_of(numbers: np.ndarray) -> np.ndarray:
    """The key of the order that stands at this place, in the order of keys."""
    keys: np.ndarray = numbers * KEY_GAP_MAX + (numbers * 2_654_435_761 >> 8) % KEY_GAP_MAX
    return keys


def linked_table(folder: Path, files: Sequence[OrderFile]) -> Path:
    """A Delta table of these files, each a hard link."""
    folder.mkdir(parents=True)
    adds = []
    now_ms = int(time.time() * 1000)
    for file in files:
        os.link(file.path, folder / file.path.name)
        adds.append(AddAction(file.path.name, file.size_bytes, {}, now_ms, True, file.stats))
    create_table_with_add_actions(str(folder), Schema.from_arrow(SCHEMA), adds, mode="overwrite", partition_by=[])
    return folder
