"""Commands that keep tables in shape: fold."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from lithify.cli.command import HANDLED, Session, command
from lithify.cli.output import Column
from lithify.cli.values import human_bytes, human_seconds
from lithify.errors import InvalidRequest, LithifyError

PANEL = "Upkeep"


def _count(value: Any) -> str:
    return "" if value is None else f"{value:,}"


def _bytes(value: Any) -> str:
    return "" if value is None else human_bytes(value)


DONE = (
    Column("table", "table", style="bold"),
    Column("change_rows", "changes", _count, right=True),
    Column("inserted", "inserted", _count, right=True),
    Column("updated", "updated", _count, right=True),
    Column("deleted", "deleted", _count, right=True),
    Column("final_rows", "rows now", _count, right=True),
    Column("files_linked", "linked", _count, right=True),
    Column("files_written", "written", _count, right=True),
    Column("bytes_written", "bytes", _bytes, right=True),
    Column("engine", "by"),
    Column("seconds", "time", lambda s: "" if s is None else human_seconds(s), right=True),
)
PLANNED = (
    Column("table", "table", style="bold"),
    Column("change_rows", "changes", _count, right=True),
    Column("files_linked", "files to link", _count, right=True),
    Column("files_rewritten", "to rewrite", _count, right=True),
    Column("files_kept", "to keep", _count, right=True),
    Column("bytes_read", "bytes to read", _bytes, right=True),
    Column("engine", "by"),
)
PROBLEM = Column("error", "problem", style="red")


def fold(
    session: Session,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="The tables to fold.")] = None,
    all_tables: Annotated[bool, typer.Option("--all", metavar="", help="Fold every table of the lake.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar="", help="Show what would be done, and do nothing.")
    ] = False,
) -> None:
    """Merge pending changes into base. Readers and writers go on meanwhile; a fold that dies harms nothing."""
    if bool(names) == all_tables:
        raise InvalidRequest("say which table to fold, or --all")
    rows: list[dict[str, Any]] = []
    with session.lake() as lake, session.out.working("folding") as report:
        chosen = lake.tables() if all_tables else list(names or ())
        for number, name in enumerate(chosen):
            report(f"folding {name}", number / len(chosen) if len(chosen) > 1 else None)
            try:
                table = lake.table(name)
                rows.append(dataclasses.asdict(table.fold(dry_run=True) if dry_run else table.fold()))
            except LithifyError as error:
                if not all_tables:
                    raise
                rows.append({"table": name, "error": error.message})
    failed = any("error" in row for row in rows)
    columns = [*(PLANNED if dry_run else DONE), *([PROBLEM] if failed else [])]
    session.out.listing(columns, rows, {"dry_run": dry_run, "folds": rows}, empty="no tables to fold")
    if failed:
        raise typer.Exit(HANDLED)


def register(app: typer.Typer) -> None:
    command(
        app,
        "fold",
        panel=PANEL,
        examples="lithify fold shop.orders\nlithify fold shop.orders --dry-run\nlithify fold --all",
    )(fold)
