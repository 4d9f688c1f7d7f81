"""A service under steady use for a long time: what it takes stays flat, and every answer is right.

A real `lithify serve` is asked over HTTP by several clients: upserts, deletes, lookups, aggregates, changes, on many
tables, while its maintenance folds, merges, compacts and vacuums, all of it sped up. Each client has tables of its
own and knows what must be in them. Samples are taken on the way; after a first part, in which caches fill, the last
part must be within `BOUNDS` of the middle.

    service.py FOLDER --operations 100000 --tables 50 --clients 6
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

import lithify
from lithify import Lake

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("n", pa.int64())])
KEYS = 2_000
SAMPLES = 40
WAIT_S_MAX = 300
# What takes an hour or a day in earnest happens every few seconds.
FAST = {
    "LITHIFY_POLICY_INTERVAL_S": "2",
    "LITHIFY_VACUUM_INTERVAL_S": "5",
    "LITHIFY_VACUUM_RETAIN_HOURS_MIN": "0.002",
    "LITHIFY_VACUUM_RETAIN_VERSIONS": "20",
    "LITHIFY_FOLD_FILES_MAX": "12",
    "LITHIFY_MINOR_FILES_MIN": "4",
    "LITHIFY_CACHE_BYTES_MAX": str(64 * 2**20),
    "LITHIFY_QUERY_WAIT_S_MAX": "120",
}


class Bound(NamedTuple):
    """The last part may be so many times as large as the middle, and so much besides."""

    times: float
    more: float


# What is mapped of files comes and goes as the kernel likes: what the process itself holds is what may not grow.
BOUNDS = {
    "anonymous_mb": Bound(1.1, 48),
    "rss_mb": Bound(1.15, 64),
    "descriptors": Bound(1.0, 32),
    "threads": Bound(1.0, 16),
    "data_files": Bound(1.3, 300),
    "data_mb": Bound(1.3, 16),
    "read_p99_ms": Bound(3.0, 250),
    "write_p99_ms": Bound(3.0, 250),
}


@dataclass(frozen=True)
class Sample:
    operations: int
    seconds: float
    anonymous_mb: float
    rss_mb: float
    descriptors: int
    threads: int
    children: int
    data_files: int
    data_mb: float
    log_files: int
    read_p99_ms: float
    write_p99_ms: float


@dataclass
class Latencies:
    lock: threading.Lock = field(default_factory=threading.Lock)
    done: int = 0
    read: list[float] = field(default_factory=list)
    write: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)

    def note(self, kind: str, seconds: float) -> None:
        with self.lock:
            self.done += 1
            getattr(self, kind).append(seconds * 1000)

    def failed(self, what: str) -> None:
        with self.lock:
            self.done += 1
            self.failures[what[:200]] += 1

    def taken(self) -> tuple[float, float]:
        with self.lock:
            read, write, self.read, self.write = self.read, self.write, [], []
        return p99(read), p99(write)


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)] if values else 0.0


class Service:
    """`lithify serve` in a process of its own, with a place of its own for temporary files."""

    def __init__(self, folder: Path) -> None:
        self.lake, scratch = folder / "lake", folder / "tmp"
        scratch.mkdir()
        self.scratch = scratch
        self._log = (folder / "serve.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lithify.cli", "serve", "--json", "--port", "0", "--lake", str(self.lake)],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **FAST, "TMPDIR": str(scratch)},
        )
        assert self.process.stdout is not None
        started = json.loads(self.process.stdout.readline())
        self.url, self.token = started["url"], started["token"]

    def connect(self) -> Any:
        return lithify.connect(self.url, token=self.token)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(WAIT_S_MAX)
        self._log.close()
        return code

    def sample(self, latencies: Latencies, started: float) -> Sample:
        proc = Path(f"/proc/{self.process.pid}")
        files, size, logs = _on_disk(self.lake)
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        anonymous_mb, rss_mb = (int(status[name].split()[0]) / 1024 for name in ("RssAnon", "VmRSS"))
        read, write = latencies.taken()
        return Sample(
            latencies.done,
            round(time.monotonic() - started, 1),
            round(anonymous_mb, 1),
            round(rss_mb, 1),
            len(list((proc / "fd").iterdir())),
            len(list((proc / "task").iterdir())),
            len((proc / "task" / str(self.process.pid) / "children").read_text().split()),
            files,
            size / 2**20,
            logs,
            round(read, 1),
            round(write, 1),
        )


def _on_disk(lake: Path) -> tuple[int, int, int]:
    files = size = logs = 0
    for folder, _, names in os.walk(lake):
        if "_delta_log" in folder or "_log_archive" in folder:
            logs += len(names)
            continue
        for name in names:
            try:
                size += os.lstat(os.path.join(folder, name)).st_size
                files += 1
            except FileNotFoundError:  # vacuumed a moment ago
                continue
    return files, size, logs


class Client(threading.Thread):
    """Works on tables of its own, and knows what is in them."""

    def __init__(
        self, service: Service, names: list[str], operations: int, seed: int, latencies: Latencies, pause_s: float
    ) -> None:
        super().__init__(name=f"client-{seed}", daemon=True)
        self._lake, self._names, self._operations, self._pause_s = service.connect(), names, operations, pause_s
        self._rng, self._latencies = random.Random(seed), latencies
        self.rows: dict[str, dict[int, tuple[str, int]]] = {name: {} for name in names}
        self.unknown: set[str] = set()

    def run(self) -> None:
        started = time.monotonic()
        for number in range(self._operations):
            time.sleep(max(started + number * self._pause_s - time.monotonic(), 0))
            name = self._rng.choice(self._names)
            kind, work = self._chosen(name, number)
            begun = time.monotonic()
            try:
                work()
            except AssertionError as wrong:
                self._latencies.failed(f"wrong answer: {wrong}")
            except Exception as error:  # whatever it is, it is counted, and shown at the end
                self.unknown.add(name)
                self._latencies.failed(f"{type(error).__name__}: {error}")
            else:
                self._latencies.note(kind, time.monotonic() - begun)

    def _chosen(self, name: str, number: int) -> tuple[str, Any]:
        draw = self._rng.random()
        if draw < 0.45:
            return "write", lambda: self._upsert(name, number)
        if draw < 0.52:
            return "write", lambda: self._take_out(name)
        if draw < 0.75:
            return "read", lambda: self._look_up(name)
        if draw < 0.95:
            return "read", lambda: self._sum(name)
        return "read", lambda: self._lake.table(name).stats()

    def _upsert(self, name: str, number: int) -> None:
        keys = self._rng.sample(range(KEYS), self._rng.randint(1, 20))
        rows = {key: (f"{name} {number}", self._rng.randrange(1000)) for key in keys}
        self._lake.table(name).upsert([{"id": key, "v": v, "n": n} for key, (v, n) in rows.items()])
        self.rows[name] |= rows

    def _take_out(self, name: str) -> None:
        keys = self._rng.sample(range(KEYS), 3)
        self._lake.table(name).delete(keys)
        for key in keys:
            self.rows[name].pop(key, None)

    def _look_up(self, name: str) -> None:
        key = self._rng.randrange(KEYS)
        found, known = self._lake.table(name).get(key), self.rows[name].get(key)
        expected = None if known is None else {"id": key, "v": known[0], "n": known[1]}
        assert name in self.unknown or found == expected, f"{name} {key}: {found}, not {expected}"

    def _sum(self, name: str) -> None:
        low = self._rng.randrange(KEYS)
        answer = self._lake.sql(f"select count(*) c, sum(n) s from {name} where id >= {low}").to_pylist()
        inside = [n for key, (_, n) in self.rows[name].items() if key >= low]
        expected = [{"c": len(inside), "s": sum(inside) if inside else None}]
        assert name in self.unknown or answer == expected, f"{name} from {low}: {answer}, not {expected}"

    def check(self, lake: Lake) -> list[str]:
        """Tables that are not what they have to be."""
        wrong = []
        for name in self._names:
            found = {row["id"]: (row["v"], row["n"]) for row in lake.table(name).to_arrow().to_pylist()}
            if name not in self.unknown and found != self.rows[name]:
                wrong.append(f"{name} has {len(found)} rows, and should have {len(self.rows[name])}")
        return wrong


def exceeded(samples: list[Sample], *, latency: bool = True) -> list[str]:
    """Which bounds the last quarter breaks, compared with the second. How long things take says nothing (`latency`)
    where others use the machine too.
    """
    quarter = len(samples) // 4
    middle, last = samples[quarter : 2 * quarter], samples[-quarter:]
    found = []
    for name, bound in BOUNDS.items():
        if name.endswith("_ms") and not latency:
            continue
        before, after = (statistics.median(getattr(sample, name) for sample in part) for part in (middle, last))
        if after > before * bound.times + bound.more:
            found.append(f"{name} went from {before:,.1f} to {after:,.1f}")
    return found


def soak(
    folder: Path, operations: int, tables: int, clients: int, seed: int, seconds_min: float, *, latency: bool = True
) -> list[str]:
    """Returns what went wrong. `seconds_min`: a fast machine takes that long all the same, because files come and go by
    the clock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"soak.t{number}" for number in range(tables)]
    with Lake(folder / "lake") as lake:
        for name in names:
            lake.create_table(name, SCHEMA, key="id")
    service, latencies, samples = Service(folder), Latencies(), list[Sample]()
    started = time.monotonic()
    try:
        each = [operations // clients + (number < operations % clients) for number in range(clients)]
        workers = [
            Client(service, names[number::clients], count, seed * 1000 + number, latencies, seconds_min / max(count, 1))
            for number, count in enumerate(each)
        ]
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            if latencies.done >= (len(samples) + 1) * operations / SAMPLES:
                samples.append(service.sample(latencies, started))
                print(json.dumps(asdict(samples[-1])), flush=True)
            assert service.process.poll() is None, "the service ended"
            time.sleep(0.05)
    finally:
        code = service.stop()
    problems = [f"{count} × {what}" for what, count in latencies.failures.most_common(10)]
    problems += exceeded(samples, latency=latency)
    if code != 0:
        problems.append(f"the service ended with {code}")
    if left := sorted(path.name for path in service.scratch.iterdir()):
        problems.append(f"it left temporary files: {', '.join(left[:5])}")
    with Lake(folder / "lake") as lake:
        problems += [wrong for worker in workers for wrong in worker.check(lake)]
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-latency", action="store_true", help="for a machine that others use too")
    parser.add_argument("--seconds-min", type=float, default=60.0, help="work no faster than that")
    given = parser.parse_args()
    latency = not given.without_latency
    problems = soak(
        given.folder,
        given.operations,
        given.tables,
        given.clients,
        given.seed,
        given.seconds_min,
        latency=latency,
    )
    for problem in problems:
        print(f"PROBLEM {problem}", flush=True)
    print("flat" if not problems else f"{len(problems)} problems", flush=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
