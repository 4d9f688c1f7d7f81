"""The second half of a change of columns: changes say that it counts.

A change comes to base first, which then is a generation ahead, and says which change that is. Readers go on with the
version of base before it, and writers with the columns that changes have. One commit to changes ends that: it has the
new columns, a seq of its own, and the pending files, written anew as far as their lines name the column. Whoever finds
base ahead may do this, any number of times: the process that began, recovery, or the next job on the table. So a change
whose first half stands always comes to its end, and never twice.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.column_changes import ColumnChange, Reshape, changed, given_since, history_text
from lithify.core.column_defaults import stored_defaults
from lithify.core.names import GIVEN, OP, SEQ
from lithify.core.ops import ORDERED_DELETES, Op
from lithify.core.schema import (
    COLUMN_CHANGE,
    COLUMN_HISTORY,
    COLUMNS_FORMAT,
    DEFAULTS_PROPERTY,
    DROPPED_COLUMNS,
    FORMAT_PROPERTY,
    GENERATION,
    TableSchema,
)
from lithify.core.snapshot import DataFile
from lithify.delta.actions import LogChange
from lithify.delta.changes import SEQ_TXN
from lithify.errors import LithifyError
from lithify.files.open_parquet import footer_in, open_file, read_open
from lithify.files.parquet import Layout, PartWriter, Written, batches_of, encode
from lithify.tables.handles import Handles

OPERATION = "change columns"


def properties_of(
    schema: TableSchema, history: tuple[ColumnChange, ...], dropped: list[str], *, had_defaults: bool
) -> dict[str, str]:
    """What the changes log says of columns, besides the columns."""
    defaults = {DEFAULTS_PROPERTY: stored_defaults(schema.column_defaults)}
    return {
        "lithify.required": json.dumps([f.name for f in schema.columns if not f.nullable]),
        GENERATION: str(schema.generation),
        COLUMN_HISTORY: history_text(history),
        DROPPED_COLUMNS: json.dumps(dropped),
        **(defaults if had_defaults or schema.column_defaults else {}),
    }


def dropped_columns(properties: Mapping[str, str]) -> list[str]:
    """Names under which files may hold values of columns that are gone."""
    return list(json.loads(properties.get(DROPPED_COLUMNS) or "[]"))


def allow_column_changes(handles: Handles, needed: int = COLUMNS_FORMAT) -> None:
    """Say in the log that columns may change, before they do: a program that does not know that must not read on."""
    changes = handles.changes

    def allowed() -> bool:
        return int(changes.log.properties.get(FORMAT_PROPERTY, "0")) >= needed

    def build() -> LogChange | None:
        info = {"operation": "allow column changes", "actor": handles.runtime.settings.actor, "seq": changes.seq}
        return None if allowed() else LogChange(info, properties={FORMAT_PROPERTY: str(needed)})

    if not allowed():
        handles.commit(changes.log, "allowing changes of columns of", build, point="allow_columns")


def finish_column_change(handles: Handles) -> None:
    """Let a change that base is ahead by count. Costs nothing where base is not."""
    changes, base = handles.changes, handles.base
    if base.generation <= changes.schema.generation:
        return
    staged = _Staged(handles)

    def build() -> LogChange | None:
        staged.discard()
        base.log.refresh()
        if base.generation <= changes.schema.generation:
            return None
        return _counting(handles, staged)

    with changes.log.lock:
        base.log.make_durable()
        handles.commit(changes.log, "changing the columns of", build, discard=staged.discard, point="columns_settled")
    mend_base(handles)


def mend_base(handles: Handles) -> None:
    """A column that was added while others changed may have come to changes after base was given columns without it.
    Whoever commits last of the two sees that, and adds it there. Costs nothing where columns never changed.
    """
    changes, base = handles.changes, handles.base
    if not _may_change(handles):
        return

    def build() -> LogChange | None:
        schema = changes.schema
        missing = [name for name in schema.base_columns.names if name not in base.log.columns().names]
        if not missing or base.generation != schema.generation:
            return None
        info = {"operation": "add column", "column": missing[0], "actor": handles.runtime.settings.actor}
        return base.with_watermark(LogChange(info, columns=schema.base_columns, properties={}))

    handles.commit(base.log, "adding columns to the base of", build, point="mend_base")


def _may_change(handles: Handles) -> bool:
    return int(handles.changes.log.properties.get(FORMAT_PROPERTY, "0")) >= COLUMNS_FORMAT


def _counting(handles: Handles, staged: _Staged) -> LogChange:
    changes, base = handles.changes, handles.base
    said = json.loads(base.log.properties[COLUMN_CHANGE])
    seq = changes.seq + 1
    change = ColumnChange(**{**said["change"], "seq": seq})
    before = changes.schema
    after = replace(changed(before, change, str(handles.name)), generation=before.generation + 1)
    pending = [file for file in changes.files() if file.seq > base.watermark]
    concerned = [file for file in pending if _concerns(change, file, before)]
    adds = [(staged.written(file, after, change), {SEQ: str(file.seq), OP: file.op.value}) for file in concerned]
    staged.sync()
    dropped = [] if change.rewrites else dropped_columns(changes.log.properties)
    if change.kind == "drop":
        dropped.append(change.column)
    info = {"operation": OPERATION, "column": str(change), "actor": said["actor"], "seq": seq}
    return LogChange(
        info,
        adds,
        concerned,
        {SEQ_TXN: seq},
        time_ms=min((file.time_ms for file in concerned), default=None),
        columns=after.changes_columns,
        properties=properties_of(
            after, (*changes.column_history, change), dropped, had_defaults=bool(before.column_defaults)
        ),
    )


def _concerns(change: ColumnChange, file: DataFile, schema: TableSchema) -> bool:
    """Whether a file has to be written anew. Lines of an update say by name which columns they give; tombstones go by
    key and order, which do not change, or on a table without a key by columns that they name.
    """
    match file.op:
        case Op.DELETE:
            return not schema.keyed and change.column in file.columns and change.rewrites
        case Op.UPDATE:
            return change.rewrites or change.kind == "drop"
    return change.rewrites and file.op not in ORDERED_DELETES


class _Staged:
    """Files for one commit, which go if it does not come to be."""

    def __init__(self, handles: Handles) -> None:
        self._handles, self._store = handles, handles.runtime.store
        self._files: list[str] = []

    def discard(self) -> None:
        for path in self._files:
            with contextlib.suppress(LithifyError):  # an orphan, which vacuum takes
                self._store.delete(self._handles.changes.log.path / path)
        self._files.clear()

    def sync(self) -> None:
        if self._files:
            self._store.sync_folder(self._handles.changes.log.path)
            self._store.step("columns_settled.files")

    def written(self, file: DataFile, schema: TableSchema, change: ColumnChange) -> Written:
        root = self._handles.changes.log.path
        name = f"write-{self._handles.runtime.new_id()}.parquet"
        self._files.append(name)
        if file.op in (Op.DELETE, Op.UPDATE):
            rows, layout = _renamed(self._lines(file), change, schema), Layout.of(schema)
            by = schema.key if file.op is Op.UPDATE else tuple(rows.column_names)
            data, stats = encode(rows, replace(layout, stats_columns=by))
            self._store.create(root / name, data)
            return Written(name, len(data), rows.num_rows, stats, footer_in(data))
        reshape = Reshape.of(schema.columns, [change])
        writer = PartWriter(root / name, schema.columns, Layout.of(schema))
        try:
            for batch in batches_of(root / file.path, reshape.stored, None, file.size_bytes):
                writer.write(reshape.apply(batch))
            done = writer.close(root)
        except BaseException:
            writer.abandon()
            raise
        self._files[-1] = done.path
        return done

    def _lines(self, file: DataFile) -> pa.Table:
        path = self._handles.changes.log.path / file.path
        return read_open(open_file(path, file.size_bytes), path)


def _renamed(lines: pa.Table, change: ColumnChange, schema: TableSchema) -> pa.Table:
    """Lines that have some columns alone, after the change. `schema`: the table's after it."""
    return pa.table(dict(_columns(lines, change, schema)))


def _columns(lines: pa.Table, change: ColumnChange, schema: TableSchema) -> Iterator[tuple[str, Any]]:
    from lithify.core.type_text import parse_type

    for name, values in zip(lines.column_names, lines.columns, strict=True):
        if name == GIVEN:
            coded = pc.dictionary_encode(values.combine_chunks())
            texts = [given_since(text, [change]) for text in coded.dictionary.to_pylist()]
            yield name, pa.array(texts, pa.string()).take(coded.indices)
        elif name != change.column:
            yield name, values
        elif change.kind == "rename":
            yield change.to, values
        elif change.kind == "widen":
            yield name, values.cast(parse_type(change.to))
        elif change.of_field:
            yield name, Reshape.of(schema.columns, [change]).values(schema.columns.field(name), values)
        elif change.kind != "drop":
            yield name, values
