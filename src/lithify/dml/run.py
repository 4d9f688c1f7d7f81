"""A statement becomes one commit: decided on one snapshot of each table, committed if the target is still there as it
was seen, and decided again if it is not (`write/decided.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lithify.core.lake_methods import Wish
from lithify.core.results import Commit, Executed
from lithify.core.snapshot import Snapshot
from lithify.dml.attempt import Attempt, Reading
from lithify.dml.decide import Effect, decide
from lithify.files.read_proof import look_again
from lithify.sql.statements.model import Delete, Insert, Merge, Update, Writing
from lithify.write.batch_ids import conditions_of
from lithify.write.conditions import Replay, Write
from lithify.write.decided import Decision, write_decided

if TYPE_CHECKING:
    from lithify.write.access import TableAccess

OPERATIONS = {Insert: "insert", Update: "update", Delete: "delete", Merge: "merge"}
_COUNTS = ("inserted", "updated", "deleted")


def run(statement: Writing, table: TableAccess, reading: Reading, wish: Wish) -> Executed:
    return run_by(statement, table, wish, lambda snapshot: decide(statement, Attempt(reading, table, snapshot)))


def run_by(statement: Writing, table: TableAccess, wish: Wish, decide_on: Callable[[Snapshot], Effect]) -> Executed:
    """`decide_on`: what the statement writes, as of a snapshot."""
    operation, name = OPERATIONS[type(statement)], str(table.name)

    def tried(snapshot: Snapshot) -> tuple[Effect, Executed]:
        # Who deletes wants all of it gone, also what has expired and is only hidden.
        effect = decide_on(snapshot.unhidden if isinstance(statement, Delete) else snapshot)
        counts = {count: getattr(effect, count) for count in _COUNTS}
        return effect, Executed(operation, name, snapshot.seq, **counts)

    if wish.dry_run:
        return replace(look_again(lambda: tried(table.handles.snapshot())[1]), dry_run=True)
    done: list[Executed] = []

    def decided(snapshot: Snapshot) -> Decision:
        effect, counted = tried(snapshot)
        done.append(counted)
        # Said in the commit, for when it is asked again.
        said = {f"sql_{count}": getattr(effect, count) for count in _COUNTS}
        return Decision(effect.parts, said, effect.at_seq, effect.produce)

    commit = write_decided(table, Write(operation, wish.info, conditions_of(wish.batch_id)), decided)
    return _replayed(table, commit) if commit.replayed else replace(done[-1], seq=commit.seq, batch_id=wish.batch_id)


def _replayed(table: TableAccess, commit: Commit) -> Executed:
    changes = table.handles.changes
    with changes.log.lock:
        said = Replay.of(changes, commit.seq).said
    writes = said.get("writes", (said,))
    mine: Mapping[str, Any] = next((write for write in writes if write.get("batch_id") == commit.batch_id), {})
    inserted, updated, deleted = (int(mine.get(f"sql_{name}", -1)) for name in _COUNTS)
    counts = Executed(commit.operation, commit.table, commit.seq, inserted, updated, deleted)
    return replace(counts, batch_id=commit.batch_id, replayed=True)
