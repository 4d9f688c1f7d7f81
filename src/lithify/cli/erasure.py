"""One erasure: show, resume, cancel, verify."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lithify.cli.command import HANDLED, Commands, Session
from lithify.cli.erase import key_of, show
from lithify.core.optional import need
from lithify.errors import InvalidRequest, NotFound

command = Commands("Rows", "erasure", "One erasure: show, resume, cancel, verify its receipt.")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Of the erasure, as `lithify erasures` lists it.")]


@command("show", local=True)
def show_one(session: Session, id: IdArgument) -> None:
    """Show how far an erasure is, and what stands in its way.

    Examples:
        lithify erasure show 5f3a0c1d9e7b2a465f3a0c1d9e7b2a46
    """
    with session.local_lake() as lake:
        show(session, lake.erasure(id))


@command("resume", local=True)
def resume(session: Session, id: IdArgument) -> None:
    """Go on with an erasure until it is done, or something stands in its way.

    Examples:
        lithify erasure resume 5f3a0c1d9e7b2a465f3a0c1d9e7b2a46
    """
    with session.local_lake() as lake:
        show(session, lake.erasure(id).wait())


@command("cancel", local=True)
def cancel(session: Session, id: IdArgument) -> None:
    """Give an erasure up while nothing of the past is gone. Rows that it has hidden stay deleted.

    Examples:
        lithify erasure cancel 5f3a0c1d9e7b2a465f3a0c1d9e7b2a46
    """
    with session.local_lake() as lake:
        show(session, lake.erasure(id).cancel())


@command("verify", local=True)
def verify(
    session: Session,
    receipt: Annotated[Path, typer.Argument(metavar="RECEIPT", help="The file.")],
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Whether it is about this row.")] = None,
    salt: Annotated[
        Path | None, typer.Option("--salt", metavar="FILE", help="The salt that was handed out with the erasure.")
    ] = None,
    public_key: Annotated[
        str | None, typer.Option("--public-key", metavar="HEX", help="Who should have signed it, in place of the lake.")
    ] = None,
) -> None:
    """Look whether a receipt is as it was signed, by this lake, and whom it is about. With --public-key no lake is
    needed.

    Examples:
        lithify erasure verify receipt.json
        lithify erasure verify receipt.json --key 42 --salt 118.salt --public-key 889a439a…
    """
    need("erase")
    from lithify.erasure.erasure import check_receipt
    from lithify.erasure.receipt import receipt_at, verify_receipt

    if (key is None) != (salt is None):
        raise InvalidRequest("to see whom a receipt is about, both --key and --salt are needed")
    values = None if key is None else _values(key)
    text = None if salt is None else _read(salt)
    if public_key is not None:
        found = verify_receipt(receipt, public_key, key=values, salt=text)
    else:
        with session.local_lake() as lake:
            from lithify.lake.internals import internals

            place = internals(lake).erasures
            found = check_receipt(place, receipt_at(receipt), str(receipt), key=values, salt=text)
    said = "is as it was signed" if found.ok else "does not hold"
    text = f"the receipt of erasure {found.id} of {found.table} {said}"
    session.out.message(text, asdict(found), *found.problems, healthy=found.ok)
    if not found.ok:
        raise typer.Exit(HANDLED)


def _values(key: str) -> object:
    found = key_of(key)
    return tuple(found.values()) if isinstance(found, dict) else found


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError as error:
        raise NotFound(f"there is no salt at {file}") from error
