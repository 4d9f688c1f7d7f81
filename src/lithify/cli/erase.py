"""Erasing rows with a receipt: erase, erasures."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lithify.cli.command import HANDLED, ActorOption, Commands, DryRunOption, Session, TableArgument
from lithify.cli.output import Column, long_text
from lithify.cli.values import count_cell, human_bytes
from lithify.core.wording import plural
from lithify.errors import InvalidRequest

if TYPE_CHECKING:
    from lithify.erasure.erasure import Erasure

command = Commands("Rows")

ERASURES = (
    Column("id", "erasure", style="bold"),
    Column("table", "table"),
    Column("state", "state"),
    Column("step", "next step"),
    Column("keys", "keys", count_cell, right=True),
    Column("requested", "asked for", lambda time: f"{time:%Y-%m-%d %H:%M}"),
    Column("reason", "reason", long_text, wrap=True),
)


def key_of(text: str) -> Any:
    """As JSON where it is some, so that 42 is a number and {"a": 1, "b": 2} a key of two columns; else the text."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, str | int | dict) and not isinstance(found, bool) else text


@command("erase", local=True)
def erase(
    session: Session,
    name: TableArgument,
    keys: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="KEY", help='Of a row: 42, or {"a": 1, "b": 2} for several columns. Repeat it.'),
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="In place of keys: rows that it holds for now.")
    ] = None,
    history: Annotated[
        Literal["rewrite", "cut"],
        typer.Option("--history", help="rewrite: every version stays, without the rows. cut: nothing older stays."),
    ] = "rewrite",
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Stands on the receipt: a ticket, nobody's name.")
    ] = None,
    actor: ActorOption = None,
    rows_max: Annotated[
        int, typer.Option("--rows-max", min=1, metavar="N", help="Refuse to erase more than so many rows.")
    ] = 1000,
    break_pins: Annotated[
        bool, typer.Option("--break-pins", help="Do not wait for pinned versions and tags: they go too.")
    ] = False,
    salt_out: Annotated[
        Path | None, typer.Option("--salt-out", metavar="FILE", help="A new file for the salt, in place of showing it.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Do all of it now, until there is a receipt; else maintenance goes on.")
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Erase rows from a table, its past and its files, with a receipt. There is no way back.

    The rows are hidden at once. What is promised, and what is not, is told in docs/erasure.md.

    Examples:
        lithify erase shop.customers --key 42 --dry-run
        lithify erase shop.customers --key 42 --reason ticket-118 --wait --salt-out 118.salt
        lithify erase shop.orders --where "customer = 42" --history cut --rows-max 5000 --wait
    """
    if salt_out is not None and salt_out.exists():
        raise InvalidRequest(f"{salt_out} is there already: name a new file for the salt")
    given = None if keys is None else [key_of(key) for key in keys]
    with session.local_lake() as lake:
        found = lake.erase(
            name,
            given,
            where=where,
            history=history,
            reason=reason,
            actor=actor,
            rows_max=rows_max,
            break_pins=break_pins,
            dry_run=dry_run,
        )
        from lithify.erasure.erasure import Erasure

        if not isinstance(found, Erasure):
            held = [f"it would wait for {what}" for what in found.blocked_by]
            text = f"{plural(found.keys, 'key')} of {name} would be erased, which {plural(found.rows, 'row')} have now"
            files = plural(found.files_to_rewrite, "file")
            anew = (
                [f"{files} would be written anew ({human_bytes(found.bytes_to_rewrite)})"] if history != "cut" else []
            )
            session.out.message(text, asdict(found), *anew, f"afterwards: {found.oldest_after}", *held)
            return
        salt, note = _handed_out(found.salt, salt_out)
        if wait:
            found.wait()
        show(session, found, salt, note)


def _handed_out(salt: str | None, file: Path | None) -> tuple[dict[str, str | None], str]:
    if file is None:
        note = f"salt {salt}: keep it; with it and the key the receipt can be shown to be about the row"
        return {"salt": salt}, note
    file.touch(0o600, exist_ok=False)
    file.write_text(f"{salt}\n")
    return {"salt_file": str(file)}, f"its salt is in {file}"


def show(session: Session, erasure: Erasure, more: dict[str, str | None] | None = None, *notes: str) -> None:
    """How far it is; exit code 1 where something stands in its way."""
    said = erasure.describe()
    state = said["state"]
    stuck = state in ("blocked", "leftover")
    receipt = str(erasure.receipt_path) if state == "done" else None
    lines = [f"blocked by {what}: let go of it, then resume" for what in said["blocked_by"]]
    if stuck:
        lines += [f"left in {place['path']}: {place['column']} ({place['method']})" for place in said["places"]]
        lines += [f"not looked at: {problem}" for problem in said["problems"]]
    if state == "open":
        lines.append(f"the rows are hidden; the rest is done by maintenance, or `lithify erasure resume {erasure.id}`")
    if receipt is not None:
        lines.append(f"its receipt: {receipt}")
    text = f"erasure {erasure.id} of {erasure.table}: {state}"
    session.out.message(text, {**said, "receipt": receipt, **(more or {})}, *lines, *notes, healthy=not stuck)
    if stuck:
        raise typer.Exit(HANDLED)


@command("erasures", local=True)
def erasures(
    session: Session, unfinished: Annotated[bool, typer.Option("--open", help="Only those that are not done.")] = False
) -> None:
    """List the erasures of the lake, oldest first, and the key that its receipts are signed with.

    Examples:
        lithify erasures
        lithify erasures --open --json
    """
    with session.local_lake() as lake:
        found = [each.describe() for each in lake.erasures()]
        found = [each for each in found if not unfinished or each["state"] not in ("done", "cancelled")]
        from lithify.erasure.erasure import receipts_key
        from lithify.lake.internals import internals

        key = receipts_key(internals(lake).erasures)
        document = {"erasures": found, "public_key": key}
        session.out.listing(ERASURES, found, document, empty="nothing was erased, or nothing is open")
        if key is not None:
            session.out.note(f"receipts are signed by {key}")
