"""UPDATE and DELETE on a table with no key, whose rows are told apart by their values alone.

A tombstone names a whole row, and hides every row that is equal to it and came before its commit; what the same commit
brings must not be equal to one. So of each value it counts how often it is there and how often it is to be. More of it
are appended, none of it is a tombstone; fewer, but some, cannot be said in one commit, and is refused.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa

from lithify.core.arrow_rows import lookup, take
from lithify.core.schema import TableSchema, check_key_type
from lithify.dml import texts
from lithify.dml.assign import assigned
from lithify.errors import InvalidRequest
from lithify.sql.statements.model import Delete, Update, defaulted

_COUNT = "_lithify_count"


class Asking(Protocol):
    """One try at a statement, whichever engine reads for it."""

    @property
    def schema(self) -> TableSchema: ...

    @property
    def name(self) -> str: ...

    def ask(self, query: str) -> pa.Table: ...


def delete_rows(attempt: Asking, statement: Delete) -> tuple[pa.Table, int]:
    """The values that go, and how many rows have them."""
    schema = attempt.schema
    _check(schema, attempt.name, statement.source)
    rows = assigned(attempt.ask(texts.delete(statement, schema.names)), schema.names, schema)
    return _counted(rows, schema).select(schema.names).cast(schema.columns), rows.num_rows


def update_rows(attempt: Asking, statement: Update) -> tuple[pa.Table, pa.Table, int]:
    """The values that go, the rows that come, and how many rows are updated."""
    schema = attempt.schema
    _check(schema, attempt.name, statement.source)
    both = attempt.ask(texts.update(statement, schema, beside=True))
    width = len(schema.names)
    before = assigned(both.select(list(range(width, 2 * width))), schema.names, schema)
    after = assigned(both.select(list(range(width))), schema.names, schema, defaulted(statement.assignments))
    gone, come = _net(before, after, schema, attempt.name)
    return gone, come, before.num_rows


def _check(schema: TableSchema, name: str, source: str | None) -> None:
    if source is not None:
        raise InvalidRequest(
            f"table {name} has no key, so its rows cannot be told apart in a join: use a subquery in WHERE or in the "
            "values, or give the table a key"
        )
    for column in schema.columns:
        check_key_type(column, f"UPDATE and DELETE go by whole rows on a table with no key, such as {name}:")


def _counted(rows: pa.Table, schema: TableSchema) -> pa.Table:
    ones = rows.append_column(_COUNT, pa.array([1] * rows.num_rows, pa.int64()))
    counted = ones.group_by(schema.names).aggregate([(_COUNT, "sum")])
    return counted.rename_columns([*schema.names, _COUNT])


def _net(before: pa.Table, after: pa.Table, schema: TableSchema, name: str) -> tuple[pa.Table, pa.Table]:
    there, wanted = _counted(before, schema), _counted(after, schema)
    line = lookup(there, wanted, schema.names)
    to_be = np.where(line >= 0, wanted.column(_COUNT).to_numpy()[line] if wanted.num_rows else 0, 0)
    have = there.column(_COUNT).to_numpy()
    if ((to_be > 0) & (to_be < have)).any():
        raise InvalidRequest(
            f"table {name} has no key, and of rows that are equal this UPDATE would leave some and change others, or "
            "make others equal to them: such rows cannot be told apart; give the table a key"
        )
    gone = there.filter(pa.array(to_be == 0)).select(schema.names)
    back = lookup(wanted, there, schema.names)
    more = wanted.column(_COUNT).to_numpy() - np.where(back >= 0, have[back] if len(have) else 0, 0)
    lines = np.repeat(np.arange(wanted.num_rows), np.maximum(more, 0))
    return gone.cast(schema.columns), take(wanted.select(schema.names), lines).cast(schema.columns)
