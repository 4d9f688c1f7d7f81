"""What a query is told of the lake, with its caller's rights, and what a process remembers of what it was told."""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lithify.cache.hot_rows import HotRows
from lithify.cache.shared_memory import Layout, Shared, SharedMemory
from lithify.core.names import TableRef
from lithify.core.ops import Overlay
from lithify.core.read_plan import PlannedTable, ReadPlan, RowsInMemory, Source, Summary
from lithify.errors import LithifyError
from lithify.files.addresses import is_remote
from lithify.files.local_files import LocalNames
from lithify.sql.empty_catalog import Names, TableOf
from lithify.sql.isolated import cage
from lithify.sql.isolated.cage import Folder, View, fits, folders_at
from lithify.sql.isolated.channel import Channel
from lithify.sql.isolated.messages import Head, HotState, Memory, Plan, sendable, slim

# States of hot tables that a process remembers.
STATES_CACHED_MAX = 32
# Pending changes below this are sent with each plan.
PENDING_BYTES_MIN = 256 * 2**10


class Seen:
    """What a process knows of shared memory: what it was told, and not told to forget. What a query was told is known
    until the next one begins, however much that is: it may be asked for again by its number alone.
    """

    def __init__(self) -> None:
        self._states: OrderedDict[int, None] = OrderedDict()
        self._segments: set[int] = set()
        self._new: list[int] = []
        self._forgotten: list[int] = []

    def begin(self) -> None:
        """Of another query."""
        while len(self._states) > STATES_CACHED_MAX:
            self._forgotten.append(self._states.popitem(last=False)[0])

    def state(self, number: int, segments: Callable[[], set[int]]) -> bool:
        """Whether it knows these hot rows already; from now on it does. `segments`: where they lie."""
        known = number in self._states
        if not known:
            self._states[number] = None
            new = segments() - self._segments
            self._new += sorted(new)
            self._segments |= new
        self._states.move_to_end(number)
        return known

    def news(self, memory: SharedMemory) -> tuple[Memory, list[int]]:
        """What it has to be told before it looks there, and the descriptors for that."""
        gone = self._segments - set(memory.segments)
        self._segments -= gone
        told = Memory(tuple(self._new), tuple(gone), tuple(self._forgotten))
        self._new, self._forgotten = [], []
        return told, [memory.descriptor(segment) for segment in told.new]


@dataclass(frozen=True)
class SharedRows:
    """Rows that were put into shared memory for processes alone."""

    number: int
    columns: pa.Schema
    blocks: tuple[Shared, ...]


class HotStates:
    """Numbers for hot rows, so that a process that has seen some is not told again. Pending changes, where they are
    many, are put beside hot rows for as long as the service itself keeps them.
    """

    def __init__(self, memory: SharedMemory) -> None:
        self.memory = memory
        self._numbers = itertools.count(1)
        self._known: weakref.WeakKeyDictionary[HotRows, int] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._pending: dict[int, tuple[SharedRows, SharedRows]] = {}
        self._sharing = threading.Lock()

    def pending(self, overlay: Overlay) -> tuple[SharedRows, SharedRows] | None:
        """Hidden keys and rows; None where they are few, or there is no room: they are sent as they are then."""
        if overlay.hidden.nbytes + overlay.rows.nbytes < PENDING_BYTES_MIN:
            return None
        with self._sharing:
            if id(overlay) not in self._pending:
                try:
                    pair = self._share(overlay.hidden), self._share(overlay.rows)
                except LithifyError:
                    return None
                self._pending[id(overlay)] = pair
                weakref.finalize(overlay, self._pending.pop, id(overlay)).atexit = False
            return self._pending[id(overlay)]

    def _share(self, rows: pa.Table) -> SharedRows:
        with self._lock:
            number = next(self._numbers)
        batches = rows.combine_chunks().to_batches()
        return SharedRows(number, rows.schema, tuple(self.memory.put(Layout(batch)) for batch in batches))

    def number(self, rows: HotRows) -> int:
        with self._lock:
            if rows not in self._known:
                self._known[rows] = next(self._numbers)
            return self._known[rows]


class OutOfView(Exception):
    """The query turns out to name a table that its process cannot see."""


