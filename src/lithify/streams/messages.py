"""Messages in an envelope, as a broker hands them over, opened to events of a table (`text/debezium.py`).

A message is a JSON text in the column `value`, as Spark's Kafka source has it, with its `key` beside it if there is
one; or the parsed parts of it, `before`, `after` and `op`, which are written as JSON again so that there is one way to
read them. Few are opened here, many on the executors by the same function. What is no row is refused, or set aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lithify.core.missing_columns import needed_columns
from lithify.core.partial_rows import input_columns
from lithify.errors import InvalidRequest
from lithify.files.text_files import EXAMPLES_MAX, refused
from lithify.text.debezium import OP, envelope_of
from lithify.text.json_lines import message_batch
from lithify.text.text_rows import BadRecord, Target, bad_line
from lithify.write.quarantine import set_aside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lithify.core.schema import TableSchema
    from lithify.streams.apply import Checkpoint, OnNullKeys, Portion
    from lithify.tables.handles import Handles

VALUE, KEY = "value", "key"
_THEN = "Correct them at their source, or set such messages aside with null_keys='quarantine'"


@dataclass(frozen=True)
class Opening:
    """One portion of messages on its way to events. `info`: what its commit will say besides; `complete`: rows that
    lack a column are no events; `whole`: events are rows, and have the defaults of columns that they lack; otherwise
    each tells which columns it gives.
    """

    handles: Handles
    envelope: str
    checkpoint: Checkpoint
    null_keys: OnNullKeys
    rows_max: int
    info: dict[str, Any]
    complete: bool = False
    whole: bool = True

    @property
    def _schema(self) -> TableSchema:
        return self.handles.changes.schema

    @property
    def _label(self) -> str:
        return f"{self.checkpoint.feed} {self.checkpoint.after}"

    def events(self, data: Portion) -> Portion:
        """The table's columns and `OP`, and `GIVEN` where events need not be whole."""
        target = target_of(self.envelope, self._schema, self.complete, self.whole)
        if isinstance(data, pa.Table):
            return self._few(data, target)
        from lithify.spark.messages import messages_of, opened
        from lithify.spark.micro_batch import fetched

        messages = messages_of(data)
        found = fetched(messages, self.rows_max)
        return self._few(found, target) if found is not None else self._many(opened(messages, target, self._label))

    def _few(self, messages: pa.Table, target: Target) -> pa.Table:
        keys = _texts(messages, KEY) if KEY in messages.column_names else None
        batch = message_batch(_texts(messages, VALUE), self._label, target, keys)
        if batch.bad and self.null_keys == "fail":
            raise self._refused(batch.bad, len(batch.bad))
        self.info.update(set_aside(self.handles, self._folder, [bad_line(record) for record in batch.bad]))
        return batch.rows

    def _many(self, frame: DataFrame) -> DataFrame:
        from lithify.spark.messages import bad_messages, good_events, write_bad

        bad = bad_messages(frame, EXAMPLES_MAX)
        if bad and self.null_keys == "fail":
            records = [BadRecord(self._label, None, column, why, record) for column, why, record in bad]
            raise self._refused(records, None)
        self.info.update(
            set_aside(self.handles, self._folder, (lambda folder: write_bad(frame, folder)) if bad else ())
        )
        return good_events(frame)

    @property
    def _folder(self) -> str:
        return f"{self.checkpoint.feed}-{self.checkpoint.after}-unfit"

    def _refused(self, bad: Sequence[BadRecord], count: int | None) -> InvalidRequest:
        return refused(list(bad), len(bad) if count is None else count, str(self.handles.name), _THEN)


def target_of(envelope: str, schema: TableSchema, complete: bool = False, whole: bool = True) -> Target:
    optional = frozenset[str]() if whole else left_out_freely(schema)
    opener = envelope_of(envelope, schema.columns, schema.key, schema.order_columns, optional)
    required = tuple(f.name for f in schema.columns if not f.nullable and f.name not in schema.key)
    columns = (schema.columns if whole else input_columns(schema.columns)).append(pa.field(OP, pa.string()))
    named = needed_columns(schema) if complete else ()
    defaults = schema.column_defaults if whole else {}
    return Target(columns, required, op_column=OP, envelope=opener, named=named, defaults=defaults)


def left_out_freely(schema: TableSchema) -> frozenset[str]:
    """Columns that a line of an update may lack whatever else it gives."""
    grouped = {name for order, members in schema.order_groups.items() for name in (order, *members)}
    return frozenset(schema.names) - {*schema.key, *schema.order_columns} - grouped


def _texts(messages: pa.Table, name: str) -> list[bytes | None]:
    if name not in messages.column_names:
        raise InvalidRequest(
            f"the messages have no column {name!r}: it holds each message as JSON, as Spark's Kafka source hands it "
            f"over; they have {', '.join(messages.column_names)}"
        )
    column = messages.column(name)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or _is_binary(column.type)):
        raise InvalidRequest(f"column {name!r} of the messages is {column.type}, not JSON as text or bytes")
    return column.cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
