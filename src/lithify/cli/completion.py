"""What a shell completes: commands, options, names of tables.

A shell asks by running the command again with a variable set (`COMPLETE_VARIABLE`), which typer answers.
"""

from __future__ import annotations

import os
from typing import Annotated, Literal

import typer
from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]

from lithify.cli.command import Commands, Session

COMPLETE_VARIABLE = "_LITHIFY_COMPLETE"
command = Commands("Getting started")


def be_ready_to_complete() -> None:
    """If it is a shell that asks."""
    if os.environ.get(COMPLETE_VARIABLE):
        completion_init()


@command("completion", local=True)
def completion(
    session: Session,
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print what a shell needs to complete commands, options and names of tables.

    For bash and zsh, put the line of the example into ~/.bashrc, or into ~/.zshrc after compinit.

    Examples:
        eval "$(lithify completion bash)"
        lithify completion fish > ~/.config/fish/completions/lithify.fish
    """
    script = get_completion_script(prog_name="lithify", complete_var=COMPLETE_VARIABLE, shell=shell)
    session.out.verbatim(script, {"shell": shell, "script": script})
