"""`lithify index build|rebuild|inspect|check`: the index, which knows every footer of a table's Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lithify.cli.command import HANDLED, AllOption, Commands, Session, TableArgument, TablesArgument
from lithify.cli.fold import on_each, show_rows
from lithify.cli.output import TABLE, TIME, Column, counts
from lithify.cli.values import bytes_cell, count_cell
from lithify.core.json_out import jsonable
from lithify.core.wording import plural

if TYPE_CHECKING:
    from lithify.index.rebuild import FileOrder, IndexFacts

command = Commands(
    "Maintenance", group="index", help="The index, which plans queries without opening files: build, inspect, check."
)
PATHS_SHOWN_MAX = 20
SkipOption = Annotated[
    bool, typer.Option("--skip-corrupt", help="Go on without files that cannot be read, and name them.")
]


def _count(paths: Sequence[str] | None) -> str:
    return count_cell(len(paths or ()))


BUILT = (TABLE, *counts(files="files", added="added now"), Column("skipped", "skipped", _count, right=True), TIME)
CHECKED = (
    TABLE,
    Column("files", "files", count_cell, right=True),
    Column("missing", "without entry", _count, right=True),
    Column("extra", "entries too many", _count, right=True),
    Column("different", "different", _count, right=True),
    TIME,
)
PROBLEMS = {
    "skipped": "cannot be read and was skipped",
    "missing": "has no entry",
    "extra": "has an entry and is no file of the table any more",
    "different": "differs from its entry, or cannot be read",
}


@command("build", local=True)
def build(
    session: Session, names: TablesArgument = None, all_tables: AllOption = False, skip_corrupt: SkipOption = False
) -> None:
    """Read the footers that the index does not know yet, and write down what they say. Data is never touched.

    Only needed for tables that were adopted or written before there was an index, and even those are indexed in the
    background when they are read. Interrupt it at any time: the next build goes on where this one stopped.

    Examples:
        lithify index build shop.orders
        lithify index build --all --skip-corrupt
    """
    rows = on_each(session, names, all_tables, "index", lambda table, report: table.build_index(skip_corrupt, report))
    _show_built(session, rows)


@command("rebuild", local=True)
def rebuild(
    session: Session, names: TablesArgument = None, all_tables: AllOption = False, skip_corrupt: SkipOption = False
) -> None:
    """Forget what the index says, and read every footer again. Data is never touched; queries go on meanwhile.

    Examples:
        lithify index rebuild shop.orders
        lithify index rebuild --all
    """
    rows = on_each(session, names, all_tables, "index", lambda table, report: table.rebuild_index(skip_corrupt, report))
    _show_built(session, rows)


def _show_built(session: Session, rows: list[dict[str, Any]]) -> None:
    failed = show_rows(session, BUILT, rows, {"builds": rows}, empty="no tables to index")
    for row in rows:
        _show_paths(session, row, "skipped")
    if failed:
        raise typer.Exit(HANDLED)


@command("inspect", local=True)
def inspect(session: Session, name: TableArgument) -> None:
    """Show what a table's index holds: versions, blocks, files, row groups, bytes, order of rows, columns.

    Examples:
        lithify index inspect shop.orders --json
    """
    with session.local_lake() as lake:
        found = lake.table(name).inspect_index()
    if session.as_json:
        session.out.record("", {}, jsonable(found))
        return
    for log, facts in (("base", found.base), ("changes", found.changes)):
        if log == "changes":
            session.out.note("")
        session.out.record(f"{name}, {log}", {label: value for label, value in _fields(facts).items() if value}, {})


def _fields(facts: IndexFacts | None) -> dict[str, Any]:
    if facts is None:
        return {"sidecar": "none yet"}
    return {
        "sidecar": facts.path,
        "format": f"version {facts.format_version}, features {facts.features:#x}",
        "log versions": _span(facts.versions),
        "blocks": count_cell(facts.blocks),
        "files": count_cell(facts.files),
        "row groups": count_cell(facts.groups),
        "bytes": f"{bytes_cell(facts.bytes)}, {facts.dead_bytes / max(facts.bytes, 1):.0%} of it dead",
        "rows sorted by": _orders(facts.orders),
        "columns": ", ".join(f"{column} ({kind})" for column, kind in facts.columns),
    }


def _orders(orders: Sequence[FileOrder]) -> str:
    """Nothing where no file states an order."""
    if not any(order.columns for order in orders):
        return ""
    if len(orders) == 1:
        return ", ".join(orders[0].columns)
    return "; ".join(f"{', '.join(o.columns) or 'no order known'} ({plural(o.files, 'file')})" for o in orders)


def _span(versions: Sequence[int]) -> str:
    """Newest first; a build adds states of the version that is there."""
    if versions[0] == versions[-1]:
        return f"{versions[0]:,}"
    return f"{plural(len(versions), 'state')} from {versions[-1]:,} to {versions[0]:,}"


@command("check", local=True)
def check(session: Session, names: TablesArgument = None, all_tables: AllOption = False) -> None:
    """Compare every entry of the index with the real footer. Exit code 1 if there is any difference.

    Files without an entry and entries of files that the table no longer has only cost time; `lithify index build` puts
    both right. A file that differs from its entry was damaged, removed or replaced, or the entry is wrong. Look at the
    file first. If it is as it should be, `lithify index build` reads what was replaced, `lithify index rebuild` all.

    Examples:
        lithify index check shop.orders
        lithify index check --all --json
    """
    rows = on_each(session, names, all_tables, "check", lambda table, report: table.check_index(report))
    failed = show_rows(session, CHECKED, rows, {"checks": rows}, empty="no tables to check")
    found = [_show_paths(session, row, field) for row in rows for field in ("missing", "extra", "different")]
    for row in rows:
        if row.get("missing") or row.get("extra"):
            session.out.note(f"`lithify index build {row['table']}` brings its entries up to date")
    if failed or any(found):
        raise typer.Exit(HANDLED)


def _show_paths(session: Session, row: dict[str, Any], field: str) -> bool:
    """Name the files, and answer whether there are any."""
    paths = row.get(field) or ()
    if field == "missing" and paths and len(paths) == row["files"] > 1:
        session.out.problems([f"{row['table']}: none of its {row['files']:,} files has an entry"])
        return True
    session.out.problems([f"{path} {PROBLEMS[field]}" for path in paths[:PATHS_SHOWN_MAX]])
    if len(paths) > PATHS_SHOWN_MAX:
        session.out.note(f"… and {plural(len(paths) - PATHS_SHOWN_MAX, 'more file')}; --json names them all")
    return bool(paths)
