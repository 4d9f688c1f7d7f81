"""Commands that keep tables in shape: fold, vacuum."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lithify.cli.command import HANDLED, AllOption, Commands, DryRunOption, Session, TablesArgument
from lithify.cli.output import TABLE, TIME, WHY, Column, Report, counts, sizes, texts
from lithify.cli.values import bytes_cell, count_cell
from lithify.errors import InvalidRequest, LithifyError

if TYPE_CHECKING:
    from lithify.cli.command import AnyTable

command = Commands("Maintenance")


DONE = (
    TABLE,
    *counts(
        change_rows="changes",
        inserted="inserted",
        updated="updated",
        deleted="deleted",
        final_rows="rows now",
        files_linked="linked",
        files_written="written",
    ),
    Column("bytes_written", "bytes", bytes_cell, right=True),
    Column("engine", "by"),
    TIME,
)
PLANNED = (
    TABLE,
    *counts(change_rows="changes", files_linked="files to link", files_rewritten="to rewrite", files_kept="to keep"),
    *sizes(bytes_read="bytes to read", bytes_written="to write, at most"),
    *texts(engine="by", gain="gain"),
    WHY,
)
VACUUMED = (
    TABLE,
    Column("files", "files", count_cell, right=True),
    Column("bytes_freed", "bytes freed", bytes_cell, right=True),
    *counts(orphans="never committed", kept_by_pins="kept by pins", kept_by_jobs="kept by jobs"),
    TIME,
)


@command("fold")
def fold(
    session: Session, names: TablesArgument = None, all_tables: AllOption = False, dry_run: DryRunOption = False
) -> None:
    """Merge pending changes into base. Readers and writers go on meanwhile; a fold that dies harms nothing.

    Examples:
        lithify fold shop.orders
        lithify fold shop.orders --dry-run
        lithify fold --all
    """
    rows = on_each(session, names, all_tables, "fold", lambda table, _: table.fold(True) if dry_run else table.fold())
    columns = PLANNED if dry_run else DONE
    failed = show_rows(session, columns, rows, {"dry_run": dry_run, "folds": rows}, empty="no tables to fold")
    if failed:
        raise typer.Exit(HANDLED)


@command("vacuum")
def vacuum(
    session: Session,
    names: TablesArgument = None,
    all_tables: AllOption = False,
    retain_hours: Annotated[
        float,
        typer.Option("--retain-hours", metavar="HOURS", help="Versions of this many hours stay readable; at least 1."),
    ] = 168,
    apply: Annotated[bool, typer.Option("--apply", help="Delete. Without it, only show what would go.")] = False,
) -> None:
    """Delete files that no version of the last hours needs. Shows them only, unless --apply is given.

    Files of pinned snapshots, running jobs and writes under way stay. A vacuum that dies harms nothing.

    Examples:
        lithify vacuum shop.orders
        lithify vacuum shop.orders --apply
        lithify vacuum --all --retain-hours 24 --apply
    """
    rows = on_each(session, names, all_tables, "vacuum", lambda table, _: table.vacuum(retain_hours, dry_run=not apply))
    document = {"dry_run": not apply, "retain_hours": retain_hours, "vacuums": rows}
    failed = show_rows(session, VACUUMED, rows, document, empty="no tables to vacuum")
    if not apply and any(row.get("files") for row in rows):
        what = "--all" if all_tables else " ".join(names or ())
        session.out.note(
            f"This was a dry run: nothing was deleted. `lithify vacuum {what} --retain-hours {retain_hours:g} --apply` "
            "deletes these files."
        )
    elif not apply and not failed:
        session.out.note("This was a dry run; there is nothing to delete.")
    if failed:
        raise typer.Exit(HANDLED)


def on_each(
    session: Session, names: list[str] | None, all_tables: bool, verb: str, work: Callable[[AnyTable, Report], Any]
) -> list[dict[str, Any]]:
    """What `work` answers for each table, as rows; it may report how far it is. With --all one table's error is a row
    and does not stop the rest.
    """
    if bool(names) == all_tables:
        raise InvalidRequest(f"say which table to {verb}, or --all")
    rows: list[dict[str, Any]] = []
    with session.lake() as lake, session.out.working(verb) as report:
        chosen = lake.tables() if all_tables else list(names or ())
        for number, name in enumerate(chosen):
            report(f"{verb} {name}", number / len(chosen) if len(chosen) > 1 else None)
            try:
                rows.append(dataclasses.asdict(work(lake.table(name), report)))
            except LithifyError as error:
                if not all_tables:
                    raise
                rows.append({"table": name, "error": error.message})
    return rows


def show_rows(
    session: Session, columns: Sequence[Column], rows: list[dict[str, Any]], document: dict[str, Any], empty: str
) -> bool:
    """A line for what was done to each table, and below them what went wrong; returns whether anything did."""
    done = [row for row in rows if row.keys() - {"table", "error"}]
    problems = [line for row in rows for line in _problems(row)]
    if session.as_json or done or not problems:
        session.out.listing(columns, done, document, empty=empty)
    session.out.problems(problems)
    return bool(problems)


def _problems(row: dict[str, Any]) -> list[str]:
    told = row.get("problems") or [text for text in (row.get("problem"), row.get("error")) if text]
    return [text if row["table"] in text else f"{row['table']}: {text}" for text in told]
