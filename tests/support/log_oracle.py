"""What a lake's tables hold, as a stranger computes it: both logs replayed by hand, files read and merged by DuckDB.

Nothing of Lithify, deltalake, pyarrow or DataFusion takes part, so that a mistake of theirs cannot hide here. One
commit missing, or one file, is an AssertionError.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb

from support.bags import bag

GENERATION = "lithify.generation"
WATERMARK_TXN, SEQ, OP = "lithify.folded", "_seq", "_op"
GIVEN, NTH = "_lithify_given", "_lithify_nth"
BASE_SEQ = -1


@dataclass
class Replayed:
    """What a Delta log says at its newest version."""

    path: Path
    version: int = -1
    files: dict[str, dict[str, str | None]] = field(default_factory=dict)
    txns: dict[str, int] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    def apply(self, actions: Iterable[Mapping[str, Any]]) -> None:
        for action in actions:
            if add := action.get("add"):
                self.files[unquote(add["path"])] = dict(add["partitionValues"])
            if remove := action.get("remove"):
                self.files.pop(unquote(remove["path"]), None)
            if txn := action.get("txn"):
                self.txns[txn["appId"]] = txn["version"]
            if told := action.get("metaData"):
                self.properties = dict(told["configuration"])
                self.columns = tuple(column["name"] for column in json.loads(told["schemaString"])["fields"])


def replay(folder: Path, *, whole: bool = False) -> Replayed:
    """The newest checkpoint, then the commits after it, which must follow each other without a gap. `whole`: all
    commits from the first on, wherever they lie, and no checkpoint.
    """
    state, log_folders = Replayed(folder), [folder / "_delta_log"]
    if whole:
        log_folders.append(folder / "_log_archive")
    elif checkpoints := sorted(log_folders[0].glob("*.checkpoint.parquet")):
        state.version = int(checkpoints[-1].name[:20])
        with duckdb.connect() as connection:
            found = connection.execute("select * from read_parquet(?)", [str(checkpoints[-1])])
            names = [column[0] for column in found.description]
            # Removed files stand in a checkpoint for vacuum only.
            state.apply(
                {name: value for name, value in zip(names, row, strict=True) if value is not None and name != "remove"}
                for row in found.fetchall()
            )
    commits = {
        int(file.stem): file
        for log_folder in log_folders
        for file in log_folder.glob("*.json")
        if file.stem.isdecimal()
    }
    for version in sorted(version for version in commits if version > state.version):
        assert version == state.version + 1, f"{folder}: version {state.version + 1} is missing"
        state.version = version
        state.apply(json.loads(line) for line in commits[version].read_text().splitlines())
    return state


def tables(lake: Path) -> dict[str, Counter[Any]]:
    """The rows of every table of a lake; of one whose columns are half-way through a change, a stranger sees none.
    Erasures cut logs: in their lakes these are read from a checkpoint on.
    """
    found, whole = {}, not (lake / "_lithify" / "erasures").exists()
    for log in sorted(lake.glob("[!_]*/*/changes/_delta_log/")):
        folder, changes = log.parent.parent, replay(log.parent, whole=whole)
        if changes.columns and changes.properties.get("lithify.dropped") != "true":
            base = replay(Path(changes.properties.get("lithify.base_path", folder / "base")), whole=whole)
            if changes.properties.get(GENERATION) == base.properties.get(GENERATION):
                found[f"{folder.parent.name}.{folder.name}"] = bag(_merged(changes, base))
    return found


def rows_of(table: Path) -> list[dict[str, Any]]:
    """All rows of the table in a folder, in no order. Its log may have been trimmed."""
    return _merged(replay(table / "changes"), replay(table / "base"))


def _merged(changes: Replayed, base: Replayed) -> list[dict[str, Any]]:
    """Partition columns of the user's are not supported here."""
    told = changes.properties
    columns = [name for name in changes.columns if name not in (SEQ, OP)]
    key, order_by = json.loads(told["lithify.key"]), told.get("lithify.order_by")
    watermark = max(base.txns.get(WATERMARK_TXN, 0), int(told.get("lithify.created_at_seq", "0")))
    pending = [
        (str(changes.path / path), int(values[SEQ] or 0), str(values[OP]))
        for path, values in changes.files.items()
        if int(values[SEQ] or 0) > watermark
    ]
    solid = [(str(base.path / path), BASE_SEQ, "upsert") for path in base.files]
    for path in (*map(changes.path.joinpath, changes.files), *map(base.path.joinpath, base.files)):
        assert path.is_file(), f"{path}: the log names it, and it is not there"
    written = [entry for entry in (*solid, *pending) if entry[2] != "delete"]
    deleted = [entry for entry in pending if entry[2] == "delete"]
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("set timezone = 'UTC'")
        _scan(connection, "written", written, [*columns, GIVEN, NTH])
        _scan(connection, "deleted", deleted, key or _delete_columns(connection, deleted))
        if any(op == "update" for _, _, op in pending):
            return _updated(connection, columns, key, order_by)
        text = _keyless(columns, connection) if not key else _keyed(columns, key, order_by)
        return [dict(zip(columns, row, strict=True)) for row in connection.execute(text).fetchall()]


