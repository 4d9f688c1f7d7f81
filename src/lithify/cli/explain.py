"""`lithify explain`: what a query would read of each table, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lithify.cli.command import Commands, Session
from lithify.cli.sql import AsOfOption, QueryArgument, query_text
from lithify.cli.values import bytes_cell
from lithify.core.json_out import jsonable
from lithify.core.wording import plural

if TYPE_CHECKING:
    from lithify.core.results import TableExplanation

command = Commands("Queries")


@command("explain")
def explain(session: Session, query: QueryArgument, as_of: AsOfOption = None) -> None:
    """Show what a SELECT would read: per table the snapshot, files, row groups and bytes, and why. Nothing is run.

    Each condition is shown with what it rules out by itself, so what two of them rule out may overlap. Bytes are those
    of whole row groups: a query of few columns reads less.

    Examples:
        lithify explain "select * from shop.orders where id = 42"
        lithify explain - --json < report.sql
    """
    text = query_text(query, 'lithify explain "select * from shop.orders"')
    with session.lake() as lake:
        found = lake.explain(text, as_of=as_of)
    if session.as_json:
        session.out.record("", {}, {"query": text, "tables": [jsonable(table) for table in found]})
        return
    for number, table in enumerate(found):
        if number:
            session.out.note("")
        session.out.record(table.table, _fields(table), {})
    if not found:
        session.out.note("the query reads no table")


def _fields(table: TableExplanation) -> dict[str, Any]:
    versions = f"base version {table.base_version:,}, changes version {table.changes_version:,}"
    return {
        "snapshot": f"seq {table.seq:,}, {versions}",
        "files": f"{table.files_read:,} of {table.files_total:,}",
        "row groups": f"{table.groups_read:,} of {table.groups_total:,}",
        "bytes": f"{bytes_cell(table.bytes_read)} of {bytes_cell(table.bytes_total)}",
        "why": _why(table),
        "pending": _pending(table),
        "sidecar": _sidecar(table),
    }


def _why(table: TableExplanation) -> tuple[str, ...]:
    if table.from_sidecar:
        return ("the sidecar alone answers this",)
    if table.hot:
        return ("its rows are in memory",)
    nothing = "nothing by its bounds" if table.otherwise_ruled_out else "nothing"
    told = [f"{each.text} rules out {_groups(each.groups_ruled_out, nothing)}" for each in table.conditions]
    if table.otherwise_ruled_out:
        more = _groups(table.otherwise_ruled_out, nothing)
        told.append(f"bloom filters or partition values rule out {more}{' more' if _by_bounds(table) else ''}")
    if table.note:
        told.append(table.note)
    return tuple(told) or ("nothing is known of the files yet" if table.files_total else "there are no files yet",)


def _groups(count: int, nothing: str) -> str:
    return plural(count, "row group") if count else nothing


def _by_bounds(table: TableExplanation) -> bool:
    return any(condition.groups_ruled_out for condition in table.conditions)


def _pending(table: TableExplanation) -> str:
    if not table.pending_files:
        return "nothing"
    amount = f"{plural(table.pending_rows, 'change')} in {plural(table.pending_files, 'file')}"
    if table.pending_beside == table.pending_files:
        return f"{amount}, read like files of base"
    if table.pending_beside:
        amount += f" ({table.pending_beside:,} of them read like files of base)"
    if table.resolved is None:
        return f"{amount}, merged while base is read"
    return f"{amount}, {'resolved already' if table.resolved else 'to be resolved first'}"


def _sidecar(table: TableExplanation) -> str:
    if not table.files_unknown:
        return "complete"
    build = f"`lithify index build {table.table}`"
    if table.files_unknown == table.files_total:
        return f"none yet; {build} builds it"
    return f"{plural(table.files_unknown, 'file')} missing; {build} completes it"
