"""Commands about the machine: doctor, demo."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lithify.cli.command import HANDLED, Session, command
from lithify.cli.output import Column
from lithify.cli.values import human_seconds, jsonable

if TYPE_CHECKING:
    from lithify.app.demo import DemoReport, Narrator, Step

PANEL = "Getting started"
DEMO_FOLDER = "lithify-demo"
COUNTRIES_SHOWN = 4
_MARKS = {"ok": "✓ ok", "warn": "! warn", "fail": "✗ fail"}


def doctor(session: Session) -> None:
    """Check Java, libraries, disk, fsync and memory, and the lake if there is one. Exit code 1 if anything fails."""
    from lithify.app.doctor import Status, examine

    lake = session.lake_path
    with session.out.working("looking"):
        checks = examine(session.settings, Path(lake).expanduser() if lake else None)
    rows = [
        {"check": c.name, "status": c.status.value, "found": c.found, "advice": c.advice, "values": c.values}
        for c in checks
    ]
    healthy = not any(check.status is Status.fail for check in checks)
    columns = [
        Column("check", "check", style="bold"),
        Column("status", "", lambda status: _MARKS[status]),
        Column("found", "found", str),
    ]
    session.out.listing(columns, rows, {"healthy": healthy, "checks": rows}, empty="")
    for row in rows:
        if row["advice"]:
            session.out.note(f"{row['check']}: {row['advice']}")
    if not healthy:
        raise typer.Exit(HANDLED)


def demo(
    session: Session,
    rows: Annotated[int, typer.Option("--rows", min=1000, help="Orders to load.")] = 1_000_000,
) -> None:
    """Load a shop through Spark, change it row by row, read it fresh on both engines, travel in time, fold, and compare.

    Takes about a minute. Makes the folder lithify-demo (or --lake), replaces one that an earlier demo made, and touches nothing else.
    """
    from lithify.app.demo import Demo

    folder = Path(session.lake_given or DEMO_FOLDER)
    with _narrated(session) as narrator:
        report = Demo(folder, session.settings, rows, narrator).run()
    _show(session, report)


@contextlib.contextmanager
def _narrated(session: Session) -> Iterator[Narrator]:
    """Tell each step while it happens, under the heading of its chapter."""
    from lithify.app.demo import Narrator

    with session.out.working("preparing") as progress:

        class Teller(Narrator):
            chapter = ""

            def begins(self, title: str) -> None:
                progress(title, None)

            def ended(self, step: Step) -> None:
                session.out.step(
                    "" if step.chapter == self.chapter else step.chapter,
                    step.title,
                    human_seconds(step.seconds),
                    step.result,
                )
                self.chapter = step.chapter

        yield Teller()


def _show(session: Session, report: DemoReport) -> None:
    columns = [
        Column("country", "country", style="bold"),
        Column("orders", "orders", lambda n: f"{n:,}", right=True),
        *(
            Column(f"revenue_{n}", f"{a.engine}, {a.state}", lambda n: f"{n:,}", right=True)
            for n, a in enumerate(report.answers)
        ),
    ]
    revenues = [{row["country"]: row["revenue"] for row in answer.rows} for answer in report.answers]
    shown: list[dict[str, Any]] = [
        {
            "country": row["country"],
            "orders": row["orders"],
            **{f"revenue_{number}": revenue[row["country"]] for number, revenue in enumerate(revenues)},
        }
        for row in report.answers[0].rows[:COUNTRIES_SHOWN]
    ]
    document = jsonable(report)
    session.out.listing(columns, shown, document, empty="", title="\nRevenue by country: four ways to ask, one answer")
    session.out.commands(
        f"Done in {human_seconds(report.seconds)}; the lake is in {report.lake}. Now try:", report.try_next
    )


def register(app: typer.Typer) -> None:
    command(app, "demo", panel=PANEL, examples="lithify demo\nlithify demo --rows 100000 --lake /tmp/shop")(demo)
    command(app, "doctor", panel=PANEL, examples="lithify doctor\nlithify doctor --lake ./lake --json")(doctor)
