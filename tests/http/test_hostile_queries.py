"""After each of two hundred hostile queries the service answers a cheap one, has its memory back, and nothing lingers.

They are sent one after the other to a service of its own, with little memory, disk and time for each, some of them also
where SQL comes in by another door. A thinned run takes some of each kind, other ones in each run (SWEEP_SEED);
`make soak` takes all.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyarrow import flight

from lithify import Lake
from lithify.flight import messages
from support.effort import SEED, SOAK
from support.folders import memory_folder
from support.hostile_texts import all_texts
from support.waiting import WAIT_S_MAX, eventually

ROWS = 20_000
MEMORY_BYTES, SPILL_BYTES, TIMEOUT_S = 2**28, 2**27, 1.0
# Where a request cannot say how long it may take.
TIMEOUT_S_MAX = 20.0
# Of this process beside what its own work takes; a query that ran in it would take more.
GROWTH_BYTES_MAX = 300 * 2**20
# Of what it takes for the same once more.
AGAIN_BYTES_MAX = 64 * 2**20
# A service that hangs is silent for longer than this; a soak has the machine for itself.
CHEAP_S_MAX = 1.0 if SOAK else 30.0
ENDED = {200, 400, 404, 413, 422, 503}
EVERY = 6
# Of the texts, as many go through each of the other doors.
OTHER_DOORS_EVERY = 5
ADDRESS_MAX = 60_000

pytestmark = pytest.mark.slow


def chosen() -> dict[str, str]:
    texts = all_texts()
    if SOAK:
        return texts
    kinds: dict[str, list[str]] = {}
    for name in texts:
        kinds.setdefault(name.partition(":")[0], []).append(name)
    some = [name for names in kinds.values() for name in names[SEED % EVERY :: EVERY]]
    return {name: texts[name] for name in some}


class Service:
    def __init__(self, lake: Path, scratch: Path) -> None:
        environment = {
            **os.environ,
            "TMPDIR": str(scratch),
            "LITHIFY_QUERY_MEMORY_BYTES_MAX": str(MEMORY_BYTES),
            "LITHIFY_QUERY_SPILL_BYTES_MAX": str(SPILL_BYTES),
            "LITHIFY_QUERY_TIMEOUT_S": str(TIMEOUT_S_MAX),
            "LITHIFY_CACHE_BYTES_MAX": str(2**26),
        }
        command = [sys.executable, "-m", "lithify.cli", "serve", "--json", "--no-maintenance", "--port", "0"]
        command += ["--flight-port", "0"]
        self.process = subprocess.Popen(
            [*command, "--lake", str(lake)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        assert self.process.stdout is not None
        said = json.loads(self.process.stdout.readline())
        headers = {"Authorization": f"Bearer {said['token']}"}
        self._client = httpx.Client(base_url=said["url"], headers=headers, timeout=WAIT_S_MAX)
        self._flight = flight.connect(said["flight"])
        given = [(b"authorization", f"Bearer {said['token']}".encode())]
        self._options = flight.FlightCallOptions(headers=given, timeout=WAIT_S_MAX)

    def ask(self, sql: str, timeout_s: float | None = None) -> httpx.Response:
        body: dict[str, Any] = {"sql": sql} if timeout_s is None else {"sql": sql, "timeout_s": timeout_s}
        return self._client.post("/v1/query/sql", json=body)

    def doors(self, text: str) -> dict[str, Callable[[], httpx.Response | None]]:
        """Where else this can be sent to, and how."""
        condition = f"({text.removeprefix('select ')}) is null"
        rows, execute = "/v1/tables/shop.orders", "/v1/query/execute"
        found: dict[str, Callable[[], httpx.Response | None]] = {
            "delete where": lambda: self._client.post(
                f"{rows}/delete-where", json={"condition": f"false and {condition}"}
            ),
            "execute": lambda: self._write(execute, f"insert into shop.orders (id) select -1 where exists ({text})"),
            "update": lambda: self._write(execute, f"update shop.orders set name = 'x' where {condition}"),
            "flight": lambda: self._stream(text),
        }
        if len(text) < ADDRESS_MAX:
            found["where"] = lambda: self._client.get(f"{rows}/rows", params={"where": condition, "limit": 1})
        return found

    def _write(self, path: str, sql: str) -> httpx.Response:
        return self._client.post(path, json={"sql": sql, "timeout_s": TIMEOUT_S, "dry_run": True})

    def _stream(self, text: str) -> None:
        """It is answered or refused in time; `FlightInternalError` would be a fault that nobody has thought of."""
        asked = flight.FlightDescriptor.for_command(messages.enveloped("CommandStatementQuery", query=text))
        refused = (flight.FlightServerError, flight.FlightUnavailableError, pa.ArrowInvalid)
        with contextlib.suppress(*refused):
            info = self._flight.get_flight_info(asked, self._options)
            self._flight.do_get(info.endpoints[0].ticket, self._options).read_all()

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
        self._flight.close()
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
    before, texts = service.own_bytes(), chosen()
    slowest = max(hostile(service, name, text, number) for number, (name, text) in enumerate(texts.items()))
    print(f"{len(texts)} hostile queries; the slowest cheap one took {slowest[0]:.3f} s, after {slowest[1]}")
    assert service.process.poll() is None
    first = service.own_bytes()
    assert first - before < GROWTH_BYTES_MAX
    again = list(texts.items())[:: 1 if SOAK else 3]
    for number, (name, text) in enumerate(again):
        hostile(service, name, text, len(texts) + number)
    assert service.own_bytes() - first < AGAIN_BYTES_MAX
    nothing_is_left(service, scratch)


@pytest.mark.parametrize("door", ["delete where", "execute", "update", "flight", "where"])
def test_hostile_texts_at_other_doors(service: Service, scratch: Path, door: str) -> None:
    texts = list(chosen().items())
    for number, (name, text) in enumerate(texts[SEED % OTHER_DOORS_EVERY :: OTHER_DOORS_EVERY]):
        send = service.doors(text).get(door)
        if send is None:
            continue
        answer = send()
        if answer is not None and answer.status_code != 200:
            assert answer.status_code in ENDED, f"{name}: {answer.status_code} {answer.text[:300]}"
            assert answer.json()["code"] != "internal", f"{name}: {answer.text[:300]}"
        is_answered_soon(service, name, number)
    assert service.process.poll() is None
    nothing_is_left(service, scratch)


def hostile(service: Service, name: str, text: str, number: int) -> tuple[float, str]:
    """How long the cheap query took after it."""
    answer = service.ask(text, TIMEOUT_S)
    assert answer.status_code in ENDED, f"{name}: {answer.status_code} {answer.text[:300]}"
    if answer.status_code != 200:
        assert answer.json()["code"] != "internal", f"{name}: {answer.text[:300]}"
    return is_answered_soon(service, name, number), name


def is_answered_soon(service: Service, name: str, number: int) -> float:
    started = time.monotonic()
    cheap = service.ask(f"select name from shop.orders where id = {number + 100}")
    seconds = time.monotonic() - started
    assert cheap.json()["rows"] == [[f"name {number + 100}"]], f"after {name}: {cheap.text[:300]}"
    assert seconds < CHEAP_S_MAX, f"after {name}"
    return seconds


def nothing_is_left(service: Service, scratch: Path) -> None:
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
