"""What rival processes do in the race tests. Run by child processes, so everything here is importable by name."""

from __future__ import annotations

from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from typing import Any

from lithify import Conflict, Lake, Settings

SETTINGS = Settings(checkpoint_every=7)


def ids_of(writer: int, batch: int) -> list[int]:
    """The two rows of one batch: nobody else writes them."""
    return [1000 * writer + 2 * batch, 1000 * writer + 2 * batch + 1]


def write_batches(
    path: str, writer: int, batches: int, go: Event, results: Queue[Any], ready: Queue[Any] | None = None
) -> None:
    with Lake(path, settings=SETTINGS) as lake:
        table = lake.table("a.t")
        if ready is not None:
            table.append([{"id": -writer, "v": "first"}])  # what a process does once it has done
            ready.put(writer)
        go.wait()
        for batch in range(batches):
            commit = table.append([{"id": i, "v": f"{writer}"} for i in ids_of(writer, batch)])
            results.put((commit.seq, batch, commit.replayed))


def write_same_batches(path: str, writer: int, batches: int, go: Event, results: Queue[Any]) -> None:
    """Every writer sends the same batches under the same ids, each beginning somewhere else."""
    with Lake(path, settings=SETTINGS) as lake:
        table = lake.table("a.t")
        go.wait()
        for step in range(batches):
            batch = (step + writer) % batches
            commit = table.append([{"id": i, "v": "same"} for i in ids_of(0, batch)], batch_id=f"batch {batch}")
            results.put((commit.seq, batch, commit.replayed))


def fold_until(path: str, stop: Event, go: Event) -> None:
    with Lake(path, settings=SETTINGS) as lake:
        table = lake.table("a.t")
        go.wait()
        while not stop.is_set():
            try:
                table.fold()
            except Conflict:
                continue  # overtaken too often by the other fold, which is an answer too
