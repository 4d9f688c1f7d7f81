"""One commit: what it changes, as the text of its file and as deltalake wants it, and reading it back from the log."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction
from deltalake.transaction import AddAction, RemoveAction

from lithify.core.snapshot import DataFile
from lithify.delta.entries import spelled
from lithify.delta.forget_rules import may_expire
from lithify.delta.own_commits import ACTIONS, check_whole
from lithify.errors import Conflict
from lithify.files.parquet import Written

TURN_OF = "turn"  # what a commit calls its process by, where it takes turns with others (`fair_order`)
ENGINE = "Lithify"  # of a commit that was whole and synced before anybody could see it

Adds = Sequence[tuple[Written, Mapping[str, str | None]]]


@dataclass(frozen=True)
class LogChange:
    """What a commit is to do: to files, or to the table's properties, or a new column. `time_ms`: how old the rows of
    added files are, if not new. `columns`: all columns of the table from now on; properties are set with them, and
    files come and go in the same commit.
    """

    info: Mapping[str, Any]
    adds: Adds = ()
    removes: Sequence[DataFile] = ()
    txns: Mapping[str, int] = field(default_factory=dict)
    data_change: bool = False
    time_ms: int | None = None
    properties: Mapping[str, str] | None = None
    column: pa.Field | None = None
    columns: pa.Schema | None = None


@dataclass(frozen=True)
class CommitRecord:
    version: int
    timestamp_ms: int
    info: Mapping[str, Any]
    adds: tuple[Mapping[str, Any], ...]
    removes: tuple[Mapping[str, Any], ...]
    txns: Mapping[str, int]
    kinds: frozenset[str] = frozenset()
    engine: str = ""


def commit_body(
    change: LogChange,
    partitions: Sequence[str],
    write_id: str,
    time_ms: int,
    definition: Sequence[Mapping[str, Any]] = (),
) -> bytes:
    """The file of a commit that adds and removes files. `time_ms` is the time of the log, which never goes back.
    `definition`: actions that say what the table is from now on.
    """
    parameters = {"mode": "Append", "partitionBy": json.dumps(list(partitions))}
    said = _said(change.info, write_id, time_ms)
    actions: list[dict[str, Any]] = [
        {
            "commitInfo": {
                "timestamp": time_ms,
                "operation": "WRITE",
                "operationParameters": parameters,
                "engineInfo": ENGINE,
                "lithify": said,
            }
        }
    ]
    actions += map(dict, definition)
    for file, partition in change.adds:
        add = {
            "path": spelled(file.path),
            "partitionValues": dict(partition),
            "size": file.size_bytes,
            "modificationTime": time_ms if change.time_ms is None else change.time_ms,
            "dataChange": change.data_change,
            "stats": file.stats,
        }
        actions.append({"add": add})
    for removed in change.removes:
        remove = {
            "path": removed.log_path,
            "deletionTimestamp": time_ms,
            "dataChange": change.data_change,
            "extendedFileMetadata": False,
            "size": removed.size_bytes,
        }
        actions.append({"remove": remove})
    for name, version in change.txns.items():
        updated = {"lastUpdated": time_ms} if may_expire(name) else {}
        actions.append({"txn": {"appId": name, "version": version, **updated}})
    said[ACTIONS] = len(actions)
    # Raw UTF-8: deltalake misreads characters outside the basic plane when they are escaped.
    return "\n".join(json.dumps(action, ensure_ascii=False, separators=(",", ":")) for action in actions).encode()


def _said(info: Mapping[str, Any], write_id: str, time_ms: int) -> dict[str, Any]:
    return {**info, "write_id": write_id, "time_ms": time_ms}


def actions_of(table: PurePath, change: LogChange, now_ms: int) -> list[AddAction | RemoveAction]:
    """The same for deltalake."""
    added_ms = now_ms if change.time_ms is None else change.time_ms
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size_bytes, dict(partition), added_ms, change.data_change, file.stats)
        for file, partition in change.adds
    ]
    for file in change.removes:
        check_removable(file, table)
        actions.append(RemoveAction(file.path, change.data_change, now_ms, file.size_bytes))
    return actions


def check_removable(file: DataFile, table: PurePath) -> None:
    """deltalake spells the path of a removed file in its own way; another spelling in the log would not be removed."""
    if spelled(file.path) != file.log_path:
        raise Conflict(
            f"the log of {table} spells the file {file.log_path!r} in a way that cannot be removed safely: "
            "rewrite that file with another Delta writer (an optimize does), then try again"
        )


def commit_properties(
    txns: Mapping[str, int], info: Mapping[str, Any], write_id: str, time_ms: int
) -> CommitProperties:
    """Without retries: the commit succeeds at the version after the handle's, or not at all. deltalake adds the time of
    its own process; `time_ms` is that of the log.
    """
    return CommitProperties(
        custom_metadata={"lithify": _said(info, write_id, time_ms)},
        max_commit_retries=0,
        app_transactions=[
            Transaction(name, version, time_ms if may_expire(name) else None) for name, version in txns.items()
        ],
    )


def parse_record(version: int, content: bytes) -> CommitRecord:
    """Raises ValueError for what are no actions, and NotWhole for what is not all of them."""
    actions = [
        {kind: said for kind, said in action.items() if said is not None} for action in parse_objects(content, _STRICT)
    ]
    if not all(isinstance(said, dict) for action in actions for said in action.values()):
        raise ValueError(f"version {version} has an action that is none")
    commit: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    check_whole(version, actions, commit)
    info = commit.get("lithify")
    info = info if isinstance(info, dict) else {}
    try:
        return CommitRecord(
            version,
            int(info.get("time_ms", commit.get("timestamp", 0))),
            info,
            tuple(action["add"] for action in actions if "add" in action),
            tuple(action["remove"] for action in actions if "remove" in action),
            # Of several for one name the first counts, as it does to deltalake.
            {action["txn"]["appId"]: action["txn"]["version"] for action in reversed(actions) if "txn" in action},
            frozenset(kind for action in actions for kind in action),
            str(commit.get("engineInfo", "")),
        )
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"version {version} has an action that is none") from error


def parse_objects(content: bytes, decoder: json.JSONDecoder | None = None) -> list[dict[str, Any]]:
    """What a commit is: JSON objects one after the other, mostly one in a line. Raises ValueError."""
    return [value for value, _ in spelled_objects(content, decoder)]


def spelled_objects(content: bytes, decoder: json.JSONDecoder | None = None) -> Iterator[tuple[dict[str, Any], str]]:
    """The same, each with its text."""
    text, end = content.decode(), 0
    while (begin := _BLANK.match(text, end).end()) < len(text):  # type: ignore[union-attr]
        value, end = (decoder or _LENIENT).raw_decode(text, begin)
        if not isinstance(value, dict):
            raise ValueError(f"{value!r:.100} is no action")
        yield value, text[begin:end]


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


_BLANK = re.compile(r"\s*")
_LENIENT, _STRICT = json.JSONDecoder(), json.JSONDecoder(parse_constant=_no_number)
