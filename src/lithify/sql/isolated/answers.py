"""What a query is told of the lake, with its caller's rights, and what a process remembers of what it was told."""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lithify.cache.rows import HotRows, RowsInMemory
from lithify.cache.shared_memory import Layout, Shared, SharedMemory
from lithify.core.ops import Overlay
from lithify.core.read_plan import PlannedTable, ReadPlan, Summary
from lithify.errors import LithifyError
from lithify.sql.empty_catalog import Names, TableOf
from lithify.sql.isolated import cage
from lithify.sql.isolated.cage import Folder, View, fits, folders_at
from lithify.sql.isolated.channel import Channel
from lithify.sql.isolated.messages import Head, HotState, Memory, Plan, sendable, slim
from lithify.sql.pushdown import Place

# States of hot tables that a process remembers.
STATES_KEPT_MAX = 32
# Pending changes below this are sent with each plan.
PENDING_BYTES_MIN = 256 * 2**10


class Seen:
    """What a process knows of shared memory: what it was told, and not told to forget."""

    def __init__(self) -> None:
        self._states: OrderedDict[int, None] = OrderedDict()
        self._segments: set[int] = set()
        self._new: list[int] = []
        self._forgotten: list[int] = []

    def state(self, number: int, segments: Callable[[], set[int]]) -> bool:
        """Whether it knows these hot rows already; from now on it does. `segments`: where they lie."""
        known = number in self._states
        if not known:
            self._states[number] = None
            new = segments() - self._segments
            self._new += sorted(new)
            self._segments |= new
        self._states.move_to_end(number)
        while len(self._states) > STATES_KEPT_MAX:
            self._forgotten.append(self._states.popitem(last=False)[0])
        return known

    def news(self, memory: SharedMemory) -> tuple[Memory, list[int]]:
        """What it has to be told before it looks there, and the descriptors for that."""
        gone = self._segments - set(memory.segments)
        self._segments -= gone
        told = Memory(tuple(self._new), tuple(gone), tuple(self._forgotten))
        self._new, self._forgotten = [], []
        return told, [memory.descriptor(segment) for segment in told.new]


@dataclass(frozen=True)
class Placed:
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
        self._pending: dict[int, tuple[Placed, Placed]] = {}
        self._placing = threading.Lock()

    def pending(self, overlay: Overlay) -> tuple[Placed, Placed] | None:
        """Hidden keys and rows; None where they are few, or there is no room: they are sent as they are then."""
        if overlay.hidden.nbytes + overlay.rows.nbytes < PENDING_BYTES_MIN:
            return None
        with self._placing:
            if id(overlay) not in self._pending:
                try:
                    placed = self._place(overlay.hidden), self._place(overlay.rows)
                except LithifyError:
                    return None
                self._pending[id(overlay)] = placed
                weakref.finalize(overlay, self._pending.pop, id(overlay)).atexit = False
            return self._pending[id(overlay)]

    def _place(self, rows: pa.Table) -> Placed:
        with self._lock:
            number = next(self._numbers)
        batches = rows.combine_chunks().to_batches()
        return Placed(number, rows.schema, tuple(self.memory.put(Layout(batch)) for batch in batches))

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
        self._opened: dict[Place, PlannedTable] = {}
        self._summaries: dict[Place, Summary | None] = {}
        self._held: list[Any] = []
        # The tables that it is known to name.
        self.needed: dict[str, frozenset[Folder]] = {}

    def open(self, likely: Sequence[Place]) -> None:
        """Tables that it seems to name. One that cannot be opened is left for when it is asked for: that says why."""
        for place in likely:
            with contextlib.suppress(LithifyError):
                self._open(place)

    def begin(self, seen: Seen, view: View) -> None:
        """Speak to a process, of which this is known."""
        self._seen, self._view = seen, dict(view)

    def heads(self) -> dict[Place, Head]:
        """What can be told before it is asked for."""
        found: dict[Place, Head] = {}
        for place, planned in self._opened.items():
            with contextlib.suppress(LithifyError):
                rows = planned.hot(())
                found[place] = Head(slim(planned.snapshot), None if rows is None else self._state(rows))
        return found

    def news(self) -> tuple[Memory, list[int]]:
        return self._seen.news(self._states.memory)

    def reply(self, question: str, about: Any, channel: Channel) -> None:
        if question == "want":
            place, columns = about
            self._opened[place].want_hot(columns)
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
                place, predicate = about
                return self._plan(self._opened[place].plan(predicate))
            case "hot":
                place, columns = about
                rows = self._opened[place].hot(columns)
                return None if rows is None else self._state(rows)
            case "summary":
                found = self._summaries[about] = self._opened[about].summary()
                return None if found is None else found.rows
            case "nulls" | "bounds":
                place, column = about
                known = self._summaries[place]
                assert known is not None
                return known.nulls(column) if question == "nulls" else known.bounds(column)
        raise AssertionError(f"unknown question {question}")

    def _table(self, place: Place) -> PlannedTable | None:
        self._open(place)
        if not fits(self._view, self.needed, None):
            raise OutOfView
        return self._opened.get(place)

    def _open(self, place: Place) -> None:
        if place not in self._opened and (planned := self._table_of(*place)) is not None:
            self._opened[place] = planned
            if cage.is_possible():
                self.needed[planned.snapshot.table] = folders_at(planned.folders)

    def _state(self, rows: RowsInMemory) -> HotState:
        assert isinstance(rows, HotRows)
        self._held.append(rows)
        number = self._states.number(rows)
        if self._seen.state(number, lambda: {segment.block.shape.segment for segment in rows.segments}):
            return HotState(number)
        blocks = tuple((segment.block.shape, tuple(segment.dead.tolist())) for segment in rows.segments)
        return HotState(number, rows.columns, blocks)

    def _plan(self, plan: ReadPlan) -> Plan:
        overlay = plan.overlay
        placed = None if overlay is None else self._states.pending(overlay)
        if overlay is None or placed is None:
            return Plan(sendable(plan, overlay))
        self._held.append(overlay)
        hidden, rows = map(self._placed, placed)
        return Plan(sendable(plan, None), (hidden, rows))

    def _placed(self, placed: Placed) -> HotState:
        if self._seen.state(placed.number, lambda: {shared.shape.segment for shared in placed.blocks}):
            return HotState(placed.number)
        return HotState(placed.number, placed.columns, tuple((shared.shape, ()) for shared in placed.blocks))
