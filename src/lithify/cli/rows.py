"""Commands about rows: write, ingest, get, delete."""

from __future__ import annotations

import dataclasses
import time as clock
from typing import Annotated, Any, Literal

import typer

from lithify.cli.command import (
    ActorOption,
    BatchIdOption,
    Commands,
    EncodingOption,
    FilesFormatOption,
    FilesModeOption,
    MissingColumnsOption,
    ReasonOption,
    SchemaOption,
    Session,
    TableArgument,
)
from lithify.cli.row_input import STDIN, keys_from_arguments, order_values, read_rows, rows_of
from lithify.cli.tables import (
    ColumnsOption,
    KeyOption,
    OrderByOption,
    PartitionOption,
    TimeOption,
    names_in,
    schema_of,
)
from lithify.cli.values import human_bytes, human_seconds
from lithify.core.wording import plural
from lithify.errors import InvalidRequest, NotFound

command = Commands("Rows")


InputFormat = Literal["json", "csv", "parquet", "arrow"]
WriteMode = Literal["upsert", "append", "replace", "update", "retract"]
OnMissing = Literal["insert", "skip", "refuse", "null"]

InputFormatOption = Annotated[
    InputFormat | None,
    typer.Option("--format", "-f", help="What is in the file. Default: by its name; stdin: json (lines, or an array)."),
]


@command("write", plain=True)
def write(
    session: Session,
    name: TableArgument,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="JSON lines or array, CSV, Parquet or Arrow; - for stdin.")
    ] = None,
    row: Annotated[
        list[str] | None,
        typer.Option("--row", metavar="JSON", help="A row as a JSON object, instead of a file. Repeat it."),
    ] = None,
    format: InputFormatOption = None,
    encoding: EncodingOption = None,
    mode: Annotated[
        WriteMode | None, typer.Option("--mode", help="Default: upsert on a table with a key, append on one without.")
    ] = None,
    if_changed: Annotated[
        bool, typer.Option("--if-changed", help="Leave out rows that are there already, value for value.")
    ] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Short for --mode update: set the columns that a row names, leave others.")
    ] = False,
    missing: Annotated[
        OnMissing | None,
        typer.Option(
            "--missing",
            help="Columns that rows lack: refuse (default) or null. Keys that an update lacks: insert, skip or refuse.",
        ),
    ] = None,
    evolve: Annotated[
        bool, typer.Option("--evolve", help="Add columns that the table does not have first, if the rows fit then.")
    ] = False,
    batch_id: BatchIdOption = None,
    schema_fingerprint: SchemaOption = None,
) -> None:
    """Write rows durably, in one commit, without Spark.

    Upsert replaces rows with the same key as a whole; the last row of a key wins. Replace also beats a higher
    --order-by value. Update sets the columns that a row names and leaves the others as they are. On a table with
    merge rules every row that is upserted counts by them, replace sets it, and retract takes back from sums and counts.
    Rows that lack a column of a table with a key are refused: give it, or say --missing null, or --update.
    Dates and times are ISO text, decimals numbers or text, binary base64. For large files use `lithify ingest`.

    Examples:
        lithify write shop.orders --row '{"id": 1, "amount": 9.90, "status": "paid"}'
        lithify write shop.orders --update --row '{"id": 1, "status": "shipped"}'
        lithify write shop.orders today.csv --batch-id feed-2026-11-15
        producer | lithify write shop.orders
    """
    if row and file is not None:
        raise InvalidRequest("pass rows with --row or in a file, not both")
    if update and mode not in (None, "update"):
        raise InvalidRequest(f"--update says what to do, and --mode {mode} says something else: pass one of them")
    mode = "update" if update else mode
    _check_missing(mode, missing)
    with session.lake() as lake:
        table = lake.table(name)
        definition = table.definition
        if batch_id is None:
            definition.check_fingerprint(schema_fingerprint, table.name)
        columns = definition.columns
        if mode in ("update", "retract") or definition.keyed or definition.column_defaults:
            from lithify.core.partial_rows import input_columns

            columns = input_columns(columns)
        chosen = mode or ("upsert" if definition.keyed else "append")
        if if_changed and chosen not in ("upsert", "update"):
            raise InvalidRequest(f"--if-changed goes with mode upsert or update, not with {chosen}: leave it out")
        if evolve and chosen in ("replace", "retract"):
            raise InvalidRequest(f"--evolve goes with modes upsert, append and update, not with {chosen}: leave it out")
        data: Any = (
            rows_of(row, columns, name, evolve=evolve)
            if row
            else read_rows(file or STDIN, format, columns, name, encoding, evolve=evolve)
        )
        _load_libraries()
        started = clock.perf_counter()
        once: dict[str, Any] = {"batch_id": batch_id, "schema_fingerprint": schema_fingerprint}
        lacking: Any = missing  # of columns; an update asks about keys
        keys: Any = missing or "insert"
        match chosen:
            case "upsert":
                commit = table.upsert(data, if_changed=if_changed, missing=lacking, evolve=evolve, **once)
            case "replace":
                commit = table.replace(data, missing=lacking, **once)
            case "update":
                commit = table.update(data, missing=keys, if_changed=if_changed, evolve=evolve, **once)
            case "retract":
                commit = table.retract(data, **once)
            case _:
                commit = table.append(data, missing=lacking, evolve=evolve, **once)
        seconds = clock.perf_counter() - started
        text = (
            f"{plural(commit.upserted, 'row')} written to {name}: seq {commit.seq}, durable in {human_seconds(seconds)}"
        )
        if commit.skipped:
            text += f"; {plural(commit.skipped, 'row')} there already"
        if commit.skipped and not commit.rows:
            text = f"{plural(commit.skipped, 'row')} there already: nothing was written to {name}"
        if commit.replayed:
            text = f"batch {batch_id} was written to {name} before, as seq {commit.seq}: nothing was changed"
        session.out.message(text, {**dataclasses.asdict(commit), "seconds": seconds})


