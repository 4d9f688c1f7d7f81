"""A table whose log is archived after a few commits, and processes that write to it, trim it, and die in between."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

import pyarrow as pa

from lithify import Lake, Settings, Table
from lithify.delta.archive import LogLimits
from lithify.delta.log import DeltaLog
from lithify.delta.trim import TrimReport
from lithify.files.local import LocalStorage
from support.faults import FaultyStore, kill_process

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
SETTINGS = Settings(checkpoint_every=2)
# Checkpoints in the archive stand six versions apart, but for those that came later than others had to.
LIMITS = LogLimits(2, retain_hours=24, commits_max=24, live_commits_min=4, live_commits_max=8)


@contextlib.contextmanager
def opened(path: Path | str, store: LocalStorage | None = None, limits: LogLimits = LIMITS) -> Iterator[Table]:
    with Lake(path, settings=SETTINGS, store=store) as lake:
        table = lake.table("a.t")
        table._internals.handles.changes.log.limits = lambda: limits
        yield table


def build(path: Path, writes: int) -> None:
    """Seqs 1 to `writes`, each one row and one version, none of them archived."""
    with Lake(path, settings=SETTINGS) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        for number in range(1, writes + 1):
            table.upsert([{"id": number}], missing="null")


def log_of(table: Table) -> DeltaLog:
    return table._internals.handles.changes.log


def trim(path: Path | str, store: LocalStorage | None = None) -> TrimReport:
    with opened(path, store) as table:
        return log_of(table).trim_if_due()


def trim_until_killed(path: str, point: str, nth: int) -> None:
    """In a child: archive, and die at the point."""
    trim_with(FaultyStore(point, kill_process, nth), path)


def trim_with(store: LocalStorage, path: str) -> None:
    with opened(path) as table:
        log = log_of(table)
        log._commits.store = store
        log.trim_if_due()


def write_rows(path: str, first: int, number: int, done: Event) -> None:
    """In a child: one row each, with whatever trimming comes due."""
    with opened(path) as table:
        for key in range(first, first + number):
            table.upsert([{"id": key}], missing="null")
            if key % 8 == 0:
                log_of(table).trim_if_due(files_max=5)
    done.set()


def trim_until(path: str, done: Event) -> None:
    while not done.is_set():
        trim(path)
