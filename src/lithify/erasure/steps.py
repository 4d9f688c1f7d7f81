"""An erasure, step by step. Each step may be done twice, and its end is written down before the next begins.

hide: one delete; no read of the head shows the rows from here on. seal: jobs that began before are fenced and their
folders removed, and writers who staged files stage them anew; so nobody carries the rows on who saw them. fold: base is
written without them. inventory: what lies on the disk with the rows tells what to look for. rewrite: every version
names files without them; or, if that was asked for, cut: both logs begin with a checkpoint of the head, and nothing
older is there. purge: files with the rows go, or after a cut all that the head does not need; indexes are deleted (they
are made again from what is left), the quarantine and the journals are cleaned. flush: processes drop what they hold.
scan: a fresh process looks at every file. What it finds sends the erasure back to sealing, three times at most.

Only a scan that began after all that and found nothing leads to a receipt. A crash anywhere, a full disk, a pin that
holds: the state says how far it came, and whoever resumes goes on there.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lithify.delta.actions import LogChange
from lithify.delta.cut import Cut
from lithify.delta.log import DeltaLog
from lithify.erasure.blockers import blockers, break_pins
from lithify.erasure.chain import put_receipt
from lithify.erasure.clean import clean_journals, clean_quarantine
from lithify.erasure.hide import hide
from lithify.erasure.inventory import take_inventory, without_partitions
from lithify.erasure.key_rows import Keys
from lithify.erasure.lake_access import LakeAccess
from lithify.erasure.needles import SPELLINGS, Needle
from lithify.erasure.receipt import NOT_COVERED, VERSION
from lithify.erasure.records import BLOCKED, DONE, LEFTOVER, OPEN, Record, Records
from lithify.erasure.rewrite import Rewriting, digest
from lithify.erasure.scan import METHODS
from lithify.erasure.sealed import Sealed, forget, text_of_rows
from lithify.errors import Conflict, Corruption, NotFound, Unavailable
from lithify.files.user_files import real_path
from lithify.jobs import jobs, recovery
from lithify.maintenance.fold import FoldJob
from lithify.maintenance.vacuum import Vacuum
from lithify.tables.handles import Handles, index_folder
from lithify.tables.processes import Told, ask_to_let_go

if TYPE_CHECKING:
    from lithify.write.access import TableAccess

logger = logging.getLogger(__name__)

ROUNDS_MAX = 3
CUT_TXN = "lithify.erased"


class Erasing:
    """One erasure, while its lease is held."""

    def __init__(self, lake: LakeAccess, record: Record, still_ours: Callable[[], bool]) -> None:
        self._lake, self._runtime, self._record = lake, lake.runtime, record
        self._records, self._still_ours = Records(lake.runtime), still_ours

    def run(self) -> Record:
        """Until it is done, or something stands in its way."""
        if self._record.state in (BLOCKED, LEFTOVER):
            again = {"state": OPEN, "blocked_by": (), "places": (), "problems": (), "round": 1}
            self._save(**again)
        while self._record.state == OPEN:
            if not self._still_ours():
                raise Conflict(f"erasure {self._record.id} was taken over by another process: it goes on there")
            getattr(self, f"_{self._record.step}")()
        return self._record

    def hide(self) -> Record:
        """The commit alone: it is done once, and written down by whoever goes on."""
        hide(self._table(), self._record, self._sealed().keys)
        return self._record

    # -- the steps

    def _hide(self) -> None:
        done = hide(self._table(), self._record, self._sealed().keys)
        self._runtime.store.step("erase.hidden")
        self._next(hidden_seq=done.seq, hidden_ms=self._runtime.now_ms())

    def _seal(self) -> None:
        handles = self._table().handles
        if self._record.break_pins:
            break_pins(handles, tags_too=self._cuts)
        if self._cuts and (held := blockers(handles)):
            self._save(state=BLOCKED, blocked_by=held)
            return
        recovery.recover(self._runtime, self._record.table)
        for job in jobs.unfinished(self._runtime, self._record.table):
            recovery.settle(self._runtime, job)
        self._next()

    def _fold(self) -> None:
        with self._table().maintaining() as (handles, reader):
            report = FoldJob(handles, reader, why="erasure").run()
            if report.problem:
                raise Corruption(f"{report.problem}; erasure {self._record.id} goes on once it can be folded")
            snapshot = handles.snapshot()
        seq = self._record.hidden_seq
        if seq is None or any(file.seq <= seq for file in snapshot.changes):
            raise Conflict(f"the delete of erasure {self._record.id} is not folded yet: resume it")
        self._next()

    def _inventory(self) -> None:
        sealed = self._sealed()
        keys = Keys(self._record.key, sealed.keys)
        with self._table().maintaining() as (handles, _):
            found = take_inventory(handles, keys)
        sealed.with_needles(found.needles).save(self._records, self._record.id)
        plan = json.dumps(found.document()).encode()
        self._runtime.store.put(self._plan_path, plan)
        if self._cuts and (held := blockers(self._table().handles)):
            self._save(state=BLOCKED, step="seal", blocked_by=held)
            return
        before = max(self._record.facts.get("files_with_rows", 0), len(found.files))
        self._next(files_with_rows=before, files_without_key=len(found.unread))

    def _cut(self) -> None:
        with self._table().maintaining() as (handles, _):
            base = self._cut_one(handles, handles.base.log)
            gone = self._cut_one(handles, handles.changes.log) + base
        facts = self._record.facts
        self._next(
            commits_deleted=facts.get("commits_deleted", 0) + gone.commits,
            checkpoints_deleted=facts.get("checkpoints_deleted", 0) + gone.checkpoints,
        )

    @property
    def _cuts(self) -> bool:
        return self._record.history == "cut"

    @property
    def _plan_path(self) -> PurePath:
        return self._records.path(self._record.id) / "plan.json"

    def _rewriting(self, handles: Handles, keys: pa.Table) -> Rewriting:
        hits = json.loads(self._runtime.store.read(self._plan_path))["files"]
        replaced = self._record.facts.get("files_replaced")
        return Rewriting(handles, self._record.id, self._record.hidden_seq, keys, tuple(hits), replaced)

    def _rewrite(self) -> None:
        """Processes are asked to let go before the old files go: what they have open names these."""
        sealed, facts = self._sealed(), self._record.facts
        with self._table().maintaining() as (handles, _):
            rewriting = self._rewriting(handles, sealed.keys)
            if held := rewriting.blockers():
                self._save(state=BLOCKED, step="seal", blocked_by=held)
                return
            # What there was is written down before it is less, so that a second attempt tells of it too.
            found = {digest(label): size for label, size in rewriting.foreseen().items()}
            facts = {**facts, "files_rewritten": {**facts.get("files_rewritten", {}), **found}}
            self._save(facts=facts)
            done = rewriting.run(sealed.needles)
        replaced = {digest(label): has_new for label, has_new in done.replaced.items()}
        self._let_go()
        self._next(
            files_replaced={**facts.get("files_replaced", {}), **replaced},
            commits_rewritten=facts.get("commits_rewritten", 0) + done.commits,
            checkpoints_rewritten=facts.get("checkpoints_rewritten", 0) + done.checkpoints,
        )

    def _cut_one(self, handles: Handles, log: DeltaLog) -> Cut:
        """A commit that says nothing of files, so that the log begins with one that names no removed file either."""
        is_base = log is handles.base.log

        def build() -> LogChange:
            info = {"operation": "erase", "actor": self._record.actor, "reason": f"erasure {self._record.id}"}
            change = LogChange(
                {**info, "seq": handles.changes.seq}, txns={CUT_TXN: (log.txn(CUT_TXN) or 0) + 1}, data_change=False
            )
            return handles.base.with_watermark(change) if is_base else change

        done = handles.commit(log, "cutting the log of", build)
        assert done is not None, "there is always something to commit"
        return log.cut(done.version)

    def _purge(self) -> None:
        sealed, facts = self._sealed(), self._record.facts
        with self._table().maintaining() as (handles, _):
            only: frozenset[str] | None = None
            if not self._cuts:
                rewriting = self._rewriting(handles, sealed.keys)
                if held := rewriting.blockers():
                    self._save(state=BLOCKED, step="seal", blocked_by=held)
                    return
                if rewriting.named_still():
                    self._again()
                    return
                only = rewriting.left()
            report = Vacuum(handles, purges=True, only=only).run(dry_run=False)
            self._runtime.store.step("erase.vacuumed")
            handles.base_index.forget()
            handles.changes_index.forget()
            self._runtime.store.delete_folder(index_folder(self._runtime, handles.folder, handles.incarnation))
            keys = Keys(self._record.key, sealed.keys)
            records = clean_quarantine(handles, keys, sealed.needles)
        plan = json.loads(self._runtime.store.read(self._plan_path))
        self._runtime.store.put(self._plan_path, json.dumps(without_partitions(plan)).encode())
        lines = clean_journals(self._runtime, self._record.table, sealed.needles)
        self._next(
            files_deleted=facts.get("files_deleted", 0) + report.files,
            bytes_deleted=facts.get("bytes_deleted", 0) + report.bytes_freed,
            quarantine_deleted=facts.get("quarantine_deleted", 0) + records,
            journal_lines_cleaned=facts.get("journal_lines_cleaned", 0) + lines,
        )

    def _again(self) -> None:
        """Somebody has written a checkpoint meanwhile from what was there before."""
        tries = self._record.facts.get("rewritten_again", 0) + 1
        if tries > ROUNDS_MAX:
            self._save(step="rewrite", facts={**self._record.facts, "rewritten_again": 0})
            raise Conflict(
                f"files with the rows of erasure {self._record.id} are named by new checkpoints again and again: stop "
                "what writes these, then resume it"
            )
        self._save(step="rewrite", facts={**self._record.facts, "rewritten_again": tries})

    def _flush(self) -> None:
        told = self._let_go()
        self._next(acknowledged=list(told.acknowledged), not_acknowledged=list(told.silent))

    def _let_go(self) -> Told:
        handles = self._table().handles
        self._lake.let_go(handles.name, handles.incarnation)
        return ask_to_let_go(self._runtime, self._record.table, handles.incarnation, self._request(), self._lake.look)

    def _request(self) -> str:
        """Each round asks anew: what was read since the last one counts too."""
        return f"{self._record.id}-{self._runtime.new_id()[:8]}"

    def _scan(self) -> None:
        sealed = self._sealed()
        handles = self._table().handles
        began_ms = self._runtime.now_ms()
        again = self._present_again(sealed.keys)
        scanned = self._scanned(handles, sealed, again)
        found = {**scanned, "began_ms": began_ms, "ended_ms": self._runtime.now_ms()}
        places, problems = tuple(found.pop("places")), tuple(found.pop("problems"))
        facts = {"scan": found, "present_again": again.num_rows}
        if not places and not problems:
            self._next(**facts)
        elif self._record.round < ROUNDS_MAX:
            logger.info("erasure %s goes into round %d", self._record.id, self._record.round + 1)
            self._save(step="seal", round=self._record.round + 1, facts={**self._record.facts, **facts})
        else:
            self._save(state=LEFTOVER, step="seal", places=places, problems=problems)

    def _receipt(self) -> None:
        put_receipt(self._records, self._record.id, self._document())
        self._next()

    def _forget(self) -> None:
        forget(self._records, self._record.id)
        self._next()

    def _end(self) -> None:
        self._save(state=DONE)

    # -- the scan

    def _present_again(self, keys: pa.Table) -> pa.Table:
        """Those keys that somebody has inserted since: new rows, which stay."""
        table = self._table()
        with table.maintaining() as (handles, reader):
            snapshot = handles.snapshot().unhidden
            rows = self._runtime.serving.read(reader.planned(snapshot), list(self._record.key))
            since = keys.slice(0, 0) if self._cuts else self._rewriting(handles, keys).inserted_since()
        rows = pa.concat_tables([rows.select(list(self._record.key)).cast(keys.schema), since]).combine_chunks()
        return rows.filter(Keys(self._record.key, keys).mask(rows)).group_by(list(self._record.key)).aggregate([])

    def _scanned(self, handles: Handles, sealed: Sealed, again: pa.Table) -> dict[str, Any]:
        keys = sealed.keys.filter(pc.invert(Keys(self._record.key, again).mask(sealed.keys.combine_chunks())))
        inserted = {Needle(name, str(value)).text for name in again.column_names for value in again[name].to_pylist()}
        key = set(self._record.key)
        needles = [n for n in sealed.needles if not (n.column in key and n.text in inserted)]
        index = index_folder(self._runtime, handles.folder, handles.incarnation)
        roots = [self._runtime.root, *([] if index.is_relative_to(self._runtime.root) else [index])]
        asked = {
            "roots": [str(root) for root in roots],
            "table": str(handles.folder),
            "keys": text_of_rows(keys),
            "needles": [needle.document() for needle in needles],
        }
        self._runtime.store.step("erase.scan")
        done = subprocess.run(
            [sys.executable, "-P", "-m", "lithify.erasure.scan_main"],
            input=json.dumps(asked).encode(),
            capture_output=True,
        )
        if done.returncode:
            words = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit {done.returncode}"]
            raise Unavailable(f"the scan of erasure {self._record.id} ended ({words[-1]}): resume it")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    # -- the receipt

    def _document(self) -> dict[str, Any]:
        record, facts = self._record, self._record.facts
        counted = ("files_with_rows", "files_without_key", "files_deleted", "bytes_deleted", "commits_deleted")
        more = ("checkpoints_deleted", "commits_rewritten", "checkpoints_rewritten")
        beside = ("quarantine_deleted", "journal_lines_cleaned")
        rewritten: dict[str, int] = facts.get("files_rewritten", {})
        return {
            "version": VERSION,
            "id": record.id,
            "lake": real_path(self._runtime.root),
            "table": record.table,
            "table_id": record.table_id,
            "history": record.history,
            "reason": record.reason,
            "actor": record.actor,
            "requested_ms": record.requested_ms,
            "hidden_ms": record.hidden_ms,
            "hidden_seq": record.hidden_seq,
            "keys": record.keys,
            "rows_at_request": record.hidden_rows,
            "subjects": list(record.subjects),
            "done": {
                **{name: facts.get(name, 0) for name in (*counted, *more, *beside)},
                "files_rewritten": len(rewritten),
                "bytes_rewritten": sum(rewritten.values()),
            },
            "scan": {**facts["scan"], "found": 0, "methods": list(METHODS), "spellings": list(SPELLINGS)},
            "rounds": record.round,
            "present_again": facts["present_again"],
            "acknowledged": facts["acknowledged"],
            "not_acknowledged": facts["not_acknowledged"],
            "not_covered": list(NOT_COVERED),
        }

    # -- its state

    def _table(self) -> TableAccess:
        try:
            table = self._lake.table(self._record.table)
        except NotFound:
            table = None
        if table is None or table.incarnation != self._record.table_id:
            raise Conflict(
                f"table {self._record.table} was dropped since erasure {self._record.id} was asked for: cancel it; "
                "what a drop leaves is told in docs/erasure.md"
            )
        if (key := table.handles.schema().key) != self._record.key:
            raise Conflict(
                f"the key of {self._record.table} is {', '.join(key)} since erasure {self._record.id} was asked for: "
                "give the columns their names back, then resume"
            )
        return table

    def _sealed(self) -> Sealed:
        return Sealed.of(self._records, self._record.id)

    def _next(self, **facts: Any) -> None:
        fields = {name: facts.pop(name) for name in ("hidden_seq", "hidden_ms") if name in facts}
        self._save(step=self._record.next_step, facts={**self._record.facts, **facts}, **fields)

    def _save(self, **changes: Any) -> None:
        self._record = self._records.save(replace(self._record, **changes))
