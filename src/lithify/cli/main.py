"""The `lithify` command. Exit codes: 0 done, 1 refused with a reason, 2 called wrongly, 3 not there, 70 crashed, 130
interrupted.

Every error ends here. A `LithifyError` or a wrong option is an answer, without a traceback; anything else is a bug in
Lithify, named in one line, with the traceback on request (LITHIFY_TRACEBACK=1). Heavy libraries are imported inside
the commands that need them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from lithify.cli import (
    backup,
    cache,
    columns,
    compact,
    completion,
    detach,
    erase,
    erasure,
    explain,
    fold,
    help,
    index,
    jobs,
    pipeline,
    quarantine,
    quick_start,
    restore,
    rows,
    run,
    serve,
    settings,
    sql,
    stream,
    tables,
    tags,
    tokens,
)
from lithify.cli import doctor as machine
from lithify.cli.command import (
    CRASHED,
    HANDLED,
    INTERRUPTED,
    NOT_THERE,
    OK,
    WRONG_USE,
    ConfigOption,
    Globals,
    Group,
    JsonOption,
    LakeOption,
    ServerOption,
)
from lithify.cli.output import make_output
from lithify.cli.start import interrupt_at_once
from lithify.errors import LithifyError, NotFound

TRACEBACK_VARIABLE = "LITHIFY_TRACEBACK"


class _Lithify(Group):
    """Turns every way a command can end into an exit code and, if it failed, into one clear answer."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        sys.exit(self._run(given, prog_name or "lithify", complete_var, extra))

    def _run(self, args: list[str], prog_name: str, complete_var: str | None, extra: dict[str, Any]) -> int:
        out = make_output(as_json="--json" in (args[: args.index("--")] if "--" in args else args))
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except LithifyError as error:
            if os.environ.get(TRACEBACK_VARIABLE):
                _print_traceback()
            out.error(error.code, error.message)
            return NOT_THERE if isinstance(error, NotFound) else HANDLED
        except typer.TyperException as error:
            context = getattr(error, "ctx", None)
            usage = f"{context.get_usage()}\nTry '{context.command_path} --help'." if context is not None else None
            out.error("usage", error.format_message(), usage)
            return WRONG_USE
        except typer.Abort:
            out.error("aborted", "aborted: nothing was changed")
            return HANDLED
        except Exception as error:
            if os.environ.get(TRACEBACK_VARIABLE):
                _print_traceback()
            text = " ".join(str(error).split())[:500]
            out.error(
                "crash",
                f"lithify crashed: {type(error).__name__}: {text}",
                f"This is a bug in Lithify. {TRACEBACK_VARIABLE}=1 shows the traceback to report it with.",
            )
            return CRASHED
        if code == INTERRUPTED:
            interrupt_at_once()
            out.error(
                "interrupted",
                "interrupted: what was acknowledged stays; `lithify jobs --history` shows what else was done",
            )
        return code if isinstance(code, int) else OK


def _print_traceback() -> None:
    import traceback

    traceback.print_exc(file=sys.stderr)


def _show_version(wanted: bool) -> None:
    if wanted:
        from lithify import __version__

        typer.echo(f"lithify {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="lithify",
    cls=_Lithify,
    add_completion=False,
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Row-level changes in milliseconds on plain Delta tables, read fresh from SQL and Spark.",
    epilog="New here? [cyan]lithify demo[/cyan] shows the whole idea in about a minute.",
)


@app.callback()
def _lithify(
    ctx: typer.Context,
    lake: LakeOption = None,
    server: ServerOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    ctx.obj = Globals(lake, server, as_json, config)
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


_MODULES = (
    tables,
    columns,
    settings,
    rows,
    detach,
    stream,
    sql,
    restore,
    tags,
    erase,
    erasure,
    explain,
    fold,
    compact,
    index,
    run,
    jobs,
    backup,
    serve,
    tokens,
    cache,
    pipeline,
    quarantine,
)
for _module in (*_MODULES, machine, help, completion):
    _module.command.add_to(app)


def main() -> None:
    quick_start.this_process_runs_one_command()
    completion.be_ready_to_complete()
    app()


if __name__ == "__main__":
    main()
