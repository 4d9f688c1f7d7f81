"""`lithify cache pin|unpin|evict|stats`: what a service keeps in memory.

The cache lives and dies with its process, so these commands talk to the one that serves (--server); a cache that this
command would fill itself would be gone with it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lithify.cli.command import Commands, Session, TableArgument
from lithify.cli.output import TABLE, Column, counts
from lithify.cli.values import bytes_cell, count_cell, seconds_cell
from lithify.core.wording import plural
from lithify.errors import InvalidRequest

if TYPE_CHECKING:
    from lithify.client.lake import RemoteCache

command = Commands("Service", group="cache", help="What a service keeps in memory: pin, unpin, evict, stats.")
TABLES = (
    TABLE,
    Column("rows", "rows", count_cell, right=True),
    Column("bytes", "bytes", bytes_cell, right=True),
    Column("pinned", "", lambda pinned: "pinned" if pinned else ""),
    *counts(seq="fresh to seq", hits="hits"),
    Column("age_s", "age", seconds_cell, right=True),
    Column("columns", "columns", lambda columns: count_cell(len(columns or ())), right=True),
)


@contextlib.contextmanager
def _cache(session: Session) -> Iterator[RemoteCache]:
    if session.server is None:
        raise InvalidRequest(
            "a cache lives in the process that serves the lake, and would end with this command: pass --server URL (or "
            "set LITHIFY_SERVER) to talk to a running `lithify serve`; in Python, lake.cache is your own process's"
        )
    with session.lake() as lake:
        yield lake.cache  # type: ignore[misc]


@command("pin")
def pin(
    session: Session,
    name: TableArgument,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="COLUMNS", help="Only these columns, e.g. id,status.")
    ] = None,
) -> None:
    """Load a table into the service's memory and keep it there, fresh as changes arrive.

    Examples:
        lithify cache pin shop.orders --server http://127.0.0.1:8080
        lithify cache pin shop.orders --columns id,status
    """
    chosen = [part.strip() for part in columns.split(",")] if columns is not None else None
    with _cache(session) as cache, session.out.working(f"loading {name}"):
        found = dataclasses.asdict(cache.pin(name, chosen))
    text = f"{name} is pinned: {plural(found['rows'], 'row')}, {bytes_cell(found['bytes'])}"
    session.out.message(text, found)


@command("unpin")
def unpin(session: Session, name: TableArgument) -> None:
    """Let a pinned table go when the service needs the room.

    Examples:
        lithify cache unpin shop.orders
    """
    with _cache(session) as cache:
        cache.unpin(name)
    session.out.message(f"{name} goes when room is needed", {"table": name})


@command("evict")
def evict(
    session: Session,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The table: namespace.table")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All tables and kept answers.")] = False,
) -> None:
    """Give a table's memory back now, pinned or not.

    Examples:
        lithify cache evict shop.orders
        lithify cache evict --all
    """
    if (name is not None) == everything:
        raise InvalidRequest("say which table to evict, or --all")
    with _cache(session) as cache:
        given_back = cache.evict(name)
    session.out.message(f"{bytes_cell(given_back)} given back", {"table": name, "bytes": given_back})


@command("stats")
def stats(session: Session) -> None:
    """Show what the service has in memory, and how often it served.

    Examples:
        lithify cache stats --json
    """
    with _cache(session) as cache:
        found: dict[str, Any] = dataclasses.asdict(cache.stats())
    session.out.listing(TABLES, list(found["tables"]), found, empty="nothing is in memory")
    answers = found["answers"]
    session.out.note(
        f"{bytes_cell(found['bytes'])} of {bytes_cell(found['bytes_max'])}, {plural(found['hits'], 'hit')}, "
        f"{count_cell(found['misses'])} misses, {count_cell(found['evictions'])} evictions; "
        f"{plural(answers['count'], 'kept answer')}, {plural(answers['hits'], 'hit')}"
    )
