"""The SELECTs that a statement reads with, in the statement's own words.

Columns of an answer are told by their place alone. The rows that an INSERT or a MERGE brings are read once and then
stand in these texts as a table of their own (`given.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lithify.core.names import quoted
from lithify.core.schema import TableSchema
from lithify.sql.statements.model import Assignment, Delete, Merge, Target, Update, When

# Where given rows stand. No table of a lake has such a name.
GIVEN_NAMESPACE = "_lithify"
GIVEN, FOUND, CONSTANTS = "given", "found", "constants"


def named(name: str) -> str:
    return f"{quoted(GIVEN_NAMESPACE)}.{quoted(name)}"


def given(name: str, alias: str) -> str:
    return f"{named(name)} AS {quoted(alias)}"


def written(target: Target, names: Sequence[str], assignments: Sequence[Assignment]) -> str:
    """These columns of the rows as they are to be."""
    values = {item.column: item.text for item in assignments}
    return _listed([f"({values[name]}\n)" if name in values else f"{target.ref}.{quoted(name)}" for name in names])


def given_by(schema: TableSchema, assignments: Sequence[Assignment]) -> list[str]:
    """The key, and the columns that are assigned to, in the table's order."""
    given = {*schema.key, *(item.column for item in assignments)}
    return [name for name in schema.names if name in given]


def update(
    statement: Update, schema: TableSchema, *, beside: bool = False, alone: bool = False, found: bool = False
) -> str:
    """`beside`: each row as it is, behind what it is to be. `alone`: of what it is to be, `given_by` alone. `found`: of
    rows that were picked out of the target before.
    """
    target = statement.target
    tables = _together(_there(target) if found else target.relation, statement.source)
    names = given_by(schema, statement.assignments) if alone else schema.names
    columns = written(target, names, statement.assignments)
    if beside:
        columns += ", " + of(target.ref, schema.names, len(schema.names))
    return f"{statement.prefix}SELECT {columns} FROM {tables}{where(statement.where)}"


def delete(statement: Delete, columns: Sequence[str], *, found: bool = False) -> str:
    target = statement.target
    tables = _together(_there(target) if found else target.relation, statement.source)
    distinct = "DISTINCT " if statement.source is not None else ""
    return f"{statement.prefix}SELECT {distinct}{of(target.ref, columns)} FROM {tables}{where(statement.where)}"


def conflicts(
    target: Target,
    schema: TableSchema,
    names: Sequence[str],
    assignments: Sequence[Assignment],
    condition: str | None,
    excluded: Sequence[str],
) -> str:
    """These columns of rows that are there and come again, as DO UPDATE has them. `excluded`: the names that the key
    has among the rows that come.
    """
    same = " AND ".join(
        f'{target.ref}.{quoted(name)} = "excluded".{quoted(other)}'
        for name, other in zip(schema.key, excluded, strict=True)
    )
    tables = f"{_there(target)} JOIN {given(GIVEN, 'excluded')} ON {same}"
    return f"SELECT {written(target, names, assignments)} FROM {tables}{where(condition)}"


def source(statement: Merge) -> str:
    columns = f"({', '.join(map(quoted, statement.source_columns))})" if statement.source_columns else ""
    return f"{statement.prefix}SELECT * FROM {statement.source} AS {quoted(statement.source_name)}{columns}"


class MergeTexts:
    """Of a MERGE whose source has been read. `found`: its rows are matched with rows that were picked out of the target
    before, and not with the target itself. `alone`: of rows that are updated `given_by` is told alone.
    """

    def __init__(self, statement: Merge, schema: TableSchema, *, found: bool, alone: bool = False) -> None:
        self._on, self._target, self._schema, self._alone = statement.on, statement.target, schema, alone
        self._there = _there(statement.target) if found else statement.target.relation
        self._source = given(GIVEN, statement.source_name)
        self._source_ref = quoted(statement.source_name)

    def _joined(self, side: str) -> str:
        on = f"ON ({self._on}\n)"
        match side:
            case "matched":
                return f"{self._there} JOIN {self._source} {on}"
            case "not matched":
                return f"{self._source} LEFT ANTI JOIN {self._there} {on}"
        return f"{self._there} LEFT ANTI JOIN {self._source} {on}"

    def rows(self, when: When, before: Sequence[When]) -> str:
        """What one WHEN writes or deletes: of the rows that none before it has taken."""
        conditions = [f"({when.condition}\n)"] if when.condition is not None else []
        conditions += [f"({other.condition}\n) IS NOT TRUE" for other in before if other.side == when.side]
        condition = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {self._columns(when)} FROM {self._joined(when.side)}{condition}"

    def _columns(self, when: When) -> str:
        if when.action == "delete":
            return of(self._target.ref, self._schema.key)
        if when.action == "update":
            assert when.assignments is not None
            names = given_by(self._schema, when.assignments) if self._alone else self._schema.names
            return written(self._target, names, when.assignments)
        assert when.values is not None
        return _listed(["NULL" if value is None else f"({value}\n)" for value in when.values])


def found(target: str, columns: Sequence[str], by: Mapping[str, str], pruned: str) -> str:
    """Rows of the target that equal a given one in some columns: column → the given one's. `pruned`: a condition that
    holds for all of them.
    """
    same = " AND ".join(f't.{quoted(name)} = "g".{quoted(other)}' for name, other in by.items())
    names = ", ".join(quoted(other) for other in by.values())
    distinct = f"(SELECT DISTINCT {names} FROM {given(GIVEN, GIVEN)})"
    return f'SELECT {of("t", columns)} FROM {target} AS t JOIN {distinct} AS "g" ON {same} WHERE {pruned}'


def of(ref: str, columns: Sequence[str], first: int = 0) -> str:
    return _listed([f"{ref}.{quoted(name)}" for name in columns], first)


def where(condition: str | None) -> str:
    return "" if condition is None else f" WHERE ({condition}\n)"  # a comment at its end must not swallow the bracket


def _there(target: Target) -> str:
    """The rows of it that were found, under its name."""
    return given(FOUND, target.called)


def _listed(values: Sequence[str], first: int = 0) -> str:
    """Each under a name of its own: two columns of a join may have the same."""
    return ", ".join(f"{value} AS {quoted(f'_{number}')}" for number, value in enumerate(values, first))


def _together(target: str, others: str | None) -> str:
    return target if others is None else f"{target}, {others}"
