"""Readers beside a process that writes, folds, rewrites and vacuums as if nobody read: every answer is compared."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Conflict, Lake, NotFound, Settings, Table
from lithify.read import one_row
from lithify.sql import scan_memory
from support import children, churn
from support.effort import examples

pytestmark = [pytest.mark.slow, pytest.mark.timeout(examples(300, 7_200))]

READERS = 2


def as_state(rows: pa.Table) -> churn.State:
    found = dict(zip(rows.column("id").to_pylist(), rows.column("v").to_pylist(), strict=True))
    assert len(found) == rows.num_rows, "a key stands twice"
    return found


class Reader:
    """Asks a table at random, and compares each answer with what must be there."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake, self.table, self.chance = lake, lake.table("a.t"), random.Random(seed)
        self.told: Counter[str] = Counter()
        self.seen = [self.table.snapshot().seq]

    def run(self, rounds: int) -> None:
        doors: list[Callable[[], None]] = [self.query, self.to_arrow, self.count, self.get, self.as_of, self.feed]
        for _ in range(rounds):
            door = self.chance.choice(doors)
            try:
                door()
                self.told[door.__name__] += 1
            except Conflict:
                self.told["gave up"] += 1
            except NotFound:
                if door not in (self.as_of, self.feed):
                    raise
                self.told["is gone"] += 1

    def query(self) -> None:
        answer = self.lake.query("select id, v from a.t where v >= 0", timeout_s=60)
        seq = answer.snapshots["a.t"]
        assert as_state(answer.rows) == churn.state(seq), seq
        self.seen.append(seq)

    def to_arrow(self) -> None:
        first = self.table.snapshot().seq
        found = as_state(self.table.to_arrow(where="id >= 0"))
        assert found in [churn.state(seq) for seq in range(first, self.table.snapshot().seq + 1)], first

    def count(self) -> None:
        first = self.table.snapshot().seq
        (row,) = self.lake.sql("select count(v) n, coalesce(sum(v), 0) s from a.t where id >= 0").to_pylist()
        states = [churn.state(seq) for seq in range(first, self.table.snapshot().seq + 1)]
        assert (row["n"], row["s"]) in [(len(state), sum(state.values())) for state in states], first

    def get(self) -> None:
        key = self.chance.choice(churn.keys(self.chance.randrange(churn.RANGES)))
        first = self.table.snapshot().seq
        row = self.table.get(key)
        values = {churn.state(seq).get(key) for seq in range(first, self.table.snapshot().seq + 1)}
        assert (row["v"] if row else None) in values, (first, key)

    def as_of(self) -> None:
        seq = self.chance.choice(self.seen[-5:])
        assert as_state(self.table.to_arrow(as_of=seq)) == churn.state(seq), seq

    def feed(self) -> None:
        since = self.chance.choice(self.seen[-5:])
        until = self.table.snapshot().seq
        state = churn.state(since)
        for row in self.table.feed(since, until).to_pylist():
            if row["_kind"] == "delete":
                assert state.pop(row["id"]) == row["v"], (since, until)
            else:
                assert (row["_kind"] == "update") == (row["id"] in state), (since, until)
                state[row["id"]] = row["v"]
        assert state == churn.state(until), (since, until)


@contextmanager
def beside(target: Callable[..., None], path: Path, *arguments: Any) -> Iterator[Event]:
    stop = children.event()
    scratch = path.parent / "scratch"
    scratch.mkdir()
    child = children.start(target, str(path), *arguments, stop, scratch=scratch)
    try:
        yield stop
    finally:
        stop.set()
        code = children.finish(child)
    assert code == 0


@pytest.mark.parametrize("scanned", [True, False], ids=["scanned", "in memory"])
def test_every_answer_is_right_beside_folds_and_vacuums(
    folder: Path, monkeypatch: pytest.MonkeyPatch, scanned: bool
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    if scanned:
        monkeypatch.setattr(scan_memory, "RAW_BYTES_MAX", -1)
        monkeypatch.setattr(one_row, "DECODED_BYTES_MAX", -1)
    failures: list[BaseException] = []
    with Lake(folder / "lake", settings=Settings(cache_bytes_max=0)) as lake:
        churn.create(lake)
        readers = [Reader(lake, seed + number) for number in range(READERS)]

        def run(reader: Reader) -> None:
            try:
                reader.run(examples(60, 20_000))
            except BaseException as error:
                failures.append(error)

        with beside(churn.write_and_vacuum, folder / "lake", seed):
            threads = [threading.Thread(target=run, args=(reader,)) for reader in readers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    told = sum((reader.told for reader in readers), Counter[str]())
    print(dict(told))
    assert not failures, failures[0]
    answered = told.total() - told["gave up"] - told["is gone"]
    assert answered > told.total() // 2


def test_a_table_that_is_dropped_and_created_is_whole_or_not_there(folder: Path) -> None:
    whole = [{}, churn.state(1), churn.state(2)]
    with Lake(folder / "lake", settings=Settings(cache_bytes_max=0)) as lake:
        lake.create_table("a.d", churn.SCHEMA, key="id")
        reads: list[Callable[[Table], pa.Table]] = [
            lambda table: lake.sql("select id, v from a.d"),
            lambda table: table.to_arrow(),
            lambda table: table.to_arrow(where="v >= 0"),
        ]
        with beside(churn.drop_and_create, folder / "lake"):
            for number in range(examples(150, 20_000)):
                try:
                    found = as_state(reads[number % len(reads)](lake.table("a.d")))
                except NotFound:
                    continue
                assert found in whole
