"""Records that were set aside: list, show, retry, purge."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from lithify.cli.command import Commands, MissingColumnsOption, Session, TableArgument
from lithify.cli.output import Column, long_text
from lithify.cli.values import bytes_cell, count_cell
from lithify.core.wording import plural
from lithify.errors import InvalidRequest

command = Commands(
    "Rows", "quarantine", "Records that a load, a stream or a pipeline has set aside: list, show, retry, purge."
)

SetArgument = Annotated[str, typer.Argument(metavar="SET", help="Their name, as `lithify quarantine list` shows it.")]
SETS = (
    Column("name", "set", long_text, style="bold", wrap=True),
    Column("records", "records", count_cell, right=True),
    Column("bytes", "size", bytes_cell, right=True),
    Column("created", "set aside", lambda time: f"{time:%Y-%m-%d %H:%M}"),
)
RECORDS = (
    Column("line", "line", right=True),
    Column("column", "column"),
    Column("why", "why", long_text, wrap=True),
    Column("record", "record", long_text, wrap=True),
)


@command("list", plain=True)
def list_sets(session: Session, name: TableArgument) -> None:
    """List what was set aside, by name, oldest first. A set is one load, one batch, or one run of a step.

    Examples:
        lithify quarantine list shop.orders
    """
    with session.lake() as lake:
        found = [asdict(each) for each in lake.table(name).quarantine()]
        session.out.listing(SETS, found, {"table": name, "quarantine": found}, empty="nothing was set aside")


@command("show", plain=True)
def show(
    session: Session,
    name: TableArgument,
    set_name: SetArgument,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Records at most.")] = 20,
    after: Annotated[int, typer.Option("--after", min=0, help="Pass over so many.")] = 0,
) -> None:
    """Show records of a set: as they came, where they stood, and why they are no rows.

    Examples:
        lithify quarantine show shop.orders stream.orders-17
    """
    with session.lake() as lake:
        records: list[dict[str, Any]] = [
            asdict(each) for each in lake.table(name).quarantined(set_name, limit + 1, after)
        ]
        more, shown = len(records) > limit, records[:limit]
        document = {"table": name, "set": set_name, "records": shown, "more": more}
        session.out.listing(RECORDS, shown, document, empty="no records behind these")
        if files := sorted({each["file"] for each in shown if each["file"]}):
            session.out.note(f"from {', '.join(files)}")
        if more:
            session.out.note(f"there are more: --after {after + limit}")


@command("retry", plain=True)
def retry(session: Session, name: TableArgument, set_name: SetArgument, missing: MissingColumnsOption = None) -> None:
    """Try records of a set once more, after the table was changed so that they fit. What fits is written in one commit.

    Records that are JSON objects can be tried. A line of CSV does not say which value belongs to which column: correct
    it where it came from, and load that.

    Examples:
        lithify quarantine retry shop.orders stream.orders-17
        lithify quarantine retry shop.orders 5f3a0c1d9e7b2a46 --missing null
    """
    with session.lake() as lake:
        done = lake.table(name).retry_quarantine(set_name, missing=missing)
    left = f"; {plural(done.left, 'record')} still {'does' if done.left == 1 else 'do'} not fit" if done.left else ""
    notes = [f"the first of them: {done.why}"] if done.why is not None else []
    session.out.message(
        f"{plural(done.written, 'record')} written to {name}{left}", asdict(done), *notes, healthy=done.written > 0
    )


@command("purge", plain=True)
def purge(
    session: Session,
    name: TableArgument,
    set_name: Annotated[str | None, typer.Argument(metavar="SET", help="Only these.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that was set aside.")] = False,
    older_than_hours: Annotated[
        float | None, typer.Option("--older-than-hours", metavar="N", help="Only what was set aside so long ago.")
    ] = None,
) -> None:
    """Delete records that were set aside: those of a set, what is old, or all. There is no way back.

    Examples:
        lithify quarantine purge shop.orders stream.orders-17
        lithify quarantine purge shop.orders --older-than-hours 720
    """
    if sum((set_name is not None, everything, older_than_hours is not None)) != 1:
        raise InvalidRequest("say which records go: the name of a set, --older-than-hours N, or --all")
    with session.lake() as lake:
        gone = lake.table(name).purge_quarantine(set_name, older_than_hours)
    records = sum(each.records for each in gone)
    document = {"table": name, "quarantine": [asdict(each) for each in gone]}
    session.out.message(f"{plural(records, 'record')} of {plural(len(gone), 'set')} deleted", document)
