"""Commands that look: sql, changes, history, snapshot."""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from lithify.cli.command import Session, TableArgument, command
from lithify.cli.output import Column
from lithify.cli.rowset import FormatOption, LimitOption, OutputOption, check_format, rows_wanted, write_rows
from lithify.cli.values import cell
from lithify.errors import InvalidRequest, LimitExceeded

if TYPE_CHECKING:
    import pyarrow as pa

    from lithify.cli.command import AnyLake

PANEL = "Queries"

AsOfOption = Annotated[
    str | None,
    typer.Option(
        "--as-of", metavar="SEQ|TIME", help="Read an earlier state: a seq, or a time like 2026-11-15T12:00:00 (UTC)."
    ),
]


def sql(
    session: Session,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="A SELECT over the lake's tables; - reads it from stdin.")
    ],
    as_of: AsOfOption = None,
    format: FormatOption = None,
    output: OutputOption = None,
    limit: LimitOption = None,
) -> None:
    """Run a SELECT, fresh: every acknowledged change is in the answer. In-process, no Spark."""
    chosen = check_format(session, format, output)
    text = sys.stdin.read() if query == "-" else query
    if not text.strip():
        raise InvalidRequest('the query is empty: pass a SELECT, e.g. lithify sql "select count(*) from shop.orders"')
    with session.lake() as lake:
        started = time.perf_counter()
        rows, cut = _answer(session, lake, text, as_of, rows_wanted(session, chosen, output, limit))
        write_rows(session, rows, chosen, output, limit, time.perf_counter() - started, cut=cut)


def _answer(session: Session, lake: AnyLake, text: str, as_of: str | None, wanted: int | None) -> tuple[pa.Table, bool]:
    """The rows, and whether there are more. A service answers with so many rows at most: enough if fewer are wanted."""
    if session.server is None or wanted is None:
        return lake.sql(text, as_of=as_of), False
    answer = lake.query(text, as_of)
    if answer.cut and answer.rows.num_rows < wanted:
        raise LimitExceeded(
            f"the service answers with at most {answer.rows.num_rows:,} rows, and --limit asks for {wanted:,}: lower "
            "it, or raise the service's setting query_rows_max",
            limit="rows",
        )
    return answer.rows, answer.cut


def changes(
    session: Session,
    name: TableArgument,
    since: Annotated[int, typer.Option("--since", metavar="SEQ", help="The token: changes after this seq.")] = 0,
    format: FormatOption = None,
    output: OutputOption = None,
    limit: LimitOption = None,
) -> None:
    """Read what changed after a seq, in commit order, with _seq and _op. The highest _seq is the next token."""
    chosen = check_format(session, format, output)
    with session.lake() as lake:
        started = time.perf_counter()
        rows = lake.table(name).changes(since=since)
        newest = max(rows.column("_seq").to_pylist(), default=since)
        write_rows(
            session,
            rows,
            chosen,
            output,
            limit,
            time.perf_counter() - started,
            {"table": name, "since": since, "next": newest},
        )


def history(
    session: Session,
    name: TableArgument,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Entries at most, newest first.")
    ] = 20,
) -> None:
    """Show what happened to a table, newest first.

    Writes, deletes (who and why), folds, compactions, and changes of columns and options.
    """
    with session.lake() as lake:
        entries = [dataclasses.asdict(entry) for entry in lake.table(name).history(limit)]
        columns = [
            Column("time", "time (UTC)", lambda moment: f"{moment:%Y-%m-%d %H:%M:%S}", style="dim"),
            Column("operation", "operation", style="bold"),
            Column("seq", "seq", right=True),
            Column("rows", "rows", lambda rows: "" if rows is None else f"{rows:,}", right=True),
            Column("actor", "actor"),
            *(
                Column(field, title, lambda text: cell(text, 50))
                for field, title in (("reason", "reason"), ("batch_id", "batch"), ("detail", "detail"))
                if any(entry[field] for entry in entries)
            ),
        ]
        session.out.listing(columns, entries, {"table": name, "history": entries}, empty="nothing yet")


def snapshot(session: Session, name: TableArgument, as_of: AsOfOption = None) -> None:
    """Show which versions of changes and base a read uses, now or as of an earlier state."""
    with session.lake() as lake:
        pinned = lake.table(name).snapshot(as_of)
        document = {
            "table": name,
            "seq": pinned.seq,
            "watermark": pinned.watermark,
            "changes_version": pinned.changes_version,
            "base_version": pinned.base_version,
            "base_files": pinned.base_files,
            "base_rows": pinned.base_rows,
            "base_bytes": pinned.base_bytes,
            "pending_files": pinned.pending_files,
            "pending_rows": pinned.pending_rows,
            "pending_bytes": pinned.pending_bytes,
        }
        fields = {label.replace("_", " "): value for label, value in document.items() if label != "table"}
        session.out.record(name, fields, document)


def register(app: typer.Typer) -> None:
    command(
        app,
        "sql",
        panel=PANEL,
        examples="""
        lithify sql "select status, count(*) from shop.orders group by status"
        lithify sql "select * from shop.orders" --as-of 41 --output orders.parquet
        lithify sql - --format csv < report.sql
        """,
    )(sql)
    command(app, "changes", panel=PANEL, examples="lithify changes shop.orders --since 41 --format ndjson")(changes)
    command(app, "history", panel=PANEL, examples="lithify history shop.orders --limit 5")(history)
    command(app, "snapshot", panel=PANEL, examples="lithify snapshot shop.orders --as-of 2026-11-15T12:00:00")(snapshot)
