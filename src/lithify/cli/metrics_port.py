"""--metrics-port: what Prometheus reads of a process that serves nothing else, without a token, on this machine only
unless another address is named.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from lithify.errors import InvalidRequest, Unavailable

if TYPE_CHECKING:
    from lithify.cli.command import Session
    from lithify.lake.lake import Lake

LOCAL = "127.0.0.1"
PORT_MAX = 65_535
MetricsPortOption = Annotated[
    str | None,
    typer.Option(
        "--metrics-port",
        metavar="[ADDRESS:]PORT",
        help=f"Answer Prometheus at /metrics there, without a token. Default address: {LOCAL}; 0: any free port.",
    ),
]


@contextlib.contextmanager
def metrics_served(session: Session, lake: Lake, where: str | None) -> Iterator[None]:
    """Until the work in it ends; nothing, if nobody asked for it."""
    if where is None:
        yield
        return
    address, port = address_and_port(where)
    from prometheus_client import start_http_server

    from lithify import __version__
    from lithify.lake.lake_metrics import lake_registry

    try:
        server, thread = start_http_server(port, address, lake_registry(lake, __version__))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Unavailable(f"port {port} of {address} is in use: pass another --metrics-port") from error
        raise Unavailable(f"cannot listen on {address}, port {port}: {error.strerror or error}") from error
    try:
        shown = f"[{address}]" if ":" in address else address
        session.out.aside(f"metrics at http://{shown}:{server.server_port}/metrics")
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def address_and_port(where: str) -> tuple[str, int]:
    address, _, port = where.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
        raise InvalidRequest(f"--metrics-port {where!r} is no port from 0 to {PORT_MAX}, and no ADDRESS:PORT")
    return address.removeprefix("[").removesuffix("]") or LOCAL, int(port)
