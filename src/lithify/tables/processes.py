"""Which processes have tables of this lake open, so that an erasure can ask them to drop what they hold in memory.

Whoever opens a table puts a file into `_lithify/processes/`, and takes it away when the lake is closed. An erasure adds
a line to `_lithify/let-go.jsonl`; every process looks there each time it looks for new commits, drops what it holds of
the table, and says so in its own file. It is a courtesy, and nothing relies on it but what a receipt says: who was
asked, who answered, and who did not. A process that may not write to the lake, or has no lake open but reads its files
with another engine, is not known here.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any

from lithify.core.json_out import parsed
from lithify.core.names import TableName, parse_table_name
from lithify.errors import LithifyError, NotFound
from lithify.tables.runtime import Owner, Runtime

logger = logging.getLogger(__name__)

LINES_MAX = 100
LEFT_MAX = 64
PAUSE_S = 0.1
SPARE_S = 5.0


@dataclass(frozen=True)
class Told:
    """Processes that were asked: those that have answered, and those that had not when the time was over."""

    acknowledged: tuple[str, ...]
    silent: tuple[str, ...]


class OpenProcess:
    """This process, while it has tables of a lake open. `let_go` drops what it holds of one."""

    def __init__(self, runtime: Runtime, let_go: Callable[[TableName, str], None]) -> None:
        self._runtime, self._let_go, self._lock = runtime, let_go, threading.Lock()
        self._path: PurePath | None = None
        self._size, self._answered = -1, set[str]()

    def enter(self) -> None:
        """What was asked for before concerns nobody who opens a table now."""
        runtime = self._runtime
        if not runtime.store.locks:
            return
        owner = Owner.this_process()
        path = _folder(runtime) / f"{owner.pid}-{runtime.new_id()}.jsonl"
        with self._lock:
            self._answered = {asked["erasure"] for asked in _asked(runtime)}
            try:
                if not runtime.store.is_folder(path.parent):
                    runtime.store.make_folder(path.parent)
                self._path = path  # a line that does not fit the disk leaves an empty file
                runtime.store.append(path, _line(asdict(owner)))
                _sweep(runtime)
            except LithifyError as error:
                logger.debug("this process is not known to erasures: %s", error)

    def look(self) -> None:
        """Do what was asked for since the last look, and say so."""
        runtime = self._runtime
        if not runtime.store.locks:
            return
        with self._lock:
            try:
                size = runtime.store.size(_requests(runtime))
            except NotFound:
                return
            if size == self._size:
                return
            for asked in _asked(runtime):
                if asked["erasure"] not in self._answered:
                    self._let_go(parse_table_name(asked["table"]), asked["table_id"])
                    if self._path is not None:
                        runtime.store.append(self._path, _line({"let_go": asked["erasure"]}))
                    self._answered.add(asked["erasure"])
            self._size = size

    def leave(self) -> None:
        with self._lock:
            if self._path is not None:
                try:
                    self._runtime.store.delete(self._path)
                except LithifyError as error:
                    logger.debug("%s stays until an erasure finds it: %s", self._path, error)
                self._path = None


def ask_to_let_go(
    runtime: Runtime, table: str, table_id: str, request: str, answer: Callable[[], None] = lambda: None
) -> Told:
    """Ask every process that is known, and wait until each has answered, for as long as it takes them to look.
    `answer`: has this process look now.
    """
    asked = _line({"erasure": request, "table": table, "table_id": table_id})
    wait_s = runtime.settings.refresh_s + SPARE_S

    def added(content: bytes | None) -> bytes:
        return b"".join([*(content or b"").splitlines(keepends=True)[-LINES_MAX:], asked])

    runtime.store.swap(_requests(runtime), added, runtime.settings.lock_wait_s_max, "asking processes to let go")
    answer()
    until_s, answered = runtime.monotonic_s() + wait_s, set[str]()
    waiting = _others(runtime)
    while waiting:
        for path, owner in list(waiting.items()):
            said = _said(runtime, path)
            if any(line.get("let_go") == request for line in said):
                answered.add(owner.label)
            elif said and owner.may_be_alive():
                continue
            elif said:
                runtime.store.delete(path)
            del waiting[path]  # it has answered, or ended: then it holds nothing
        if waiting and runtime.monotonic_s() > until_s:
            break
        if waiting:
            runtime.pause(PAUSE_S)
    return Told(tuple(sorted(answered)), tuple(sorted(owner.label for owner in waiting.values())))


def _sweep(runtime: Runtime) -> None:
    """Processes that ended without closing their lake have left their files: not more than a few of them stay."""
    if len(runtime.store.names(_folder(runtime))) > LEFT_MAX:
        for path, owner in _others(runtime).items():
            if not owner.may_be_alive():
                runtime.store.delete(path)


def _others(runtime: Runtime) -> dict[PurePath, Owner]:
    """Also lakes that this very process has open a second time: each answers for itself."""
    found = dict[PurePath, Owner]()
    for name in runtime.store.names(_folder(runtime)):
        path = _folder(runtime) / name
        said = _said(runtime, path)
        try:
            found[path] = Owner(**{field: said[0][field] for field in ("host", "pid", "started")})
        except (IndexError, KeyError):
            continue  # gone, or nothing that a process wrote
    return found


def _said(runtime: Runtime, path: PurePath) -> list[dict[str, Any]]:
    try:
        lines = runtime.store.read(path).splitlines()
    except NotFound:
        return []
    return [said for line in lines if isinstance(said := parsed(line), dict)]


def _asked(runtime: Runtime) -> list[dict[str, Any]]:
    needed = {"erasure", "table", "table_id"}
    return [said for said in _said(runtime, _requests(runtime)) if needed <= said.keys()]


def _line(said: dict[str, Any]) -> bytes:
    return json.dumps(said).encode() + b"\n"


def _folder(runtime: Runtime) -> PurePath:
    return runtime.control / "processes"


def _requests(runtime: Runtime) -> PurePath:
    return runtime.control / "let-go.jsonl"
