"""What a lake's tables hold, told without Lithify: the commits are parsed here, and DuckDB reads the Parquet files that
they name. One commit missing, or one file, is an error.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb

from support.bags import bag

Row = dict[str, Any]


@dataclass
class Log:
    """One Delta log at its head."""

    path: Path
    live: dict[str, dict[str, Any]] = field(default_factory=dict)
    txns: dict[str, int] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    def rows(self, name: str) -> list[Row]:
        """The rows of a live file, with the columns that it has."""
        with duckdb.connect() as connection:
            found = connection.execute(
                "select * from read_parquet(?, hive_partitioning=false)", [str(self.path / name)]
            )
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def read_log(path: Path) -> Log:
    places = (path / "_log_archive", path / "_delta_log")
    commits = {int(file.stem): file for place in places for file in place.glob("*.json") if len(file.stem) == 20}
    assert sorted(commits) == list(range(len(commits))), f"{path}: commits are missing, there are {sorted(commits)}"
    log = Log(path)
    for version in sorted(commits):
        for line in commits[version].read_text().splitlines():
            _apply(log, json.loads(line))
    gone = [name for name in log.live if not (path / name).is_file()]
    assert not gone, f"{path}: the log names files that are gone: {gone}"
    return log


def _apply(log: Log, action: dict[str, Any]) -> None:
    match action:
        case {"add": add}:
            log.live[unquote(add["path"])] = add
        case {"remove": remove}:
            log.live.pop(unquote(remove["path"]), None)
        case {"txn": txn}:
            log.txns[txn["appId"]] = txn["version"]
        case {"metaData": meta}:
            log.properties = meta["configuration"]
            log.columns = tuple(column["name"] for column in json.loads(meta["schemaString"])["fields"])


def tables(lake: Path) -> dict[str, Counter[Any]]:
    """The rows of every table of a lake without `order_by`."""
    found = {}
    with duckdb.connect(config={"threads": 1}) as connection:
        for log in sorted(lake.glob("[!_]*/*/changes/_delta_log/")):
            changes = read_log(log.parent)
            if changes.columns and changes.properties.get("lithify.dropped") != "true":
                folder = log.parent.parent
                base = read_log(Path(changes.properties.get("lithify.base_path", folder / "base")))
                found[f"{folder.parent.name}.{folder.name}"] = bag(_merged(connection, changes, base))
    return found


def _read(connection: duckdb.DuckDBPyConnection, log: Log, name: str) -> list[Row]:
    """The rows of a live file, with the columns that it has."""
    found = connection.execute("select * from read_parquet(?, hive_partitioning=false)", [str(log.path / name)])
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _merged(connection: duckdb.DuckDBPyConnection, changes: Log, base: Log) -> list[Row]:
    columns = [name for name in changes.columns if name not in ("_seq", "_op")]
    rows = [row for name in sorted(base.live) for row in _read(connection, base, name)]
    key = json.loads(changes.properties["lithify.key"])
    since = max(base.txns.get("lithify.folded", 0), int(changes.properties.get("lithify.created_at_seq", "0")))

    def order(name: str) -> tuple[int, str]:
        values = changes.live[name]["partitionValues"]
        return int(values["_seq"]), values["_op"]

    for name in sorted(changes.live, key=order):
        seq, op = order(name)
        if seq <= since:
            continue
        coming = _read(connection, changes, name)
        by = key or (list(coming[0]) if op == "delete" and coming else [])
        if by:
            hidden = {tuple(row[column] for column in by) for row in coming}
            rows = [row for row in rows if tuple(row.get(column) for column in by) not in hidden]
        if op != "delete":
            rows += coming
    return [{column: row.get(column) for column in columns} for row in rows]
