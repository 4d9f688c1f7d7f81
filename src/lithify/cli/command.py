"""What all commands share: --lake, --server, --config and --json, the session behind them, and the exit codes.

They may stand before or after the command's name. A command is a function of a `Session` and its own options;
`Commands` adds the shared ones, so that none can lack them. What a command does with a lake it does the same way with
one behind a service, unless it is declared `local`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from lithify.cli.logs import logging_to
from lithify.cli.output import Output, make_output
from lithify.cli.quick_start import spare_pandas
from lithify.errors import InvalidRequest, LithifyError, NotFound, did_you_mean
from lithify.files.addresses import is_remote
from lithify.files.user_files import named_place

if TYPE_CHECKING:
    from lithify.client.lake import RemoteLake
    from lithify.client.table import RemoteTable
    from lithify.lake.lake import Lake
    from lithify.lake.table import Table
    from lithify.settings import Settings

    AnyLake = Lake | RemoteLake
    AnyTable = Table | RemoteTable

OK, HANDLED, WRONG_USE, NOT_THERE, CRASHED, INTERRUPTED = 0, 1, 2, 3, 70, 130

LakeOption = Annotated[
    str | None,
    typer.Option(
        "--lake",
        metavar="PATH",
        help="The lake's folder, or s3://bucket/prefix. Default: LITHIFY_LAKE, or `lake` in lithify.toml.",
    ),
]
SERVER_HELP = "A service to talk to, in place of a lake's folder; its token is LITHIFY_TOKEN. Default: LITHIFY_SERVER."
ServerOption = Annotated[str | None, typer.Option("--server", metavar="URL", help=SERVER_HELP)]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A file of settings, in place of lithify.toml in this folder. Default: LITHIFY_CONFIG.",
    ),
]
JSON_HELP = "Answer with one JSON document."
JsonOption = Annotated[bool, typer.Option("--json", help=JSON_HELP)]


def table_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """For a shell: of the lake or the service that the line so far names. What stands in the way is not told."""
    above = ctx.find_root().params
    lake, server, config = (ctx.params.get(name) or above.get(name) for name in ("lake", "server", "config"))
    session = Session(make_output(as_json=True), True, lake, server, config)
    try:
        with logging_to(lambda line: None, lambda: "text", logging.CRITICAL), session.lake() as found:
            return [name for name in found.tables() if name.startswith(incomplete)]
    except LithifyError:
        return []


TableArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The table: namespace.table", autocompletion=table_names)
]
TablesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", help="The tables: namespace.table", autocompletion=table_names)
]
AllOption = Annotated[bool, typer.Option("--all", help="Every table of the lake.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
EncodingOption = Annotated[
    str | None,
    typer.Option(
        "--encoding", metavar="NAME", help="Of CSV and JSON: latin-1, cp1252, … Default: UTF-8, or by its BOM."
    ),
]
TierOption = Annotated[
    list[str] | None,
    typer.Option("--tier", metavar="NAME", help="Only this tier's work, e.g. hourly, daily, or pack. Repeat it."),
]
FilesFormatOption = Annotated[
    Literal["csv", "json", "parquet"] | None,
    typer.Option("--format", "-f", help="What is in the files. Default: by their names."),
]
FilesModeOption = Annotated[
    Literal["append", "upsert"] | None,
    typer.Option("--mode", help="Default: upsert on a table with a key, append on one without."),
]
MissingColumnsOption = Annotated[
    Literal["refuse", "null"] | None,
    typer.Option(
        "--missing",
        help="Records that lack a column of a table with a key: refuse (default), or write null there.",
    ),
]
SchemaOption = Annotated[
    str | None,
    typer.Option(
        "--schema-fingerprint",
        metavar="TEXT",
        help="Write only if the table still has the schema with this fingerprint (of `lithify describe`).",
    ),
]
ActorOption = Annotated[
    str | None,
    typer.Option("--actor", metavar="NAME", help="Who wants it; shown in the history. Default: the setting `actor`."),
]
ReasonOption = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; shown in the history.")]
BatchIdOption = Annotated[
    str | None,
    typer.Option(
        "--batch-id",
        metavar="ID",
        help="Makes the write idempotent: the same id again answers as the first time.",
    ),
]


@dataclass
class Globals:
    """What was said before the command's name."""

    lake: str | None = None
    server: str | None = None
    as_json: bool = False
    config: Path | None = None


