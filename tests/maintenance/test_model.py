"""Random programs of writes and maintenance against plain dicts: whatever is done in whatever order, whoever
sleeps in the middle of it and whatever the clock says, rows are what the dicts say, work comes to an end, and nothing
that is not needed stays.
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lithify import Table
from support.background import POINTS, BackgroundDriver
from support.effort import examples
from support.folders import memory_folder
from support.program import (
    ADDED,
    ALL_TABLES,
    CONDITIONS,
    KEYS,
    Row,
    backs,
    batches,
    key_batches,
    keys_with_order,
    lakes,
)

numbers = st.integers(0, 1)
kinds = st.sampled_from(sorted(POINTS))
regions = st.integers(0, 3)


def moved(name: str, rows: list[Row], region: int) -> list[Row]:
    """Keys far from those of other regions: folded, they get files of their own."""
    column = next(iter(KEYS[name]), None)
    return [{**row, column: row[column] + 100 * region} for row in rows] if column else rows


def served(table: Table, where: str | None, as_of: int | None) -> list[Row]:
    return table.to_arrow(where=where, as_of=as_of).to_pylist()


class BackgroundPrograms(RuleBasedStateMachine):
    stack: ExitStack | None = None
    names: list[str]
    driver: BackgroundDriver

    @initialize(
        names=st.lists(st.sampled_from(ALL_TABLES), min_size=2, max_size=2, unique=True),
        resolve_rows_max=st.sampled_from([20_000_000, 3]),
        fold_files_max=st.sampled_from([3, 100]),
    )
    def open(self, names: list[str], resolve_rows_max: int, fold_files_max: int) -> None:
        with ExitStack() as stack:
            folder = stack.enter_context(memory_folder())
            self.names = names
            self.driver = BackgroundDriver(folder / "lake", served, names, resolve_rows_max, fold_files_max)
            stack.callback(self.driver.close)
            self.stack = stack.pop_all()

    def teardown(self) -> None:
        if self.stack is not None:
            with self.stack:
                self.driver.check_end()

    @invariant()
    def the_rows_are_those_of_the_dicts(self) -> None:
        if self.stack is not None:
            self.driver.note()
            self.driver.check_all(1)

    # -- writes

    @rule(number=numbers, lake=lakes, data=st.data(), region=regions)
    def write(self, number: int, lake: int, data: st.DataObject, region: int) -> None:
        name = self.names[number]
        op = data.draw(st.sampled_from(["upsert", "upsert", "replace"]))
        rows = data.draw(batches(name, self.driver.oracles[name].columns))
        self.driver.write(name, lake, moved(name, rows, region), op)

    @rule(number=numbers, lake=lakes, data=st.data(), folded=st.booleans(), region=regions)
    def write_some(self, number: int, lake: int, data: st.DataObject, folded: bool, region: int) -> None:
        """Small changes, or small files, of which something is due."""
        self.something_due(self.names[number], lake, data, folded, region)

    def something_due(self, name: str, lake: int, data: st.DataObject, folded: bool, region: int) -> None:
        for number in range(4 if folded else 3):
            self.driver.write(name, lake, moved(name, data.draw(batches(name, ())), region + number), "upsert")
            if folded:
                self.driver.work("fold", name, lake)

    @rule(number=numbers, lake=lakes, data=st.data(), region=regions)
    def delete(self, number: int, lake: int, data: st.DataObject, region: int) -> None:
        name = self.names[number]
        self.driver.delete(name, lake, moved(name, data.draw(key_batches(name)), region))

    @rule(number=numbers, lake=lakes, data=st.data(), region=regions)
    def delete_at(self, number: int, lake: int, data: st.DataObject, region: int) -> None:
        name = self.names[number]
        self.driver.delete_at(name, lake, moved(name, data.draw(keys_with_order(name)), region))

    @rule(number=numbers, lake=lakes, condition=st.sampled_from(list(CONDITIONS)))
    def delete_where(self, number: int, lake: int, condition: str) -> None:
        self.driver.delete_where(self.names[number], lake, condition)

    @rule(number=numbers, lake=lakes, column=ADDED)
    def add_column(self, number: int, lake: int, column: str) -> None:
        self.driver.add_column(self.names[number], lake, column)

    # -- maintenance

    @rule(number=numbers, lake=lakes, kind=kinds)
    def work(self, number: int, lake: int, kind: str) -> None:
        if kind != "vacuum" or not self.driver.vacuums_wait(self.names[number]):
            self.driver.work(kind, self.names[number], lake)

    @rule(lake=lakes, vacuum=st.sampled_from([False, False, True]))
    def cycle(self, lake: int, vacuum: bool) -> None:
        if not any(map(self.driver.vacuums_wait, self.names)):
            self.driver.cycle(lake, vacuum=vacuum)

    @rule(number=numbers, back=backs)
    def vacuum_since(self, number: int, back: int) -> None:
        if not self.driver.vacuums_wait(self.names[number]):
            self.driver.vacuum_since(self.names[number], back)

    @rule(number=numbers, kind=kinds, data=st.data(), region=regions)
    def fall_asleep(self, number: int, kind: str, data: st.DataObject, region: int) -> None:
        name = self.names[number]
        if self.driver.sleeper is None:
            self.something_due(name, 0, data, kind in ("compact", "optimize", "vacuum"), region)
            self.driver.fall_asleep(kind, name, data.draw(st.sampled_from(POINTS[kind])))

    @precondition(lambda self: self.stack is not None and self.driver.sleeper is not None)
    @rule(overtaken=st.booleans())
    def wake(self, overtaken: bool) -> None:
        if overtaken:
            self.driver.overtake()
            self.driver.check_all(0)
        self.driver.wake()

    # -- around it

    @rule(hours=st.sampled_from([1, 24, 24, -24]))
    def jump(self, hours: int) -> None:
        if abs(self.driver.clock.ahead_ms + hours * 3_600_000) <= 72 * 3_600_000:
            self.driver.clock.jump(hours)

    @rule(number=numbers, lake=lakes, back=backs)
    def pin(self, number: int, lake: int, back: int) -> None:
        if not self.driver.vacuums_wait(self.names[number]):
            self.driver.pin(self.names[number], lake, back)

    @rule(number=st.integers(0, 5))
    def release(self, number: int) -> None:
        self.driver.release(number)

    @rule(lake=lakes)
    def reopen(self, lake: int) -> None:
        self.driver.reopen(lake)


def programs(number: int, steps: int) -> settings:
    return settings(
        max_examples=number,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


class FewPrograms(BackgroundPrograms):
    pass


class ManyPrograms(BackgroundPrograms):
    pass


FewPrograms.TestCase.settings = programs(3, 10)
ManyPrograms.TestCase.settings = programs(examples(10, soak=400), 25)
# A failure is shrunk before it is shown, which takes a while.
test_background_work_does_nothing_to_rows = pytest.mark.timeout(1200)(FewPrograms.TestCase)
test_background_work_does_nothing_to_rows_in_many_programs = pytest.mark.slow(
    pytest.mark.timeout(3600)(ManyPrograms.TestCase)
)
