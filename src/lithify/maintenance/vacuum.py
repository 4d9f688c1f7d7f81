"""Vacuum: delete files that no retained version, pinned snapshot or unfinished job needs.

The order is the safety. (1) List what lies on disk and judge it. (2) Commit an epoch to the changes log: a writer that
staged a file before the epoch, and would commit it after, stages it anew. (3) Judge what was listed once more, by what
holds since the epoch: manifests and pins first, then the logs, because a job commits before its manifest goes. (4)
Delete. Only what was listed in (1) is ever deleted, so whatever begins later is safe: small writes by the epoch, jobs
by their manifest. A vacuum that dies leaves files for the next one, and nothing else.

Between (3) and (4) nobody may pin what is about to go. Under the lock of vacuum nobody can; where the storage has none,
what goes is listed for pinners to see before the pins are read once more, and what the lists of other vacuums name goes
too (`tables/doomed.py`).

Only names that Lithify alone gives out (`write-<uuid>.parquet`, `<origin>-<uuid>/`) and files that a commit of Lithify
removed are touched: in an adopted base, what other writers left, and what they removed themselves, is theirs to clean
up. `maintenance/vacuum_rules.py` holds the decision about one file.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import time
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePosixPath

from lithify.core.disk_files import DiskFile
from lithify.core.names import is_job_folder
from lithify.core.results import VacuumReport
from lithify.core.snapshot import Snapshot
from lithify.delta.actions import LogChange
from lithify.delta.changes import EPOCH_TXN
from lithify.delta.log import DeltaLog
from lithify.errors import InvalidRequest, NotFound, Unavailable
from lithify.files.at_once import at_once
from lithify.files.listing import Listing
from lithify.files.staging import sweep
from lithify.jobs import jobs, recovery
from lithify.jobs.finish_column_change import finish_column_change
from lithify.jobs.watch import watched
from lithify.maintenance.disk_watch import DiskWatches
from lithify.maintenance.retention_limits import RetentionLimits
from lithify.maintenance.vacuum_rules import (
    LogFacts,
    Protection,
    Verdict,
    freed_by_each,
    is_ours,
    job_id_of,
    judge,
    relative_path,
)
from lithify.metrics.progress import Progress, advance, current
from lithify.read.reader import drop_cached
from lithify.tables.doomed import Doomed, delete_listed, doomed_files
from lithify.tables.handles import Handles, live_snapshots
from lithify.tables.pins import HOUR_MS, forget_temporaries, note_vacuumed, pins_of, remove_pin, vacuum_lock
from lithify.tables.tags import clear_cut_off, stored_tags

logger = logging.getLogger(__name__)

RETAIN_HOURS_MIN = 1
PATHS_MAX = 20
DELETES_AT_ONCE = 1000
AHEAD_MS = 10 * 365 * 24 * HOUR_MS  # beyond any file's time, also of one from a clock that runs ahead


@dataclass
class _Tally:
    files: int = 0
    bytes_freed: int = 0
    orphans: int = 0
    orphan_bytes: int = 0
    paths: list[str] = field(default_factory=list)

    def add(self, scan: _LogScan, file: DiskFile, freed_bytes: int) -> None:
        orphan = scan.verdicts[file.path] is Verdict.ORPHAN
        self.files += 1
        self.bytes_freed += freed_bytes
        self.orphans += orphan
        self.orphan_bytes += freed_bytes if orphan else 0
        if len(self.paths) < PATHS_MAX:
            self.paths.append(f"{scan.label}/{file.path}")


@dataclass
class _LogScan:
    """One log of the table, what it says, what lay in its folder (`listed`), what of it is left to judge, and what
    went.
    """

    label: str
    log: DeltaLog
    facts: LogFacts
    listing: Listing = field(default_factory=Listing)
    listed: tuple[DiskFile, ...] = ()
    gone: set[str] = field(default_factory=set)
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def going(self) -> list[DiskFile]:
        return [file for file in self.listing.files if self.verdicts[file.path].goes]

    def keep_candidates(self) -> None:
        """What is live or young before the epoch is not looked at again, whatever a clock says of its removal."""
        spared = (Verdict.LIVE, Verdict.YOUNG, Verdict.FOREIGN)
        self.listing.files = [file for file in self.listing.files if self.verdicts[file.path] not in spared]


class Vacuum:
    def __init__(self, handles: Handles, *, purges: bool = False, only: AbstractSet[str] | None = None) -> None:
        """`purges`: all goes that the head does not need, however young, also what readers of this process hold.
        `only`: of these files alone, each by its path below the name of its log.
        """
        self._handles, self._runtime, self._purges, self._only = handles, handles.runtime, purges, only
        self._job_ids: frozenset[str] = frozenset()
        self._settles = False
        self._doomed = Doomed()
        self._scans = [
            _LogScan(label, log, LogFacts(str(log.path), complete=False))
            for label, log in (("changes", handles.changes.log), ("base", handles.base.log))
        ]

    def run(self, retain: float | RetentionLimits = 168, dry_run: bool = True) -> VacuumReport:
        """`retain`: so many hours, or as long as limits say that are judged by what is there. One that is cancelled has
        deleted a part of what no version needs, and the next one goes on.
        """
        if dry_run:
            return self._run(retain, dry_run=True)
        progress = Progress(self._runtime.new_id(), "vacuum", str(self._handles.name), "asked for")
        with watched(self._runtime, progress):
            return self._run(retain, dry_run=False)

    def _run(self, retain: float | RetentionLimits, *, dry_run: bool) -> VacuumReport:
        started = time.monotonic()
        if not isinstance(retain, RetentionLimits):
            _check_retention(retain)
        name, now_ms = self._handles.name, self._runtime.now_ms()
        self._settles = not dry_run
        if not dry_run:
            recovery.recover(self._runtime, str(name))
        with contextlib.nullcontext() if dry_run else vacuum_lock(self._runtime, name):
            self._read_logs()
            if not self._runtime.store.locks:
                self._doomed = doomed_files(self._runtime, name, self._handles.incarnation)
            self._list()
            cutoff_ms = self._cutoff_ms(retain, now_ms)
            self._judge(cutoff_ms, dry_run=dry_run)
            tally = self._foreseen() if dry_run else self._apply(cutoff_ms)
            if not dry_run and self._only is None:
                note_vacuumed(self._runtime, name)
                self._runtime.shared(DiskWatches).of(self._handles.incarnation).measured(self._removed())
        verdicts = [verdict for scan in self._scans for verdict in scan.verdicts.values()]
        return VacuumReport(
            str(name),
            dry_run,
            max(now_ms - cutoff_ms, 0) / HOUR_MS,
            tally.files,
            tally.bytes_freed,
            tally.orphans,
            tally.orphan_bytes,
            verdicts.count(Verdict.PINNED),
            verdicts.count(Verdict.IN_JOB),
            tuple(tally.paths),
            time.monotonic() - started,
        )

    # -- deciding

    def _cutoff_ms(self, retain: float | RetentionLimits, now_ms: int) -> int:
        if self._purges:
            return now_ms + AHEAD_MS
        if not isinstance(retain, RetentionLimits):
            return now_ms - int(retain * HOUR_MS)
        head, (changes, _) = self._handles.snapshot(), self._scans
        live_bytes = head.base_bytes + head.pending_bytes
        cutoff = retain.cutoff(now_ms, changes.facts.times_ms, self._removed(), live_bytes)
        logger.debug("vacuum of %s keeps what was removed since %s: %s", head.table, cutoff.time_ms, cutoff.why)
        return cutoff.time_ms

    def _read_logs(self) -> None:
        """Bring what is known of both logs to their heads: live files, and what the commits since the last look say."""
        handles = self._handles
        handles.snapshot()
        if self._settles:
            finish_column_change(handles)  # or what base had before would count as gone, and is read
        self._of_each(self._read_log)

    def _of_each(self, work: Callable[[_LogScan], None]) -> None:
        """Of both logs, at once where it takes requests."""
        if self._runtime.store.remote:
            at_once(*(partial(work, scan) for scan in self._scans))
        else:
            for scan in self._scans:
                work(scan)

    def _read_log(self, scan: _LogScan) -> None:
        with scan.log.lock:
            version, live = scan.log.version, scan.log.files(())
        self._read_commits(scan, version)
        root = scan.facts.root
        scan.facts.live = frozenset(
            path for file in live for path in (file.path, file.log_path, relative_path(file.log_path, root))
        )

    def _read_commits(self, scan: _LogScan, newest: int) -> None:
        facts, log = scan.facts, scan.log
        if newest <= facts.version:
            return
        versions = [version for version in log.versions() if facts.version < version <= newest]
        if facts.version < 0:
            facts.complete = versions[:1] == [0]
        for version, found in zip(versions, log.dated_records(versions), strict=True):
            if found is None:
                facts.complete = False  # trimmed a moment ago
                continue
            record, time_ms = found
            adds, removes = ([str(entry["path"]) for entry in some] for some in (record.adds, record.removes))
            facts.note(version, time_ms, adds, removes, ours=bool(record.info))

    def _list(self) -> None:
        self._of_each(self._list_one)

    def _list_one(self, scan: _LogScan) -> None:
        scan.listing = self._runtime.store.own(scan.log.path)
        elsewhere = (path for path in sorted(scan.facts.removed_by_us) if not is_ours(path))
        found = (self._runtime.store.look_at(scan.log.path, path) for path in elsewhere)
        scan.listing.files += [file for file in found if file is not None]
        if self._only is not None:
            scan.listing.files = [f for f in scan.listing.files if f"{scan.label}/{f.path}" in self._only]
        scan.listed = tuple(scan.listing.files)

    def _judge(self, cutoff_ms: int, *, dry_run: bool) -> None:
        """What was listed, by what holds now. The manifests have to be read before the logs."""
        self._job_ids |= self._unfinished_ids()
        inputs = frozenset(
            path for job in jobs.unfinished(self._runtime, str(self._handles.name)) for path in job.inputs
        )
        pinned = self._pinned(dry_run=dry_run)
        self._read_logs()
        for scan in self._scans:
            protection = Protection(pinned[scan.label], self._job_ids, inputs, self._doomed_in(scan))
            scan.verdicts = {file.path: judge(file, scan.facts, protection, cutoff_ms) for file in scan.listing.files}

    def _unfinished_ids(self) -> frozenset[str]:
        """From the names of the manifests, so that one that cannot be read protects its folder too."""
        names = self._runtime.store.names(self._runtime.control / "jobs")
        return frozenset(name.partition(".")[0] for name in names if not name.startswith("."))

    def _pinned(self, *, dry_run: bool) -> dict[str, frozenset[str]]:
        runtime, handles = self._runtime, self._handles
        paths: dict[str, set[str]] = {"changes": set(), "base": set()}
        seqs: set[int] = set()
        for pin in pins_of(runtime, handles.name):
            if pin.holds(runtime):
                if pin.table_id == handles.incarnation:
                    paths["changes"].update(pin.changes)
                    paths["base"].update(pin.base)
                    seqs.add(pin.seq)
            elif not dry_run:
                remove_pin(runtime, pin)
        for tag in stored_tags(handles):
            paths["changes"].update(tag.changes)
            paths["base"].update(tag.base)
        drop_cached(handles.incarnation)
        head = handles.snapshot()
        for snapshot in () if self._purges else live_snapshots(handles.incarnation):
            _add_files(paths, snapshot)
            seqs.add(snapshot.seq)
        # Who pinned a snapshot may also read `as_of` its seq, which may be served by later, merged files.
        for seq in seqs - {head.seq}:
            with contextlib.suppress(NotFound):
                _add_files(paths, handles.snapshot(seq))
        return {label: frozenset(found) for label, found in paths.items()}

    def _removed(self) -> list[tuple[int, int]]:
        """When and how large, of everything that lies there and is not live. Bytes with a second name are live."""
        return [
            (max(file.mtime_ms, scan.facts.removed_ms.get(file.path, 0)), file.size_bytes)
            for scan in self._scans
            for file in scan.listed
            if file.path not in scan.facts.live and file.path not in scan.gone and file.links == 1
        ]

    # -- doing

    def _foreseen(self) -> _Tally:
        tally = _Tally()
        files = [(scan, file) for scan in self._scans for file in scan.going()]
        for (scan, file), freed in zip(files, freed_by_each([file for _, file in files]), strict=True):
            tally.add(scan, file, freed)
        return tally

    def _apply(self, cutoff_ms: int) -> _Tally:
        store, tally = self._runtime.store, _Tally()
        store.step("vacuum.listed")
        old = [(scan, folder) for scan in self._scans for folder in self._empty_folders(scan, cutoff_ms)]
        if self._purges or any(scan.going() for scan in self._scans):
            self._begin_epoch(tally, cutoff_ms)
            store.step("vacuum.epoch")
            for scan in self._scans:
                scan.keep_candidates()
            self._judge(cutoff_ms, dry_run=False)
        store.step("vacuum.delete")
        if store.locks:
            self._remove_folders([*old, *self._delete(tally, self._going())])
        else:
            self._delete_listed(tally)
        forget_temporaries(self._runtime, self._handles.name, min(cutoff_ms, self._runtime.now_ms()))
        clear_cut_off(self._handles)
        if store.remote:
            sweep(self._handles.folder / "index")
        store.step("vacuum.done")
        return tally

    def _going(self) -> frozenset[str]:
        return frozenset(f"{scan.label}/{file.path}" for scan in self._scans for file in scan.going())

    def _doomed_in(self, scan: _LogScan) -> frozenset[str]:
        inside = f"{scan.label}/"
        return frozenset(path.removeprefix(inside) for path in self._doomed.files if path.startswith(inside))

    def _delete_listed(self, tally: _Tally) -> None:
        spared = (Verdict.LIVE, Verdict.FOREIGN)
        there = {f"{s.label}/{path}" for s in self._scans for path, found in s.verdicts.items() if found not in spared}
        doomed = replace(self._doomed, files=self._doomed.files & there)

        def pinned() -> frozenset[str]:
            found = self._pinned(dry_run=False)
            return frozenset(f"{label}/{path}" for label, paths in found.items() for path in paths)

        def delete(paths: AbstractSet[str]) -> None:
            self._delete(tally, paths)

        name, table_id = self._handles.name, self._handles.incarnation
        delete_listed(self._runtime, name, table_id, self._going(), doomed, pinned, delete)

    def _delete(self, tally: _Tally, paths: AbstractSet[str]) -> list[tuple[_LogScan, str]]:
        """Of what is going; folders that may be empty now are answered. Names that only we give out stand for one file
        for ever, so that many can go at once where files have no second names to be counted.
        """
        store, emptied, progress = self._runtime.store, list[tuple[_LogScan, str]](), current()
        if progress is not None:
            wanted = [file for s in self._scans for file in s.going() if f"{s.label}/{file.path}" in paths]
            progress.expect(files=len(wanted), bytes=sum(file.size_bytes for file in wanted))
        for scan in self._scans:
            going = (file for file in scan.going() if f"{scan.label}/{file.path}" in paths)
            while some := list(itertools.islice(going, 1 if store.links else DELETES_AT_ONCE)):
                advance()
                seen = [file if is_ours(file.path) and not store.links else self._same(scan, file) for file in some]
                found = [file for file in seen if file is not None]
                store.delete_all(scan.log.path / file.path for file in found)
                for file in found:
                    scan.gone.add(file.path)
                    tally.add(scan, file, file.size_bytes if file.links == 1 else 0)
                    advance(files=1, bytes=file.size_bytes)
                    emptied += [(scan, str(parent)) for parent in PurePosixPath(file.path).parents]
        return emptied

    def _same(self, scan: _LogScan, file: DiskFile) -> DiskFile | None:
        """As it is now, if it is still the one that was judged."""
        seen = self._runtime.store.look_at(scan.log.path, file.path)
        return seen if seen is not None and seen.inode == file.inode else None

    def _begin_epoch(self, tally: _Tally, cutoff_ms: int) -> None:
        """Whoever vacuums a full disk wants the room, and the epoch is a commit that needs some. It is for files that a
        writer may be about to name; those that a commit has taken out of the log nobody names again, so they may go
        before it.
        """
        try:
            self._commit_epoch(cutoff_ms)
        except Unavailable as error:
            if not error.details.get("disk_full") or not self._runtime.store.locks:
                raise
            self._judge(cutoff_ms, dry_run=False)
            before = tally.files
            self._delete(tally, self._taken_out())
            if tally.files == before:
                raise
            for scan in self._scans:
                scan.listing.files = [file for file in scan.listing.files if file.path not in scan.gone]
            self._commit_epoch(cutoff_ms)

    def _taken_out(self) -> frozenset[str]:
        """Of what is going, what a commit that is still known has removed."""
        return frozenset(
            f"{scan.label}/{file.path}"
            for scan in self._scans
            for file in scan.going()
            if file.path in scan.facts.removed_ms
        )

    def _commit_epoch(self, cutoff_ms: int) -> None:
        changes = self._handles.changes

        def build() -> LogChange:
            info = {
                "operation": "vacuum",
                "seq": changes.seq,
                "actor": self._runtime.settings.actor,
                "cutoff_ms": min(cutoff_ms, self._runtime.now_ms()),
            }
            return LogChange(info, txns={EPOCH_TXN: changes.epoch + 1})

        self._handles.commit(changes.log, "vacuum of", build)

    def _empty_folders(self, scan: _LogScan, cutoff_ms: int) -> list[str]:
        found = (folder for folder in scan.listing.folders if folder.empty and folder.mtime_ms < cutoff_ms)
        return [folder.path for folder in found if job_id_of(folder.path) not in self._job_ids]

    def _remove_folders(self, folders: Iterable[tuple[_LogScan, str]]) -> None:
        """Deepest first. One that holds anything stays, and so does that of a job which is not done."""
        distinct = {scan.log.path / path for scan, path in folders if is_job_folder(path.partition("/")[0])}
        for folder in sorted(distinct, key=lambda path: -len(path.parts)):
            self._runtime.store.delete_empty_folder(folder)


def _add_files(paths: dict[str, set[str]], snapshot: Snapshot) -> None:
    paths["changes"].update(file.path for file in (*snapshot.remembered, *snapshot.changes))
    paths["base"].update(file.path for file in snapshot.base)


def _check_retention(retain_hours: float) -> None:
    number = isinstance(retain_hours, int | float) and not isinstance(retain_hours, bool)
    if not number or not math.isfinite(retain_hours):
        raise InvalidRequest(f"retain_hours is a number of hours, not {retain_hours!r}")
    if retain_hours < RETAIN_HOURS_MIN:
        raise InvalidRequest(
            f"retain_hours is at least {RETAIN_HOURS_MIN}, not {retain_hours}: readers that run now need the files of "
            "their snapshot"
        )
