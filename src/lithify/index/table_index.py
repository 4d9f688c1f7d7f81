"""The index of one log of a table, as this process uses it.

Whoever commits adds what it wrote (`after_commit`). Whoever reads joins the index with the files of its snapshot
(`lookup`) and looks after what is missing: a few files are looked up in their footers at once, more of them in the
background, batch by batch. An index that cannot be read counts as missing and is written anew.

The index only ever speeds things up. Its entries are facts about files that never change, valid for any snapshot that
has the file, so it may lag behind the log, run ahead of it, or lose entries, and answers stay the same. Nothing here
fails a commit or a read: what goes wrong is counted, and told once per table and cause.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

from lithify.core.schema import TableSchema
from lithify.core.snapshot import DataFile
from lithify.errors import Corruption, LithifyError, NotFound
from lithify.files.local import LocalStorage
from lithify.files.open_parquet import footer_of
from lithify.files.parquet import Written
from lithify.files.read_proof import tag_at
from lithify.index.block import Block, parse
from lithify.index.entry_tags import EntryTags
from lithify.index.footer_reader import read_entries
from lithify.index.footers import Entries
from lithify.index.lookup import Coverage, Files
from lithify.index.reader import Sidecar, View
from lithify.index.writer import append, create, rewrite, worth_rewriting

if TYPE_CHECKING:
    from lithify.index.indexed import Process

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Sized = TypeVar("Sized", Written, DataFile)

# A change file with fewer rows never stands beside base.
SOLID_ROWS_MIN = 20_000
# So many footers are read while a query waits.
LOOKUPS_MAX = 64
BATCH_FILES = 256
GATHERED_BLOCKS_MAX = 4
# Blocks of entries that could not be written, at most.
BESIDE_MAX = 64
# After a failure the background leaves the index alone for so long.
RETRY_S = 60


class Indexes:
    """The indexes that are open in one lake. Those of one file are one object, whoever opened the table."""

    def __init__(self, runtime: Process) -> None:
        self._runtime = runtime
        # An index grows and is mapped into memory: it lies on this machine, wherever the lake does.
        self.store = runtime.store
        if runtime.store.remote:
            self.store = LocalStorage()
            self.store.path_guard.trust(runtime.settings.index_folder or runtime.settings.copies_folder)
        self._lock = threading.Lock()
        self._open: WeakValueDictionary[tuple[PurePath, str], TableIndex] = WeakValueDictionary()
        self._closed = False

    def of(self, table: str, table_id: str, path: PurePath, data: PurePath) -> TableIndex:
        """`data`: the folder that the log's paths are relative to."""
        with self._lock:
            found = self._open.get((path, table_id))
            if found is None:
                found = self._open[path, table_id] = TableIndex(self._runtime, table, table_id, path, data)
                if self._closed:
                    found.stop.set()
            return found

    def close(self) -> None:
        """End what is built in the background; it goes on where it stopped when the lake is opened again."""
        with self._lock:
            self._closed = True
            indexes = list(self._open.values())
        for index in indexes:
            index.stop.set()
        for index in indexes:
            index.wait()


