"""The child of `apart`: answers one query after the other, and knows of the lake only what it is told.

It ends when nobody has asked it anything for a while, and soon after its parent, whatever it is doing then.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa

from lithify.errors import ComputeFailed, LithifyError
from lithify.model.hot_rows import HotRows
from lithify.model.plans import ReadPlan, Summary
from lithify.model.predicates import Predicate
from lithify.model.schema import TableSchema
from lithify.model.snapshot import Snapshot
from lithify.serving.apart import READY, Head, Job
from lithify.serving.filters import Place
from lithify.serving.limits import Limits, out_of_memory
from lithify.serving.query import ServingEngine

IDLE_S = 60
PARENT_WATCH_S = 1.0
# Besides what the engine counts: the interpreter, the libraries, and what functions take.
ADDRESS_BYTES = 3 * 2**30


@dataclass(frozen=True)
class _Remote:
    """A table whose plans the parent makes."""

    parent: _Parent
    place: Place
    head: Head

    @property
    def snapshot(self) -> Snapshot:
        return self.head.snapshot

    @property
    def schema(self) -> TableSchema:
        return self.head.schema

    def plan(self, predicate: Predicate | None = None) -> ReadPlan:
        plan: ReadPlan = self.parent.ask("plan", (self.place, predicate))
        return plan

    def hot(self, columns: Sequence[str] | None) -> HotRows | None:
        return None

    def want_hot(self, columns: Sequence[str] | None) -> None:
        """What this process reads is no sign of what others will."""

    def summary(self) -> Summary | None:
        return None


class _Parent:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ask(self, question: str, about: Any = None) -> Any:
        self._connection.send((question, about))
        succeeded, answer = self._connection.recv()
        if not succeeded:
            raise answer
        return answer

    def table_of(self, namespace: str, name: str) -> _Remote | None:
        head = self.ask("table", (namespace, name))
        return None if head is None else _Remote(self, (namespace, name), head)

    def names(self) -> Mapping[str, set[str]]:
        names: Mapping[str, set[str]] = self.ask("names")
        return names


def main(connection: Connection, scratch: str) -> None:
    threading.Thread(target=_end_with, args=[os.getppid(), scratch], daemon=True).start()
    tempfile.tempdir = scratch
    os.putenv("TMPDIR", scratch)  # where the engine looks
    with connection:
        connection.send(READY)
        while connection.poll(IDLE_S):
            try:
                job = connection.recv()
            except EOFError:
                return
            _do(job, connection)


def _do(job: Job, connection: Connection) -> None:
    # Beyond this an allocation fails and takes this process down, before it takes the machine's memory.
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    wanted = 2 * job.memory_bytes_max + ADDRESS_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    parent = _Parent(connection)
    engine = ServingEngine(job.memory_bytes_max)
    try:
        # One row more than wanted tells the parent that there are more.
        limits = Limits(rows_max=None if job.rows_max is None else job.rows_max + 1)
        rows = engine.run_here(job.query, parent.table_of, parent.names, limits)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
    except LithifyError as error:
        connection.send(("failed", error))
    except (MemoryError, pa.ArrowMemoryError):
        connection.send(("failed", out_of_memory(job.memory_bytes_max)))
    except Exception as error:
        connection.send(("failed", ComputeFailed(f"the query failed: {error}")))
    else:
        connection.send(("rows",))
        connection.send_bytes(sink.getvalue())
    finally:
        engine.close()


def _end_with(parent: int, scratch: str) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_WATCH_S)
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])), sys.argv[2])
