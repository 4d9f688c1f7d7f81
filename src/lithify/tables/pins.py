"""Pins: snapshots that vacuum has to spare, whichever process runs it.

A pin is a file `_lithify/pins/<table>-<id>.json` that names its owner and the files of its snapshot. It is durable
before the snapshot's files are looked at, and these are looked at before the snapshot is handed out, so a vacuum
either sees the pin or the pin's owner sees what is missing. A vacuum holds the table's lock while it reads the pins
and deletes; a snapshot of the past, whose files may be on its list already, is pinned under the same lock. Where the
storage has no locks, the list is written down for the pinner to see (`tables/doomed.py`).

A pin lasts as long as its owner: on this host its process, on another host `pin_hours_max` hours after its owner has
written it last, which it does four times in that time, or was last seen alive (`tables/presence.py`). Pins of owners
that are gone are removed by vacuum. A pin that cannot be read might protect anything, so the table is not vacuumed
until it is removed by hand.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import Any, Self

from lithify.compute.background import repeating
from lithify.core.names import TableName
from lithify.core.snapshot import Snapshot
from lithify.errors import Corruption, LithifyError, NotFound
from lithify.tables import presence
from lithify.tables.doomed import check_spared
from lithify.tables.handles import Handles
from lithify.tables.runtime import Owner, Runtime

logger = logging.getLogger(__name__)

HOUR_MS = 3_600_000
RENEWALS = 4


@dataclass(frozen=True, kw_only=True)
class SparedVersion:
    """A version of a table as a file in the lake names it: vacuum takes none of these files."""

    table: str
    table_id: str
    seq: int
    changes_version: int
    base_version: int
    created_ms: int
    changes: tuple[str, ...]
    base: tuple[str, ...]

    @classmethod
    def of(cls, snapshot: Snapshot, created_ms: int, **more: Any) -> Self:
        told = ("table", "table_id", "seq", "changes_version", "base_version")
        facts = {name: getattr(snapshot, name) for name in told}
        kept = (*snapshot.remembered, *snapshot.changes)
        changes, base = (tuple(file.path for file in files) for files in (kept, snapshot.base))
        return cls(created_ms=created_ms, changes=changes, base=base, **facts, **more)

    @classmethod
    def parsed(cls, document: bytes, **more: Callable[[Any], Any]) -> Self:
        """Raises ValueError, TypeError, KeyError or AttributeError where it is none. `more`: how to read a field."""
        fields = json.loads(document)
        lists = {name: tuple(map(str, fields[name])) for name in ("changes", "base")}
        found = cls(**{**fields, **lists, **{name: read(fields[name]) for name, read in more.items()}})
        if not all(type(number) is int for number in (found.seq, found.changes_version, found.base_version)):
            raise ValueError("its numbers are no numbers")
        return found

    def document(self) -> bytes:
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True, kw_only=True)
class Pin(SparedVersion):
    id: str
    owner: Owner
    renewed_ms: int

    @property
    def files(self) -> frozenset[str]:
        """Of both logs, each below its name."""
        return frozenset({*(f"changes/{path}" for path in self.changes), *(f"base/{path}" for path in self.base)})

    def holds(self, runtime: Runtime) -> bool:
        if not runtime.store.locks:
            hours = runtime.settings.pin_hours_max
            return presence.may_be_alive(runtime, self.owner, hours * 3600, self.renewed_ms, hours)
        if self.owner.host != runtime.owner.host:
            return runtime.now_ms() - self.renewed_ms <= runtime.settings.pin_hours_max * HOUR_MS
        return self.owner.may_be_alive()


@contextlib.contextmanager
def pinned(
    handles: Handles, as_of: int | str | dt.datetime | Snapshot | None, pin_id: str | None = None
) -> Iterator[Snapshot]:
    runtime, name = handles.runtime, handles.name
    runtime.store.make_folder(_folder(runtime))
    # What is live now leaves the table only with a commit younger than any retention: no vacuum under way lists it.
    lock = vacuum_lock(runtime, name) if as_of is not None else contextlib.nullcontext()
    with contextlib.ExitStack() as undo:
        with lock:
            snapshot = handles.snapshot(as_of)
            now_ms = runtime.now_ms()
            pin = Pin.of(snapshot, now_ms, id=pin_id or runtime.new_id(), owner=runtime.owner, renewed_ms=now_ms)
            undo.callback(presence.end, runtime, pin.id)
            presence.begin(runtime, pin.id)
            undo.callback(_unpin, runtime, pin)
            _write(runtime, pin)
            runtime.store.step("pin.written")
            if not runtime.store.locks:
                check_spared(runtime, name, pin.table_id, pin.files, lambda: handles.check_present(snapshot))
            handles.check_present(snapshot)
        if runtime.store.locks:
            undo.enter_context(_renewing(runtime, pin))
        yield snapshot


def _unpin(runtime: Runtime, pin: Pin) -> None:
    """What was done under the pin is done: it says nothing about that where the pin cannot be removed."""
    try:
        runtime.store.delete(_path(runtime, pin))
    except LithifyError as error:
        logger.warning(
            "pin %s stays, and with it files of %s until this process ends, or it is deleted: %s",
            _path(runtime, pin),
            pin.table,
            error,
        )


def vacuum_lock(runtime: Runtime, name: TableName) -> contextlib.AbstractContextManager[None]:
    """If two held it at once, a pin of the past could be written between a vacuum's look at the pins and its deletes.
    Where there are no locks, nobody holds it, and lists of doomed files keep that from happening.
    """
    if not runtime.store.locks:
        return contextlib.nullcontext()
    runtime.store.make_folder(_folder(runtime))
    return runtime.store.lock(_vacuumed(runtime, name), runtime.settings.lock_wait_s_max, f"vacuum of {name}")


def note_vacuumed(runtime: Runtime, name: TableName) -> None:
    """An object's time says when the table was vacuumed last."""
    runtime.store.touch_ms(_vacuumed(runtime, name), runtime.now_ms())


