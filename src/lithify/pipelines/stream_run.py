"""One turn of a declared stream: the files that are there and were not taken yet, under a lease, told as a run.

Which files were taken is in the stream's checkpoint, which only Spark reads. Whether there may be others is told by the
listing alone: while it is the one that the last turn began with, there is nothing to do, and Spark is not started.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING

from lithify.errors import LithifyError, NotFound
from lithify.files.addresses import address_of
from lithify.files.user_files import find_files, is_folder
from lithify.jobs import leases
from lithify.pipelines.checkpoint import files_behind
from lithify.pipelines.past_runs import remember
from lithify.pipelines.pipeline import LEASE_S, is_running, lease_name
from lithify.pipelines.reports import PipelineReport, StepReport
from lithify.pipelines.stream_declaration import StreamDeclaration
from lithify.streams.folder import FileStream

if TYPE_CHECKING:
    from lithify.write.access import TableAccess

KIND = "stream"


def files_there(stream: StreamDeclaration) -> frozenset[int]:
    """The files of its folder or pattern, each as a number that changes with its name, size and time."""
    plain = address_of(stream.source) is None and not any(letter in stream.source for letter in "*?[{")
    if plain and not is_folder(stream.source):
        raise NotFound(f"stream {stream.name}: {stream.source} is no folder: a stream reads the files in one")
    try:
        found: Iterable[str] = find_files(stream.source)
    except NotFound:
        found = ()
    return frozenset(_number(file.path, file.size_bytes, file.modified_ns) for file in files_behind(found))


def _number(path: str, size: int, modified_ns: int) -> int:
    text = f"{path}\0{size}\0{modified_ns}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def file_stream(table: TableAccess, stream: StreamDeclaration) -> FileStream:
    """As it is declared; what does not fit its table is refused here."""
    return FileStream(
        table,
        stream.source,
        format=stream.format,
        encoding=stream.encoding,
        mode=stream.mode or ("upsert" if table.known_schema.keyed else "append"),
        op_column=stream.op_column,
        envelope=stream.envelope,
        if_changed=stream.if_changed,
        missing=stream.missing,
        checkpoint=stream.checkpoint,
        null_keys=stream.on_bad_record,
        files_max=stream.files_max,
    )


def run_stream(table: TableAccess, stream: StreamDeclaration, id: str) -> PipelineReport:
    """Raises `Conflict` while another process runs it."""
    runtime, started, started_ms = table.runtime, time.monotonic(), table.runtime.now_ms()
    ours, lease = leases.acquire(runtime, lease_name(KIND, stream.name), id, LEASE_S, f"stream {stream.name}")
    if not ours:
        raise is_running(KIND, stream.name, lease)

    def told(step: StepReport, reason: str | None = None) -> PipelineReport:
        seconds = time.monotonic() - started
        return PipelineReport(stream.name, id, started_ms, step.outcome, [step], seconds, reason)

    with leases.RenewedLease(runtime, lease):
        try:
            done = file_stream(table, stream).run()
        except LithifyError as error:
            remember(runtime, told(step_of(stream, "failed", error.message), error.message))
            raise
        if not done.batches:
            return told(step_of(stream, "idle", "no new files"))
        report = told(
            StepReport(
                stream.name,
                KIND,
                "done",
                stream.source,
                stream.target,
                "new files",
                read=done.rows + done.quarantined,
                written=done.rows,
                quarantined=done.quarantined,
                seq=done.seq,
                seconds=done.seconds,
            )
        )
        remember(runtime, report)
        return report


def step_of(stream: StreamDeclaration, outcome: str, why: str) -> StepReport:
    return StepReport(stream.name, KIND, outcome, stream.source, stream.target, why)  # type: ignore[arg-type]
