"""Checkpoints that leave out what the log may forget (`delta/forget_rules.py`).

deltalake would drop transactions by the clock of whoever writes or reads a checkpoint, so a table is told to keep all
of them (`KEEP_TXNS`), and what may go is decided here. A checkpoint never changes once others can see it: it is made
aside, from links to the log as it is, filtered there, and put into the log as a whole. Only then does the hint
point at it. Cut off anywhere, the log is as it was, or has one checkpoint more.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import PurePath

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lithify.delta.commit_files import Commits
from lithify.delta.folder import HINT, LOG_FOLDER, checkpoint_name
from lithify.delta.forget_rules import forgettable
from lithify.delta.open_log import translated_error
from lithify.delta.rebuild import aside
from lithify.delta.torn_log import checkpoint_column
from lithify.files.local import LocalStorage
from lithify.files.open_parquet import open_file, read_open
from lithify.files.os_errors import Exists

RETENTION = "delta.setTransactionRetentionDuration"
KEEP_TXNS = {RETENTION: "interval 36500 days"}


def forgotten_at(commits: Commits, log_ms: int, choose: Callable[..., frozenset[str]] = forgettable) -> frozenset[str]:
    """What the newest checkpoint still carries although it need not."""
    checkpoints = commits.listing().checkpoints
    if not checkpoints:
        return frozenset()
    path = commits.live / checkpoint_name(checkpoints[-1])
    txns = checkpoint_column(path, commits.store, "txn")
    return choose([(txn["appId"], txn["lastUpdated"]) for txn in (txns.to_pylist() if txns else [])], log_ms)


def checkpoint_without(commits: Commits, version: int, names: frozenset[str]) -> DeltaTable:
    """Put a checkpoint of this version into the log that does not carry the named transactions. Who comes second to it
    adds nothing, nor points at what it has not written. Returns the version as deltalake has it.
    """
    with aside(commits, commits.needed_aside(version)) as own:
        try:
            table = DeltaTable(str(own.folder), version=version)
            table.create_checkpoint()
        except (DeltaError, OSError, ValueError) as error:
            raise translated_error(error, commits.live) from error
        log = own.folder / LOG_FOLDER
        content, rows = _filtered(log / checkpoint_name(version), names)
        hint = json.loads(LocalStorage().read(log / HINT))
    store = commits.store
    try:
        store.create(commits.live / checkpoint_name(version), content)
    except Exists:
        return table
    store.sync_folder(commits.live)
    store.put(commits.live / HINT, json.dumps({**hint, "size": rows, "sizeInBytes": len(content)}).encode())
    return table


def _filtered(path: PurePath, names: frozenset[str]) -> tuple[bytes, int]:
    if not names:
        return LocalStorage().read(path), open_file(path).metadata.num_rows
    actions = read_open(open_file(path), path)
    gone = pc.is_in(pc.struct_field(actions["txn"], "appId"), value_set=pa.array(sorted(names), pa.string()))
    remaining = actions.filter(pc.invert(pc.fill_null(gone, False)))
    buffer = io.BytesIO()
    pq.write_table(remaining, buffer, compression="zstd")
    return buffer.getvalue(), remaining.num_rows
