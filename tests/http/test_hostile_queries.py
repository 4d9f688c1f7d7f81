"""After each of two hundred hostile queries the service answers a cheap one, has its memory back, and nothing lingers.

They are sent one after the other to a service of its own, with little memory, disk and time for each. A thinned run
takes some of each kind; `make soak` takes all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from lithify import Lake
from support.effort import SOAK
from support.folders import memory_folder
from support.hostile_texts import all_texts
from support.waiting import WAIT_S_MAX, eventually

ROWS = 20_000
MEMORY_BYTES, SPILL_BYTES, TIMEOUT_S = 2**28, 2**27, 1.0
# Of this process beside what its own work takes; a query that ran in it would take more.
GROWTH_BYTES_MAX = 300 * 2**20
# One second on a machine that does nothing else; a service that hangs is silent for longer than this.
CHEAP_S_MAX = 30.0
ENDED = {200, 400, 404, 413, 422, 503}
EVERY = 6

pytestmark = pytest.mark.slow


def chosen() -> dict[str, str]:
    texts = all_texts()
    if SOAK:
        return texts
    kinds: dict[str, list[str]] = {}
    for name in texts:
        kinds.setdefault(name.partition(":")[0], []).append(name)
    some = [name for names in kinds.values() for name in names[::EVERY]]
    return {name: texts[name] for name in some}


class Service:
    def __init__(self, lake: Path, scratch: Path) -> None:
        environment = {
            **os.environ,
            "TMPDIR": str(scratch),
            "LITHIFY_QUERY_MEMORY_BYTES_MAX": str(MEMORY_BYTES),
            "LITHIFY_QUERY_SPILL_BYTES_MAX": str(SPILL_BYTES),
            "LITHIFY_CACHE_BYTES_MAX": str(2**26),
        }
        command = [sys.executable, "-m", "lithify.cli", "serve", "--json", "--no-maintenance", "--port", "0"]
        self.process = subprocess.Popen(
            [*command, "--lake", str(lake)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        assert self.process.stdout is not None
        said = json.loads(self.process.stdout.readline())
        headers = {"Authorization": f"Bearer {said['token']}"}
        self._client = httpx.Client(base_url=said["url"], headers=headers, timeout=WAIT_S_MAX)

    def ask(self, sql: str, timeout_s: float | None = None) -> httpx.Response:
        body: dict[str, Any] = {"sql": sql} if timeout_s is None else {"sql": sql, "timeout_s": timeout_s}
        return self._client.post("/v1/query/sql", json=body)

    def own_bytes(self) -> int:
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")

    def descendants(self) -> list[int]:
        parents = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except OSError:
                    continue
        found = [self.process.pid]
        for one in found:
            found += [pid for pid, parent in parents.items() if parent == one]
        return found[1:]

    def close(self) -> None:
        self._client.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def service(scratch: Path) -> Iterator[Service]:
    numbers = list(range(ROWS))
    rows = pa.table({"id": numbers, "side": [n % 2 for n in numbers], "name": [f"name {n}" for n in numbers]})
    with memory_folder() as folder:
        with Lake(folder / "lake") as lake:
            lake.create_table("shop.orders", rows.schema, key="id").append(rows)
        service = Service(folder / "lake", scratch)
        yield service
        service.close()


def test_hostile_queries_one_after_the_other(service: Service, scratch: Path) -> None:
    for number in range(10):
        assert service.ask(f"select name from shop.orders where id = {number}").status_code == 200
    before, slowest = service.own_bytes(), (0.0, "")
    for number, (name, text) in enumerate(chosen().items()):
        answer = service.ask(text, TIMEOUT_S)
        assert answer.status_code in ENDED, f"{name}: {answer.status_code} {answer.text[:300]}"
        if answer.status_code != 200:
            assert answer.json()["code"] != "internal", f"{name}: {answer.text[:300]}"
        started = time.monotonic()
        cheap = service.ask(f"select name from shop.orders where id = {number + 100}")
        seconds = time.monotonic() - started
        assert cheap.json()["rows"] == [[f"name {number + 100}"]], f"after {name}: {cheap.text[:300]}"
        assert seconds < CHEAP_S_MAX, f"after {name}"
        slowest = max(slowest, (seconds, name))
    print(f"{number + 1} hostile queries; the slowest cheap one took {slowest[0]:.3f} s, after {slowest[1]}")
    assert service.process.poll() is None
    assert service.own_bytes() - before < GROWTH_BYTES_MAX
    # The template, and no more processes than queries may run.
    eventually(lambda: len(service.descendants()) <= 1 + 4, "the end of processes that were stopped")
    spilled = [path for path in scratch.rglob("*") if path.is_file() and path.stat().st_size > 2**16]
    assert spilled == []
    busy = [pid for pid in service.descendants() if _state(pid) == "R"]
    eventually(lambda: not [pid for pid in busy if _state(pid) == "R"], "the end of all work")


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
