"""What the service and its query processes tell each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from lithify.core.names import TableRef
from lithify.core.ops import Op, Overlay
from lithify.core.read_plan import ReadPlan
from lithify.core.snapshot import Snapshot

# A file of a process's own folder: the number of the task that it has begun, for when it is dead and cannot say.
BEGUN = "begun"


@dataclass(frozen=True)
class Select:
    answers_rows: ClassVar[bool] = True
    query: str
    rows_max: int | None
    made: bool = False


@dataclass(frozen=True)
class Read:
    """Columns of the rows of one table that a condition holds for."""

    answers_rows: ClassVar[bool] = True
    ref: TableRef
    columns: tuple[str, ...]
    where: str


@dataclass(frozen=True)
class Explain:
    answers_rows: ClassVar[bool] = False
    query: str


@dataclass(frozen=True)
class Columns:
    """Which columns a condition names."""

    answers_rows: ClassVar[bool] = False
    schema: pa.Schema
    where: str


@dataclass(frozen=True)
class Parse:
    """What a statement that writes says."""

    answers_rows: ClassVar[bool] = False
    text: str


Task = Select | Read | Explain | Columns | Parse


@dataclass(frozen=True)
class HotState:
    """Hot rows of one moment, or changes that are pending. A process that has seen it before is told only its `id`;
    otherwise `blocks` has the shape of each block in shared memory and the bits that say which of its rows are alive;
    None: all.
    """

    id: int
    columns: pa.Schema | None = None
    blocks: tuple[tuple[Any, bytes | None], ...] = ()


@dataclass(frozen=True)
class Plan:
    """What is to be read of a table. `pending`: where hidden keys and rows of pending changes lie in shared memory."""

    plan: ReadPlan
    pending: tuple[HotState, HotState] | None = None


@dataclass(frozen=True)
class Memory:
    """What changes in what a process knows of shared memory: segments whose descriptors come along, in this order;
    segments that are no more; states that it need not remember.
    """

    new: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    forgotten: tuple[int, ...] = ()


@dataclass(frozen=True)
class Head:
    """A table that is there: its snapshot without the lists of files, and its hot rows if it has any."""

    snapshot: Snapshot
    hot: HotState | None = None


@dataclass(frozen=True)
class Job:
    """A task of a process, the `number`th, and what the kernel lets it take. `cpu_s_max` None: as long as nobody stops
    it. `heads` are those of the tables that its text seems to name, so that it need not ask for them.
    """

    number: int
    task: Task
    memory_bytes_max: int
    spill_bytes_max: int
    cpu_s_max: float | None
    heads: Mapping[TableRef, Head]
    memory: Memory


def slim(snapshot: Snapshot) -> Snapshot:
    """As much of it as a plan that was made elsewhere needs: without files, but for one that names the row key."""
    named = next((file for file in snapshot.changes if file.op is Op.DELETE), None)
    changes = () if named is None else (replace(named, bounds={}, partition={}),)
    return replace(snapshot, changes=changes, base=(), remembered=())


def sendable(plan: ReadPlan, overlay: Overlay | None) -> ReadPlan:
    """With this overlay; reasons are for people, and told lazily."""
    pruning = None if plan.pruning is None else replace(plan.pruning, reasons=())
    return replace(plan, snapshot=slim(plan.snapshot), overlay=overlay, pruning=pruning)
