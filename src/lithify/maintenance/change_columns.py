"""Changing the columns of a table: rename, drop, widen, relax, move, and fields inside of structs.

Base is a plain Delta table without column mapping, and stays one: where a column is renamed or widened, all of its
files are written anew, by a job, and one commit puts them and the new columns in the place of the old. So it is for
every change inside of a struct, of which engines make different things where files and table do not agree. Dropping,
relaxing and moving need no new files: base only says other columns. A second commit, to changes, makes the change
count; until then all readers go on with the version of base before (`jobs/finish_column_change.py`). Both halves are
compare-and-swap, so that a fold that was planned on the older columns plans again, and rows that were staged for them
are looked at again.

Pending changes are folded first, where files are written anew, so that the second commit has few to take along.
NOT NULL is another matter: it changes nothing of base, and is committed only on the state in which no row was null.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from lithify.compute.compute import HereCompute, engine_for
from lithify.core.column_changes import ColumnChange, Reshape, changed
from lithify.core.partitioning import output_folder, partition_strings
from lithify.core.read_plan import constants_of
from lithify.core.schema import COLUMN_CHANGE, COLUMNS_FORMAT, DEFAULTS_FORMAT, FIELDS_FORMAT, GENERATION, TableSchema
from lithify.core.snapshot import DataFile
from lithify.core.type_text import type_name
from lithify.delta.actions import LogChange
from lithify.delta.base import OWNER
from lithify.delta.changes import BASE_PATH, SEQ_TXN, plain_types
from lithify.delta.commit import PlannedAgain
from lithify.errors import CommitUnknown, Conflict, InvalidRequest
from lithify.files.local_files import bring
from lithify.files.parquet import Layout
from lithify.files.reshape import Reshaped, ReshapeTask, reshape
from lithify.jobs import jobs, recovery
from lithify.jobs.finish_column_change import (
    OPERATION,
    allow_column_changes,
    dropped_columns,
    finish_column_change,
    properties_of,
)
from lithify.jobs.manifest import Job
from lithify.maintenance.fold import FoldJob
from lithify.read.reader import Reader
from lithify.tables.handles import Handles
from lithify.write.add_column import add_column

ROUNDS_MAX = 5
REQUIRE_ROUNDS_MAX = 20
HERE = HereCompute()


class ColumnJob:
    def __init__(self, handles: Handles, reader: Reader) -> None:
        self._handles, self._reader, self._runtime = handles, reader, handles.runtime

    def run(self, change: ColumnChange) -> int:
        """The seq from which on it counts."""
        self._check(self._handles.schema(), change)
        recovery.recover(self._runtime, str(self._handles.name))
        for _ in range(ROUNDS_MAX):
            self._handles.snapshot()
            finish_column_change(self._handles)
            self._finish_added()
            change, _ = self._check(self._handles.changes.schema, change)
            allow_column_changes(self._handles, _format_of(change))
            if change.rewrites:
                FoldJob(self._handles, self._reader, why="columns are to change").run()
            try:
                return self._job(change)
            except PlannedAgain:
                continue
        raise Conflict(
            f"the columns of table {self._handles.name} were changed by others {ROUNDS_MAX} times meanwhile; nothing "
            "was changed: look at them, then try again"
        )

    def foreseen(self, change: ColumnChange) -> TableSchema:
        """What the table would be after it, or a refusal."""
        return self._check(self._handles.schema(), change)[1]

    def _being_added(self) -> list[pa.Field]:
        """Columns that base has and the table has not, because somebody is about to add them, or died of it."""
        known = self._handles.changes.schema.base_columns.names
        return [column for column in plain_types(self._handles.base.log.columns()) if column.name not in known]

    def _finish_added(self) -> None:
        """Of an added column and a change, base decides which came first. One that did is added to changes here too:
        the change would take it out of base, and whoever adds it would not see that.
        """
        for column in self._being_added():
            with contextlib.suppress(Conflict):  # it is there by now
                add_column(self._handles, column)

    def _check(self, schema: TableSchema, change: ColumnChange) -> tuple[ColumnChange, TableSchema]:
        """The change as it is to be noted, and what the table is after it."""
        name = str(self._handles.name)
        if (change.kind == "widen" or change.of_field) and change.column in schema.names:
            change = replace(change, was=type_name(schema.columns.field(change.column).type))
        after = changed(schema, change, name)
        check_own_base(self._handles, change)
        if change.kind == "drop" and not schema.keyed:
            raise InvalidRequest(
                f"column {change.column!r} cannot be dropped: table {name} has no key, and deletes that are on their "
                "way may go by this column; write the other columns into a new table"
            )
        return change, replace(after, generation=schema.generation + 1)

    def _job(self, change: ColumnChange) -> int:
        handles, before = self._handles, self._handles.changes.schema
        change, after = self._check(before, change)
        inputs = [file.path for file in handles.snapshot().base] if change.rewrites else []
        with jobs.running(handles, "columns", "base", inputs, why=str(change)) as run:
            outputs = _Outputs(handles, run.job, change, before, after)
            if change.rewrites:
                outputs.cover(handles.snapshot().base)
                self._runtime.store.step("columns.written")
            actor = self._runtime.settings.actor
            document = json.dumps({"change": change.document(), "actor": actor})
            info = {"operation": OPERATION, "column": str(change), "actor": actor}
            properties = {GENERATION: str(after.generation), COLUMN_CHANGE: document}

            def build() -> LogChange:
                if not handles.has_columns_of(before) or self._being_added():
                    raise PlannedAgain
                live = handles.base.files(before) if change.rewrites else ()
                outputs.cover(live)
                adds = [(found.written, found.partition) for found in outputs.of(live)]
                return handles.base.with_watermark(
                    LogChange(info, adds, live, columns=after.base_columns, properties=properties)
                )

            run.commit("changing the columns of", build)
            run.clean_up(finish_column_change)
            self._runtime.store.step("columns.settled")
            files = outputs.done
            run.tell(
                (len(files), len(files)),
                (sum(file.size_bytes for file in files), sum(found.written.size_bytes for found in files.values())),
                sum(found.written.rows for found in files.values()),
            )
        try:
            if run.left:
                finish_column_change(handles)
            handles.changes.log.refresh()
            made = [noted.seq for noted in handles.changes.column_history if replace(noted, seq=0) == change]
            return made[-1] if made else handles.changes.seq
        except Exception as error:
            raise CommitUnknown(
                f"base of table {handles.name} has its new columns ({change}), and whether they count yet could not be "
                f"determined ({error}): whoever uses the table next ends the change; look at its columns"
            ) from error


def _format_of(change: ColumnChange) -> int:
    return FIELDS_FORMAT if change.of_field else COLUMNS_FORMAT if change.default is None else DEFAULTS_FORMAT


class _Outputs:
    """Base files for the new columns, each made once from an old one."""

    def __init__(
        self, handles: Handles, job: Job, change: ColumnChange, before: TableSchema, after: TableSchema
    ) -> None:
        self._handles, self._job, self._runtime = handles, job, handles.runtime
        self._before, self._after = before, after
        self._reshape, self._layout = Reshape.of(after.columns, [change]), Layout.of(after)
        self.done: dict[DataFile, Reshaped] = {}

    def of(self, files: Sequence[DataFile]) -> list[Reshaped]:
        return [self.done[file] for file in files]

    def cover(self, files: Sequence[DataFile]) -> None:
        """Make those that are not there yet: all of them, or what others have added to base meanwhile."""
        missing = [file for file in files if file not in self.done]
        if not missing:
            return
        root, store = self._handles.base_folder, self._runtime.store
        store.make_folder(root / self._job.folder)
        size = sum(file.size_bytes for file in missing)
        engine = engine_for(size, self._runtime.settings.local_job_bytes_max)
        if engine == "local":
            bring((root / file.path, file.size_bytes) for file in missing)
        results = (HERE if engine == "local" else self._runtime.compute).run(reshape, list(map(self._task, missing)))
        written = [found.written for found in results]
        jobs.check_outputs(self._runtime, root, written)
        jobs.sync_outputs(self._runtime, root, [file.path for file in written])
        self.done |= dict(zip(missing, results, strict=True))

    def _task(self, file: DataFile) -> ReshapeTask:
        root = self._handles.base_folder
        partition = partition_strings(self._before, file.partition)
        folder = output_folder(self._job.folder, partition)
        return ReshapeTask(
            f"{root}/{file.path}",
            file.rows,
            file.size_bytes,
            dict(constants_of(file, self._before)),
            self._reshape,
            self._layout,
            str(root),
            f"{folder}/part-{self._runtime.new_id()[:16]}.parquet",
            partition,
        )


def check_own_base(handles: Handles, change: ColumnChange) -> None:
    """The base of an adopted table is somebody else's: what reads or writes it there goes by its columns."""
    if handles.base.log.properties.get(OWNER) or handles.changes.log.properties.get(BASE_PATH):
        raise InvalidRequest(
            f"column {change.column!r} cannot be changed: the base of table {handles.name} was adopted, and others may "
            "read and write it by the columns that it has; add a column instead, or write the rows into a table of "
            "Lithify's own"
        )


