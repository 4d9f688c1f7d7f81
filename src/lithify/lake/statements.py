"""SQL that writes, on a lake: who may, what it reads with, and which table it is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lithify.core.arguments import check_batch_id, check_text
from lithify.core.lake_methods import Wish
from lithify.core.results import Executed
from lithify.errors import Forbidden, InvalidRequest
from lithify.sql.parameters import Parameters, bound
from lithify.sql.statements.first_word import is_statement

if TYPE_CHECKING:
    from lithify.lake.internals import LakeInternals
    from lithify.sql.query_run import QueryRun

# Whether somebody has a scope (read, write, admin) for a table.
May = Callable[[Any, str], bool]


def execute(
    lake: LakeInternals,
    text: str,
    parameters: Parameters,
    wish: Wish,
    *,
    may: May | None = None,
    within: QueryRun | None = None,
) -> Executed:
    """`within`: what is in the user's words is parsed, planned and run in processes of their own."""
    # Whoever only reads does not wait for the parser.
    from lithify.dml.attempt import Reading
    from lithify.dml.run import run
    from lithify.lake.definitions import define_by
    from lithify.sql.statements.model import CreateTable, Delete, Target, Truncate, Writing

    check_text("a statement", text)
    check_batch_id(wish.batch_id)
    if not is_statement(text):
        raise InvalidRequest(
            "this is no statement that writes (INSERT, UPDATE, DELETE, MERGE, CREATE, ALTER, DROP, TRUNCATE): ask it "
            "with sql"
        )
    runtime = lake.runtime
    may_read = None if may is None else lambda table: may("read", table)
    text, table_of = lake.planned_in(bound(text, parameters), None, may_read)
    statement = runtime.serving.parsed(text, within)
    if isinstance(statement, Truncate):
        statement = Delete(Target(statement.name), None, None)
    rows_max = runtime.settings.statement_rows_max
    reading = Reading(runtime.serving, table_of, lake.names, rows_max, may_read, within)
    if not isinstance(statement, Writing):
        _check(may, "write" if isinstance(statement, CreateTable) else "admin", statement.name)
        if wish.dry_run or wish.batch_id is not None:
            raise InvalidRequest("a dry run and a batch id are for statements that write rows")
        return define_by(lake, statement, reading, wish.info)
    _check(may, "write", statement.target.name)
    return run(statement, lake.table(statement.target.name), reading, wish)


def _check(may: May | None, scope: str, name: str) -> None:
    if may is not None and not may(scope, name):
        what = "write to" if scope == "write" else "change or drop"
        raise Forbidden(f"this token may not {what} table {name} (scope {scope}): use one that may", table=name)
