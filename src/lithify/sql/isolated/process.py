"""A query process: parses, plans and runs what came over HTTP, one query after the other, and may be killed any time.

It knows of the lake only what it is told. What it needs it asks of the service, table by table: whether there is one
that the caller may read, which files of it are left by a predicate, where its hot rows lie in shared memory. It reads
those files and that memory, and writes nothing but what does not fit its memory, into a folder of its own; the kernel
lets it open no other files (`cage`) and holds it to its limits. Between two queries it keeps what it has worked out:
looks at texts, footers, views of hot rows.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from lithify.cache.hot_rows import ALIVE, told_alive
from lithify.cache.shared_memory import MappedSegment
from lithify.cache.strings import is_encoded
from lithify.core.names import TableRef
from lithify.core.ops import Overlay
from lithify.core.predicates import Predicate
from lithify.core.read_plan import PlannedTable, ReadPlan, RowsInMemory, Summary
from lithify.core.snapshot import Snapshot
from lithify.errors import ComputeFailed, LithifyError
from lithify.sql.engine import ServingEngine, parsed_here
from lithify.sql.isolated import cage
from lithify.sql.isolated.channel import Channel, Gone
from lithify.sql.isolated.messages import (
    BEGUN,
    Columns,
    Explain,
    Head,
    HotState,
    Job,
    Memory,
    Parse,
    Plan,
    Read,
    Select,
)
from lithify.sql.limits import Limits, out_of_memory

# Besides what the engine counts: the interpreter, the libraries, and what functions take.
BESIDE_BYTES = 3 * 2**30
STACK_BYTES = 8 * 2**20
FILES_MAX = 4_096
PIECE_BYTES = 2**20


def serve(end: socket.socket, scratch: str, folders: Sequence[str] | None) -> None:
    """Until the service closes its end. `folders`: all that the kernel is to let it read of the lake, if it can."""
    if folders is not None:
        cage.enter(scratch, folders)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tempfile.tempdir = scratch
    os.putenv("TMPDIR", scratch)  # where the engine looks
    channel = Channel(end, trusting=True)
    service = Service(channel)
    _bounded(resource.RLIMIT_STACK, STACK_BYTES)
    _bounded(resource.RLIMIT_NOFILE, FILES_MAX)
    _bounded(resource.RLIMIT_CORE, 0)
    begun = os.open(os.path.join(scratch, BEGUN), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    gc.freeze()
    engine = ServingEngine(2**30)
    engine.warm()
    try:
        while True:
            job, descriptors = channel.receive()
            os.pwrite(begun, b"%d" % job.number, 0)
            service.begin(job, descriptors)
            _do(job, engine, service, channel)
    except Gone:
        return
    finally:
        engine.close()


def _do(job: Job, engine: ServingEngine, service: Service, channel: Channel) -> None:
    _bounded(resource.RLIMIT_DATA, job.memory_bytes_max + BESIDE_BYTES)
    _bounded(resource.RLIMIT_FSIZE, job.spill_bytes_max)
    used = resource.getrusage(resource.RUSAGE_SELF)
    # Beside what earlier tasks took. A task without a bound must not have that of the one before it.
    bound = resource.RLIM_INFINITY if job.cpu_s_max is None else int(used.ru_utime + used.ru_stime + job.cpu_s_max) + 1
    _bounded(resource.RLIMIT_CPU, bound)
    try:
        answer, rows = _answered(job, engine, service)
    except LithifyError as error:
        channel.send(("failed", error))
    except (MemoryError, pa.ArrowMemoryError):
        channel.send(("failed", out_of_memory(job.memory_bytes_max)))
    except Gone:
        raise
    except Exception as error:
        channel.send(("failed", ComputeFailed(f"the query failed: {error}")))
    else:
        _send(answer, service.used, rows, channel)


def _answered(job: Job, engine: ServingEngine, service: Service) -> tuple[Any, pa.Table | None]:
    match job.task:
        case Select(query, rows_max, made):
            limits = Limits(rows_max=rows_max, memory_bytes_max=job.memory_bytes_max)
            found = engine.run_here(query, service.table_of, service.names, limits, made=made)
            return (found.cut, found.hot, found.repeatable), found.rows
        case Read(ref, columns, where):
            table = service.table_of(*ref)
            assert table is not None
            return None, engine.read(table, columns, where, tame=False)
        case Explain(query):
            return engine.look_for(query, service.table_of, service.names), None
        case Columns(schema, where):
            return engine.key_queries.columns_of(schema, where, tame=False), None
        case Parse(text):
            return parsed_here(text), None
    raise AssertionError(f"unknown task {job.task}")


class _Pieces:
    """A file that is sent piece by piece."""

    closed = False

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.waiting = bytearray()

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self.waiting += view
        while len(self.waiting) > PIECE_BYTES:
            self._channel.send(("piece", bytes(self.waiting[:PIECE_BYTES])))
            del self.waiting[:PIECE_BYTES]
        return view.nbytes

    def flush(self) -> None:
        """The end goes with the answer."""


def _send(answer: Any, used: Sequence[TableRef], rows: pa.Table | None, channel: Channel) -> None:
    """Rows go as an Arrow stream in pieces, of which the last comes with what is said about them."""
    pieces = _Pieces(channel)
    if rows is not None:
        with pa.ipc.new_stream(pa.PythonFile(pieces, "w"), rows.schema) as writer:
            writer.write_table(rows)
    channel.send(("answer", (answer, tuple(used), bytes(pieces.waiting))))


def _bounded(kind: int, wanted: int) -> None:
    hard = resource.getrlimit(kind)[1]
    unbounded = resource.RLIM_INFINITY
    least = hard if wanted == unbounded else wanted if hard == unbounded else min(wanted, hard)
    resource.setrlimit(kind, (least, hard))


# -- what it is told of the lake


class Service:
    """The service, asked over the channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._segments: dict[int, MappedSegment] = {}
        self._states: dict[int, RowsThere] = {}
        # Told ahead, and not looked at yet: the service counts on it that they are known.
        self._ahead: dict[int, HotState] = {}
        self._heads: Mapping[TableRef, Head] = {}
        # The tables that the task turned out to name.
        self.used: list[TableRef] = []

    def begin(self, job: Job, descriptors: Sequence[int]) -> None:
        self._heads, self.used = job.heads, []
        self._learn(job.memory, descriptors)
        for head in job.heads.values():
            if head.hot is not None and head.hot.columns is not None:
                self._ahead[head.hot.id] = head.hot

    def ask(self, question: str, about: Any = None) -> Any:
        self._channel.send((question, about))
        (succeeded, answer, memory), descriptors = self._channel.receive()
        self._learn(memory, descriptors)
        if not succeeded:
            raise answer
        return answer

    def _learn(self, memory: Memory, descriptors: Sequence[int]) -> None:
        for number in memory.forgotten:
            self._states.pop(number, None)
            self._ahead.pop(number, None)
        for number in memory.gone:
            self._segments.pop(number, None)
        for number, descriptor in zip(memory.new, descriptors, strict=True):
            self._segments[number] = MappedSegment(descriptor)
            os.close(descriptor)

    def tell(self, fact: str, about: Any) -> None:
        self._channel.send((fact, about))

    def table_of(self, namespace: str, name: str) -> RemoteTable | None:
        ref = namespace, name
        head = self._heads.get(ref) or self.ask("table", ref)
        if head is None:
            return None
        self.used.append(ref)
        return RemoteTable(self, ref, head)

    def names(self) -> Mapping[str, set[str]]:
        names: Mapping[str, set[str]] = self.ask("names")
        return names

    def rows_of(self, state: HotState) -> RowsThere:
        if state.id not in self._states:
            state = self._ahead.pop(state.id, state)
            blocks = [
                (self._segments[shape.segment].batch(shape, state.columns), alive) for shape, alive in state.blocks
            ]
            self._states[state.id] = RowsThere(state, told_alive(blocks))
        return self._states[state.id]


