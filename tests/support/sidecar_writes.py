"""What a process does to a sidecar when it is killed, or watched by another. Versions say which files are live."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.synchronize import Semaphore
from pathlib import Path
from typing import Any

from lithify.files.local import LocalStorage
from lithify.index import writer
from support import children
from support.faults import FaultyStore, kill_process
from support.sidecars import TABLE_ID, sample_entry

Operation = Callable[[LocalStorage, Path], None]
LIVE_MAX = 40
REWRITE_EVERY = 100
SEEN_EVERY = 20


def path_of(version: int) -> str:
    return f"part-{version}.parquet"


def live_at(version: int) -> set[str]:
    """Each version adds a file, and takes away one that is old: now the oldest, now one from the middle."""
    live = {path_of(0)}
    for number in range(1, version + 1):
        live.add(path_of(number))
        live.discard(removed_by(number))
    return live


def removed_by(version: int) -> str:
    return path_of(version - LIVE_MAX if version % 2 else version - LIVE_MAX // 2)


def commit_all(path: str, versions: int, seen: Semaphore) -> None:
    """A table's life, for another process to look on: commit after commit, and now and then a new file. Every so often
    the other one must have seen it.
    """
    store, file = LocalStorage(), Path(path)
    for version in range(1, versions + 1):
        if version > 1 and version % SEEN_EVERY == 1:
            assert seen.acquire(timeout=children.WAIT_S_MAX)
        writer.append(store, file, TABLE_ID, version, [sample_entry(path_of(version), version)], [removed_by(version)])
        if version % REWRITE_EVERY == 0:
            writer.rewrite(store, file, TABLE_ID)


def _create(store: LocalStorage, path: Path) -> None:
    writer.create(store, path, TABLE_ID, 100, [sample_entry("new.parquet", 4)])


def _append(store: LocalStorage, path: Path) -> None:
    blocks = [sample_entry("new.parquet", 4), sample_entry("other.parquet", 5)]
    writer.append(store, path, TABLE_ID, 100, blocks, [path_of(1)])


def _merge(store: LocalStorage, path: Path) -> None:
    writer.append(store, path, TABLE_ID, 100, [sample_entry("new.parquet", 5)], [path_of(1)])


def _rewrite(store: LocalStorage, path: Path) -> None:
    writer.rewrite(store, path, TABLE_ID)


def _remove(store: LocalStorage, path: Path) -> None:
    writer.append(store, path, TABLE_ID, 100, [], [path_of(2), "unknown.parquet"])


# Name to (files that are there before, operation).
SCENARIOS: dict[str, tuple[int, Operation]] = {
    "create": (0, _create),
    "replace": (3, _create),
    "append": (3, _append),
    "remove": (3, _remove),
    "merge": (20, _merge),
    "rewrite": (3, _rewrite),
}


def prepare(name: str, path: Path) -> None:
    files, _ = SCENARIOS[name]
    for version in range(1, files + 1):
        block = sample_entry(path_of(version), 4 * version)
        if version == 1:
            writer.create(LocalStorage(), path, TABLE_ID, version, [block])
        else:
            writer.append(LocalStorage(), path, TABLE_ID, version, [block], [])


def run(name: str, store: LocalStorage, path: Path) -> None:
    SCENARIOS[name][1](store, path)


def run_until_killed(name: str, path: str, point: str, nth: int) -> None:
    run(name, FaultyStore(point, kill_process, nth), Path(path))


def outlive_a_cut(path: str, length: int, act: str) -> None:
    """Look at a file that is cut while it is in use. Exits normally if and only if that is noticed."""
    import os

    from lithify.errors import Corruption
    from lithify.index.reader import Sidecar

    sidecar = Sidecar.open(Path(path), TABLE_ID)
    view = sidecar.view()
    acts: dict[str, Callable[[], Any]] = {
        "blocks": lambda: view.blocks,
        "refresh": sidecar.refresh,
        "view": lambda: sidecar.view(1),
        "versions": sidecar.versions,
    }
    if act == "blocks again":
        assert view.blocks
        act = "blocks"
    os.truncate(path, length)
    try:
        acts[act]()
    except Corruption:
        return
    raise AssertionError("nobody noticed")