class Told:
    """What one query is told of the lake, with its caller's rights. What it was given to read stays while it runs, also
    where it has to begin again in another process.
    """

    def __init__(self, table_of: TableOf, names: Names, states: HotStates) -> None:
        self._table_of, self._names, self._states = table_of, names, states
        self._seen, self._view = Seen(), dict[str, frozenset[Folder]]()
        self._opened: dict[TableRef, PlannedTable] = {}
        self._summaries: dict[TableRef, Summary | None] = {}
        self._retained: list[Any] = []
        self._local_names: list[LocalNames] = []
        # The tables that it is known to name.
        self.needed: dict[str, frozenset[Folder]] = {}

    def open(self, likely: Sequence[TableRef]) -> None:
        """Tables that it seems to name. One that cannot be opened is left for when it is asked for: that says why."""
        for ref in likely:
            with contextlib.suppress(LithifyError):
                self._open(ref)

    def begin(self, seen: Seen, view: View) -> None:
        """Speak to a process, of which this is known."""
        self._seen, self._view = seen, dict(view)
        seen.begin()

    def heads(self) -> dict[TableRef, Head]:
        """What can be told before it is asked for."""
        found: dict[TableRef, Head] = {}
        for ref, planned in self._opened.items():
            with contextlib.suppress(LithifyError):
                rows = planned.hot(())
                found[ref] = Head(slim(planned.snapshot), None if rows is None else self._state(rows))
        return found

    def news(self) -> tuple[Memory, list[int]]:
        return self._seen.news(self._states.memory)

    def reply(self, question: str, about: Any, channel: Channel) -> None:
        if question == "want":
            ref, columns = about
            self._opened[ref].want_hot(columns)
            return
        try:
            succeeded, answer = True, self._answer(question, about)
        except LithifyError as error:
            succeeded, answer = False, error
        memory, descriptors = self.news()
        channel.send((succeeded, answer, memory), descriptors)

    def _answer(self, question: str, about: Any) -> Any:
        match question:
            case "names":
                return {namespace: set(tables) for namespace, tables in self._names().items()}
            case "table":
                planned = self._table(about)
                return None if planned is None else Head(slim(planned.snapshot))
            case "plan":
                ref, predicate, columns = about
                planned = self._opened[ref]
                if predicate is None:
                    planned.fetch()
                return self._plan(self._with_local_files(planned.plan(predicate, columns)))
            case "hot":
                ref, columns = about
                rows = self._opened[ref].hot(columns)
                return None if rows is None else self._state(rows)
            case "summary":
                found = self._summaries[about] = self._opened[about].summary()
                return None if found is None else found.rows
            case "nulls" | "bounds":
                ref, column = about
                known = self._summaries[ref]
                assert known is not None
                return known.nulls(column) if question == "nulls" else known.bounds(column)
        raise AssertionError(f"unknown question {question}")

    def _table(self, ref: TableRef) -> PlannedTable | None:
        self._open(ref)
        if not fits(self._view, self.needed, None):
            raise OutOfView
        return self._opened.get(ref)

    def _open(self, ref: TableRef) -> None:
        if ref not in self._opened and (planned := self._table_of(*ref)) is not None:
            self._opened[ref] = planned
            if cage.is_possible():
                self.needed[planned.snapshot.table] = folders_at(planned.folders)

    def _state(self, rows: RowsInMemory) -> HotState:
        assert isinstance(rows, HotRows)
        self._retained.append(rows)
        number = self._states.number(rows)
        if self._seen.state(number, lambda: {segment.block.shape.segment for segment in rows.segments}):
            return HotState(number)
        blocks = tuple((segment.block.shape, segment.alive) for segment in rows.segments)
        return HotState(number, rows.columns, blocks)

    def _with_local_files(self, plan: ReadPlan) -> ReadPlan:
        """A process cannot reach a bucket: it is given names of local copies that stay while it runs."""
        sources = (*plan.clean, *plan.touched, *plan.changes)
        if not any(is_remote(source.path) for source in sources):
            return plan
        names = LocalNames(plan.snapshot.table_id)
        self._local_names.append(names)
        found = names.of([(source.path, source.size_bytes) for source in sources])
        local = {source.path: name for source, name in zip(sources, found, strict=True)}

        def renamed(group: Sequence[Source]) -> tuple[Source, ...]:
            return tuple(replace(source, path=local[source.path]) for source in group)

        clean, touched, changes = map(renamed, (plan.clean, plan.touched, plan.changes))
        return replace(plan, clean=clean, touched=touched, changes=changes, copied=True)

    def close(self) -> None:
        """Nobody reads what it was told any more."""
        for names in self._local_names:
            names.close()

    def _plan(self, plan: ReadPlan) -> Plan:
        overlay = plan.overlay
        pending = None if overlay is None else self._states.pending(overlay)
        if overlay is None or pending is None:
            return Plan(sendable(plan, overlay))
        self._retained.append(overlay)
        hidden, rows = map(self._shared, pending)
        return Plan(sendable(plan, None), (hidden, rows))

    def _shared(self, rows: SharedRows) -> HotState:
        if self._seen.state(rows.number, lambda: {shared.shape.segment for shared in rows.blocks}):
            return HotState(rows.number)
        return HotState(rows.number, rows.columns, tuple((shared.shape, None) for shared in rows.blocks))
