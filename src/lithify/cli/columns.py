"""Commands about the columns of a table: add, rename, drop, alter."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lithify.cli.command import Commands, Session, TableArgument
from lithify.cli.tables import describe_document, typed_default
from lithify.core.type_text import parse_column, type_name
from lithify.errors import InvalidRequest

command = Commands("Lake and tables")


@command("add-column", local=True)
def add_column(
    session: Session,
    name: TableArgument,
    column: Annotated[str, typer.Argument(metavar="COLUMN:TYPE", help="e.g. note:string")],
    default: Annotated[
        str | None, typer.Option("--default", metavar="VALUE", help="What it gets in rows that are written without it.")
    ] = None,
) -> None:
    """Add a nullable column. Rows that are there already read null in it.

    Examples:
        lithify add-column shop.orders note:string
        lithify add-column shop.orders status:string --default new
    """
    field = parse_column(column)
    with session.local_lake() as lake:
        lake.table(name).add_column(field, default if default is None else typed_default(default, field.name, [field]))
        session.out.message(
            f"column {field.name} ({type_name(field.type)}) added to {name}", describe_document(lake, name)
        )


@command("rename-column", local=True)
def rename_column(
    session: Session,
    name: TableArgument,
    column: Annotated[str, typer.Argument(metavar="COLUMN")],
    to: Annotated[str, typer.Argument(metavar="NEW_NAME")],
) -> None:
    """Call a column by another name. Base is written anew for it.

    Examples:
        lithify rename-column shop.orders amount total
    """
    with session.local_lake() as lake:
        with session.out.working(f"renaming {column}"):
            seq = lake.table(name).rename_column(column, to)
        session.out.message(f"column {column} of {name} is {to} from seq {seq} on", describe_document(lake, name))


@command("drop-column", local=True)
def drop_column(
    session: Session, name: TableArgument, column: Annotated[str, typer.Argument(metavar="COLUMN")]
) -> None:
    """Take a column out of a table. Versions before still show it.

    Examples:
        lithify drop-column shop.orders note
    """
    with session.local_lake() as lake:
        seq = lake.table(name).drop_column(column)
        session.out.message(f"column {column} of {name} is gone from seq {seq} on", describe_document(lake, name))


@command("alter-column", local=True)
def alter_column(
    session: Session,
    name: TableArgument,
    column: Annotated[str, typer.Argument(metavar="COLUMN")],
    type: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="A type that holds all values of the old one.")
    ] = None,
    nullable: Annotated[
        bool | None, typer.Option("--null/--not-null", help="Whether it may be null; not, only if no row is.")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="COLUMN", help="The column that it comes behind.")
    ] = None,
    first: Annotated[bool, typer.Option("--first", help="It becomes the first column.")] = False,
    default: Annotated[
        str | None, typer.Option("--default", metavar="VALUE", help="What it gets in rows that are written without it.")
    ] = None,
    no_default: Annotated[bool, typer.Option("--no-default", help="It has no default from now on.")] = False,
) -> None:
    """Give a column a wider type or a default, say whether it may be null, or move it: one at a time.

    Examples:
        lithify alter-column shop.orders amount --type int64
        lithify alter-column shop.orders note --not-null
        lithify alter-column shop.orders note --after id
        lithify alter-column shop.orders status --default new
    """
    if no_default and default is not None:
        raise InvalidRequest("--default gives a default, and --no-default takes it away: pass one of them")
    with session.local_lake() as lake:
        table = lake.table(name)
        wanted: Any = None if no_default else ...
        if default is not None:
            wanted = typed_default(default, column, table.definition.columns)
        with session.out.working(f"changing {column}"):
            seq = table.alter_column(column, type=type, nullable=nullable, after=after, first=first, default=wanted)
        session.out.message(f"column {column} of {name} is changed from seq {seq} on", describe_document(lake, name))