class RowsThere:
    """Hot rows of the service, where they lie."""

    def __init__(self, state: HotState, batches: Sequence[pa.RecordBatch]) -> None:
        assert state.columns is not None
        self.columns: pa.Schema = state.columns
        self._batches = list(batches)

    @cached_property
    def rows(self) -> int:
        if self.has_dead:
            return sum(batch.column(ALIVE).true_count for batch in self._batches)
        return sum(batch.num_rows for batch in self._batches)

    @cached_property
    def is_encoded(self) -> bool:
        return any(is_encoded(f.type) for f in self.columns)

    @cached_property
    def has_dead(self) -> bool:
        return any(ALIVE in batch.schema.names for batch in self._batches)

    def batches(self) -> list[pa.RecordBatch]:
        return self._batches

    def table(self) -> pa.Table:
        """Of pending changes, none of which is dead."""
        return pa.Table.from_batches(self._batches, self.columns)


@dataclass(frozen=True)
class RemoteTable(PlannedTable):
    """A table whose plans the service makes."""

    service: Service
    ref: TableRef
    head: Head

    @property
    def snapshot(self) -> Snapshot:
        return self.head.snapshot

    @property
    def folders(self) -> tuple[str, ...]:
        return ()  # the service knows them, and has told the kernel

    def fetch(self) -> None:
        """The service does, when it is asked for the plan."""

    def plan(self, predicate: Predicate | None = None, columns: Sequence[str] | None = None) -> ReadPlan:
        told: Plan = self.service.ask("plan", (self.ref, predicate, None if columns is None else tuple(columns)))
        if told.pending is None:
            return told.plan
        hidden, rows = (self.service.rows_of(state).table() for state in told.pending)
        return replace(told.plan, overlay=Overlay(hidden, rows))

    def hot(self, columns: Sequence[str] | None) -> RowsInMemory | None:
        if self.head.hot is not None:
            rows = self.service.rows_of(self.head.hot)
            if set(self.schema.names if columns is None else columns) <= set(rows.columns.names):
                return rows
        state = self.service.ask("hot", (self.ref, None if columns is None else tuple(columns)))
        return None if state is None else self.service.rows_of(state)

    def want_hot(self, columns: Sequence[str] | None) -> None:
        self.service.tell("want", (self.ref, None if columns is None else tuple(columns)))

    def summary(self) -> Summary | None:
        rows = self.service.ask("summary", self.ref)
        return None if rows is None else RemoteSummary(self.service, self.ref, rows)


@dataclass(frozen=True)
class RemoteSummary:
    service: Service
    ref: TableRef
    rows: int

    def nulls(self, column: str) -> int | None:
        nulls: int | None = self.service.ask("nulls", (self.ref, column))
        return nulls

    def bounds(self, column: str) -> tuple[Any, Any] | None:
        bounds: tuple[Any, Any] | None = self.service.ask("bounds", (self.ref, column))
        return bounds
