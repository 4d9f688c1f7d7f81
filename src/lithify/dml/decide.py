"""What a statement writes, decided on one attempt's snapshots: rows and keys, and how many of each kind.

| statement     | its rows                                                     | refused                               |
|---------------|--------------------------------------------------------------|---------------------------------------|
| INSERT        | those of its query                                           | keys that are there, or come twice    |
| … ON CONFLICT | new ones; those that are there are left, or updated          | keys that come twice, with DO UPDATE  |
| UPDATE        | those that its WHERE holds for: what is set of few, or whole | a row that two rows of FROM want      |
| DELETE        | the keys that its WHERE holds for                            |                                       |
| MERGE         | source and target matched once; then one query for each WHEN | a row that two source rows change     |

Values see the rows as they are before the statement. A row that is written wins against every other version of it,
whatever `order_by` says: it was decided on the newest one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa

from lithify.core.arrow_rows import anti_join
from lithify.core.ops import Op
from lithify.core.partial_rows import patch_columns
from lithify.core.schema import TableSchema
from lithify.core.sql_text import words_of
from lithify.dml import checks, texts
from lithify.dml.assign import assigned, first_double, keys_assigned, lines_assigned
from lithify.dml.attempt import Attempt
from lithify.dml.keyless import delete_rows, update_rows
from lithify.merge.pending import can_stay_open
from lithify.sql.statements.model import EXCLUDED, Delete, Insert, Merge, OnConflict, Update, When, Writing, defaulted
from lithify.sql.statements.named_keys import named_keys
from lithify.write.bulk import Produce

# So many rows are updated by lines that say the columns which are set alone, so that nothing else of them is read.
# More are written whole: who reads them then need not look each of them up.
LINES_MAX = 10_000


@dataclass(frozen=True)
class Effect:
    """What is written, and what that is in the statement's words. `at_seq`: it holds only while nothing else is written
    to the table. `produce` writes files of more rows than belong into memory, in place of `parts`.
    """

    parts: dict[Op, pa.Table]
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    at_seq: bool = True
    produce: Produce | None = None


def decide(statement: Writing, attempt: Attempt) -> Effect:
    match statement:
        case Insert():
            return _insert(statement, attempt)
        case Update():
            return _update(statement, attempt)
        case Delete():
            return _delete(statement, attempt)
        case Merge():
            return _merge(statement, attempt)


# -- INSERT


def _insert(statement: Insert, attempt: Attempt) -> Effect:
    schema, name = attempt.schema, attempt.name
    columns, conflict = checks.columns_to_insert(statement, schema, name), statement.on_conflict
    found = attempt.ask(statement.source)
    checks.check_width(found.num_columns - statement.marked, columns, name)
    rows = assigned(found, columns, schema, marked=statement.marked)
    if not schema.keyed:
        parts = {Op.UPSERT: rows} if rows.num_rows else {}
        return Effect(parts, inserted=rows.num_rows, at_seq=attempt.reads_target)
    key = list(schema.key)
    if conflict is not None and conflict.assignments is None:
        rows = _first_of_each(rows, key)
    elif (twice := first_double(rows, key)) is not None:
        raise checks.given_twice(name, twice)
    alone = rows.num_rows <= LINES_MAX and can_stay_open(schema)
    read = key if conflict is None else _read_of_conflicts(conflict, schema, alone=alone)
    there = attempt.found(rows.select(key), dict(zip(key, key, strict=True)), read)
    if there.num_rows and conflict is None:
        raise checks.there_already(name, there.select(key))
    new = anti_join(rows, there, key)
    if not there.num_rows or conflict is None or conflict.assignments is None:
        return Effect(written(schema, [new], None), inserted=new.num_rows)
    attempt.check_read()
    again = anti_join(rows, new, key)
    excluded = again.rename_columns([EXCLUDED + column for column in again.column_names])
    names = texts.given_by(schema, conflict.assignments) if alone else schema.names
    equal = [EXCLUDED + column for column in key]
    query = texts.conflicts(statement.target, schema, names, conflict.assignments, conflict.where, equal)
    asked, defaults = attempt.ask(query, given=excluded, found=there), defaulted(conflict.assignments)
    if alone:
        lines = lines_assigned(asked, names, schema, defaults)
        parts = written(schema, [new], None)
        if lines.num_rows:
            parts[Op.UPDATE] = lines
        return Effect(parts, inserted=new.num_rows, updated=lines.num_rows)
    changed = assigned(asked, names, schema, defaults)
    return Effect(written(schema, [new, changed], None), inserted=new.num_rows, updated=changed.num_rows)


def _read_of_conflicts(conflict: OnConflict, schema: TableSchema, *, alone: bool) -> Sequence[str]:
    """The columns of rows that are there which say what becomes of them."""
    if conflict.assignments is None:
        return schema.key
    said = [conflict.where or "", *(item.text for item in conflict.assignments)]
    return columns_in(said, schema) if alone else schema.names


def _first_of_each(rows: pa.Table, key: list[str]) -> pa.Table:
    if first_double(rows, key) is None:
        return rows
    numbered = rows.append_column("_lithify_line", pa.array(range(rows.num_rows), pa.int64()))
    first = numbered.group_by(key).aggregate([("_lithify_line", "min")]).column("_lithify_line_min")
    return rows.take(first.combine_chunks().sort())


# -- UPDATE and DELETE


def _update(statement: Update, attempt: Attempt) -> Effect:
    schema = attempt.schema
    checks.check_assignments(statement.assignments, schema, attempt.name)
    if not schema.keyed:
        return _keyless_update(statement, attempt)
    alone = can_stay_open(schema)
    said = [item.text for item in statement.assignments] if alone else None
    defaults = defaulted(statement.assignments)
    statement, found = _looked_up(statement, attempt, said)
    if alone:
        lines = attempt.ask(
            f"{texts.update(statement, schema, alone=True, found=bool(found))} LIMIT {LINES_MAX + 1}", **found
        )
        if lines.num_rows <= LINES_MAX:
            lines = lines_assigned(lines, texts.given_by(schema, statement.assignments), schema, defaults)
            _check_once(lines, schema, attempt.name)
            return Effect({Op.UPDATE: lines} if lines.num_rows else {}, updated=lines.num_rows)
    asked = attempt.ask(texts.update(statement, schema, found=bool(found)), **found)
    rows = assigned(asked, schema.names, schema, defaults)
    _check_once(rows, schema, attempt.name)
    return Effect(written(schema, [rows], None), updated=rows.num_rows)


def _delete(statement: Delete, attempt: Attempt) -> Effect:
    schema = attempt.schema
    if not schema.keyed:
        gone, count = delete_rows(attempt, statement)
        return Effect({Op.DELETE: gone} if count else {}, deleted=count)
    statement, found = _looked_up(statement, attempt, [])
    asked = attempt.ask(texts.delete(statement, schema.key, found=bool(found)), **found)
    keys = keys_assigned(asked, schema.key, schema)
    return Effect({Op.DELETE: keys} if keys.num_rows else {}, deleted=keys.num_rows)


_Changing = TypeVar("_Changing", Update, Delete)


def _looked_up(statement: _Changing, attempt: Attempt, said: list[str] | None) -> tuple[_Changing, dict[str, pa.Table]]:
    """Where its condition names keys: their rows, and what it asks of these. `said`: texts besides the condition that
    tell which columns are needed (None: all are).
    """
    schema = attempt.schema
    if statement.where is None or statement.source:
        return statement, {}
    named = named_keys(statement.where, schema.select(schema.key), statement.target.called, LINES_MAX)
    if named is None:
        return statement, {}
    attempt.check_read()
    attempt.reads_target = True
    columns = schema.names if said is None else columns_in(tuple(itertools.chain(said, (named.rest or "",))), schema)
    found = attempt.found(named.keys, {name: name for name in schema.key}, columns)
    return replace(statement, where=named.rest), {"found": found}


def _keyless_update(statement: Update, attempt: Attempt) -> Effect:
    gone, come, count = update_rows(attempt, statement)
    parts = {op: rows for op, rows in ((Op.DELETE, gone), (Op.UPSERT, come)) if rows.num_rows}
    return Effect(parts, updated=count)


def _check_once(rows: pa.Table, schema: TableSchema, name: str) -> None:
    if (twice := first_double(rows, schema.key)) is not None:
        raise checks.changed_twice(name, twice)


# -- MERGE


def _merge(statement: Merge, attempt: Attempt) -> Effect:
    schema, name = attempt.schema, attempt.name
    checks.check_mergeable(schema, name)
    source = attempt.ask(texts.source(statement))
    checks.check_source(source.column_names)
    whens = [checks.spelled(when, statement, source.column_names, schema) for when in statement.whens]
    for when in whens:
        checks.check_when(when, schema, name)
    by = {column: other for column, other in statement.equal if other in source.column_names}
    given = {"given": source}
    picked = bool(by) and not any(when.side == "not matched by source" for when in whens)
    alone = picked and can_stay_open(schema) and source.num_rows <= LINES_MAX
    if picked:
        attempt.check_read()
        given["found"] = attempt.found(source, by, mentioned(statement, whens, schema) if alone else schema.names)
    select = texts.MergeTexts(statement, schema, found=picked, alone=alone)
    taken: dict[str, list[pa.Table]] = {"insert": [], "update": [], "delete": [], "lines": []}
    for number, when in enumerate(whens):
        if when.action == "nothing":
            continue
        found, defaults = attempt.ask(select.rows(when, whens[:number]), **given), checks.defaulted_of(when, schema)
        if when.action == "delete":
            rows = keys_assigned(found, schema.key, schema)
        elif when.action == "update" and alone:
            assert when.assignments is not None
            taken["lines"].append(lines_assigned(found, texts.given_by(schema, when.assignments), schema, defaults))
            continue
        else:
            columns = when.columns if when.action == "insert" and when.columns is not None else schema.names
            checks.check_width(found.num_columns, list(columns), name)
            rows = assigned(found, columns, schema, defaults)
        taken[when.action].append(rows)
    return _merged(taken, attempt)


def _merged(taken: dict[str, list[pa.Table]], attempt: Attempt) -> Effect:
    schema, key = attempt.schema, list(attempt.schema.key)
    empty = schema.columns.empty_table()
    new, changed = (pa.concat_tables([empty, *taken[action]]) for action in ("insert", "update"))
    lines = pa.concat_tables([patch_columns(schema).empty_table(), *taken["lines"]])
    gone = pa.concat_tables([schema.select(key).empty_table(), *taken["delete"]])
    met = [part.select(key).cast(gone.schema) for part in (changed, lines)]
    _check_once(pa.concat_tables([*met, gone]), schema, attempt.name)
    if (twice := first_double(new, key)) is not None:
        raise checks.inserted_twice(attempt.name, twice)
    there = attempt.found(new.select(key), dict(zip(key, key, strict=True)), key) if new.num_rows else new
    there = anti_join(there, gone, key)
    if there.num_rows:
        raise checks.not_matched(attempt.name, there.select(key))
    parts = written(schema, [new, changed], gone)
    if lines.num_rows:
        parts[Op.UPDATE] = lines
    updated = changed.num_rows + lines.num_rows
    return Effect(parts, inserted=new.num_rows, updated=updated, deleted=gone.num_rows)


_EVERY_COLUMN = re.compile(r"[.(]\s*\*")


def mentioned(statement: Merge, whens: Sequence[When], schema: TableSchema) -> list[str]:
    """The key, and the columns of the target that the words of a MERGE may mean: all of them where a `*` may stand for
    columns. What stands behind the name of the source is none of them.
    """
    said = [statement.on]
    for when in whens:
        values = [item.text for item in when.assignments or ()]
        said += [when.condition or "", *values, *(value or "" for value in when.values or ())]
    return columns_in(said, schema, statement.source_name)


def columns_in(said: Sequence[str], schema: TableSchema, other: str | None = None) -> list[str]:
    """The key, and the columns that these texts may mean. `other`: the name of somebody else's."""
    text = " ".join(f"{each}\n" for each in said)
    if _EVERY_COLUMN.search(text):
        return schema.names
    words = [word.strip('"').replace('""', '"').lower() for _, word in words_of(text).tokens]
    of_other = (other or "").lower(), "."
    meant = {word for at, word in enumerate(words) if at < 2 or (words[at - 2], words[at - 1]) != of_other}
    return [name for name in schema.names if name in schema.key or name.lower() in meant]


def written(schema: TableSchema, rows: Sequence[pa.Table], gone: pa.Table | None) -> dict[Op, pa.Table]:
    """What goes and comes again is written anew."""
    together = pa.concat_tables(rows)
    if gone is not None and gone.num_rows and together.num_rows:
        gone = anti_join(gone, together, schema.key)
    op = Op.REPLACE if schema.order_by else Op.UPSERT
    parts = {op: together, Op.DELETE: gone}
    return {op: table for op, table in parts.items() if table is not None and table.num_rows}
