"""Random programs against plain dicts: whatever is done in whatever order, every read answers as the dict does."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from lithify import Table
from support.folders import memory_folder
from support.program import ADDED, CONDITIONS, ROWS, TABLES, Driver, Row, backs, batches, key_batches, lakes, programs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

tables = st.sampled_from(TABLES)
conditions = st.sampled_from(list(CONDITIONS))


def served(table: Table, where: str | None, as_of: int | None) -> list[Row]:
    return table.to_arrow(where=where, as_of=as_of).to_pylist()


class Tables(RuleBasedStateMachine):
    stack: ExitStack | None = None

    @initialize(resolve_rows_max=st.sampled_from([20_000_000, 3]))
    def open(self, resolve_rows_max: int) -> None:
        with ExitStack() as stack:
            folder = stack.enter_context(memory_folder())
            self.driver = Driver(folder / "lake", served, resolve_rows_max)
            stack.callback(self.driver.close)
            self.stack = stack.pop_all()

    def teardown(self) -> None:
        if self.stack is not None:
            with self.stack:
                self.driver.check_everything()

    @rule(name=tables, lake=lakes, op=st.sampled_from(["upsert", "upsert", "replace"]), data=st.data())
    def write(self, name: str, lake: int, op: str, data: st.DataObject) -> None:
        self.driver.write(name, lake, data.draw(batches(name, self.driver.oracles[name].columns)), op)
        self.driver.check(name, 1 - lake)

    @rule(name=tables, lake=lakes, data=st.data())
    def delete(self, name: str, lake: int, data: st.DataObject) -> None:
        self.driver.delete(name, lake, data.draw(key_batches(name)))
        self.driver.check(name, 1 - lake)

    @rule(name=tables, lake=lakes, condition=conditions)
    def delete_where(self, name: str, lake: int, condition: str) -> None:
        self.driver.delete_where(name, lake, condition)
        self.driver.check(name, lake)

    @rule(name=tables, lake=lakes)
    def fold(self, name: str, lake: int) -> None:
        self.driver.fold(name, lake)
        self.driver.check(name, 1 - lake)

    @rule(name=tables, lake=lakes, column=ADDED)
    def add_column(self, name: str, lake: int, column: str) -> None:
        self.driver.add_column(name, lake, column)
        self.driver.check(name, 1 - lake)

    @rule(name=tables, lake=lakes)
    def recreate(self, name: str, lake: int) -> None:
        self.driver.recreate(name, lake)
        self.driver.check(name, 1 - lake)

    @rule(lake=lakes)
    def reopen(self, lake: int) -> None:
        self.driver.reopen(lake)

    @rule(name=tables, lake=lakes, condition=conditions)
    def read_where(self, name: str, lake: int, condition: str) -> None:
        self.driver.check_where(name, lake, condition)

    @rule(name=tables, lake=lakes, back=backs)
    def read_as_of(self, name: str, lake: int, back: int) -> None:
        self.driver.check_as_of(name, lake, back)

    @rule(name=tables, lake=lakes, back=backs)
    def read_changes(self, name: str, lake: int, back: int) -> None:
        self.driver.check_changes(name, lake, back)

    @rule(name=tables, lake=lakes, data=st.data())
    def get(self, name: str, lake: int, data: st.DataObject) -> None:
        self.driver.check_get(name, lake, data.draw(ROWS[name]))


Tables.TestCase.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
# A failure is shrunk before it is shown, which takes a while.
test_tables_behave_like_dicts = pytest.mark.timeout(1200)(Tables.TestCase)


@pytest.mark.spark
@settings(max_examples=6, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(program=programs())
def test_spark_reads_the_same_programs_like_dicts(spark: SparkSession, program: list[tuple[Any, ...]]) -> None:
    def on_spark(table: Table, where: str | None, as_of: int | None) -> list[Row]:
        return table.to_spark(spark, where=where, as_of=as_of).toArrow().to_pylist()

    with memory_folder() as folder:
        driver = Driver(folder / "lake", on_spark)
        try:
            for method, *arguments in program:
                getattr(driver, method)(*arguments)
            for name in TABLES:
                driver.check(name, 1)
                driver.check_where(name, 0, "v > 2")
                driver.check_as_of(name, 1, 2)
        finally:
            driver.close()
