"""Commands that look: sql, changes, history, snapshot."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lithify.cli.command import BatchIdOption, Commands, Session, TableArgument
from lithify.cli.output import Column
from lithify.cli.quick_start import spare_pandas
from lithify.cli.row_output import FormatOption, LimitOption, OutputOption, check_format, rows_wanted, write_rows
from lithify.cli.values import cell
from lithify.core.wording import plural
from lithify.errors import InvalidRequest, LimitExceeded
from lithify.sql.statements.first_word import is_statement

if TYPE_CHECKING:
    import pyarrow as pa

    from lithify.cli.command import AnyLake, AnyTable
    from lithify.core.results import Executed

command = Commands("Queries")
QueryArgument = Annotated[
    str,
    typer.Argument(metavar="QUERY", help="A SELECT, or a statement that writes; - reads it from stdin."),
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="NAME=VALUE", help="A value for :NAME: a number, true, null, or text."),
]
AsOfOption = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="SEQ|TIME|TAG",
        help="Read an earlier state: a seq, a time like 2026-11-15T12:00:00 (UTC), or a tag.",
    ),
]


def query_text(query: str, example: str) -> str:
    text = sys.stdin.read() if query == "-" else query
    if not text.strip():
        raise InvalidRequest(f"the query is empty: pass a SELECT, e.g. {example}")
    return text


@command("sql")
def sql(
    session: Session,
    query: QueryArgument,
    as_of: AsOfOption = None,
    format: FormatOption = None,
    output: OutputOption = None,
    limit: LimitOption = None,
    param: ParamOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Of a statement that writes, only count.")] = False,
    batch_id: BatchIdOption = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why a statement writes; stands in the history.")
    ] = None,
) -> None:
    """Run a SELECT, fresh: every acknowledged change is in the answer. In-process, no Spark. INSERT, UPDATE, DELETE
    and MERGE are one commit each, and answer with counts.

    Examples:
        lithify sql "select status, count(*) from shop.orders group by status"
        lithify sql "select * from shop.orders" --as-of 41 --output orders.parquet
        lithify sql - --format csv < report.sql
        lithify sql "update shop.orders set status = :s where id = 7" --param s=paid --dry-run
    """
    chosen = check_format(session, format, output)
    text = query_text(query, 'lithify sql "select count(*) from shop.orders"')
    parameters = _parameters(param)
    if is_statement(text):
        if as_of is not None:
            raise InvalidRequest("--as-of is for reading: a statement that writes goes by the newest rows")
        with session.lake() as lake:
            _tell(session, lake.execute(text, parameters, dry_run=dry_run, batch_id=batch_id, reason=reason))
        return
    if dry_run or batch_id is not None or reason is not None:
        raise InvalidRequest("--dry-run, --batch-id and --reason are for statements that write, and this one reads")
    if parameters is not None:
        from lithify.sql.parameters import bound

        text = bound(text, parameters)
    spare_pandas()
    with session.lake() as lake:
        started = time.perf_counter()
        rows, cut = _answer(session, lake, text, as_of, rows_wanted(session, chosen, output, limit))
        write_rows(session, rows, chosen, output, limit, time.perf_counter() - started, cut=cut)


def _tell(session: Session, done: Executed) -> None:
    counted = ", ".join(
        f"{plural(count, 'row')} {what}"
        for what, count in (("inserted", done.inserted), ("updated", done.updated), ("deleted", done.deleted))
        if count
    )
    text = f"{done.statement} on {done.table}: {counted or 'no row'}, seq {done.seq}"
    if not counted and done.statement.endswith(" table"):  # it is about no rows, and may find nothing to do
        text = f"{done.statement} {done.table}: done"
    if done.dry_run:
        text = f"{done.statement} on {done.table} would be: {counted or 'no row'}; nothing was written"
    if done.replayed:
        text = f"batch {done.batch_id} was executed on {done.table} before, as seq {done.seq}: nothing was changed"
    session.out.message(text, dataclasses.asdict(done))


def _parameters(given: list[str] | None) -> dict[str, Any] | None:
    """A value is what it is in JSON, and otherwise a text."""
    found: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"--param {text!r} is no NAME=VALUE")
        try:
            read = json.loads(value, parse_float=Decimal)
        except ValueError:
            read = value
        found[name] = value if isinstance(read, list | dict) else read
    return found or None


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


@command("changes", plain=True)
def changes(
    session: Session,
    name: TableArgument,
    since: Annotated[
        str, typer.Option("--since", metavar="SEQ", help="Changes after this seq, or after a position of the table.")
    ] = "0",
    until: Annotated[
        str | None, typer.Option("--until", metavar="SEQ", help="Changes up to this seq or position. Default: all.")
    ] = None,
    effects: Annotated[
        bool,
        typer.Option("--effects", help="Show what became of the rows: insert, update or delete (_kind)."),
    ] = False,
    before: Annotated[
        bool,
        typer.Option("--before", help="With --effects: show each update with the row before it."),
    ] = False,
    format: FormatOption = None,
    output: OutputOption = None,
    limit: LimitOption = None,
) -> None:
    """Read what was written after a seq, in commit order, with _seq and _op. The highest _seq is the next token.

    With --effects, each row is shown with what the commit did to it (_kind): a late update that lost and a delete of
    nothing are left out, and a deleted row is shown as it was. With --before, an update is two rows: update_before and
    update_after.

    Examples:
        lithify changes shop.orders --since 41 --format ndjson
        lithify changes shop.orders --since 41 --until 60 --effects --json
        lithify changes shop.orders --since 41 --effects --before
    """
    if before and not effects:
        raise InvalidRequest("--before shows the rows before updates, and only --effects tells which writes those are")
    import pyarrow.compute as pc

    chosen = check_format(session, format, output)
    with session.lake() as lake:
        started = time.perf_counter()
        table = lake.table(name)
        first = _seq(table, since)
        last = None if until is None else _seq(table, until)
        if last is not None and first > last:
            raise InvalidRequest(f"--since {since} comes after --until {until}: swap them")
        newest = table.snapshot().seq if effects or last is not None else 0
        if last is not None and last > newest:
            raise InvalidRequest(f"--until {until} lies ahead of table {name}: its newest seq is {newest}")
        if effects:
            last = newest if last is None else last
            rows = table.feed(first, last, before=before)
        else:
            rows = table.changes(since=first)
            if last is not None:
                rows = rows.filter(pc.less_equal(rows.column("_seq"), last))
        document = {
            "table": name,
            "since": first,
            "next": max(rows.column("_seq").to_pylist(), default=first) if last is None else last,
        }
        write_rows(session, rows, chosen, output, limit, time.perf_counter() - started, document)


def _seq(table: AnyTable, position: str) -> int:
    """A service knows its tables by name alone, and takes seqs only."""
    from lithify.core.position import seq_of
    from lithify.lake.internals import internals
    from lithify.lake.table import Table

    if not isinstance(table, Table):
        if not position.isdecimal():
            raise InvalidRequest(
                f"{position!r} is no seq: a service takes a number, such as the `next` of the last answer"
            )
        return int(position)
    return seq_of(position, table.name, internals(table).incarnation)


@command("history", plain=True)
def history(
    session: Session,
    name: TableArgument,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Entries at most, newest first.")
    ] = 20,
) -> None:
    """Show what happened to a table, newest first.

    Writes, deletes (who and why), folds, compactions, and changes of columns and options.

    Examples:
        lithify history shop.orders --limit 5
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


@command("snapshot", plain=True)
def snapshot(session: Session, name: TableArgument, as_of: AsOfOption = None) -> None:
    """Show which versions of changes and base a read uses, now or as of an earlier state.

    Examples:
        lithify snapshot shop.orders --as-of 2026-11-15T12:00:00
    """
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
