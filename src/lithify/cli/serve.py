"""`lithify serve`: the lake over HTTP, with the engine, the scheduler and the Spark worker in this one process.

It says where it listens as soon as it does. The first Ctrl-C or SIGTERM stops it without losing anything and exits with
0; the second ends the process at once, as a power cut would.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lithify.cli.command import HANDLED, INTERRUPTED, Commands, Session
from lithify.cli.logs import logging_to
from lithify.cli.long_running import share_heaps, take_descriptors
from lithify.core.optional import need
from lithify.errors import LithifyError
from lithify.files.user_files import named_place

if TYPE_CHECKING:
    from lithify.flight.server import FlightServer
    from lithify.http.service import Service
    from lithify.http.tokens import Tokens
    from lithify.lake.lake import Lake
    from lithify.settings import Settings

command = Commands("Service")
FIRST = "first"
# Beyond shutdown_s, for what was cancelled and for closing the lake; a disk that hangs must not keep the process.
OVERDUE_S = 60.0
OVERDUE = "some work did not end in time, the process ends without it"


@command("serve", local=True, json_help="Say where it listens, and that it stopped, as lines of JSON.")
def serve(
    session: Session,
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Where to listen. Default: 127.0.0.1, this machine.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", min=0, max=65_535, help="Which port. Default: 8080; 0: any free one."),
    ] = None,
    flight_port: Annotated[
        int | None,
        typer.Option(
            "--flight-port",
            metavar="N",
            min=0,
            max=65_535,
            help="Speak Arrow Flight SQL there too, for BI tools and ADBC. 0: any free port.",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate chain (PEM): speak HTTPS.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key (PEM).")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen on another address than this machine's own without TLS.")
    ] = False,
    no_maintenance: Annotated[
        bool, typer.Option("--no-maintenance", "--no-upkeep", help="Leave maintenance to another process.")
    ] = False,
    no_pipelines: Annotated[
        bool, typer.Option("--no-pipelines", help="Leave declared pipelines and streams to another process.")
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="Write the first token into a new file that only you can read, and show it nowhere.",
        ),
    ] = None,
    no_console: Annotated[
        bool, typer.Option("--no-console", help="Serve no console: nothing for people, only the API.")
    ] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="If there is no such lake, make a small one to try it on.")
    ] = False,
) -> None:
    """Serve the lake over HTTP, until Ctrl-C.

    It listens on this machine only, unless there is TLS or --insecure is given. At the first start it makes a token and
    shows it once, or writes it to --token-file; `lithify tokens` makes further ones. Maintenance runs inside, and so do
    the pipelines and streams of the settings that have a schedule; Spark only when it is needed. A browser shows the
    console there; the address that is printed signs you in, once and within a minute.

    Examples:
        lithify serve --lake ./lake
        lithify serve --lake ./lake --token-file /run/lithify/token
        lithify serve --lake ./lake --port 8443 --host 0.0.0.0 --tls-cert chain.pem --tls-key key.pem
    """
    need("server")
    share_heaps()
    given = {"host": host, "port": port, "flight_port": flight_port, "tls_cert": tls_cert, "tls_key": tls_key}
    settings = session.settings.model_copy(update={name: value for name, value in given.items() if value is not None})
    if demo and session.lake_path:
        from lithify.tools.demo_lake import make_if_missing

        make_if_missing(named_place(session.lake_path), settings)
    # The lake closes first: until then somebody watches over how long all of that takes.
    with contextlib.ExitStack() as ended, session.local_lake() as lake:
        from lithify.http.server import check_address

        check_address(settings, insecure=insecure)
        lake.pipeline_runner.check()
        told = logging_to(session.out.log_line, lambda: settings.log_format, logging.INFO, all_of_it=True)
        with told:
            background = [
                start
                for start, wanted in (
                    (lake.start_maintenance, not no_maintenance),
                    (lake.start_pipelines, not no_pipelines),
                )
                if wanted
            ]
            _serve(session, lake, settings, ended, token_file, background, with_console=not no_console)


def _serve(
    session: Session,
    lake: Lake,
    settings: Settings,
    ended: contextlib.ExitStack,
    token_file: Path | None,
    background: Sequence[Callable[[], None]],
    *,
    with_console: bool,
) -> None:
    from lithify.http.app import create_app
    from lithify.http.logs import only_public
    from lithify.http.server import Server, listen, tls_context
    from lithify.http.tokens import Tokens
    from lithify.lake.internals import internals

    tls = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        tls = tls_context(settings.tls_cert, settings.tls_key)
    take_descriptors()
    socket = listen(settings.host, settings.port)
    tokens = Tokens(lake.path, internals(lake).runtime.store)
    url = _url(settings.host, socket.getsockname()[1], tls is not None)
    problems: list[LithifyError] = []

    def start_background() -> None:
        try:
            for start in background:
                start()
        except LithifyError as error:
            if not server.should_exit:
                problems.append(error)
                server.should_exit = True

    def ready() -> None:
        console = None
        if with_console:
            # Whoever keeps the first token out of what is printed keeps this out, too.
            code = None if token_file is not None else app.state.service.sign_in.code(("admin",))
            console = f"{url}/" + (f"#code={code}" if code is not None else "")
        flight_url = flight and _url(settings.host, flight.port, tls is not None, "grpc")
        _tell_start(session, lake, url, flight_url, console, tokens, secret, token_file)
        internals(lake).warm()
        # What it imports and looks at first need not keep the first requests waiting.
        threading.Thread(target=start_background, name="lithify-start-background", daemon=True).start()

    def stopping() -> None:
        session.out.aside("stopping: requests under way end first; Ctrl-C again ends at once")
        overdue = threading.Timer(settings.shutdown_s + OVERDUE_S, _force, (session, OVERDUE, HANDLED))
        overdue.daemon = True
        overdue.start()
        ended.callback(overdue.cancel)

    app = create_app(lake, settings, tokens, with_console=with_console)
    flight = _flight_server(app.state.service)
    server = Server(
        app,
        settings,
        tls=tls,
        on_ready=ready,
        on_stop=stopping,
        on_second_signal=lambda: _force(session, "ended at once", INTERRUPTED),
    )
    secret = _first_secret(tokens, token_file)
    with only_public(), contextlib.ExitStack() as ending:
        if flight is not None:
            ending.callback(flight.close, settings.shutdown_s)
        server.run([socket])
    if problems:
        raise problems[0]
    if session.as_json:
        _line({"event": "stopped"})


def _flight_server(service: Service) -> FlightServer | None:
    """It answers from here on, where it was asked for."""
    settings = service.settings
    if settings.flight_port is None:
        return None
    from lithify.flight.server import FlightServer

    tls = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        tls = settings.tls_cert.read_bytes(), settings.tls_key.read_bytes()  # they were read once before, without error
    return FlightServer(service, settings.host, settings.flight_port, tls)


def _url(host: str, port: int, tls: bool, kind: str = "http") -> str:
    from lithify.http.hosts import EVERY_ADDRESS

    name = "127.0.0.1" if host in EVERY_ADDRESS else host
    protocol = {"http": ("http", "https"), "grpc": ("grpc", "grpc+tls")}[kind][tls]
    return f"{protocol}://{f'[{name}]' if ':' in name else name}:{port}"


def _first_secret(tokens: Tokens, token_file: Path | None) -> str | None:
    """That of a lake that has no token yet; in the file, if there is to be one."""
    if token_file is None:
        first = tokens.create_first(FIRST)
        return None if first is None else first[1]
    return tokens.create_first_into(FIRST, token_file.expanduser().absolute())


def _tell_start(
    session: Session,
    lake: Lake,
    url: str,
    flight: str | None,
    console: str | None,
    tokens: Tokens,
    secret: str | None,
    token_file: Path | None,
) -> None:
    written = None if secret is None or token_file is None else str(token_file)
    if session.as_json:
        shown = None if written else secret
        told = {
            "url": url,
            "flight": flight,
            "console": console,
            "lake": str(lake.path),
            "token": shown,
            "token_file": written,
        }
        _line({"event": "started", **told})
        return
    session.out.message(f"serving {lake.path} at {url}", {}, f"what it can do: {url}/docs; Ctrl-C stops it")
    if flight is not None:
        session.out.note(f"Flight SQL at {flight}: the password of any user name is a token")
    if console is not None:
        signed_in = "#" in console
        session.out.commands("the console" + (", signed in: once, within a minute" if signed_in else ""), [console])
    if written is not None:
        session.out.note(f"the first token of this lake, which may do everything, is in {written}")
    elif secret is not None:
        session.out.note("the first token of this lake, which may do everything, shown only now:")
        session.out.commands(secret, [f"curl -H 'Authorization: Bearer {secret}' {url}/v1/tables"])
    elif not tokens.any_valid():
        session.out.note("no token of this lake is valid: `lithify tokens create` makes one")
    sys.stdout.flush()


def _line(document: dict[str, Any]) -> None:
    from lithify.core.json_out import dumps

    sys.stdout.write(dumps(document) + "\n")
    sys.stdout.flush()


def _force(session: Session, how: str, code: int) -> None:
    session.out.aside(f"{how}: what was acknowledged stays")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
