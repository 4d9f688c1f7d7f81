"""A Delta log comes into being, or another table takes the place of one: a commit like all others, by deltalake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema

from lithify.delta.commit_files import Commits, Needed
from lithify.delta.commit_outcome import Intent, Lost, check_outcome
from lithify.delta.folder import LOG_FOLDER
from lithify.delta.forget import KEEP_TXNS
from lithify.delta.head import Tail
from lithify.delta.log import NO_HOOKS, DeltaLog, opened_tail
from lithify.delta.open_log import check_plain
from lithify.delta.rebuild import WrittenAside, written_aside
from lithify.delta.remote_log import commits_of
from lithify.delta.torn_log import set_torn_commit_aside
from lithify.errors import NotFound
from lithify.files.storage import Storage


def create_log(
    path: PurePath,
    store: Storage,
    columns: pa.Schema,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    info: Mapping[str, Any],
    write_id: str,
    checkpoint_every: int = 20,
    at_version: int | None = None,
) -> DeltaLog:
    """Create, or replace in place: version numbers and txns at a path never start again. `at_version`: at this one
    or not at all. Raises Lost.
    """
    commits, target = commits_of(path, store), 0
    if not store.remote:
        store.make_folder(path)
        check_plain(path, store)
        set_torn_commit_aside(path / LOG_FOLDER, store)
    if store.remote and at_version is not None:
        target = at_version  # where it cannot be put if another one is there
    else:
        if DeltaLog.exists(path, store):
            opened = DeltaLog.open(path, store)
            opened.refresh()
            opened.sync_commits()
            target = opened.version + 1
        if at_version not in (None, target):
            raise Lost
    configuration = {"delta.enableExpiredLogCleanup": "false", **KEEP_TXNS, **properties}
    intent = Intent(write_id)
    said = {"lithify": {**info, "write_id": intent.id}}

    def create_at(folder: PurePath) -> None:
        DeltaTable.create(
            str(folder),
            Schema.from_arrow(columns),
            mode="overwrite" if target else "error",
            partition_by=list(partition_by),
            configuration=configuration,
            raise_if_key_not_exists=False,
            commit_properties=CommitProperties(custom_metadata=said, max_commit_retries=0),
            post_commithook_properties=NO_HOOKS,
        )

    made: WrittenAside | None = None
    before = _needed_before(commits, target) if store.remote else None
    with intent.attempt(f"version {target} of {path}"):
        try:
            if store.remote:
                made = written_aside(commits, before, create_at)
                store.publish(commits.live_path(target), made.body)
                commits.note(target, made.body)
            else:
                create_at(path)
        except Exception as error:
            check_outcome(commits, target, intent, error)
            made = None
        log = DeltaLog(commits, opened_tail(commits) if made is None else Tail.of(made.then), checkpoint_every)
    log.make_durable()
    return log


def _needed_before(commits: Commits, target: int) -> Needed | None:
    """What the version before is rebuilt from, or Lost: one that was trimmed has others in its place."""
    try:
        return commits.needed_for(target - 1) if target else None
    except NotFound as error:
        raise Lost from error
