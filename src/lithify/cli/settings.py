"""Commands about settings: what they are and where each comes from, and those that a lake has with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lithify.cli.command import Commands, Session
from lithify.cli.output import Column, long_text
from lithify.core.json_out import jsonable
from lithify.errors import InvalidRequest, NotFound, did_you_mean

if TYPE_CHECKING:
    from lithify.settings import Settings

command = Commands("Lake and tables")
DEFAULT = "default"


@command("settings", local=True)
def settings(
    session: Session,
    names: Annotated[list[str] | None, typer.Argument(metavar="SETTING", help="Only these.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Those that nothing sets, too.")] = False,
) -> None:
    """Show settings, and where each comes from: a LITHIFY_ variable, a file, the lake, or the default.

    `lithify set` changes those of a lake, and the options that single tables have of their own.

    Examples:
        lithify settings --all
        lithify settings fold_files_max --lake ./lake
    """
    found = session.settings
    there = type(found).model_fields
    for name in names or ():
        if name not in there:
            hint = did_you_mean(name, there) or "`lithify settings --all` lists them"
            raise NotFound(f"there is no setting {name!r}: {hint}")
    rows = [_row(found, name) for name in names or there]
    shown = rows if names or every or session.as_json else [row for row in rows if row["from"] != DEFAULT]
    columns = [
        Column("setting", "setting", style="bold"),
        Column("value", "value", long_text, wrap=True),
        Column("from", "from", long_text, wrap=True),
    ]
    session.out.listing(
        columns,
        shown,
        {"settings": rows},
        empty="every setting has its default: `lithify settings --all` lists them, docs/settings.md tells what they do",
    )


def _row(found: Settings, name: str) -> dict[str, Any]:
    value = getattr(found, name)
    secret = hasattr(value, "get_secret_value")
    return {
        "setting": name,
        "value": "(not shown)" if secret else jsonable(value),
        "from": found.source_of(name) or DEFAULT,
    }


def accept_lake_settings(session: Session) -> None:
    from lithify.lake.own_settings import accept_settings

    with session.local_lake() as lake:
        accepted = accept_settings(lake)
    session.forget_settings()
    session.out.message(
        "; ".join(f"{file} counts as it is now" for file in accepted),
        {"files": [{"file": str(file), "counts": reasons} for file, reasons in accepted.items()]},
        *(f"{reason} counts" for reasons in accepted.values() for reason in reasons),
    )


def set_lake_settings(session: Session, chosen: Mapping[str, str]) -> None:
    """Write settings into the lake's own file. All of them hold, or nothing is written."""
    from lithify.lake.own_settings import change_settings

    path = session.lake_place
    if path is None:
        raise InvalidRequest(
            "which lake, or which table? Pass --lake PATH for settings of a lake, or a table before its options"
        )
    with session.local_lake() as lake:
        file = change_settings(lake, {name: None if value == DEFAULT else value for name, value in chosen.items()})
    session.forget_settings()
    now = [_row(session.settings, name) for name in chosen]
    hidden = [row["setting"] for row in now if row["from"] not in (str(file), DEFAULT)]
    session.out.message(
        "; ".join(f"{row['setting']} is {long_text(row['value'])}" for row in now),
        {"file": str(file), "settings": now},
        f"for everybody who opens this lake, from now on: {file}",
        *(f"{name} is set elsewhere too, which wins: `lithify settings {name}` shows where" for name in hidden),
    )