class TableIndex:
    def __init__(self, runtime: Process, table: str, table_id: str, path: PurePath, data: PurePath) -> None:
        self.path, self.data, self.table = path, data, table
        self._runtime, self._table_id = runtime, table_id
        self._store = runtime.indexes.store
        self._lock = threading.RLock()
        self._sidecar: Sidecar | None = None
        # Entries that could not be written, or not yet.
        self._beside: list[Block] = []
        # Files whose footers were read already. What is still unknown of them is not worth another attempt, unless the
        # index is another file than it was then.
        self._tried: set[str] = set()
        self._file_id: int | None = None
        self.tags = EntryTags(data)
        self._told: set[str] = set()
        self._builder: threading.Thread | None = None
        self._resting_until_s = 0.0
        self.stop = threading.Event()

    # -- writing

    def after_commit(self, version: int, written: Sequence[Written], removed: Sequence[DataFile]) -> None:
        """Add what a commit added, take away what it removed. The commit stands, whatever happens here."""
        try:
            entries = Entries()
            for file in written:
                if file.footer:
                    tag = tag_at(f"{self.data}/{file.path}")
                    entries.add(footer_of(file.footer, file.path), file.path, file.size_bytes, tag)
            if entries.files or (removed and self._store.exists(self.path)):
                self.add(version, [entries.block()] if entries.files else [], [file.path for file in removed])
                self._rewrite_if_worth_it()
        except Exception as error:
            self.failed("written to", error)

    def after_solid(self, version: int, written: Sequence[Written], removed: Sequence[DataFile]) -> None:
        """The same for a log of changes: small files are always read whole, and worth no entry."""
        came, went = solid(written), solid(removed)
        if came or went:
            self.after_commit(version, came, went)

    def add(self, version: int, blocks: Sequence[bytes], removed: Sequence[str] = ()) -> None:
        """Make entries durable, in a new index if there is none that can be used. Raises what the store raises."""
        store = self._store
        with self._lock:
            try:
                append(store, self.path, self._table_id, version, blocks, removed, self._sidecar)
            except (NotFound, Corruption) as error:
                if isinstance(error, Corruption):
                    self._note("corrupt", error)
                self._sidecar = None
                create(store, self.path, self._table_id, version, blocks)

    def gather(self) -> None:
        """Many blocks into few, after a build: each is a pass of its own for a predicate."""
        with self._lock:
            view = self.look(lambda sidecar: sidecar.view())
            if view is not None and len(view.blocks) > GATHERED_BLOCKS_MAX:
                rewrite(self._store, self.path, self._table_id)

    def _rewrite_if_worth_it(self) -> None:
        with self._lock:
            sidecar = self._opened()
            if sidecar is not None and worth_rewriting(sidecar):
                rewrite(self._store, self.path, self._table_id)

    # -- reading

    def coverage(
        self, files: Files, schema: TableSchema, version: int, known: Coverage | None, *, whole: bool = True
    ) -> Coverage:
        """What the index says of these files. `known`: what it said before of the same ones. `whole`: they are all
        that the log has at `version`, so that entries of others are of no use any more.
        """
        if known is not None and self._was_replaced(known):
            known = None
        if known is not None and known.complete:
            return known
        with self._lock:
            view = self._view(version)
            token = self._token(view)
            if known is not None and known.token == token and (self._resting or not self._missing(known)):
                return known
            try:
                made = self._joined(files, schema, view)
            except Corruption as error:
                self.set_aside(error)
                view = None
                made = self._joined(files, schema, view)
            missing = self._missing(made)
            if missing:
                head = view is None or version >= view.version
                self._tell("missing" if view is None else "stale", f"{len(missing)} of {len(files)} files")
                if len(missing) > LOOKUPS_MAX:
                    self._build_behind(version, [files.entries[position][0] for position in missing])
                elif found := self._look_up(version if head else None, files, missing):
                    made = self._joined(files, schema, view, *found)
            even = not missing and view is not None and view.files == len(files)
            if whole and not even and view is not None and version >= view.version:
                self._forget_others(version, view, made)
            made.token = self._token(view)
            return made

    def _was_replaced(self, known: Coverage) -> bool:
        """Whether files of a coverage are others by now, as far as it is time to look again."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self.tags.look_again(known)
            return self._forget_replaced()
        finally:
            self._lock.release()

    def _forget_replaced(self) -> bool:
        """Whether there are files to forget. Their footers are worth another attempt."""
        replaced = self.tags.take_replaced()
        self._tried.difference_update(replaced)
        if replaced:
            self._tell("stale", f"{len(replaced)} files were replaced")
        return bool(replaced)

    def _missing(self, coverage: Coverage) -> list[int]:
        """Positions of files without an entry that could have one."""
        entries = coverage.files.entries
        return [position for position in coverage.unknown if entries[position][0].path not in self._tried]

    def _joined(self, files: Files, schema: TableSchema, view: View | None, *found: Block) -> Coverage:
        inside = self.tags.fresh(files, view) if view is not None else []
        self._forget_replaced()
        beside = [(block, self.tags.unreplaced(block)) for block in (*self._beside, *found)]
        return Coverage(files, schema, [*inside, *beside], _check_of(view))

    def forget(self) -> None:
        """All entries go. Derived data: reads go on without them."""
        with self._lock:
            self._sidecar, self._beside = None, []
            self._tried.clear()
            if self._store.exists(self.path):
                self._store.delete(self.path)

    def _look_up(self, version: int | None, files: Files, positions: Sequence[int]) -> list[Block]:
        """Read a few footers now. `version`: of the head, where the entries are worth keeping."""
        wanted = [files.entries[position][0] for position in positions]
        entries, _ = read_entries(self.data, wanted)
        self._tried.update(file.path for file in wanted)
        found = [parse(block) for block in entries]
        try:
            if version is not None and entries:
                self.add(version, entries)
                return found
        except Exception as error:
            self.failed("written to", error)
        self._beside = [*self._beside, *found][-BESIDE_MAX:]
        return found

    def _forget_others(self, version: int, view: View, made: Coverage) -> None:
        """Entries of files that are gone: their removal was committed by somebody who does not know of the index, or
        who died before it came to that.
        """
        try:
            if gone := made.files.others_in(view):
                self.add(version, [], gone)
                self._rewrite_if_worth_it()
        except Exception as error:
            self.failed("written to", error)

    def ask(self, version: int, question: Callable[[View], Answer]) -> Answer | None:
        """What the entries alone tell; None where there are none that can be used."""
        with self._lock:
            view = self._view(version)
            try:
                return None if view is None else question(view)
            except Corruption as error:
                self.set_aside(error)
                return None

    def set_aside(self, error: Corruption) -> None:
        """The file cannot be trusted: it goes, and what is needed of it is built again."""
        with self._lock:
            self._note("corrupt", error)
            self._sidecar = None
            try:
                self._store.delete(self.path)
            except Exception as failure:
                self.failed("removed", failure)

    def look(self, question: Callable[[Sidecar], Answer]) -> Answer | None:
        """What the index at its newest tells a tool; None where there is none. Raises Corruption."""
        with self._lock:
            sidecar = self._newest()
            return None if sidecar is None else question(sidecar)

    def _newest(self) -> Sidecar | None:
        with self._lock:
            try:
                if self._sidecar is None:
                    self._sidecar = Sidecar.open(self.path, self._table_id)
                else:
                    self._sidecar.refresh()
            except NotFound:
                self._sidecar = None
            if self._sidecar is not None and self._sidecar.file_id != self._file_id:
                self._file_id = self._sidecar.file_id
                self._tried.clear()
            return self._sidecar

    def _opened(self) -> Sidecar | None:
        try:
            return self._newest()
        except Corruption as error:
            self.set_aside(error)
        except (LithifyError, OSError) as error:
            self._sidecar = None
            self.failed("read", error)
        return None

    def _view(self, version: int) -> View | None:
        sidecar = self._opened()
        if sidecar is None:
            return None
        try:
            try:
                return sidecar.view(version)
            except NotFound:
                # Written anew since: what is left are files that live on.
                return sidecar.view()
        except Corruption as error:
            self.set_aside(error)
            return None

    def _token(self, view: View | None) -> tuple[int, ...]:
        """Another one, as soon as there is more to be known."""
        state = () if view is None or self._sidecar is None else (self._sidecar.file_id, view.footer.offset)
        return (*state, len(self._beside), len(self._tried))

    # -- in the background

    @property
    def _resting(self) -> bool:
        """Whether nothing would come of another attempt now: one is under way, has just failed, or may not begin."""
        building = self._builder is not None and self._builder.is_alive()
        return building or self.stop.is_set() or time.monotonic() < self._resting_until_s

    def _build_behind(self, version: int, files: Sequence[DataFile]) -> None:
        if not self._resting:
            self._builder = threading.Thread(
                target=self._build, args=(version, files), name=f"lithify-index-{self.table}", daemon=True
            )
            self._builder.start()

    def _build(self, version: int, files: Sequence[DataFile]) -> None:
        try:
            for first in range(0, len(files), BATCH_FILES):
                if self.stop.is_set():
                    return
                batch = files[first : first + BATCH_FILES]
                blocks, _ = read_entries(self.data, batch)
                self._store.step("index.read")
                if blocks:
                    self.add(version, blocks)
                with self._lock:
                    self._newest()
                    self._tried.update(file.path for file in batch)
                self._store.step("index.built")
            self.gather()
            logger.info("the index of %s was built in the background: %d files", self.table, len(files))
        except Exception as error:
            self._resting_until_s = time.monotonic() + RETRY_S
            self.failed("built", error)

    def wait(self) -> None:
        """Until nothing is built in the background any more."""
        builder = self._builder
        if builder is not None and builder is not threading.current_thread():
            builder.join()

    # -- telling

    def _note(self, cause: str, error: Corruption) -> None:
        self._runtime.counters.index_fallbacks.labels(cause).inc()
        if cause not in self._told:
            self._told.add(cause)
            logger.warning("the index of %s is built anew, answers stay the same: %s", self.table, error)

    def _tell(self, cause: str, what: str) -> None:
        self._runtime.counters.index_fallbacks.labels(cause).inc()
        if cause not in self._told:
            self._told.add(cause)
            logger.info("the index of %s is %s (%s): it is completed from Parquet footers", self.table, cause, what)

    def failed(self, doing: str, error: BaseException) -> None:
        self._runtime.counters.index_failures.inc()
        if doing not in self._told:
            self._told.add(doing)
            logger.warning(
                "the index of %s cannot be %s, further failures are counted only; answers stay the same: %s",
                self.table,
                doing,
                error,
            )


def solid(files: Iterable[Sized]) -> list[Sized]:
    """Those that are worth an entry in the index of changes: the others are always read whole."""
    return [file for file in files if file.rows >= SOLID_ROWS_MIN]


def _check_of(view: View | None) -> Callable[[], object]:
    """To be called before the arrays of a mapped file are touched: whether nobody has cut it."""
    return (lambda: None) if view is None else lambda: view.blocks