def vacuumed_ms(runtime: Runtime, name: TableName) -> float:
    """When the table was vacuumed last. One that never was counts as if it were now: there is time."""
    path = _vacuumed(runtime, name)
    try:
        return runtime.store.modified_ms(path)
    except NotFound:
        runtime.store.make_folder(_folder(runtime))
        return runtime.store.touch_ms(path, runtime.now_ms())


def _vacuumed(runtime: Runtime, name: TableName) -> PurePath:
    """The lock of vacuum, where there is one."""
    return _folder(runtime) / f"{name}.{'lock' if runtime.store.locks else 'vacuumed'}"


def pins_of(runtime: Runtime, name: TableName) -> list[Pin]:
    """Every pin of a table, also those that hold no longer."""
    folder = _folder(runtime)
    found = []
    for entry in runtime.store.names(folder):
        if entry.startswith(f"{name}-") and entry.endswith(".json"):
            with contextlib.suppress(NotFound):
                found.append(_read(runtime, folder / entry))
    return found


def is_pinned(runtime: Runtime, name: TableName, pin_id: str) -> bool:
    """Whether this pin is there: its owner has not let go of it, and no vacuum has taken it for one of the dead."""
    return runtime.store.tag(_folder(runtime) / f"{name}-{pin_id}.json") is not None


def remove_pin(runtime: Runtime, pin: Pin) -> None:
    runtime.store.delete(_path(runtime, pin))


def renew(runtime: Runtime, pin: Pin) -> Pin:
    renewed = replace(pin, renewed_ms=runtime.now_ms())
    _write(runtime, renewed)
    return renewed


def forget_temporaries(runtime: Runtime, name: TableName, cutoff_ms: int) -> None:
    """Remove pins whose writing was cut off long ago: none was ever handed out."""
    folder = _folder(runtime)
    for entry in runtime.store.names(folder):
        if entry.startswith(f".{name}-"):
            seen = runtime.store.look_at(folder, entry)
            if seen is not None and seen.mtime_ms < cutoff_ms:
                runtime.store.delete(folder / entry)


def _renewing(runtime: Runtime, pin: Pin) -> contextlib.AbstractContextManager[None]:
    def renew_it() -> None:
        try:
            renew(runtime, pin)
        except LithifyError as error:
            logger.warning("the pin %s on %s could not be renewed: %s", pin.id, pin.table, error)

    return repeating(renew_it, runtime.settings.pin_hours_max * 3600 / RENEWALS, f"pin {pin.table}")


def _write(runtime: Runtime, pin: Pin) -> None:
    runtime.store.put(_path(runtime, pin), pin.document())


def _read(runtime: Runtime, path: PurePath) -> Pin:
    try:
        pin = Pin.parsed(runtime.store.read(path), owner=lambda owner: Owner(**owner))
        if not isinstance(pin.renewed_ms, int):
            raise ValueError("its times are no numbers")
        if path.name != f"{pin.table}-{pin.id}.json":
            raise ValueError("it is not named as it says")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Corruption(
            f"pin {path} cannot be read, and it may protect any file: nothing was vacuumed; remove it if no reader of "
            "this table is running, then vacuum again"
        ) from error
    return pin


def _folder(runtime: Runtime) -> PurePath:
    return runtime.control / "pins"


def _path(runtime: Runtime, pin: Pin) -> PurePath:
    return _folder(runtime) / f"{pin.table}-{pin.id}.json"