@dataclass
class Session:
    """One run of a command: where its answer goes, and which lake it is about."""

    out: Output
    as_json: bool
    lake_given: str | None
    server_given: str | None = None
    config_given: Path | None = None
    context: typer.Context | None = field(default=None, repr=False)
    _settings: Settings | None = field(default=None, repr=False)

    @property
    def settings(self) -> Settings:
        if self._settings is None:
            from lithify.settings import load_settings

            config = self.config_given
            found = load_settings(config=config)
            place = self._place(found.lake)
            if place is not None and not is_remote(place):
                found = load_settings(config=config, of_lake=place)
            self._settings = found
        return self._settings

    def forget_settings(self) -> None:
        """They have changed: read them again."""
        self._settings = None

    @property
    def log_format(self) -> str:
        """Settings that cannot be read are somebody else's to tell."""
        try:
            return self.settings.log_format
        except LithifyError:
            return "text"

    @property
    def lake_path(self) -> str | None:
        """From --lake, the environment or lithify.toml, in this order; None if none says."""
        if self.lake_given is not None:
            return self.lake_given
        return self.settings.lake

    @property
    def lake_place(self) -> PurePath | None:
        """The same, as a folder or a place in a bucket."""
        return self._place(self.settings.lake)

    def _place(self, of_settings: str | None) -> PurePath | None:
        named = self.lake_given if self.lake_given is not None else of_settings
        return named_place(named) if named else None

    @property
    def server(self) -> str | None:
        """From --server, or from the settings if nothing says --lake; None: the lake is a folder."""
        if self.server_given is not None or self.lake_given is not None:
            return self.server_given
        if self.settings.server and self.settings.lake is not None:
            raise InvalidRequest(
                f"settings name both a lake ({self.settings.lake}) and a server ({self.settings.server}): "
                "pass --lake or --server to say which"
            )
        return self.settings.server or None

    @contextlib.contextmanager
    def lake(self) -> Iterator[AnyLake]:
        """The lake that the command is about: a folder, or behind a service."""
        server = self.server
        if server is None:
            with self.local_lake() as lake:
                yield lake
            return
        from lithify.client.lake import connect

        token = self.settings.token if self.server_given is not None else self.settings.token_sent
        with connect(server, None if token is None else token.get_secret_value()) as remote, _suggesting(remote):
            yield remote

    @contextlib.contextmanager
    def local_lake(self, *, create: bool = False) -> Iterator[Lake]:
        path = self.lake_path
        if not path:
            raise InvalidRequest(
                'which lake? Pass --lake PATH, set LITHIFY_LAKE, or write lake = "PATH" into lithify.toml; '
                "`lithify init PATH` makes one, and --server URL talks to a service"
            )
        from lithify.lake.lake import Lake

        with Lake(path, create=create, settings=self.settings) as lake, _suggesting(lake):
            yield lake


@contextlib.contextmanager
def _suggesting(lake: AnyLake) -> Iterator[None]:
    """Of a table that is not there, what it may be called. Here, and not where it is found out: who asks a service may
    not know of every table.
    """
    try:
        yield
    except NotFound as error:
        near = ""
        with contextlib.suppress(LithifyError):
            if name := error.details.get("table"):
                near = did_you_mean(name, lake.tables())
        if not near:
            raise
        raise NotFound(f"{error.message}; {near}", **error.details) from error


def _tidied(params: list[Any]) -> list[Any]:
    """For help without the types of Python: names of values say more to a user, and a flag has none."""
    for param in params:
        if param.param_type_name == "argument":
            param.display_type_rich = lambda ctx: None
        elif param.is_flag:
            param.metavar = ""
    return params


