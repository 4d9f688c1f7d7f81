"""Commands that write base files anew: compact, optimize."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lithify.cli.command import (
    HANDLED,
    AllOption,
    Commands,
    DryRunOption,
    Session,
    TableArgument,
    TablesArgument,
    TierOption,
)
from lithify.cli.fold import show_rows
from lithify.cli.output import TABLE, TIME, WHY, Column, Report, counts, sizes
from lithify.cli.values import count_cell
from lithify.core.wording import plural
from lithify.errors import InvalidRequest, LithifyError

if TYPE_CHECKING:
    from lithify.cli.command import AnyTable
    from lithify.core.results import CompactReport, PlannedCompaction
    from lithify.maintenance.plans import CompactPlan

command = Commands("Maintenance")
NAMES_MAX = 5


def _partition(values: Mapping[str, str | None] | None) -> str:
    return ", ".join(f"{name}={value if value is not None else 'null'}" for name, value in (values or {}).items())


PLANNED = (
    TABLE,
    Column("origin", "what"),
    Column("partition", "partition", _partition),
    Column("files", "files", count_cell, right=True),
    *sizes(bytes_in="bytes to read", bytes_out="to write"),
    Column("gain", "gain"),
    WHY,
)
DONE = (
    TABLE,
    Column("origin", "what"),
    Column("partition", "partition", _partition),
    *counts(files_read="files", files_written="became", rows="rows"),
    *sizes(bytes_read="bytes read", bytes_written="written"),
    Column("engine", "by"),
    TIME,
)


@command("compact")
def compact(
    session: Session,
    names: TablesArgument = None,
    all_tables: AllOption = False,
    tier: TierOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Merge small base files into larger ones, as far as tiers and packing call for it now. The same rows stay.

    Readers and writers go on meanwhile; a compaction that dies harms nothing. `lithify run` does this by itself.

    Examples:
        lithify compact shop.orders
        lithify compact --all --dry-run
        lithify compact shop.events --tier hourly
    """
    if bool(names) == all_tables:
        raise InvalidRequest("say which table to compact, or --all")
    rows: list[dict[str, Any]] = []
    idle: dict[str, list[str]] = {}
    with session.lake() as lake, session.out.working("compacting") as report:
        for name in lake.tables() if all_tables else list(names or ()):
            report(f"compacting {name}", None)
            try:
                table = lake.table(name)
                found = (
                    _planned(table.compact(tier or None, dry_run=True))
                    if dry_run
                    else _done(table, lambda t, told: t.compact(tier or None, progress=told), report, "compacting")
                )
                rows += found
                for why in () if found else _why_idle(table, tier or ()):
                    idle.setdefault(why, []).append(name)
            except LithifyError as error:
                if not all_tables:
                    raise
                rows.append({"table": name, "error": error.message})
    told = {} if all_tables and rows else idle
    notes = [f"nothing to do for {_names(tables)}: {why}" for why, tables in told.items()]
    empty = "nothing to compact: no partition has enough small files of enough age"
    _show(session, rows, dry_run, "compactions", empty, notes)


def _why_idle(table: AnyTable, tiers: Sequence[str]) -> list[str]:
    """Of a table behind a service, only the server's settings could tell."""
    from lithify.lake.maintenance import why_idle
    from lithify.lake.table import Table

    found = [why_idle(table, tier) for tier in tiers] if isinstance(table, Table) else []
    return list(dict.fromkeys(why for each in found for why in each))


def _names(tables: Sequence[str]) -> str:
    more = len(tables) - NAMES_MAX
    return ", ".join(tables[:NAMES_MAX]) + (f" and {plural(more, 'more table')}" if more > 0 else "")


@command("optimize")
def optimize(
    session: Session,
    name: TableArgument,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="COLUMNS", help="Columns to order by, e.g. customer,placed. Default: key, time."),
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Write base anew in z-order, so that filters on any of these columns read few files. The same rows stay.

    Examples:
        lithify optimize shop.orders
        lithify optimize shop.orders --by customer,placed --dry-run
    """
    columns = [part.strip() for part in by.split(",")] if by is not None else None
    with session.lake() as lake, session.out.working(f"ordering {name}") as report:
        table = lake.table(name)
        rows = (
            _planned(table.optimize(columns, dry_run=True))
            if dry_run
            else _done(table, lambda t, told: t.optimize(columns, progress=told), report, "ordering")
        )
    why = "nothing to order: base holds no rows yet" + ("; without --dry-run pending ones are folded first" * dry_run)
    _show(session, rows, dry_run, "optimizations", why)


def _planned(plans: Sequence[CompactPlan | PlannedCompaction]) -> list[dict[str, Any]]:
    return [asdict(plan.summary()) for plan in plans]


def _done(
    table: AnyTable,
    work: Callable[[AnyTable, Callable[[CompactReport], None]], Sequence[CompactReport]],
    report: Report,
    what: str,
) -> list[dict[str, Any]]:
    import dataclasses

    files = 0

    def told(batch: CompactReport) -> None:
        nonlocal files
        files += batch.files_read
        report(f"{what} {table.name}: {plural(files, 'file')} done", None)

    rows = [dataclasses.asdict(batch) for batch in work(table, told)]
    return [{**row, "error": "; ".join(row["problems"])} if row["problems"] else row for row in rows]


def _show(
    session: Session, rows: list[dict[str, Any]], dry_run: bool, name: str, empty: str, notes: Sequence[str] = ()
) -> None:
    document = {"dry_run": dry_run, name: rows, **({"notes": notes} if notes else {})}
    if session.as_json or rows or not notes:
        failed = show_rows(session, PLANNED if dry_run else DONE, rows, document, empty)
    else:
        failed = False
    for note in notes:
        session.out.note(note)
    if failed:
        raise typer.Exit(HANDLED)