@command("ingest", local=True)
def ingest(
    session: Session,
    name: TableArgument,
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help="Files, folders or globs.")],
    format: FilesFormatOption = None,
    encoding: EncodingOption = None,
    mode: FilesModeOption = None,
    create: Annotated[
        bool,
        typer.Option("--create", help="Create the table from the files' (or the given) columns if it is not there."),
    ] = False,
    columns: ColumnsOption = None,
    key: KeyOption = None,
    order_by: OrderByOption = None,
    time: TimeOption = None,
    partition_by: PartitionOption = None,
    on_bad_record: Annotated[
        Literal["fail", "quarantine"],
        typer.Option("--on-bad-record", help="Fail with its place, or set it aside in a quarantine folder and go on."),
    ] = "fail",
    missing: MissingColumnsOption = None,
    batch_id: BatchIdOption = None,
) -> None:
    """Load files of any size: CSV, JSON lines or Parquet. All of it is visible at once, or nothing.

    Examples:
        lithify ingest shop.orders 'exports/orders-*.csv' --create --key id
        lithify ingest shop.orders exports/ --format json --on-bad-record quarantine
    """
    from lithify.cli.tables import describe_document

    with session.local_lake() as lake:
        with session.out.working(f"ingesting into {name}") as report:
            done = lake.ingest(
                name,
                paths,
                format=format,
                mode=mode,
                key=key or None,
                order_by=names_in(order_by),
                time=time,
                partition_by=tuple(partition_by or ()),
                schema=schema_of(columns, None),
                create=create,
                on_bad_record=on_bad_record,
                batch_id=batch_id,
                encoding=encoding,
                missing=missing,
                progress=report,
            )
        notes = []
        if done.bad_records:
            notes.append(f"{plural(done.bad_records, 'bad record')} set aside in {done.quarantine}")
        size = f"{plural(done.files, 'file')}, {human_bytes(done.bytes)}"
        text = (
            f"{plural(done.rows, 'row')} ({size}) ingested into {name}: seq {done.seq}, {human_seconds(done.seconds)}"
        )
        session.out.message(
            text, {**dataclasses.asdict(done), "columns": describe_document(lake, name)["columns"]}, *notes
        )


def _check_missing(mode: WriteMode | None, missing: OnMissing | None) -> None:
    """An update asks about keys that are not there, the others about columns."""
    known = ("insert", "skip", "refuse") if mode == "update" else () if mode == "retract" else ("refuse", "null")
    if missing is not None and missing not in known:
        hint = f"use {' or '.join(known)}" if known else "leave it out"
        of = f"--mode {mode}" if mode else "an upsert"
        raise InvalidRequest(f"--missing {missing} does not go with {of}: {hint}")


