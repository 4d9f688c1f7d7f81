"""Commands about the machine: doctor, demo."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from lithify.cli.command import HANDLED, Commands, Session
from lithify.cli.output import Column
from lithify.cli.values import human_seconds
from lithify.core.json_out import jsonable
from lithify.core.optional import need
from lithify.files.user_files import named_place

if TYPE_CHECKING:
    from lithify.tools.demo import DemoReport, Narrator, Step

command = Commands("Getting started")
DEMO_FOLDER = "lithify-demo"
COUNTRIES_SHOWN = 4
_MARKS = {"ok": "✓ ok", "warn": "! warn", "fail": "✗ fail"}


@command("demo", local=True)
def demo(
    session: Session,
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=1000, help="Orders to load.")] = 1_000_000,
) -> None:
    """See the whole idea: load a shop, change it row by row, read it fresh, travel in time, fold, compare.

    Takes about a minute. Makes the folder lithify-demo (or --lake, which may lie in a bucket), replaces one that an
    earlier demo made, and touches nothing else.

    Examples:
        lithify demo
        lithify demo --rows 100000 --lake /tmp/shop
        lithify demo --lake s3://bucket/demo
    """
    need("spark")
    from lithify.tools.demo import Demo

    folder = named_place(session.lake_given or DEMO_FOLDER)
    with _narrated(session) as narrator:
        report = Demo(folder, session.settings, rows, narrator).run()
    _show(session, report)


@command("doctor", local=True)
def doctor(session: Session) -> None:
    """Check Java, libraries, disk, fsync and memory, and the lake if there is one. Exit code 1 if anything fails.

    Of a lake in a bucket: how fast the server answers, whether it keeps to conditions, its clock, and local copies.

    Examples:
        lithify doctor
        lithify doctor --lake s3://bucket/lake
        lithify doctor --lake ./lake --json
    """
    from lithify.tools.check import Status
    from lithify.tools.doctor import examine

    with session.out.working("looking"):
        checks = examine(session.settings, session.lake_place)
    rows = [
        {"check": c.name, "status": c.status.value, "found": c.found, "advice": c.advice, "values": c.values}
        for c in checks
    ]
    healthy = not any(check.status is Status.fail for check in checks)
    columns = [
        Column("check", "check", style="bold"),
        Column("status", "", lambda status: _MARKS[status]),
        Column("found", "found", str, wrap=True),
    ]
    session.out.listing(columns, rows, {"healthy": healthy, "checks": rows}, empty="")
    for row in rows:
        if row["advice"]:
            session.out.note(f"{row['check']}: {row['advice']}")
    if not healthy:
        raise typer.Exit(HANDLED)


@contextlib.contextmanager
def _narrated(session: Session) -> Iterator[Narrator]:
    """Tell each step while it happens, under the heading of its chapter."""
    from lithify.tools.demo import Narrator

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
    """The same question four times, side by side: nothing changed but the speed."""
    names = [f"{'fresh' if answer.pending_rows else 'folded'}, {answer.engine}" for answer in report.answers]
    columns = [
        Column("country", "revenue in", style="bold"),
        Column("orders", "orders", right=True),
        *(Column(str(number), name, right=True) for number, name in enumerate(names)),
    ]
    revenues = [{row["country"]: row["revenue"] for row in answer.rows} for answer in report.answers]
    shown = [
        {
            "country": row["country"],
            "orders": f"{row['orders']:,}",
            **{str(number): f"{revenue[row['country']]:,}" for number, revenue in enumerate(revenues)},
        }
        for row in report.answers[0].rows[:COUNTRIES_SHOWN]
    ]
    shown.append({"country": "took", **{str(n): human_seconds(a.seconds) for n, a in enumerate(report.answers)}})
    session.out.listing(columns, shown, jsonable(report), empty="")
    session.out.commands(
        f"Done in {human_seconds(report.seconds)}; the lake is in {report.lake}. Now try:", report.try_next
    )
