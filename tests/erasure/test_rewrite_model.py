"""Random histories, and what every version of them says after a key was erased: the same, without its rows (E2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lithify import Lake, Table
from support.bags import bag
from support.effort import examples
from support.feed_oracle import FeedDriver, feed_programs
from support.folders import memory_folder
from support.program import ALL_TABLES, KEYS, Row

KEYED = [name for name in ALL_TABLES if KEYS[name]]


def served(table: Table, where: str | None, as_of: int | None) -> list[Row]:
    return table.to_arrow(where=where, as_of=as_of).to_pylist()


def plain(rows: Any) -> list[Row]:
    """Lists are no part of a bag, and which columns a line gave is told where any line says it."""
    return [
        {
            name: str(value) if isinstance(value, list) else value
            for name, value in row.items()
            if name != "_given" or value is not None
        }
        for row in rows
    ]


class EagerDriver(FeedDriver):
    """Its lakes look often, so that an erasure need not wait for them."""

    def _open(self) -> Lake:
        more = {"minor_files_min": 2, "pack_files_min": 2, "refresh_s": 1}
        return Lake(self._path, create=True, settings=self._settings.model_copy(update=more))


class Past:
    """All that can be asked of the versions up to `seq`, but for rows with one of the keys."""

    def __init__(self, table: Table, seq: int, key: tuple[str, ...], gone: list[tuple[Any, ...]]) -> None:
        def others(rows: Any) -> list[Row]:
            return [row for row in plain(rows) if tuple(row[name] for name in key) not in gone]

        self.states = {at: bag(others(table.to_arrow(as_of=at).to_pylist())) for at in range(seq + 1)}
        changes = [row for row in table.changes(since=0).to_pylist() if row["_seq"] <= seq]
        self.changes = others(changes)
        self.feeds = {
            since: bag(others(table.feed(since, seq, before=True).to_pylist())) for since in range(0, seq + 1, 2)
        }
        self.history = [(entry.seq, entry.operation) for entry in table.history() if (entry.seq or 0) <= seq]
        self.base = dict(self._base(table, others))

    def _base(self, table: Table, others: Any) -> Iterator[tuple[int, list[Any]]]:
        """As deltalake and Polars read each version."""
        path = str(table.base_path)
        for version in range(DeltaTable(path).version() + 1):
            rows = DeltaTable(path, version=version).to_pyarrow_table().to_pylist()
            assert bag(polars.read_delta(path, version=version).to_dicts()) == bag(rows)
            yield version, sorted(map(repr, others(rows)))


def holding(folder: Path, key: tuple[str, ...], gone: list[tuple[Any, ...]]) -> list[str]:
    """Files in which DuckDB finds one of the keys."""
    found = []
    with duckdb.connect() as connection:
        for path in folder.rglob("*.parquet"):
            if ".checkpoint" in path.name:
                continue
            query = "select * from read_parquet(?, hive_partitioning = false)"
            rows = connection.sql(query, params=[str(path)]).to_arrow_table().to_pylist()
            if any(tuple(row.get(name) for name in key) in gone for row in rows):
                found.append(path.name)
    return found


@settings(max_examples=examples(5, 300), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    program=feed_programs().filter(lambda program: program[0] in KEYED),
    choice=st.integers(0, 100),
    tagged=st.booleans(),
    resolve_rows_max=st.sampled_from([20_000_000, 3]),
)
def test_every_version_says_the_same_without_the_rows(
    program: tuple[str, list[tuple[Any, ...]]], choice: int, tagged: bool, resolve_rows_max: int
) -> None:
    name, steps = program
    key = KEYS[name]
    with memory_folder() as folder:
        driver = EagerDriver(folder / "lake", served, [name], resolve_rows_max)
        try:
            seen: list[tuple[Any, ...]] = []
            for kind, *arguments in steps:
                getattr(driver, kind)(*arguments)
                seen += [tuple(row[n] for n in key) for row in driver.oracles[name].rows.values()]
            table, lake = driver.table(name), driver._lakes[0]
            gone = [seen[choice % len(seen)]] if seen else [tuple("a" if n == "b" else 1 for n in key)]
            seq = table.snapshot().seq
            if tagged:
                table.tag("audit")
            before = Past(table, seq, key, gone)
            # A column that was added since is in the tag, and not in the seq.
            shown = plain(table.to_arrow(as_of="audit" if tagged else None).to_pylist())
            audited = bag([row for row in shown if tuple(row[n] for n in key) not in gone])

            erasure = lake.erase(name, keys=[dict(zip(key, gone[0], strict=True))])
            assert erasure.wait().state == "done", (erasure.places, erasure.problems)

            after = Past(table, seq, key, [])
            assert after.states == before.states
            assert bag(after.changes) == bag(before.changes)
            assert after.feeds == before.feeds
            assert [entry for entry in after.history if entry[1] != "fold"] == [
                entry for entry in before.history if entry[1] != "fold"
            ]
            assert {version: after.base[version] for version in before.base} == before.base
            if tagged:
                assert bag(plain(table.to_arrow(as_of="audit").to_pylist())) == audited
            assert holding(folder / "lake", key, gone) == []
            assert driver.table(name, 1).count() == table.count() == sum(before.states[seq].values())
        finally:
            driver.close()
