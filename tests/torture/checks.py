"""What is asked of a lake after each round of torture, while maintenance goes on.

Are all rows as the acknowledged writes say (`support/owners.py`); does DuckDB, which knows nothing of Lithify, see the
same (`support/log_oracle.py`); does a replica that follows the change feed hold the same; do earlier states read as
they did.
"""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb

from lithify import Lake, NotFound
from support.log_oracle import rows_of
from support.owners import KINDS, Candidates, found
from torture.world import SETTINGS, World


def check(world: World, candidates: Candidates, answer: Path) -> None:
    path = world.root / "memory.pickle"
    memory = pickle.loads(path.read_bytes()) if path.exists() else {}
    bad: list[str] = []
    with Lake(world.lake, settings=SETTINGS) as lake:
        for name in KINDS:
            bad += _check(world, lake, name, candidates, memory.setdefault(name, {"past": {}, "replica": None}))
    path.write_bytes(pickle.dumps(memory))
    answer.write_bytes(pickle.dumps((bad, candidates.states)))


def _check(world: World, lake: Lake, name: str, candidates: Candidates, memory: dict[str, Any]) -> list[str]:
    table, kind = lake.table(name), KINDS[name]
    for _ in range(10):  # a vacuum that takes everything for days older may take what this read is at
        try:
            snapshot = table.snapshot()
            rows = table.to_arrow(as_of=snapshot).to_pylist()
            break
        except NotFound as error:
            world.note("check again", table=name, error=str(error)[:300])
    else:
        return [f"{name}: cannot be read"]
    bad = candidates.decide(name, found(name, rows))
    now = _bag(rows)
    strange = _told_by_a_stranger(world, name)
    if strange is not None and strange != now:
        bad.append(f"{name}: DuckDB sees other rows: {_difference(strange, now)}")
    return [
        *bad,
        *_past(table, name, snapshot.seq, now, memory["past"]),
        *_replica(table, kind, snapshot.seq, rows, memory),
    ]


def _told_by_a_stranger(world: World, name: str) -> Counter[Any] | None:
    for _ in range(10):
        try:
            return _bag(rows_of(world.lake / name.replace(".", "/")))
        except (AssertionError, FileNotFoundError, duckdb.IOException) as error:
            # Maintenance goes on: what the log named a moment ago may have been replaced. Asked again, it is whole.
            reason = str(error)
    world.violation(f"{name}: its logs and files do not fit together: {reason[:500]}")
    return None


def _past(table: Any, name: str, seq: int, now: Counter[Any], past: dict[int, Counter[Any]]) -> list[str]:
    bad = []
    for then, rows in list(past.items()):
        try:
            if (read := _bag(table.to_arrow(as_of=then).to_pylist())) != rows:
                bad.append(f"{name}: as of seq {then} it reads otherwise now: {_difference(read, rows)}")
        except NotFound:  # vacuumed
            del past[then]
    past[seq] = now
    if len(past) > 4:
        del past[sorted(past)[len(past) // 2]]
    return bad


def _replica(table: Any, kind: Any, seq: int, rows: list[dict[str, Any]], memory: dict[str, Any]) -> list[str]:
    """Somebody who holds the rows as of the last round, and is told only what changed."""
    if not kind.key:
        return []
    bad, replica = [], memory["replica"]
    here = {tuple(row[column] for column in kind.key): _line(row) for row in rows}
    memory["replica"] = seq, here
    if replica is None:
        return []
    since, copy = replica
    try:
        feed = table.feed(since, until=seq).to_pylist()
    except NotFound:  # vacuumed: it has to begin anew
        return []
    for row in feed:
        told, _ = row.pop("_kind"), row.pop("_seq")
        key = tuple(row[column] for column in kind.key)
        if (told == "insert") == (key in copy):
            bad.append(
                f"{kind.name}: the feed tells an {told} of {key}, which is {'there' if key in copy else 'not there'}"
            )
        if told == "delete":
            copy.pop(key, None)
        else:
            copy[key] = _line(row)
    if copy != here:
        bad.append(f"{kind.name}: the replica differs: {_difference(Counter(copy.values()), Counter(here.values()))}")
    return bad


def _line(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted((name, str(value)) for name, value in row.items()))


def _bag(rows: Any) -> Counter[Any]:
    return Counter(_line(row) for row in rows)


def _difference(one: Counter[Any], other: Counter[Any]) -> str:
    return f"{len(one)} and {len(other)} rows, only here {list(one - other)[:4]}, only there {list(other - one)[:4]}"
