"""Cache equals no cache: random programs with pins, evictions and hot reads between writes, deletes and folds answer
as plain dicts do (invariant 10).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from lake.test_model import Programs, tried
from lithify import Lake, Unavailable
from lithify.cache import hot_rows
from lithify.cache import load as hot_load
from support.bags import bag
from support.effort import examples
from support.program import ALL_TABLES, CONDITIONS, lakes

pytestmark = pytest.mark.slow


class HotPrograms(Programs):
    """As the programs of `test_model`, with both lakes' caches in whatever state they happen to be."""

    @initialize(name=st.sampled_from(ALL_TABLES), resolve_rows_max=st.sampled_from([20_000_000, 3]))
    def open(self, name: str, resolve_rows_max: int) -> None:
        super().open(name, resolve_rows_max)

    def lake(self, lake: int) -> Lake:
        return self.driver._lakes[lake]

    @rule(lake=lakes, some=st.booleans())
    def pin(self, lake: int, some: bool) -> None:
        columns = ["v", "s"] if some else None
        try:
            stats = self.lake(lake).cache.pin(self.name, columns)
        except Unavailable:  # more changes than are merged in memory
            return
        assert stats.rows == len(self.driver.oracles[self.name].rows)
        assert stats.seq == max(self.driver.oracles[self.name].seq, self.driver.oracles[self.name].created_at)
        self.driver.check(self.name, lake)

    @rule(lake=lakes)
    def evict(self, lake: int) -> None:
        self.lake(lake).cache.evict(self.name)
        self.driver.check(self.name, lake)

    @rule(lake=lakes)
    def let_the_loader_work(self, lake: int) -> None:
        self.driver.check(self.name, lake)
        self.driver.check(self.name, lake)
        self.lake(lake).cache.settle()
        self.driver.check(self.name, lake)

    @rule(lake=lakes, condition=st.sampled_from(list(CONDITIONS)))
    def query(self, lake: int, condition: str) -> None:
        rows = self.lake(lake).sql(
            f"SELECT s, count(*) AS n, sum(v) AS v FROM {self.name} WHERE {condition} GROUP BY s"
        )
        expected: dict[str | None, list[int | None]] = {}
        for row in self.driver.oracles[self.name].matching(condition):
            expected.setdefault(row["s"], []).append(row["v"])
        assert bag(rows.to_pylist()) == bag(
            {
                "s": s,
                "n": len(found),
                "v": sum(v for v in found if v is not None) if any(v is not None for v in found) else None,
            }
            for s, found in expected.items()
        )

    def teardown(self) -> None:
        if self.stack is not None:
            for lake in range(2):
                cache = self.lake(lake).cache
                cache.settle()
                assert sum(table.bytes for table in cache.stats().tables) <= cache.stats().bytes
                cache.evict()
                assert cache.stats().bytes == 0
        super().teardown()


@pytest.fixture(autouse=True)
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So that a handful of rows has many blocks, dead rows, merges and dictionaries."""
    for module in (hot_rows, hot_load):
        monkeypatch.setattr(module, "BLOCK_ROWS_MAX", 4)
    monkeypatch.setattr(hot_rows, "SMALL_BLOCK_ROWS", 3)
    monkeypatch.setattr(hot_rows, "DEAD_SHARE", 2)
    monkeypatch.setattr(hot_load, "SAMPLE_ROWS_MIN", 1)
    monkeypatch.setattr(hot_load, "SAVED_BYTES_MIN", -1_000_000)
    monkeypatch.setattr(hot_load, "SAVED_SHARE_MIN", -1_000.0)
    return


HotPrograms.TestCase.settings = tried(examples(24, soak=600))
test_hot_tables_answer_as_dicts_do = pytest.mark.timeout(1200)(HotPrograms.TestCase)
