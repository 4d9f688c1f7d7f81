"""Commands that move a day of a table out of it as Parquet files, and into one."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from lithify.cli.command import Commands, ReasonOption, Session, TableArgument
from lithify.core.wording import plural

command = Commands("Rows")


@command("detach", local=True)
def detach(
    session: Session,
    name: TableArgument,
    day: Annotated[str, typer.Argument(metavar="DAY", help="A day that the table has, like 2026-11-15.")],
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="A new folder for its Parquet files.")],
    reason: ReasonOption = None,
) -> None:
    """Move a day's rows out of a table, into Parquet files of their own, with one commit.

    The files are complete and durable before the rows leave the table. They share their bytes with the table's history:
    copy them before you change them in place.

    Examples:
        lithify detach shop.orders 2026-01-31 /archive/orders/2026-01-31
    """
    with session.local_lake() as lake:
        with session.out.working(f"detaching {day}"):
            report = lake.table(name).detach(day, folder, reason=reason)
        document = {**dataclasses.asdict(report), "day": str(report.day)}
        rows, files = plural(report.rows, "row"), plural(report.files, "file")
        session.out.message(f"{rows} of {report.day} moved from {name} to {report.folder}, in {files}", document)


@command("attach", local=True)
def attach(
    session: Session,
    name: TableArgument,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="A folder of Parquet files, as detach writes it.")],
    batch_id: Annotated[
        str | None, typer.Option("--batch-id", metavar="ID", help="The same id again is answered, not written.")
    ] = None,
    reason: ReasonOption = None,
) -> None:
    """Take the rows of a folder of Parquet files into a table, with one commit. The files stay where they are.

    Examples:
        lithify attach shop.orders /archive/orders/2026-01-31 --batch-id january-31
    """
    with session.local_lake() as lake:
        with session.out.working(f"attaching {folder}"):
            commit = lake.table(name).attach(folder, batch_id, reason=reason)
        document = dataclasses.asdict(commit)
        session.out.message(f"{plural(commit.rows, 'row')} of {folder} in {name}, seq {commit.seq}", document)
