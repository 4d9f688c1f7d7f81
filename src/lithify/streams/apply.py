"""Rows that arrive as a feed, from a stream or a pipeline: rows and how far the feed has come in one commit.

A portion is resolved to one row and one operation per key (`merge/events.py`) and committed together with its progress
(`exactly_once.py`), so that a portion that is sent again after a crash changes nothing. Portions of few rows are
fetched from Spark and take the way of every small write; others are written by Spark's executors. Either way it is one
commit with the same outcome. A portion with no rows is a commit too: it says how far the feed has come.

Records with a null in their key belong to no row, and an event whose operation nobody knows does nothing that could be
done. They fail the portion, or are set aside in the table's `quarantine`
folder under the feed's name and number, before the commit: done again, the same files are written again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.json_out import dumps
from lithify.core.missing_columns import refuses_missing
from lithify.core.names import GIVEN
from lithify.core.ops import WORDS, Op
from lithify.core.results import Commit
from lithify.core.rows import check_convertible, check_rows, fitted
from lithify.core.schema import TableSchema, nullable
from lithify.core.wording import plural
from lithify.errors import InvalidRequest, LimitExceeded
from lithify.merge.events import check_events, resolve_events, with_null_key
from lithify.options.table_options import MissingColumns
from lithify.streams.exactly_once import Checkpoint, check_feed, recall
from lithify.tables.handles import Handles
from lithify.write.allow_updates import allow_ordered_deletes, allow_updates
from lithify.write.conditions import Write
from lithify.write.decided import write_changed
from lithify.write.quarantine import set_aside
from lithify.write.small_writes import Request

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lithify.write.access import TableAccess

    Portion: TypeAlias = pa.Table | DataFrame

BatchMode = Literal["append", "upsert", "update"]
OnNullKeys = Literal["fail", "quarantine"]
_STRANGE = "its operation is not known"


def checkpoint_of(table: TableAccess, feed: str) -> int | None:
    """How far a feed has come into the table, as the last commit of it remembers; None: it has not begun."""
    check_feed(feed)
    handles = table.handles
    with handles.changes.log.lock:
        handles.schema()
        known = recall(handles.changes, feed)
        return None if known is None else known.after


def apply_batch(
    table: TableAccess,
    data: Portion | Callable[[], Portion],
    *,
    checkpoint: Checkpoint,
    mode: BatchMode,
    op_column: str | None = None,
    null_keys: OnNullKeys = "fail",
    rows_max: int | None = None,
    operation: str = "stream",
    info: Mapping[str, Any] | None = None,
    order: Sequence[str] = (),
    if_changed: bool = False,
    missing: MissingColumns | None = None,
) -> Commit:
    """Commit a portion of a feed, exactly once. More than `rows_max` rows of a DataFrame are written by Spark.

    Who has asked how far the feed has come has looked at the table; the commit looks at it again if it has moved since.
    A function as `data` is called only if the portion is new, and may still add to `info`. `order`: columns of a
    DataFrame that go before the place of a row in it in the order of arrival, and are not stored. `if_changed`: rows
    that are there already are not written. `missing`: what becomes of columns that rows lack.
    """
    handles = table.handles
    schema = handles.changes.schema
    check_batch(schema, str(table.name), mode, op_column, null_keys)
    with handles.changes.log.lock:
        if (answer := Write(operation, conditions=(checkpoint,)).before(handles.changes)) is not None:
            return answer
    said = {"feed": checkpoint.feed, "portion": checkpoint.after, "detail": f"{checkpoint.feed} {checkpoint.after}"}
    portion = data() if callable(data) else data
    info = {**said, **(info or {})}
    complete = mode != "update" and refuses_missing(schema, missing)
    arrival = _Arrival(handles, schema, checkpoint, op_column, null_keys, tuple(order), operation, info, mode, complete)
    if arrival.partial:
        allow_updates(handles)
    if not isinstance(portion, pa.Table):
        limit = handles.runtime.settings.stream_rows_max if rows_max is None else rows_max
        rows = arrival.fetched(portion, limit)
        if rows is None:
            if if_changed:
                raise LimitExceeded(
                    f"a portion of {checkpoint.feed} has more than {limit:,} rows, which if_changed does not compare: "
                    "let the source hand over fewer at a time, or raise rows_max (the setting stream_rows_max)",
                    limit="rows",
                )
            return arrival.bulk(portion)
        portion = rows
    request = arrival.request(portion)
    allow_ordered_deletes(handles, request.parts)
    return write_changed(table, request.write, request.parts) if if_changed else table.write(request)


def check_batch(schema: TableSchema, table: str, mode: str, op_column: str | None, null_keys: str) -> None:
    if mode not in get_args(BatchMode):
        raise InvalidRequest(f"mode {mode!r} is not known: use {', '.join(get_args(BatchMode)[:-1])} or update")
    if null_keys not in get_args(OnNullKeys):
        raise InvalidRequest(f"null_keys {null_keys!r} is not known: use {' or '.join(get_args(OnNullKeys))}")
    if mode != "append" and not schema.keyed:
        raise InvalidRequest(f"table {table} has no key, so there is nothing to {mode} by: use mode append")
    if mode == "append" and op_column is not None:
        raise InvalidRequest(f"op_column {op_column!r} says which events delete, and mode append only adds: use upsert")


@dataclass(frozen=True)
class _Arrival:
    """One portion on its way."""

    handles: Handles
    schema: TableSchema
    checkpoint: Checkpoint
    op_column: str | None
    null_keys: OnNullKeys
    order: tuple[str, ...]
    operation: str
    info: Mapping[str, Any]
    mode: BatchMode
    complete: bool

    @property
    def partial(self) -> bool:
        return self.mode == "update"

    def fetched(self, frame: DataFrame, rows_max: int) -> pa.Table | None:
        """The rows, if they are few; what does not fit by its type alone is refused first."""
        from lithify.spark.micro_batch import columns_of, fetched

        columns = columns_of(frame)
        passing = [*self.order, GIVEN] if self.partial else [*self.order]
        if self.op_column is not None:
            check_events(self.schema, columns, self.op_column)
            passing.append(self.op_column)
        wanted = nullable(self.schema.columns) if self.partial else self.schema.columns
        given = pa.schema([f for f in columns if f.name not in passing])
        check_convertible(given, wanted, self.schema.column_defaults)
        return fetched(frame, rows_max, self.order, ordered=self.schema.keyed)

    def request(self, rows: pa.Table) -> Request:
        """A small write of the rows. Those with no key are refused, or set aside now."""
        lines: list[dict[str, str]] = []
        if (bad := with_null_key(rows, self.schema.key)).any():
            records = _plain(rows.filter(pa.array(bad)))
            if self.null_keys == "fail":
                raise _refused(str(self.handles.name), self.checkpoint, records)
            lines = [{"why": self._why, "record": dumps(row)} for row in records.to_pylist()]
            rows = rows.filter(pa.array(~bad))
        if self.null_keys == "quarantine" and (strange := self._strange(rows)).any():
            records = _plain(rows.filter(pa.array(strange)))
            lines += [{"why": _STRANGE, "record": dumps(row)} for row in records.to_pylist()]
            rows = rows.filter(pa.array(~strange))
        write = self._write(set_aside(self.handles, _folder_name(self.checkpoint), lines))
        return Request(write, self._parts(rows))

    def _strange(self, rows: pa.Table) -> np.ndarray:
        """Which events say something that is no operation."""
        if self.op_column is None or self.op_column not in rows.column_names:
            return np.zeros(rows.num_rows, np.bool_)
        words = rows.column(self.op_column).cast(pa.string())
        known = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(words)), pa.array(list(WORDS)))
        return ~np.asarray(known.to_numpy(), np.bool_)

    def _write(self, aside: Mapping[str, Any]) -> Write:
        info, count = self.info, self.info.get("quarantined", 0) + aside.get("quarantined", 0)
        if count:
            detail = f"{info.get('detail', '')}, {plural(count, 'record')} set aside"
            info = {**info, **aside, "quarantined": count, "detail": detail}
        return Write(self.operation, info, (self.checkpoint,), self.complete)

    def _parts(self, rows: pa.Table) -> Mapping[Op, pa.Table]:
        if self.schema.keyed:
            return resolve_events(self.schema, rows, self.op_column, partial=self.partial, complete=self.complete)
        if not rows.num_rows:
            return {}
        whole = fitted(rows, self.schema)
        check_rows(whole, self.schema)
        return {Op.UPSERT: whole}

    def bulk(self, frame: DataFrame) -> Commit:
        from lithify.spark.micro_batch import null_keyed, strange_events, write_records
        from lithify.write.bulk import write_events, write_frame

        if not self.schema.keyed:
            return write_frame(self.handles, frame.drop(*self.order), self._write({}))
        aside: Mapping[str, Any] = {}
        if self.null_keys == "quarantine":
            bad, frame = null_keyed(frame, self.schema.key)
            if self.op_column is not None:
                strange, frame = strange_events(frame, self.op_column)
                bad = bad.unionAll(strange)
            why = self._why if self.op_column is None else f"{self._why}, or {_STRANGE}"
            records = partial(write_records, bad.drop(*self.order), why)
            aside = set_aside(self.handles, _folder_name(self.checkpoint), records)
        write = self._write(aside)
        return write_events(self.handles, frame, write, self.op_column, self.order, partial=self.partial)

    @property
    def _why(self) -> str:
        return f"the key ({', '.join(self.schema.key)}) is null or has a null in it"


# -- records that are set aside


def _plain(records: pa.Table) -> pa.Table:
    return records.drop_columns([GIVEN]) if GIVEN in records.column_names else records


def _folder_name(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.feed}-{checkpoint.after}"


def _refused(table: str, checkpoint: Checkpoint, records: pa.Table) -> InvalidRequest:
    said = f"{records.num_rows} records of {checkpoint.feed} {checkpoint.after} have a null in the key of table {table}"
    then = "nothing was written: correct them, or set such records aside with null_keys='quarantine'"
    first = dumps(records.slice(0, 1).to_pylist()[0])
    shown = first if len(first) <= 120 else first[:117] + "..."
    return InvalidRequest(f"{said}, the first one {shown}; {then}", public=f"{said}; {then}")


__all__ = ["BatchMode", "Checkpoint", "OnNullKeys", "apply_batch", "check_batch", "checkpoint_of", "set_aside"]