def _scan(
    connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[tuple[str, int, str]], columns: Sequence[str]
) -> None:
    if not files:
        nothing = ", ".join(f'null as "{column}"' for column in columns)
        connection.execute(
            f"create temp table {name} as select {nothing or 'null as nothing'}, 0 as _seq, '' as _op limit 0"
        )
        return
    connection.execute(f"create temp table {name}_files (filename varchar, _seq bigint, _op varchar)")
    connection.executemany(f"insert into {name}_files values (?, ?, ?)", files)
    there = {
        column[0]
        for column in connection.execute(
            "select * from read_parquet(?, union_by_name = true, hive_partitioning = false) limit 0",
            [[file for file, _, _ in files]],
        ).description
    }
    wanted = ", ".join(f'f."{column}"' if column in there else f'null as "{column}"' for column in columns)
    connection.execute(
        f"create temp table {name} as select {wanted}, g._seq, g._op "
        "from read_parquet(?, union_by_name = true, filename = true, hive_partitioning = false) f "
        f"join {name}_files g using (filename)",
        [[file for file, _, _ in files]],
    )


def _delete_columns(connection: duckdb.DuckDBPyConnection, deleted: Sequence[tuple[str, int, str]]) -> list[str]:
    if not deleted:
        return []
    return [c[0] for c in connection.execute("select * from read_parquet(?) limit 0", [deleted[0][0]]).description]


def _keyed(columns: Sequence[str], key: Sequence[str], order_by: str | None) -> str:
    shown, keys = ", ".join(f'"{c}"' for c in columns), ", ".join(f'"{c}"' for c in key)
    rank = f'"{order_by}" desc nulls last, _seq desc' if order_by else "_seq desc"
    return f"""
        {_open(key)}
        select {shown} from open qualify row_number() over (partition by {keys} order by {rank}) = 1
    """


def _updated(
    connection: duckdb.DuckDBPyConnection, columns: Sequence[str], key: Sequence[str], order_by: str | None
) -> list[dict[str, Any]]:
    """One line after the other: some of them give some columns alone. An older one counts for nothing."""
    found = connection.execute(f"{_open(key)} select * from open order by _seq, {NTH} nulls first")
    names = [column[0] for column in found.description]
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for values in found.fetchall():
        line = dict(zip(names, values, strict=True))
        place = tuple(line[column] for column in key)
        given = columns if line["_op"] != "update" else [*key, *line[GIVEN].strip(",").split(",")]
        if place not in rows:
            rows[place] = dict.fromkeys(columns)
        elif order_by and (line[order_by] is not None, line[order_by]) < (
            (rows[place][order_by] is not None, rows[place][order_by])
        ):
            continue
        rows[place].update({column: line[column] for column in given if column})
    return list(rows.values())


def _open(key: Sequence[str]) -> str:
    """The lines that count."""
    keys = ", ".join(f'"{c}"' for c in key)
    same = " and ".join(f'w."{c}" = b."{c}"' for c in key)
    # Nothing at or below the last delete, or below the last replace, of a key counts any more.
    return f"""
        with barriers as (
            select {keys}, max(_seq) as _seq, max_by(_op, _seq) as _op
            from (
                select {keys}, _seq, _op from deleted
                union all select {keys}, _seq, _op from written where _op = 'replace'
            )
            group by all
        ), open as (
            select w.* from written w left join barriers b on {same}
            where b._seq is null or w._seq > b._seq or (w._seq = b._seq and b._op = 'replace')
        )
    """


def _keyless(columns: Sequence[str], connection: duckdb.DuckDBPyConnection) -> str:
    shown = ", ".join(f'w."{c}"' for c in columns)
    by = [c[0] for c in connection.execute("select * exclude (_seq, _op) from deleted limit 0").description]
    by = [column for column in by if column != "nothing"]
    if not by:
        return f"select {shown} from written w"
    same = " and ".join(f'w."{c}" is not distinct from d."{c}"' for c in by)
    return f"select {shown} from written w where not exists (select 1 from deleted d where {same} and d._seq > w._seq)"