def _load_libraries() -> None:
    """What the first write of a process loads (pandas too, by pyarrow) is no part of the time that a write takes."""
    import pyarrow as pa

    import lithify.write.small_writes  # noqa: F401

    pa.array([])


@command("get", plain=True)
def get(
    session: Session,
    name: TableArgument,
    key: Annotated[
        str,
        typer.Argument(metavar="KEY", help="The key's value; a=1,b=2 or a JSON object for a key of several columns."),
    ],
) -> None:
    """Read one row by its key, fresh. Exit code 3 if there is none.

    Examples:
        lithify get shop.orders 42
        lithify get shop.lines order=42,line=1
    """
    with session.lake() as lake:
        table = lake.table(name)
        definition = table.definition
        if not definition.keyed:
            raise InvalidRequest(f'table {name} has no key: read it with `lithify sql "select … from {name} where …"`')
        wanted = keys_from_arguments([key], definition.columns, definition.key, name)[0]
        row = table.get(wanted)
        if row is None:
            raise NotFound(f"table {name} has no row with key {key}")
        import pyarrow as pa

        from lithify.core.json_rows import records

        columns = pa.schema([column.with_nullable(True) for column in table.schema])
        spelled = records(pa.Table.from_pylist([row], schema=columns))[0]
        session.out.record("", row, {"table": name, "row": spelled})


@command("delete", plain=True)
def delete(
    session: Session,
    name: TableArgument,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY", help="Key values; a=1,b=2 or a JSON object for a key of several columns."),
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Delete the rows that this condition holds for.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE", help="Keys from a file (- for stdin) with the key's columns."),
    ] = None,
    format: InputFormatOption = None,
    encoding: EncodingOption = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="VALUE",
            help="When, as a value of order_by: newer rows stay, and older ones stay deleted. Of several columns each "
            "in its turn: --at VALUE --at VALUE.",
        ),
    ] = None,
    actor: ActorOption = None,
    reason: ReasonOption = None,
    batch_id: BatchIdOption = None,
    schema_fingerprint: SchemaOption = None,
) -> None:
    """Delete rows by key, by a SQL condition, or by the keys in a file.

    On a table with no key, give columns: user_id=7 deletes every row that has it now. Put -- before a key that
    starts with a dash.

    Examples:
        lithify delete shop.customers 7 9 --actor privacy-desk --reason "erasure request 118"
        lithify delete shop.lines order=42,line=1
        lithify delete shop.orders --where "status = 'test'"
    """
    if sum(given is not None for given in (keys or None, where, source)) != 1:
        raise InvalidRequest("say what to delete in one way: KEY…, --where SQL, or --from FILE")
    if at and where is not None:
        raise InvalidRequest("--at goes with keys: a condition is decided on the rows that are there now")
    with session.lake() as lake:
        table = lake.table(name)
        definition = table.definition
        columns, key = definition.columns, definition.key
        _load_libraries()
        started = clock.perf_counter()
        if where is not None:
            if schema_fingerprint is not None:
                raise InvalidRequest(
                    "--schema-fingerprint goes with keys: a condition is checked by its columns anyway"
                )
            commit = table.delete_where(where, batch_id=batch_id, actor=actor, reason=reason)
        else:
            wanted = (
                read_rows(source, format, columns, name, encoding)
                if source is not None
                else keys_from_arguments(keys or (), columns, key, name)
            )
            commit = table.delete(
                wanted,
                batch_id=batch_id,
                at=order_values(at, definition) if at else None,
                actor=actor,
                reason=reason,
                schema_fingerprint=schema_fingerprint,
            )
        seconds = clock.perf_counter() - started
        if commit.replayed:
            text = f"batch {batch_id} was deleted from {name} before, as seq {commit.seq}: nothing was changed"
        elif not commit.rows:
            text = f"no row of {name} matches: nothing was changed"
        else:
            durable = f"seq {commit.seq}, durable in {human_seconds(seconds)}"
            text = f"{plural(commit.deleted, 'key')} deleted from {name}: {durable}"
        session.out.message(text, {**dataclasses.asdict(commit), "seconds": seconds})
