"""What a statement says, taken apart and nothing more: names, and the user's own words for conditions, values and
queries. The words are handed to the engine as they are: an expression means in a statement what it means in a SELECT.

Plain values that a query process can send back: no table is looked at here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lithify.core.names import quoted

# Columns of the rows that an INSERT brings, where ON CONFLICT names them: a column of the table without a name before
# it is the one that is there.
EXCLUDED = "_lithify_"


@dataclass(frozen=True)
class Target:
    """A table that is written to, and what the statement calls it."""

    name: str
    alias: str | None = None

    @property
    def relation(self) -> str:
        """As it stands in a FROM."""
        namespace, _, table = self.name.partition(".")
        return f"{quoted(namespace)}.{quoted(table)} AS {self.ref}"

    @property
    def called(self) -> str:
        return self.alias or self.name.partition(".")[2]

    @property
    def ref(self) -> str:
        """What stands before its columns."""
        return quoted(self.called)


@dataclass(frozen=True)
class Assignment:
    """`value` None: DEFAULT."""

    column: str
    value: str | None

    @property
    def text(self) -> str:
        """As it stands in a SELECT, where a default is put in behind it (`dml/assign.py`)."""
        return "NULL" if self.value is None else self.value


def defaulted(assignments: Sequence[Assignment]) -> frozenset[str]:
    """Columns that are to have their default."""
    return frozenset(item.column for item in assignments if item.value is None)


@dataclass(frozen=True)
class OnConflict:
    """`columns`: as they were named, perhaps none. `assignments` None: DO NOTHING."""

    columns: tuple[str, ...]
    assignments: tuple[Assignment, ...] | None
    where: str | None = None


@dataclass(frozen=True)
class Insert:
    """`columns` None: all of the table's, in their order. `source` is a whole query. `marked`: behind its
    columns stands one that says which of them are DEFAULT in a row (`value_rows.py`).
    """

    target: Target
    columns: tuple[str, ...] | None
    source: str
    on_conflict: OnConflict | None = None
    marked: bool = False


@dataclass(frozen=True)
class Update:
    target: Target
    assignments: tuple[Assignment, ...]
    source: str | None
    where: str | None
    prefix: str = ""


@dataclass(frozen=True)
class Delete:
    target: Target
    source: str | None
    where: str | None
    prefix: str = ""


@dataclass(frozen=True)
class When:
    """One WHEN of a MERGE. `assignments` None with update: SET *; `columns` None with insert: INSERT *, or those of the
    table if there are `values`, of which None is DEFAULT.
    """

    side: Literal["matched", "not matched", "not matched by source"]
    condition: str | None
    action: Literal["update", "delete", "insert", "nothing"]
    assignments: tuple[Assignment, ...] | None = None
    columns: tuple[str, ...] | None = None
    values: tuple[str | None, ...] | None = None


@dataclass(frozen=True)
class Merge:
    """`source` stands in a FROM without its name; the statement calls it `source_name`, and its columns by
    `source_columns` if it has any. `equal`: columns of the
    target that are equal to one of the source where `on` holds.
    """

    target: Target
    source: str
    source_name: str
    on: str
    whens: tuple[When, ...]
    source_columns: tuple[str, ...] = ()
    equal: tuple[tuple[str, str], ...] = ()
    prefix: str = ""


Value = str | int | float | bool | tuple[str, ...] | None


@dataclass(frozen=True)
class Constant:
    """A value as it was written. `kind`: number, text, bool or bytes (in hexadecimal digits)."""

    kind: Literal["number", "text", "bool", "bytes"]
    text: str


@dataclass(frozen=True)
class Column:
    """`type` as `core/type_text.py` spells it."""

    name: str
    type: str
    nullable: bool = True
    default: Constant | None = None


@dataclass(frozen=True)
class CreateTable:
    """`settings`: what WITH says, by its name. With a `source`, `columns` are those of the query."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    settings: tuple[tuple[str, Value], ...] = ()
    source: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True)
class AddColumn:
    name: str
    column: Column
    if_not_exists: bool = False


@dataclass(frozen=True)
class AlterColumn:
    """`kind` and `to` as `core/column_changes.py` has them; `default` goes with that kind, None: DROP DEFAULT."""

    name: str
    kind: Literal["default", "drop", "move", "relax", "rename", "require", "widen"]
    column: str
    to: str = ""
    if_exists: bool = False
    default: Constant | None = None


@dataclass(frozen=True)
class SetOptions:
    name: str
    settings: tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class DropTable:
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class Truncate:
    name: str


Writing = Insert | Update | Delete | Merge
Defining = CreateTable | AddColumn | AlterColumn | SetOptions | DropTable | Truncate
Statement = Writing | Defining
