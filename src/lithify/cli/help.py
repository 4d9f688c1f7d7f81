"""`lithify help`: what --help shows, in the words that people try first."""

from __future__ import annotations

from typing import Annotated

import typer

from lithify.cli.command import Commands, Group, Session
from lithify.errors import NotFound, did_you_mean

command = Commands("Getting started")


@command("help", local=True)
def show_help(
    session: Session,
    words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="As it is typed.")] = None,
) -> None:
    """Show what a command does, its options and examples, as --help does.

    Examples:
        lithify help
        lithify help fold
        lithify help tokens create
    """
    assert session.context is not None, "a command has one"
    here = session.context.find_root()
    for word in words or ():
        below = here.command.get_command(here, word) if isinstance(here.command, Group) else None
        if below is None:
            there = here.command.list_commands(here) if isinstance(here.command, Group) else ()
            hint = did_you_mean(word, there) or "`lithify help` lists them all"
            raise NotFound(f"there is no command `{' '.join(words or ())}`: {hint}")
        here = type(here)(below, info_name=word, parent=here)
    text = here.command.get_help(here)
    session.out.verbatim(text, {"command": here.command_path, "help": text})