def require_column(handles: Handles, column: str, nulls: Callable[[], tuple[int, int]]) -> int:
    """NOT NULL from now on. `nulls`: how many rows are null in it, and at which seq. Answers with the seq."""
    change = ColumnChange("require", column)
    for _ in range(REQUIRE_ROUNDS_MAX):
        changed(handles.schema(), change, str(handles.name))
        check_own_base(handles, change)
        found, seq = nulls()
        if found:
            raise Conflict(
                f"column {column!r} of table {handles.name} is null in {found:,} rows: give them values first, then "
                "demand them"
            )
        if (done := _require_at(handles, change, seq)) is not None:
            return done
    raise Conflict(
        f"table {handles.name} was written to {REQUIRE_ROUNDS_MAX} times while column {column!r} was looked at; "
        "nothing was changed: try again when it is written to less"
    )


def _require_at(handles: Handles, change: ColumnChange, seq: int) -> int | None:
    """None: the table has moved on."""
    changes, actor = handles.changes, handles.runtime.settings.actor

    def build() -> LogChange | None:
        if changes.seq != seq:
            return None
        noted = replace(change, seq=seq + 1)
        before = changes.schema
        after = replace(changed(before, noted, str(handles.name)), generation=before.generation)
        history, dropped = (*changes.column_history, noted), dropped_columns(changes.log.properties)
        return LogChange(
            {"operation": OPERATION, "column": str(noted), "actor": actor, "seq": seq + 1},
            txns={SEQ_TXN: seq + 1},
            columns=after.changes_columns,
            properties=properties_of(after, history, dropped, had_defaults=bool(before.column_defaults)),
        )

    done = handles.commit(changes.log, "changing the columns of", build, point="require_column")
    return None if done is None else seq + 1
