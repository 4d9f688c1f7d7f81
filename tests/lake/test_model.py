"""Random programs against plain dicts: whatever is done in whatever order, every read answers as the dict does."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from lithify import Table
from support.effort import examples
from support.folders import memory_folder
from support.program import (
    ADDED,
    CONDITIONS,
    ROWS,
    TABLES,
    Driver,
    Row,
    backs,
    batches,
    key_batches,
    keys_with_order,
    lakes,
    programs,
    updates,
)
from support.s3_servers import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def served(table: Table, where: str | None, as_of: int | None) -> list[Row]:
    return table.to_arrow(where=where, as_of=as_of).to_pylist()


class Programs(RuleBasedStateMachine):
    """Operations on one table through two open lakes, each compared with a dict at once."""

    stack: ExitStack | None = None
    name: str
    driver: Driver

    @initialize(name=st.sampled_from(TABLES), resolve_rows_max=st.sampled_from([20_000_000, 3]))
    def open(self, name: str, resolve_rows_max: int) -> None:
        with ExitStack() as stack:
            folder = stack.enter_context(memory_folder())
            self.name = name
            self.driver = Driver(folder / "lake", served, [name], resolve_rows_max)
            stack.callback(self.driver.close)
            self.stack = stack.pop_all()

    def teardown(self) -> None:
        if self.stack is not None:
            with self.stack:
                self.driver.check_everything()

    @rule(lake=lakes, data=st.data())
    def write(self, lake: int, data: st.DataObject) -> None:
        op = data.draw(st.sampled_from(["upsert", "upsert", "replace"]))
        self.driver.write(self.name, lake, data.draw(batches(self.name, self.driver.oracles[self.name].columns)), op)
        self.driver.check(self.name, 1 - lake)

    @rule(lake=lakes, data=st.data())
    def update(self, lake: int, data: st.DataObject) -> None:
        self.driver.update(self.name, lake, data.draw(updates(self.name)))
        self.driver.check(self.name, 1 - lake)

    @rule(lake=lakes, data=st.data())
    def delete(self, lake: int, data: st.DataObject) -> None:
        self.driver.delete(self.name, lake, data.draw(key_batches(self.name)))
        self.driver.check(self.name, 1 - lake)

    @rule(lake=lakes, data=st.data())
    def delete_at(self, lake: int, data: st.DataObject) -> None:
        self.driver.delete_at(self.name, lake, data.draw(keys_with_order(self.name)))
        self.driver.check(self.name, 1 - lake)

    @rule(lake=lakes, condition=st.sampled_from(list(CONDITIONS)))
    def delete_where(self, lake: int, condition: str) -> None:
        self.driver.delete_where(self.name, lake, condition)
        self.driver.check(self.name, lake)

    @rule(lake=lakes)
    def fold(self, lake: int) -> None:
        self.driver.fold(self.name, lake)
        self.driver.check(self.name, 1 - lake)

    @rule(lake=lakes, column=ADDED)
    def add_column(self, lake: int, column: str) -> None:
        self.driver.add_column(self.name, lake, column)
        self.driver.check(self.name, 1 - lake)

    @rule(lake=lakes, drop=st.sampled_from([False, False, True]))
    def reopen(self, lake: int, drop: bool) -> None:
        if drop:
            self.driver.recreate(self.name, lake)
        self.driver.reopen(lake)
        self.driver.check(self.name, lake)

    @rule(lake=lakes, data=st.data(), back=backs)
    def read(self, lake: int, data: st.DataObject, back: int) -> None:
        self.driver.check_where(self.name, lake, data.draw(st.sampled_from(list(CONDITIONS))))
        self.driver.check_as_of(self.name, lake, back)
        self.driver.check_changes(self.name, lake, back)
        self.driver.check_get(self.name, lake, data.draw(ROWS[self.name]))


def tried(number: int) -> settings:
    return settings(
        max_examples=number,
        stateful_step_count=16,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


class FewPrograms(Programs):
    pass


class ManyPrograms(Programs):
    pass


FewPrograms.TestCase.settings = tried(8)
ManyPrograms.TestCase.settings = tried(examples(24, soak=600))
# A failure is shrunk before it is shown, which takes a while.
test_programs_do_to_tables_what_they_do_to_dicts = pytest.mark.timeout(1200)(FewPrograms.TestCase)
test_many_programs_do_to_tables_what_they_do_to_dicts = pytest.mark.slow(
    pytest.mark.timeout(1200)(ManyPrograms.TestCase)
)


def check_program(driver: Driver, program: list[tuple[Any, ...]]) -> None:
    try:
        for method, *arguments in program:
            getattr(driver, method)(*arguments)
        for name in TABLES:
            driver.check(name, 1)
            driver.check_where(name, 0, "v > 2")
            driver.check_as_of(name, 1, 2)
    finally:
        driver.close()


@pytest.mark.spark
@settings(max_examples=6, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(program=programs())
def test_spark_reads_the_same_programs_like_dicts(spark: SparkSession, program: list[tuple[Any, ...]]) -> None:
    def on_spark(table: Table, where: str | None, as_of: int | None) -> list[Row]:
        return table.to_spark(spark, where=where, as_of=as_of).toArrow().to_pylist()

    with memory_folder() as folder:
        check_program(Driver(folder / "lake", on_spark), program)


@pytest.mark.bucket
@settings(max_examples=examples(6, soak=200), deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(program=programs())
def test_a_bucket_keeps_the_same_programs_like_dicts(s3: S3Server, program: list[tuple[Any, ...]]) -> None:
    check_program(Driver(s3.address(), served), program)
