"""One process, many tables, for a long time: descriptors stay as they were, and running short of them passes."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Lake, Settings, Unavailable
from support import children
from support.folders import memory_folder

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
TABLES, ROUNDS = 6, 12


@pytest.fixture
def path() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder / "lake"


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def mappings_of(name: str) -> int:
    return Path("/proc/self/maps").read_text().count(name)


def a_round(lake: Lake, number: int) -> None:
    for table in lake.tables():
        lake.table(table).append([{"id": number * 10 + n, "v": "x"} for n in range(3)])
        lake.table(table).fold()
        assert lake.sql(f"select count(*) n from {table} where v = 'x'").to_pylist() == [{"n": 3 * (number + 1)}]


@pytest.mark.slow
def test_neither_tables_nor_folds_keep_descriptors(path: Path) -> None:
    with Lake(path, settings=Settings(cache_bytes_max=0)) as lake:
        for number in range(TABLES):
            lake.create_table(f"a.t{number}", SCHEMA, key="id")
        a_round(lake, 0)
        before = open_files()
        for number in range(1, ROUNDS):
            a_round(lake, number)
        assert open_files() <= before + 4
        # Each of them grew with every round.
        assert mappings_of("base.pm") <= TABLES * 18


def short_of_descriptors(path: str) -> None:
    with Lake(path) as lake:
        table = lake.table("a.t")
        table.upsert([{"id": 1, "v": "first"}])
        table.fold()
        assert table.to_arrow().num_rows == 1  # what a library opens once and for all is open
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files(), limits[1]))
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        written = False
        with contextlib.suppress(Unavailable):
            table.upsert([{"id": 2, "v": "acknowledged"}])
            written = True
        for attempt in (table.fold, table.to_arrow):
            with contextlib.suppress(Unavailable):  # or it needs none, and is right
                attempt()
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert sorted(table.to_arrow()["id"].to_pylist()) == ([1, 2] if written else [1])
        table.upsert([{"id": 2, "v": "now"}])
        table.fold()
        assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]


@pytest.mark.slow
def test_a_process_that_was_short_of_descriptors_goes_on(path: Path) -> None:
    with Lake(path) as lake:
        lake.create_table("a.t", SCHEMA, key="id")
    child = children.start(short_of_descriptors, str(path), scratch=path.parent)
    assert children.finish(child) == 0
    with Lake(path) as lake:
        assert sorted(lake.table("a.t").to_arrow()["id"].to_pylist()) == [1, 2]
