"""Writers in one process whose batches share a commit. Run by child processes too."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa

from lithify import Lake
from lithify.core.names import parse_table_name
from lithify.files.local import LocalStorage
from support.faults import FaultyStore, Gate, kill_process

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
WRITERS = 4
IDS = {10 * writer + n for writer in range(1, WRITERS + 1) for n in range(3)}


def prepare(path: Path, key: str | None) -> None:
    with Lake(path) as lake:
        lake.create_table("a.t", SCHEMA, key=key)


class Gathering(LocalStorage):
    """Passes every step on, and holds the first write until the others wait behind it."""

    def __init__(self, inner: LocalStorage, gate: Gate) -> None:
        self._inner, self._gate, self._waited = inner, gate, False

    def step(self, name: str) -> None:
        if name == "write.commit" and not self._waited:
            self._waited = True
            self._gate.hold()
        self._inner.step(name)


def write(path: str, store: LocalStorage, acknowledged: str | None = None) -> None:
    """One write, then all others in one group; what is acknowledged is noted at once."""
    gate = Gate()
    with Lake(path, store=Gathering(store, gate)) as lake:
        table = lake.table("a.t")

        def put(*ids: int) -> None:
            table.append([{"id": i, "v": "x"} for i in ids])
            if acknowledged is not None and ids[0]:
                fd = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.write(fd, "".join(f"{i}\n" for i in ids).encode())
                os.close(fd)

        threads = [threading.Thread(target=put, args=(0,))]
        threads[0].start()
        gate.wait()
        writes: Any = lake._loaded.get(parse_table_name("a.t")).writes
        for writer in range(1, WRITERS + 1):
            threads.append(threading.Thread(target=put, args=tuple(10 * writer + n for n in range(3))))
            threads[-1].start()
        with writes._changed:
            assert writes._changed.wait_for(lambda: len(writes._waiting) == WRITERS, 60)
        gate.open()
        for thread in threads:
            thread.join()


def write_with(store: LocalStorage, path: str, acknowledged: str) -> None:
    write(path, store, acknowledged)


def write_until_killed(path: str, acknowledged: str, point: str, nth: int) -> None:
    write(path, FaultyStore(point, kill_process, nth), acknowledged)


def write_one(path: str, name: str) -> None:
    with Lake(path) as lake:
        lake.table(name).upsert([{"id": 1, "v": "x"}])


def forget_to_close(path: str) -> None:
    lake = Lake(path)
    lake.create_table("a.t", SCHEMA, key="id").upsert([{"id": 1, "v": "x"}])
