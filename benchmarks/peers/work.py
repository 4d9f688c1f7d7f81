"""One peer does all of the work: `python -m benchmarks.peers.work PEER WORKLOAD FOLDER RESULT`, in its environment."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq

from benchmarks.peers.clocks import Took, timed
from benchmarks.peers.drivers import PEERS, Change, Driver, Peer
from benchmarks.peers.workload import LOADED, Expected, change_file

T = TypeVar("T")
AGAIN = 5
# What is measured, in the order of the work, and what it is called.
STEPS = {
    "load": "load of all rows, in no order",
    "read loaded": "aggregate right after the load",
    "read loaded again": "the same again",
    "upsert": "upsert of a batch",
    "read changed": "aggregate after the first batches",
    "upsert more": "upsert of a batch, read in between",
    "read after each": "aggregate after each further batch",
    "get": "one row by its key",
    "delete": "delete of a batch of keys",
    "read after delete": "aggregate after that",
    "compact": "compaction",
    "read compacted": "aggregate right after that",
    "read compacted again": "the same again",
}


@dataclass
class Result:
    peer: str
    python: str
    versions: dict[str, str]
    took: dict[str, list[Took]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)


class Work:
    def __init__(self, driver: Driver, workload: Path, result: Result, folder: Path) -> None:
        self._driver, self._workload, self._result, self._folder = driver, workload, result, folder
        self._expected = Expected.read(workload)

    def run(self) -> None:
        driver, sizes = self._driver, self._expected.sizes
        loaded = self._change(LOADED)
        self._step("load", lambda: driver.load(loaded))
        self._read("read loaded", 0)
        self._again("read loaded again", 0)
        changes = [self._change(change_file(number)) for number in range(sizes.changes)]
        for change in changes[: sizes.first_changes]:
            self._step("upsert", lambda change=change: driver.upsert(change))
        self._read("read changed", sizes.first_changes)
        for number, change in enumerate(changes[sizes.first_changes :], sizes.first_changes + 1):
            self._step("upsert more", lambda change=change: driver.upsert(change))
            self._read("read after each", number)
        for key, cents in self._expected.lookups.items():
            self._checked("get", lambda key=key: driver.get(key), cents, f"order {key}")
        self._step("delete", lambda: driver.delete(self._expected.deletes))
        self._read("read after delete", -1)
        self._on_disk("changed")
        self._step("compact", driver.compact)
        self._read("read compacted", -1)
        self._again("read compacted again", -1)
        self._on_disk("compacted")

    def _change(self, name: str) -> Change:
        return Change(self._workload / name, pq.read_table(self._workload / name))

    def _step(self, step: str, work: Callable[[], T]) -> T:
        answer, took = timed(work)
        self._result.took.setdefault(step, []).append(took)
        return answer

    def _read(self, step: str, state: int) -> None:
        self._checked(step, self._driver.totals, self._expected.totals[state], f"totals {state}")

    def _again(self, step: str, state: int) -> None:
        for _ in range(AGAIN):
            self._read(step, state)

    def _checked(self, step: str, work: Callable[[], Any], expected: Any, what: str) -> None:
        if (found := self._step(step, work)) != expected:
            self._result.wrong.append(f"{step}: {what} is {found}, not {expected}"[:300])

    def _on_disk(self, when: str) -> None:
        sizes = [
            os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(self._folder) for name in names
        ]
        self._result.files[when], self._result.bytes[when] = len(sizes), sum(sizes)


def versions_of(peer: Peer) -> dict[str, str]:
    names = {need.split("=")[0].split("[")[0].split("<")[0].split(">")[0] for need in peer.needs}
    if peer.name.startswith("lithify"):
        names |= {"pyspark"} if peer.spark else {"datafusion", "deltalake", "pyarrow"}
    return {name: metadata.version(name) for name in sorted(names - {"numpy", "setuptools"})}


def main(name: str, workload: Path, folder: Path, target: Path) -> None:
    (peer,) = [peer for peer in PEERS if peer.name == name]
    result = Result(peer.name, platform.python_version(), versions_of(peer))
    driver = peer.driver(folder)
    try:
        Work(driver, workload, result, folder).run()
    finally:
        driver.close()
        target.write_text(json.dumps(asdict(result), indent=1))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
