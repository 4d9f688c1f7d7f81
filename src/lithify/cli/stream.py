"""`lithify stream`: files of a folder into a table as they appear, told while it happens."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lithify.cli.command import (
    Commands,
    EncodingOption,
    FilesFormatOption,
    MissingColumnsOption,
    Session,
    TableArgument,
)
from lithify.cli.metrics_port import MetricsPortOption, metrics_served
from lithify.cli.signals import caught, in_terminal, in_thread, wait
from lithify.cli.values import human_seconds, seconds_of_every
from lithify.core.json_out import dumps
from lithify.core.wording import plural
from lithify.errors import InvalidRequest

if TYPE_CHECKING:
    from lithify.streams.sink import TakenBatch

command = Commands("Rows")
STOPPING = "stopping: the batch under way is finished first; Ctrl-C again ends at once"
FORCED = "ended at once: the batch under way is taken again by the next run"
EVERY_DEFAULT_S = 10.0
EVERY = "10ms", "24h"


@command("stream", local=True, json_help="Every batch as a line of JSON, and a last one when it ends.")
def stream(
    session: Session,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A folder, with those in it, or a glob of files.")],
    name: TableArgument,
    format: FilesFormatOption = None,
    encoding: EncodingOption = None,
    mode: Annotated[
        Literal["append", "upsert", "update"] | None,
        typer.Option(
            "--mode",
            help="Default: upsert on a table with a key, append on one without. Update sets the columns that a record "
            "(of CSV and Parquet, its file) has, and leaves the others.",
        ),
    ] = None,
    op_column: Annotated[
        str | None,
        typer.Option("--op-column", metavar="COLUMN", help="Says of each event: insert, update or delete. Not stored."),
    ] = None,
    envelope: Annotated[
        str | None,
        typer.Option(
            "--envelope",
            metavar="KIND",
            help="The files hold messages: debezium, or debezium:ms (us, ns) if no schema tells the unit of times.",
        ),
    ] = None,
    if_changed: Annotated[
        bool, typer.Option("--if-changed", help="Leave out rows that are there already, value for value.")
    ] = False,
    missing: MissingColumnsOption = None,
    once: Annotated[
        bool, typer.Option("--once", help="Take the files that are there and were not taken yet, and end.")
    ] = False,
    every: Annotated[
        str | None, typer.Option("--every", metavar="TIME", help="Look for new files this often: 500ms, 10s, 1m.")
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="DIR", help="What was taken already. Default: in the lake's own folder."),
    ] = None,
    on_bad_record: Annotated[
        Literal["fail", "quarantine"],
        typer.Option("--on-bad-record", help="Records with no key or unfit values: fail, or set them aside."),
    ] = "fail",
    null_keys: Annotated[
        Literal["fail", "quarantine"] | None, typer.Option("--null-keys", hidden=True, help="As --on-bad-record.")
    ] = None,
    files_max: Annotated[
        int, typer.Option("--files-max", metavar="N", min=1, help="Files that one batch takes at most.")
    ] = 1_000,
    metrics_port: MetricsPortOption = None,
) -> None:
    """Take files into a table as they appear, each record exactly once, until Ctrl-C.

    Each batch is one commit. Started again, it goes on where it was, also after a crash. Put files there by moving
    them: one that is still being written would be taken half.

    With --json, and into a pipe, every batch is a line.

    Examples:
        lithify stream landing/orders shop.orders --every 10s
        lithify stream 'cdc/orders-*.json' shop.orders --op-column op --on-bad-record quarantine
        lithify stream recorded/ shop.orders --format json --envelope debezium
        lithify stream landing/ shop.orders --format csv --once --json
    """
    if once and every is not None:
        raise InvalidRequest("--once takes what is there and ends: leave out --every")
    every_s = None if once else EVERY_DEFAULT_S if every is None else seconds_of_every(every, *EVERY)
    from lithify.lake.internals import internals
    from lithify.pipelines.run_tally import RunTally
    from lithify.streams.folder import FileStream

    with session.local_lake() as lake, metrics_served(session, lake, metrics_port):
        table, runtime = lake.table(name), internals(lake).runtime

        def taken(batch: TakenBatch) -> None:
            runtime.shared(RunTally).ended(name, runtime.now_ms())
            runtime.counters.pipeline_runs.labels("done").inc()
            _tell(session, batch)

        work = FileStream(
            internals(table),
            source,
            format=format,
            encoding=encoding,
            mode=mode or ("upsert" if table.definition.keyed else "append"),
            op_column=op_column,
            envelope=envelope,
            if_changed=if_changed,
            missing=missing,
            checkpoint=checkpoint,
            null_keys=null_keys or on_bad_record,
            files_max=files_max,
            on_batch=taken,
        )
        waiting = f"streaming {source} into {name}"
        with caught() as inbox, session.out.working(waiting, logs=True):
            report = wait(session, inbox, in_thread(inbox, lambda: work.run(every_s)), work.stop, STOPPING, FORCED)
    batches = "1 batch" if report.batches == 1 else f"{report.batches:,} batches"
    text = f"{plural(report.rows, 'row')} taken into {name} in {batches}"
    text += "" if report.seq is None else f": seq {report.seq}"
    done = {"event": "done", **dataclasses.asdict(report)}
    if session.as_json:
        _line(done)
    else:
        session.out.message(f"{text}, {human_seconds(report.seconds)}", done, f"checkpoint {report.checkpoint}")


def _tell(session: Session, batch: TakenBatch) -> None:
    commit = batch.commit
    rate = commit.rows / batch.seconds if batch.seconds and not commit.replayed else 0.0
    facts: dict[str, Any] = {
        "batch": batch.epoch,
        "rows": commit.rows,
        "upserted": commit.upserted,
        "deleted": commit.deleted,
        "seq": commit.seq,
        "replayed": commit.replayed,
        "seconds": round(batch.seconds, 3),
        "rows_per_s": round(rate),
    }
    if session.as_json:
        _line({"event": "batch", **facts})
        return
    result = "was taken before" if commit.replayed else f"{rate:,.0f} rows/s, {commit.deleted:,} deleted"
    if in_terminal(session):
        session.out.step(f"batch {batch.epoch}", plural(commit.rows, "row"), f"seq {commit.seq}", result)
    else:
        sys.stdout.write(f"batch {batch.epoch}: {plural(commit.rows, 'row')}, seq {commit.seq}, {result}\n")
        sys.stdout.flush()


def _line(document: dict[str, Any]) -> None:
    sys.stdout.write(dumps(document) + "\n")
    sys.stdout.flush()
