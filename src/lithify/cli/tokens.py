"""Commands about the tokens that let callers into the service: tokens create, list, revoke."""

from __future__ import annotations

import datetime as dt
import re
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lithify.cli.command import Commands, Session
from lithify.cli.output import Column, texts
from lithify.errors import InvalidRequest

if TYPE_CHECKING:
    from lithify.http.tokens import Token, Tokens

command = Commands("Service", group="tokens", help="Tokens for callers of the service: create, list, revoke.")
_UNIT_S = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def _time(seconds: Any) -> str:
    return "" if seconds is None else f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d %H:%M}"


LISTED = (
    Column("id", "id", style="bold"),
    *texts(name="name", state="state"),
    Column("scopes", "scopes", ", ".join),
    Column("tables", "tables", lambda tables: ", ".join(tables) or "all"),
    Column("created_at", "created (UTC)", _time, style="dim"),
    Column("expires_at", "expires (UTC)", lambda at: _time(at) or "never"),
)


@command("create", local=True)
def create(
    session: Session,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Who uses it; recorded in the history of what it writes.")
    ],
    scope: Annotated[
        list[str],
        typer.Option("--scope", metavar="SCOPE", help="read, write, maintain, erase or admin; repeat it for several."),
    ],
    table: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="NAME", help="Only this table, or shop.* for a namespace; may be repeated."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="How long it is valid: 30d, 12h. Default: for ever.")
    ] = None,
) -> None:
    """Create a token for the service. Its secret is shown once and stored nowhere.

    admin includes all other scopes. write does not include read.

    Examples:
        lithify tokens create dashboard --scope read --expires 30d
        lithify tokens create loader --scope write --table shop.orders --table log.*
    """
    expires_s = None if expires is None else lifetime_s(expires)
    scopes = [each.strip() for given in scope for each in given.split(",")]
    token, secret = _tokens(session).create(name, scopes, table or (), expires_s)
    session.out.message(
        f"token {token.id} ({token.name}) was created; this is its secret, shown only now:",
        {**_document(token), "secret": secret},
    )
    session.out.note(secret)


@command("list", local=True)
def list_tokens(session: Session) -> None:
    """List the tokens of the lake, those that are expired or revoked too. Secrets are stored nowhere.

    Examples:
        lithify tokens list
        lithify tokens list --json
    """
    rows = [_document(token) for token in _tokens(session).listed()]
    session.out.listing(LISTED, rows, {"tokens": rows}, empty="no token yet: `lithify tokens create` makes one")


@command("revoke", local=True)
def revoke(
    session: Session,
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="Its id, or its name if only one valid token has it.")],
) -> None:
    """Revoke a token: within a second it lets nobody in any more, and never again.

    Examples:
        lithify tokens revoke dashboard
    """
    revoked = _tokens(session).revoke(token)
    session.out.message(f"token {revoked.id} ({revoked.name}) is revoked", _document(revoked))


def lifetime_s(text: str) -> float:
    found = re.fullmatch(r"(\d{1,6})([mhdw])", text.strip().lower())
    if found is None or not int(found[1]):
        raise InvalidRequest(f"--expires {text!r} is no length of time: write it like 30d, 12h, 90m or 8w")
    return int(found[1]) * _UNIT_S[found[2]]


def _tokens(session: Session) -> Tokens:
    from lithify.http.tokens import Tokens
    from lithify.lake.internals import internals

    with session.local_lake() as lake:
        return Tokens(lake.path, internals(lake).runtime.store)


def _document(token: Token) -> dict[str, Any]:
    return {**token.document(), "state": token.state(time.time())}
