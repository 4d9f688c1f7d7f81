"""Jobs that can be watched and ended, from this process and from others.

Here a job's `Progress` is at hand. For other processes it is written to `_lithify/progress/<job>.json` every few
seconds, and whoever wants to end a job that runs elsewhere leaves `<job>.cancel` beside it, which its process sees the
next time. Jobs that end before that leave no trace there. These files are hints: a process that dies leaves its own
behind, which say when they were written; the next process to write there clears them away.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import PurePath
from typing import Any

from lithify.errors import LithifyError, NotFound
from lithify.metrics.progress import Amounts, Progress, under
from lithify.metrics.recent_events import RecentEvents
from lithify.tables.runtime import Owner, Runtime

logger = logging.getLogger(__name__)

TELL_S = 5.0
SILENT_MS = 60_000
FORGOTTEN_MS = 3_600_000
TOLD, CANCEL = ".json", ".cancel"


@dataclass(frozen=True)
class Watched:
    """A job as far as it had come when somebody looked, or when its process last wrote that down."""

    id: str
    kind: str
    table: str
    why: str
    done: Amounts
    total: Amounts
    cancelled: bool
    owner: Owner
    started_ms: int


@dataclass
class _Entry:
    progress: Progress
    started_ms: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    told: bool = False
    ended: bool = False


class Watch:
    """Jobs of this process and lake, and the thread that writes down how far they are."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._idle = threading.Event()
        self._swept = False

    def begin(self, runtime: Runtime, progress: Progress) -> _Entry:
        entry = _Entry(progress, runtime.now_ms())
        with self._lock:
            if not self._entries:
                self._idle = threading.Event()
                args = runtime, self._idle
                threading.Thread(target=self._tell_until, args=args, name="lithify-watch", daemon=True).start()
            self._entries[progress.id] = entry
        return entry

    def end(self, runtime: Runtime, entry: _Entry) -> None:
        with self._lock:
            del self._entries[entry.progress.id]
            if not self._entries:
                self._idle.set()
        with entry.lock:
            entry.ended = True
            if entry.told:
                forget(runtime, entry.progress.id)

    def here(self, runtime: Runtime) -> dict[str, Watched]:
        with self._lock:
            entries = dict(self._entries)
        return {id: _watched(runtime, entry) for id, entry in entries.items()}

    def cancel(self, id: str, why: str) -> bool | None:
        """None: it does not run here. False: it is past that."""
        with self._lock:
            entry = self._entries.get(id)
        return None if entry is None else entry.progress.cancel(why)

    def _tell_until(self, runtime: Runtime, idle: threading.Event) -> None:
        while not idle.wait(TELL_S):
            try:
                self.tell(runtime)
            except LithifyError as error:
                logger.warning("other processes are not told how far jobs have come: %s", error)
            except Exception:
                logger.exception("other processes are not told how far jobs have come")

    def tell(self, runtime: Runtime) -> None:
        """Write down how far the jobs are, and see which of them somebody wants to end."""
        folder = _folder(runtime)
        with self._lock:
            entries = list(self._entries.values())
        runtime.store.make_folder(folder)
        for entry in entries:
            with entry.lock:
                if not entry.ended:
                    entry.told = True
                    document = asdict(_watched(runtime, entry)) | {"told_ms": runtime.now_ms()}
                    runtime.store.put(folder / f"{entry.progress.id}{TOLD}", json.dumps(document).encode())
        names = set(runtime.store.names(folder))
        for entry in entries:
            if f"{entry.progress.id}{CANCEL}" in names:
                with contextlib.suppress(NotFound):
                    why = runtime.store.read(folder / f"{entry.progress.id}{CANCEL}").decode(errors="replace")
                    entry.progress.cancel(why)
        if not self._swept:
            self._swept = True
            _sweep(runtime)


@contextmanager
def watched(runtime: Runtime, progress: Progress, *, tells: bool = True) -> Iterator[Progress]:
    """This work, from here to its end, where others see it and may end it. `tells`: its begin and end are events."""
    watch, events = runtime.shared(Watch), runtime.shared(RecentEvents)
    entry = watch.begin(runtime, progress)
    tell = partial(events.tell, table=progress.table or None, job=progress.id, kind=progress.kind)
    if tells:
        tell("job started", why=progress.why)
    outcome = "done"
    try:
        with under(progress):
            yield progress
    except BaseException as error:
        stopped = isinstance(error, LithifyError) and error.details.get("cancelled")
        outcome = "cancelled" if stopped or not isinstance(error, Exception) else "failed"
        raise
    finally:
        watch.end(runtime, entry)
        if tells:
            tell("job ended", outcome=outcome)


def running(runtime: Runtime) -> dict[str, Watched]:
    """Jobs that are watched, in whichever process, by their ids."""
    now_ms = runtime.now_ms()
    elsewhere: dict[str, Watched] = {}
    here = runtime.shared(Watch).here(runtime)
    for path in _told(runtime):
        if path.stem not in here:
            found = _read(runtime, path)
            if found is not None and now_ms - found[1] < SILENT_MS:
                elsewhere[found[0].id] = found[0]
    return elsewhere | here


def cancel(runtime: Runtime, id: str, why: str) -> bool:
    """End a job that is under way, in whichever process. False: it is past that."""
    found = runtime.shared(Watch).cancel(id, why)
    if found is not None:
        return found
    runtime.store.make_folder(_folder(runtime))
    runtime.store.put(_folder(runtime) / f"{id}{CANCEL}", why.encode())
    return True


def forget(runtime: Runtime, id: str) -> None:
    """What was written down of a job that has ended."""
    try:
        runtime.store.delete_all(_folder(runtime) / f"{id}{kind}" for kind in (TOLD, CANCEL))
    except LithifyError as error:
        logger.warning("how far job %s had come is forgotten another time: %s", id, error)


def _watched(runtime: Runtime, entry: _Entry) -> Watched:
    progress = entry.progress
    stops = progress.cancelled is not None
    what = progress.id, progress.kind, progress.table, progress.why
    return Watched(*what, progress.done, progress.total, stops, runtime.owner, entry.started_ms)


def _folder(runtime: Runtime) -> PurePath:
    return runtime.control / "progress"


def _told(runtime: Runtime) -> list[PurePath]:
    return [_folder(runtime) / name for name in runtime.store.names(_folder(runtime)) if name.endswith(TOLD)]


def _read(runtime: Runtime, path: PurePath) -> tuple[Watched, int] | None:
    """And when it was written."""
    try:
        fields: dict[str, Any] = json.loads(runtime.store.read(path))
        told_ms = int(fields.pop("told_ms"))
        for name, kind in (("done", Amounts), ("total", Amounts), ("owner", Owner)):
            fields[name] = kind(**fields[name])
        return Watched(**fields), told_ms
    except (NotFound, ValueError, TypeError, KeyError, AttributeError):
        return None  # gone, or of another version: whoever wrote it says more the next time


def _sweep(runtime: Runtime) -> None:
    """Away with what processes that died have left."""
    now_ms = runtime.now_ms()
    for name in runtime.store.names(_folder(runtime)):
        with contextlib.suppress(NotFound):
            if now_ms - runtime.store.modified_ms(_folder(runtime) / name) > FORGOTTEN_MS:
                runtime.store.delete(_folder(runtime) / name)
