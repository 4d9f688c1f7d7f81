"""The function that a streaming query calls with each micro-batch (`writeStream.foreachBatch`).

Spark numbers micro-batches 0, 1, 2, ... (epochs), writes down what each of them reads before it runs, and runs the last
one again with the same rows if it does not know how that ended. So a table has to recognise exactly one epoch: the one
it took last. The next one is new; anything else means that query and table do not belong together, and is refused:

| epoch                | the table has taken | what is done                                                       |
|----------------------|---------------------|--------------------------------------------------------------------|
| n                    | n - 1               | commit rows and epoch                                              |
| n                    | n                   | nothing: it was committed, and the query was stopped before it knew |
| 0                    | nothing             | commit: the query begins                                           |
| n > 0                | nothing             | refuse: its earlier rows went elsewhere (`first_epoch` says: fine)  |
| lower, or further on | n                   | refuse: another checkpoint, or epochs that did not come here       |

A query is known by its id, which lives in its checkpoint folder, or by a name. With a name its id is still compared
where Spark tells it, because a new checkpoint counts from 0 again.

Spark Connect sends the function to the server. It is then without its table, and opens the lake there by its path.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict
from zlib import crc32

from lithify.core.missing_columns import refuses_missing
from lithify.core.names import parse_table_name
from lithify.core.results import Commit
from lithify.errors import InvalidRequest
from lithify.options.table_options import MissingColumns
from lithify.streams.apply import BatchMode, Checkpoint, OnNullKeys, apply_batch, check_batch, checkpoint_of
from lithify.streams.exactly_once import check_feed
from lithify.streams.messages import Opening
from lithify.tables.handles import dropped
from lithify.text.debezium import OP, envelope_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lithify.streams.apply import Portion
    from lithify.write.access import TableAccess

_MODES: Mapping[BatchMode, int] = {"upsert": 0, "append": 1, "update": 2**34}


@dataclass(frozen=True)
class TakenBatch:
    """A micro-batch that is in the table."""

    query: str
    epoch: int
    commit: Commit
    seconds: float


OnBatch = Callable[[TakenBatch], None]


class SinkOptions(TypedDict, total=False):
    """What a stream of files is told as its sink is, word for word (`Table.stream_writer`)."""

    op_column: str | None
    envelope: str | None
    if_changed: bool
    missing: MissingColumns | None
    null_keys: OnNullKeys
    rows_max: int | None


def follows(what: str, epoch: int, taken: int | None, first_epoch: int = 0) -> int | None:
    """The epoch that the table must have taken last for this one to be committed; an error if this is not to be."""
    expected = None if epoch == 0 else epoch - 1
    if taken in (expected, epoch):
        return expected
    if taken is not None and taken > epoch:
        raise InvalidRequest(
            f"{what} has come to epoch {taken}, and now brings {epoch}: its checkpoint folder was set back or begun "
            "anew. Restore that folder; or start with a new one, and with another name if you give the query one"
        )
    if epoch == first_epoch:
        return taken
    seen = "has not begun" if taken is None else f"has come to epoch {taken}"
    raise InvalidRequest(
        f"{what} {seen}, and now brings {epoch}: epochs are missing, which happens when its checkpoint folder belongs "
        "to another table or the table was created anew. Start the query with a new checkpoint folder, so that it "
        "reads everything again; or, if rows of earlier epochs are not to be here, pass "
        f"first_epoch={epoch} to stream_writer"
    )


class StreamSink:
    """Get one from `Table.stream_writer`."""

    order: tuple[str, ...] = ()

    def __init__(
        self,
        table: TableAccess,
        mode: BatchMode,
        *,
        name: str | None = None,
        op_column: str | None = None,
        envelope: str | None = None,
        if_changed: bool = False,
        missing: MissingColumns | None = None,
        null_keys: OnNullKeys = "fail",
        rows_max: int | None = None,
        first_epoch: int = 0,
        on_batch: OnBatch | None = None,
    ) -> None:
        if envelope is not None:
            if op_column is not None:
                raise InvalidRequest("an envelope says itself what each message does: leave out op_column")
            schema = table.handles.schema()
            envelope_of(envelope, schema.columns, schema.key, schema.order_columns)
            op_column = OP
        if if_changed and mode != "upsert":
            raise InvalidRequest(f"if_changed goes with mode upsert, not with {mode}: leave it out")
        if missing is not None and mode == "update":
            raise InvalidRequest("missing says what becomes of columns that rows lack, and update leaves them: omit it")
        refuses_missing(table.handles.schema(), missing)  # a word that is none is refused now
        check_batch(table.handles.schema(), str(table.name), mode, op_column, null_keys)
        if name is not None:
            check_feed(f"stream.{name}")
        if rows_max is not None and rows_max < 0:
            raise InvalidRequest(f"rows_max {rows_max} is negative: give a number of rows, or 0 to always use Spark")
        if first_epoch < 0:
            raise InvalidRequest(f"first_epoch {first_epoch} is negative: epochs count from 0")
        runtime = table.runtime
        self.mode, self.name, self.op_column, self.null_keys = mode, name, op_column, null_keys
        self.rows_max = runtime.settings.stream_rows_max if rows_max is None else rows_max
        self.first_epoch, self.on_batch = first_epoch, on_batch
        self.envelope, self.if_changed, self.missing = envelope, if_changed, missing
        self.error: Exception | None = None
        self.quarantined = 0  # records of the newest batch that were set aside
        self._table: TableAccess | None = table
        self._opened_as = (runtime.root, str(table.name), table.incarnation)
        self._reopen = runtime.reopen

    def __repr__(self) -> str:
        return f"StreamSink({self._opened_as[1]!r}, mode={self.mode!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None, "on_batch": None, "error": None}

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        """Take one micro-batch, once. `error` keeps what went wrong: Spark only passes its text on."""
        started = time.monotonic()
        try:
            query = self._query(frame)
            commit = self.take(self._opened(frame), frame, epoch, query)
        except Exception as error:
            self.error = error
            raise
        if self.on_batch is not None:
            self.on_batch(TakenBatch(self.name or query or "", epoch, commit, time.monotonic() - started))

    def take(self, table: TableAccess, data: Portion, epoch: int, query: str | None) -> Commit:
        """Commit the rows of an epoch, unless that was done. `query`: the id of the query, where it is known."""
        feed = f"stream.{self.name or query}"
        before = follows(f"{feed} on table {table.name}", epoch, checkpoint_of(table, feed), self.first_epoch)
        checkpoint = Checkpoint(feed, epoch, before, self._settings(), query)
        info: dict[str, Any] = {}
        commit = apply_batch(
            table,
            lambda: self._portion(table, data, checkpoint, info),
            checkpoint=checkpoint,
            mode=self.mode,
            op_column=self.op_column,
            null_keys=self.null_keys,
            rows_max=self.rows_max,
            info=info,
            order=self.order,
            if_changed=self.if_changed,
            missing=self.missing,
        )
        self.quarantined = 0 if commit.replayed else info.get("quarantined", 0)
        return commit

    def _portion(self, table: TableAccess, data: Portion, checkpoint: Checkpoint, info: dict[str, Any]) -> Portion:
        """The rows of a batch that is new. `info` is what its commit will say besides."""
        if self.envelope is None:
            return data
        complete = refuses_missing(table.handles.changes.schema, self.missing) and self.mode != "update"
        whole = self.mode != "update"
        opening = Opening(
            table.handles, self.envelope, checkpoint, self.null_keys, self.rows_max, info, complete, whole
        )
        return opening.events(data)

    def _settings(self) -> int:
        """What must not change while a query lives, as one number. How null keys are treated may."""
        op_column = crc32(self.op_column.encode()) + 1 if self.op_column is not None else 0
        return _MODES[self.mode] + 2 * op_column

    def _query(self, frame: DataFrame) -> str | None:
        from lithify.spark.micro_batch import query_id

        query = query_id(frame)
        if query is None and self.name is None:
            raise InvalidRequest(
                "Spark does not tell here which streaming query a micro-batch belongs to: give the query a name of its "
                "own, stream_writer(name=...), and keep one name to one checkpoint folder"
            )
        return query

    def _opened(self, frame: DataFrame) -> TableAccess:
        root, name, incarnation = self._opened_as
        if self._table is None:
            assert self._reopen is not None, "only the writer of a lake's own table is sent elsewhere"
            self._table = self._reopen(root, name, frame.sparkSession)
        if self._table.incarnation != incarnation:
            raise dropped(parse_table_name(name))
        return self._table
