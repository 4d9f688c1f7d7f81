"""Names for versions of a table: tag, tags, untag."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from lithify.cli.command import Commands, Session, TableArgument
from lithify.cli.output import Column
from lithify.cli.sql import AsOfOption
from lithify.cli.values import bytes_cell, count_cell

command = Commands("Queries")

TagArgument = Annotated[
    str, typer.Argument(metavar="TAG", help="A name: a letter, then letters, digits, underscores, dots and hyphens.")
]
TAGS = (
    Column("name", "tag", style="bold"),
    Column("seq", "seq", count_cell, right=True),
    Column("created", "made", lambda time: f"{time:%Y-%m-%d %H:%M}"),
    Column("actor", "by"),
    Column("bytes", "size", bytes_cell, right=True),
)


@command("tag", plain=True)
def tag(session: Session, name: TableArgument, tag: TagArgument, as_of: AsOfOption = None) -> None:
    """Give a version of a table a name. `--as-of NAME` reads it, however old it is; no vacuum takes its files.

    Examples:
        lithify tag shop.orders month-end
        lithify tag shop.orders before-import --as-of 41
    """
    with session.lake() as lake:
        made = asdict(lake.table(name).tag(tag, as_of))
        undo = f"`lithify untag {name} {tag}` undoes it"
        session.out.message(f"{name} as of seq {made['seq']:,} is {tag}", made, undo)


@command("tags", plain=True)
def tags(session: Session, name: TableArgument) -> None:
    """List the named versions of a table.

    Examples:
        lithify tags shop.orders --json
    """
    with session.lake() as lake:
        found = [asdict(each) for each in lake.table(name).tags()]
        session.out.listing(TAGS, found, {"table": name, "tags": found}, empty="no tags: `lithify tag` makes one")


@command("untag", plain=True)
def untag(session: Session, name: TableArgument, tag: TagArgument) -> None:
    """Take a name away. The next vacuum may delete what only that version needed.

    Examples:
        lithify untag shop.orders month-end
    """
    with session.lake() as lake:
        lake.table(name).untag(tag)
        session.out.message(f"{name} has no tag {tag} any more", {"table": name, "tag": tag, "untagged": True})
