"""A table that is written, folded, rewritten and vacuumed without rest by another process, and what it holds then.

Its state is a function of the seq: commit n gives every key of range n % RANGES the value n, or deletes them. So every
answer can be compared with the truth, whatever was folded or removed meanwhile.
"""

from __future__ import annotations

import contextlib
import random
from multiprocessing.synchronize import Event
from pathlib import Path

import pyarrow as pa

from lithify import Lake, NotFound
from support.clocks import Clock, lake_with

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
RANGES, KEYS = 5, 40
TWO_HOURS = Clock(2 * 3_600_000)

State = dict[int, int]


def deletes(n: int) -> bool:
    return n % 7 == 3


def keys(n: int) -> range:
    first = n % RANGES * 1_000
    return range(first, first + KEYS)


def state(seq: int) -> State:
    """Value by key after commit `seq`."""
    found: State = {}
    for n in range(max(1, seq - RANGES + 1), seq + 1):
        if not deletes(n):
            found.update(dict.fromkeys(keys(n), n))
    return found


def rows(n: int) -> pa.Table:
    return pa.table({"id": keys(n), "v": [n] * KEYS}, SCHEMA)


def create(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id")
    for n in range(1, 2 * RANGES):
        table.upsert(rows(n))
        table.fold()


# -- in child processes


def write_and_vacuum(path: str, seed: int, stop: Event) -> None:
    """One writer, so that its commits have the seqs that follow each other."""
    chance = random.Random(seed)
    with Lake(path) as lake, lake_with(TWO_HOURS, Path(path)) as later:
        table, n = lake.table("a.t"), lake.table("a.t").snapshot().seq
        while not stop.is_set():
            n += 1
            commit = table.delete(list(keys(n))) if deletes(n) else table.upsert(rows(n))
            assert commit.seq == n
            if chance.random() < 0.6:
                table.fold()
            if chance.random() < 0.2:
                table.optimize(by="id")
            if chance.random() < 0.8:
                table.snapshot()  # what this process keeps is kept from its own vacuum
                later.table("a.t").vacuum(1, dry_run=False)


def drop_and_create(path: str, stop: Event) -> None:
    with Lake(path) as lake:
        while not stop.is_set():
            with contextlib.suppress(NotFound):
                lake.drop_table("a.d")
            table = lake.create_table("a.d", SCHEMA, key="id", if_not_exists=True)
            for n in (1, 2):
                table.upsert(rows(n))
                table.fold()