class _Command(TyperCommand):
    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]
        return _tidied(list(super().get_params(ctx)))

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return [re.sub(r"^\{(.+)\}", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]


class Group(TyperGroup):
    """Commands under one name."""

    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]
        return _tidied(list(super().get_params(ctx)))


class Commands:
    """The commands of one module, in the order of their functions; with `group`, below a name of their own.

    `@command("fold")` makes a command of `function(session, …)`: its docstring is the help, the lines below `Examples:`
    its examples. `local`: it needs the lake's folder, or none, and refuses --server. `plain`: it is given no values of
    pandas and starts no Spark, so that it need not wait for them (`quick_start`).
    """

    def __init__(self, panel: str, group: str | None = None, help: str = "") -> None:
        self._panel, self._group, self._help = panel, group, help
        self._declared: list[Callable[[typer.Typer], None]] = []

    def __call__(
        self, name: str, *, local: bool = False, plain: bool = False, json_help: str = JSON_HELP
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        def declare(function: Callable[..., None]) -> Callable[..., None]:
            def add_to(app: typer.Typer) -> None:
                text, _, examples = inspect.cleandoc(function.__doc__ or "").partition("\n\nExamples:\n")
                lines = (f"[cyan]{_markup_safe(line)}[/cyan]" for line in inspect.cleandoc(examples).splitlines())
                app.command(
                    name,
                    cls=_Command,
                    help="\n\n".join(" ".join(part.split()) for part in text.split("\n\n")),
                    epilog="\n\n".join(("Examples:", *lines)),
                    rich_help_panel=self._panel if self._group is None else None,
                )(_with_shared_options(function, json_help, local, plain))

            self._declared.append(add_to)
            return function

        return declare

    def add_to(self, app: typer.Typer) -> None:
        target = app if self._group is None else self._added_group(app)
        for add_to in self._declared:
            add_to(target)

    def _added_group(self, app: typer.Typer) -> typer.Typer:
        """Without one of its commands it shows its help."""
        commands = typer.Typer(name=self._group, cls=Group, invoke_without_command=True, help=self._help)

        @commands.callback()
        def show_help(ctx: typer.Context) -> None:
            if ctx.invoked_subcommand is None:
                typer.echo(ctx.get_help())

        app.add_typer(commands, rich_help_panel=self._panel)
        return commands


def _with_shared_options(
    function: Callable[..., None], json_help: str, local: bool, plain: bool
) -> Callable[..., None]:
    hints = get_type_hints(function, include_extras=True)
    own = [p.replace(annotation=hints[p.name]) for p in list(inspect.signature(function).parameters.values())[1:]]

    @functools.wraps(function)
    def run(
        ctx: typer.Context,
        lake: str | None = None,
        server: str | None = None,
        config: Path | None = None,
        as_json: bool = False,
        **options: Any,
    ) -> None:
        above = ctx.ensure_object(Globals)
        as_json = as_json or above.as_json
        lake, server = lake if lake is not None else above.lake, server if server is not None else above.server
        _check_lake(ctx.command_path, lake, server, local)
        session = Session(make_output(as_json), as_json, lake, server, config or above.config, ctx)
        with logging_to(session.out.log_line, lambda: session.log_format, logging.WARNING):
            if plain:
                spare_pandas()
            function(session, **options)

    server_option = Annotated[str | None, typer.Option("--server", metavar="URL", help=SERVER_HELP, hidden=local)]
    json_option = Annotated[bool, typer.Option("--json", help=json_help)]
    shared = [
        inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
        inspect.Parameter("lake", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=LakeOption),
        inspect.Parameter("server", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=server_option),
        inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ConfigOption),
        inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=json_option),
    ]
    signature = inspect.Signature([*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *shared])
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    return run


def _check_lake(name: str, lake: str | None, server: str | None, local: bool) -> None:
    if server is None:
        return
    if local:
        raise InvalidRequest(f"`{name}` does not work through a service: run it where the lake is, without --server")
    if lake is not None:
        raise InvalidRequest("--lake and --server name two places: pass one of them")
    if not server:
        raise InvalidRequest("--server is empty: write it as http://host:port")


def _markup_safe(line: str) -> str:
    return line.replace("[", r"\[")
