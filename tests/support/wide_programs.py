"""Random programs of statements that write, over tables of every shape: what a lake and DuckDB make of them is equal.

A table is drawn with its columns, key, partitions, order, rules and defaults; then statements, with conditions and
values of any depth. In between rows come by other ways than SQL, and folds and compactions run. What is refused changes
nothing.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa

from lithify import Executed, Lake, LithifyError
from support.random_sql import BLANK, DUCK, Shape, shape
from support.random_statements import Statements

ARROW = {
    "int": pa.int64(),
    "small": pa.int32(),
    "text": pa.string(),
    "dec": pa.decimal128(12, 2),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "ts": pa.timestamp("us"),
    "double": pa.float64(),
}
# What the lake alone refuses, and says so in its documents.
_ALLOWED = (
    "not implemented",
    "two of the rows to insert",
    "more than one row of the source matches",
    "is empty text in row",
    "has no key, and of rows that are equal",
    "two rows of the source insert",
    "is null in row",
    "NULLs would be forgotten",
)


def rows_of(table: pa.Table) -> list[str]:
    names = sorted(table.column_names)
    return sorted(map(repr, zip(*(table.column(name).to_pylist() for name in names), strict=True)))


def attempt(execute: Callable[..., Any], *given: Any) -> Any:
    try:
        return execute(*given)
    except (LithifyError, duckdb.Error) as error:
        return error


class Broken(Exception):
    """DuckDB has failed, and does nothing more."""


class Both:
    """The same table here and there."""

    def __init__(self, lake: Lake, rnd: random.Random, made: Shape) -> None:
        self.lake, self.random, self.shape = lake, rnd, made
        self.program = Statements(rnd, made)
        self.oracle = duckdb.connect()
        self.oracle.execute("create schema shop")
        self.oracle.execute("set timezone = 'UTC'")
        for name in ("t", "s"):
            self._create(name)
        self.both(f"insert into shop.s {self.program.values(list(made.columns), default=False)}")
        self.both(f"insert into shop.t {self.program.values(list(made.columns), default=False)}")

    def both(self, text: str) -> None:
        text = text.replace(BLANK, " ")
        for execute in (self.oracle.execute, self.lake.execute):
            attempt(execute, text)
        self.level()

    def level(self) -> None:
        """DuckDB takes what the lake has."""
        for name in ("t", "s"):
            rows = self.lake.table(f"shop.{name}").to_arrow()  # noqa: F841
            self.oracle.execute(f"delete from shop.{name}")
            self.oracle.execute(f"insert into shop.{name} by name select * from rows")

    def _create(self, name: str) -> None:
        made = self.shape
        parts = []
        for column, kind in made.columns.items():
            default = f" default {sql_of(made.defaults[column])}" if column in made.defaults else ""
            null = "" if column in made.nullable else " not null"
            parts.append(f"{column} {DUCK[kind]}{null}{default}")
        key = f", primary key ({', '.join(made.key)})" if made.key and name == "t" else ""
        self.oracle.execute(f"create table shop.{name} ({', '.join(parts)}{key})")
        schema = pa.schema([pa.field(c, ARROW[kind], nullable=c in made.nullable) for c, kind in made.columns.items()])
        more = {**made.options, "key": made.key} if name == "t" and made.key else {}
        if name == "t" and not made.key:
            more = made.options
        self.lake.create_table(f"shop.{name}", schema, defaults=made.defaults or None, **more)

    def step(self) -> bool | None:
        """Whether a statement was taken; None: none was tried."""
        r = self.random
        roll = r.random()
        table = self.lake.table("shop.t")
        if roll < 0.08:
            table.fold()
            return self.compare("fold")
        if roll < 0.11:
            table.compact()
            return self.compare("compact")
        if roll < 0.17 and self.shape.key:
            return self.by_other_ways()
        if roll < 0.25:
            return self.read()
        text = self.program.statement()
        before = rows_of(table.to_arrow())
        seq = table.history(limit=1)
        self.oracle.execute("begin")
        theirs = attempt(self.oracle.execute, text)
        taken = not isinstance(theirs, duckdb.Error)
        count = theirs.fetchone()[0] if taken else 0
        if r.random() < 0.1:
            tried = attempt(lambda: self.lake.execute(text, dry_run=True))
            assert rows_of(table.to_arrow()) == before, text
        else:
            tried = None
        done = attempt(self.lake.execute, text)
        mine = isinstance(done, Executed)
        if tried is not None:
            assert isinstance(tried, Executed) == mine, (text, tried, done)
            if mine:
                assert (tried.inserted, tried.updated, tried.deleted) == (done.inserted, done.updated, done.deleted), (
                    text
                )
        if not mine:
            self.oracle.execute("rollback")
            assert rows_of(table.to_arrow()) == before, f"refused, and yet: {text}\n{done}"
            assert table.history(limit=1) == seq
            if taken:
                return self.excused(text, done)
            return False
        if isinstance(theirs, duckdb.InternalException):
            raise Broken(str(theirs))
        if not taken:
            self.oracle.execute("rollback")
            return self.too_much(text, done, theirs)
        self.oracle.execute("commit")
        assert count == done.inserted + done.updated + done.deleted, f"{text}\n{done} {count}"
        self.compare(text)
        return True

    def excused(self, text: str, error: Any) -> bool:
        """What DuckDB takes and the lake refuses."""
        if any(said in str(error) for said in _ALLOWED):
            return False
        raise AssertionError(f"refused: {text}\n{type(error).__name__}: {error}")

    def too_much(self, text: str, done: Any, theirs: Any) -> bool:
        raise AssertionError(f"taken: {text}\n{done}\nDuckDB: {theirs}")

    def compare(self, what: str) -> None:
        mine = rows_of(self.lake.table("shop.t").to_arrow())
        theirs = rows_of(self.oracle.sql("select * from shop.t").to_arrow_table())
        if mine != theirs:
            raise AssertionError(
                f"rows differ after: {what}\nlake alone: {[r for r in mine if r not in theirs][:5]}\n"
                f"DuckDB alone: {[r for r in theirs if r not in mine][:5]} ({len(mine)} {len(theirs)})"
            )

    def read(self) -> None:
        condition = self.program.noisy(self.program.condition(self.program.refs("t"), 3))
        text = f"select * from shop.t as t where {condition}"
        theirs = attempt(lambda: rows_of(self.oracle.sql(text).to_arrow_table()))
        mine = attempt(lambda: rows_of(self.lake.sql(text)))
        assert mine == theirs, f"{text}\n{mine}\n{theirs}"

    def by_other_ways(self) -> None:
        rows = self.lake.sql(
            f"select * from shop.s as s where {self.program.condition(self.program.refs('s'), 1)}".replace(BLANK, " ")
        )
        table = self.lake.table("shop.t")
        key = self.shape.key
        one = {
            tuple(row[name] for name in key): row
            for row in rows.to_pylist()
            if all(row[name] is not None for name in key)
        }
        if not one:
            return
        some = pa.Table.from_pylist(list(one.values()), table.schema)
        if self.random.random() < 0.4:
            table.delete(some.select(key))
        elif (
            self.random.random() < 0.5
            and not self.shape.options.get("order_by")
            and not self.shape.options.get("merge_rules")
        ):
            plain = [c for c in self.shape.columns if c not in key]
            table.update(some.select([*key, *self.random.sample(plain, 2)]), missing="skip")
        else:
            table.upsert(some)
        mine = table.to_arrow()  # noqa: F841
        self.oracle.execute("delete from shop.t")
        self.oracle.execute("insert into shop.t by name select * from mine")


def run(lake: Lake, seed: int, steps: int) -> int:
    """How many statements were taken."""
    rnd = random.Random(seed)
    both = Both(lake, rnd, shape(rnd))
    taken = 0
    try:
        for number in range(steps):
            try:
                taken += both.step() is True
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, step {number}, {both.shape}: {error}") from error
    except Broken:
        pass
    finally:
        both.oracle.close()
    return taken


def sql_of(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return "'" + value.replace("'", "''") + "'"
        case dt.datetime():
            return f"timestamp '{value}'"
        case dt.date():
            return f"date '{value}'"
    return str(value)
