"""What is kept of an erasure: `_lithify/erasures/<id>/` with its state, its needles while it runs, and its receipt.

`state.json` names no value: it says which table, how far it has come, and counts. Each step writes it when the step is
done, so whoever takes the erasure up again begins with the step that was under way, and each step may be done twice.
The folder counts once `state.json` is there, which comes last; without it, it is what a request left that was cut off.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from lithify.core.names import parse_table_name
from lithify.errors import CommitUnknown, Corruption, LithifyError, NotFound, did_you_mean
from lithify.tables.runtime import Runtime

OPEN, BLOCKED, LEFTOVER, DONE, CANCELLED = "open", "blocked", "leftover", "done", "cancelled"
STATES = (OPEN, BLOCKED, LEFTOVER, DONE, CANCELLED)
# What becomes of the past, and the step that sees to it.
HISTORIES = ("rewrite", "cut")
# In this order; each names what is done next. Of the histories one is.
STEPS = ("hide", "seal", "fold", "inventory", "cut", "rewrite", "purge", "flush", "scan", "receipt", "forget", "end")
CUT_OFF_MS = 3_600_000
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, kw_only=True)
class Record:
    id: str
    table: str
    table_id: str
    key: tuple[str, ...]
    reason: str | None
    actor: str
    requested_ms: int
    history: str = "rewrite"
    break_pins: bool = False
    keys: int = 0
    subjects: tuple[str, ...] = ()
    state: str = OPEN
    step: str = STEPS[0]
    round: int = 1
    blocked_by: tuple[str, ...] = ()
    places: tuple[dict[str, str], ...] = ()
    problems: tuple[str, ...] = ()
    hidden_seq: int | None = None
    hidden_rows: int = 0
    hidden_ms: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        return self.state in (OPEN, BLOCKED, LEFTOVER)

    @property
    def next_step(self) -> str:
        others = set(HISTORIES) - {self.history}
        return next(step for step in STEPS[STEPS.index(self.step) + 1 :] if step not in others)

    @property
    def has_begun_the_past(self) -> bool:
        """Whether something of it may be gone, so that there is no way back."""
        done = ("commits_deleted", "files_rewritten")
        return STEPS.index(self.step) >= STEPS.index("cut") or any(name in self.facts for name in done)

    def document(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def parsed(cls, content: bytes, path: PurePath) -> Record:
        try:
            said = json.loads(content)
            lists = ("key", "subjects", "blocked_by", "places", "problems")
            record = cls(**{**said, **{name: tuple(said[name]) for name in lists}})
            parse_table_name(record.table)
            known = record.state in STATES and record.step in STEPS and record.history in HISTORIES
            if not known or not _ID.fullmatch(record.id):
                raise ValueError("no such state, step or history")
        except (ValueError, TypeError, KeyError) as error:
            raise Corruption(
                f"{path} is not readable: restore it from a copy, it tells how far an erasure is"
            ) from error
        return record


def begun(runtime: Runtime) -> bool:
    """Whether one may be open: cheap, and said without looking into them."""
    if not runtime.store.locks:
        return False
    folder = runtime.control / "erasures"
    return any(runtime.store.exists(folder / id / "needles.key") for id in runtime.store.names(folder))


@contextlib.contextmanager
def goes_on(record: Record) -> Iterator[None]:
    """What fails from the moment on that an erasure may count does not call it off: whoever finds it takes it up."""
    try:
        yield
    except LithifyError as error:
        raise CommitUnknown(
            f"whether erasure {record.id} of {record.table} has begun could not be determined ({error}): "
            "if `lake.erasures()` lists it, it goes on with the next cycle, or with its `wait`, unless you cancel it",
            erasure=record.id,
        ) from error


class Records:
    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.store, self.folder = runtime, runtime.store, runtime.control / "erasures"

    def path(self, id: str) -> PurePath:
        return self.folder / id

    def create(self, record: Record, files: dict[str, bytes]) -> None:
        folder = self.path(record.id)
        self.store.make_folder(folder, 0o700)
        for name, content in files.items():
            self.store.create(folder / name, content, 0o600)
        self.store.step("erase.needles")
        with goes_on(record):
            self.store.put(folder / "state.json", record.document())
            self.store.sync_folder(self.folder)
        self.store.step("erase.requested")

    def save(self, record: Record) -> Record:
        self.store.put(self.path(record.id) / "state.json", record.document())
        self.store.step(f"erase.before-{record.step}")
        return record

    def read(self, id: str) -> Record:
        if not isinstance(id, str) or not _ID.fullmatch(id):
            raise self._unknown(id)
        path = self.path(id) / "state.json"
        try:
            return Record.parsed(self.store.read(path), path)
        except NotFound as error:
            raise self._unknown(id) from error

    def all(self) -> list[Record]:
        """Oldest first."""
        found = []
        for id in self.store.names(self.folder):
            if _ID.fullmatch(id) and self.store.exists(self.path(id) / "state.json"):
                found.append(self.read(id))
        return sorted(found, key=lambda record: (record.requested_ms, record.id))

    def clear_cut_off(self) -> None:
        """What requests have left that ended before they counted."""
        for id in self.store.names(self.folder):
            folder = self.path(id)
            if not _ID.fullmatch(id) or self.store.exists(folder / "state.json"):
                continue
            ages = [self.runtime.now_ms() - file.mtime_ms for file in self.store.entries(folder)]
            if all(age > CUT_OFF_MS for age in ages):
                self.store.delete_folder(folder)

    def _unknown(self, id: object) -> NotFound:
        known = [name for name in self.store.names(self.folder) if _ID.fullmatch(name)]
        near = did_you_mean(str(id), known) or "`lithify erasures` lists them"
        return NotFound(f"this lake has no erasure {id!r}: {near}")
