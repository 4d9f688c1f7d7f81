"""A lake in a bucket behind a server that loses, delays and refuses answers, and a dictionary that knows better.

Random programs write, delete, update, fold, vacuum and look back in time. What was acknowledged is there, what was
refused is not, what nobody could know is there whole or not at all.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

import lithify.files.bucket.client
from lithify import CommitUnknown, Lake, LithifyError, Settings, Table
from support.effort import SOAK
from support.fault_proxy import FaultProxy
from support.storage_kinds import make_trouble

pytestmark = [pytest.mark.bucket, pytest.mark.slow]

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
SEEDS, STEPS = (range(40), 250) if SOAK else (range(2), 45)
IDS, READS_MAX, STATES_KEPT = 30, 40, 8

State = dict[int, str]


class Program:
    def __init__(self, address: str, proxy: FaultProxy, seed: int) -> None:
        self.address, self.proxy, self.rng = address, proxy, random.Random(seed)
        self.state: State = {}
        self.past = deque[tuple[int, State]]((), STATES_KEPT)
        self.done, self.failed = Counter[str](), Counter[str]()
        self.lake: Lake | None = None
        self.number = 0

    def open(self) -> Lake:
        return Lake(self.address, create=False, settings=Settings(checkpoint_every=4))

    def close(self) -> None:
        if self.lake is not None:
            self.lake.close()
            self.lake = None

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()

    def step(self) -> None:
        """One step of any kind; who begins anew has nothing in memory."""
        self.number += 1
        if self.rng.random() < 0.05:
            self.close()
        name = self.rng.choices(list(STEPS_OF), [weight for weight, _ in STEPS_OF.values()])[0]
        step = STEPS_OF[name][1]
        after = dict(self.state)
        try:
            self.lake = self.lake or self.open()
            act = step(self, self.lake.table("a.t"), after)
        except LithifyError:
            self.failed["open"] += 1
            return
        try:
            act()
        except CommitUnknown:
            self.failed[name] += 1
            with self.healed():
                found = self.read()
            assert found in (self.state, after), f"{name} is there in part"
            self.state = found
        except LithifyError:
            self.failed[name] += 1
        else:
            self.done[name] += 1
            self.state = after
        if self.rng.random() < 0.4 or name not in WRITES:
            assert self.read() == self.state, f"after {name}, step {self.number}"

    def read(self) -> State:
        """As soon as trouble lets it."""
        for _ in range(READS_MAX):
            try:
                self.lake = self.lake or self.open()
                table = self.lake.table("a.t")
                snapshot = table.snapshot()
                found = {row["id"]: row["v"] for row in table.to_arrow(as_of=snapshot).to_pylist()}
            except LithifyError:
                self.failed["read"] += 1
            else:
                self.past.append((snapshot.seq, found))
                return found
        raise AssertionError("reads never come through")

    @contextmanager
    def healed(self) -> Iterator[None]:
        self.proxy.heal()
        yield
        make_trouble(self.proxy)

    # -- steps: each says what it does, and what there is after it

    def upsert(self, table: Table, after: State) -> Callable[[], object]:
        rows = [{"id": id, "v": f"{self.number}-{id}"} for id in self.rng.sample(range(IDS), 3)]
        after |= {row["id"]: row["v"] for row in rows}
        return lambda: table.upsert(rows)

    def bulk(self, table: Table, after: State) -> Callable[[], object]:
        """Several files at once, as a load."""
        rows = pa.table({"id": list(range(IDS)), "v": [f"{self.number}"] * IDS}, SCHEMA)
        after |= dict.fromkeys(range(IDS), f"{self.number}")
        return lambda: table.upsert(iter([rows.to_batches()[0]]))

    def delete(self, table: Table, after: State) -> Callable[[], object]:
        ids = self.rng.sample(range(IDS), 2)
        for id in ids:
            after.pop(id, None)
        return lambda: table.delete(ids)

    def delete_where(self, table: Table, after: State) -> Callable[[], object]:
        rest = self.number % 7
        for id in [id for id in after if id % 7 == rest]:
            del after[id]
        return lambda: table.delete_where(f"id % 7 = {rest}")

    def update(self, table: Table, after: State) -> Callable[[], object]:
        after |= {id: f"u{self.number}" for id in after if id < 15}
        assert self.lake is not None
        execute = self.lake.sql
        return lambda: execute(f"update a.t set v = 'u{self.number}' where id < 15")

    def look(self, table: Table, after: State) -> Callable[[], object]:
        id = self.rng.randrange(IDS)

        def get() -> None:
            found = table.get(id)
            assert (None if found is None else found["v"]) == self.state.get(id)

        return get

    def look_back(self, table: Table, after: State) -> Callable[[], object]:
        if not self.past:
            return lambda: None
        seq, then = self.rng.choice(self.past)

        def read() -> None:
            assert {row["id"]: row["v"] for row in table.to_arrow(as_of=seq).to_pylist()} == then

        return read

    def query(self, table: Table, after: State) -> Callable[[], object]:
        assert self.lake is not None
        sql = self.lake.sql

        def count() -> None:
            (row,) = sql("select count(*) as n, count(distinct v) as d from a.t").to_pylist()
            assert row == {"n": len(self.state), "d": len(set(self.state.values()))}

        return count

    def fold(self, table: Table, after: State) -> Callable[[], object]:
        return table.fold

    def compact(self, table: Table, after: State) -> Callable[[], object]:
        return table.compact

    def vacuum(self, table: Table, after: State) -> Callable[[], object]:
        return lambda: table.vacuum(dry_run=False)

    def optimize(self, table: Table, after: State) -> Callable[[], object]:
        return lambda: table.optimize(["v"])

    def tag(self, table: Table, after: State) -> Callable[[], object]:
        return lambda: table.tag(f"t{self.number}")

    def maintain(self, table: Table, after: State) -> Callable[[], object]:
        assert self.lake is not None
        return self.lake.maintain

    def others(self, table: Table, after: State) -> Callable[[], object]:
        assert self.lake is not None
        lake, name = self.lake, f"a.x{self.number}"

        def come_and_go() -> None:
            lake.create_table(name, SCHEMA, key="id").upsert([{"id": 1, "v": "x"}])
            lake.drop_table(name)

        return come_and_go


Step = Callable[[Program, Table, State], Callable[[], object]]
WRITES = ("upsert", "bulk", "delete", "delete where", "update")
STEPS_OF: dict[str, tuple[int, Step]] = {
    "upsert": (12, Program.upsert),
    "bulk": (1, Program.bulk),
    "delete": (4, Program.delete),
    "delete where": (2, Program.delete_where),
    "update": (2, Program.update),
    "look": (4, Program.look),
    "look back": (3, Program.look_back),
    "query": (3, Program.query),
    "fold": (5, Program.fold),
    "compact": (2, Program.compact),
    "vacuum": (2, Program.vacuum),
    "optimize": (1, Program.optimize),
    "tag": (1, Program.tag),
    "maintain": (1, Program.maintain),
    "others": (1, Program.others),
}


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_doubled_or_half_done(
    proxy: FaultProxy, address: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(lithify.files.bucket.client, "TIMEOUT_S", 3.0)
    with Lake(address, create=True) as lake:
        lake.create_table("a.t", SCHEMA, key="id")
    program = Program(address, proxy, seed)
    make_trouble(proxy)
    try:
        program.run()
    finally:
        program.close()
        proxy.heal()
    try:
        assert program.read() == program.state
        assert program.lake is not None
        program.lake.table("a.t").fold()
        assert program.read() == program.state
        assert sum(program.done.values()) > STEPS // 2, (program.done, program.failed)
    finally:
        program.close()


def test_an_answer_that_is_made_up_is_noticed(proxy: FaultProxy, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a lake that loses one write of many, or these programs would show nothing."""
    with Lake(address, create=True) as lake:
        lake.create_table("a.t", SCHEMA, key="id")
    program, written = Program(address, proxy, 1), Table.upsert

    def forgetful(table: Table, rows: object, **options: object) -> object:
        return None if program.done["upsert"] == 3 else written(table, rows, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Table, "upsert", forgetful)
    try:
        with pytest.raises(AssertionError):
            program.run()
    finally:
        program.close()
