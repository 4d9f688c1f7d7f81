"""Random programs of INSERT, UPDATE, DELETE and MERGE, by a lake and by DuckDB: both have the same rows and counts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa

from lithify import Executed, Lake, LithifyError

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("seen", pa.timestamp("us")),
        ("n", pa.int32()),
    ]
)
DDL = "(id bigint, name varchar, amount decimal(12,2), seen timestamp, n integer{key})"


class Program:
    """One random program. Every statement is a text that both engines understand."""

    def __init__(self, seed: int, *, keyed: bool) -> None:
        self.random = random.Random(seed)
        self.keyed = keyed

    def statement(self) -> str:
        kinds = [self.insert, self.insert_select, self.update, self.delete]
        if self.keyed:
            kinds += [
                self.insert_on_conflict,
                self.update_from,
                self.delete_using,
                self.merge,
                self.merge,
                self.self_merge,
            ]
        return self.random.choice(kinds)()

    def text(self) -> str:
        return self.random.choice(["'a'", "'it''s'", "'ünï'", "''", "'b;--'", "null"])

    def amount(self) -> str:
        return self.random.choice(["0", "12.30", "-7.05", "99999.99", "null", "5"])

    def moment(self) -> str:
        return self.random.choice(["timestamp '2026-01-02 03:04:05.000006'", "timestamp '1999-12-31 23:59:59'", "null"])

    def number(self) -> str:
        return self.random.choice(["0", "1", "-3", "7", "null"])

    def row(self, id: int) -> str:
        return f"({id}, {self.text()}, {self.amount()}, {self.moment()}, {self.number()})"

    def rows(self, ids: list[int]) -> str:
        return ", ".join(self.row(id) for id in ids)

    def ids(self, most: int = 6) -> list[int]:
        return self.random.sample(range(20), self.random.randint(1, most))

    def condition(self, ref: str = "") -> str:
        r = f"{ref}." if ref else ""
        return self.random.choice(
            [
                f"{r}id < {self.random.randint(0, 20)}",
                f"{r}id in ({', '.join(map(str, self.ids()))})",
                f"{r}n > 0",
                f"({r}n is null or {r}name = 'a')",
                f"{r}amount between -10 and 100 and {r}seen is not null",
                f"{r}name like '%t%'",
                f"not ({r}n = 1)",
                "true",
            ]
        )

    def value(self, ref: str = "") -> str:
        """An assignment."""
        r = f"{ref}." if ref else ""
        return self.random.choice(
            [
                f"n = {r}n + 1",
                f"n = coalesce({r}n, 0) * 2, name = {self.text()}",
                f"name = {r}name || '!'",
                f"amount = {self.amount()}",
                f"amount = {r}amount + 1.25, n = {self.number()}",
                f"seen = {self.moment()}",
                f"name = case when {r}n > 0 then 'pos' else {r}name end",
                "n = (select max(s.n) from shop.s s where s.n < 5)",
                f"name = upper({r}name), seen = null, amount = null",
            ]
        )

    def insert(self) -> str:
        return f"insert into shop.t values {self.rows(self.ids())}"

    def insert_select(self) -> str:
        by = self.random.choice(["100", "20", "0"])
        return f"insert into shop.t (id, n, name) select id + {by}, n, name from shop.t where {self.condition()}"

    def insert_on_conflict(self) -> str:
        how = self.random.choice(
            [
                "do nothing",
                "(id) do nothing",
                "(id) do update set name = excluded.name",
                "(id) do update set n = coalesce(t.n, 0) + excluded.n, amount = excluded.amount",
                "(id) do update set name = t.name || excluded.name where t.n > 0",
            ]
        )
        return f"insert into shop.t values {self.rows(self.ids())} on conflict {how}"

    def update(self) -> str:
        return f"update shop.t set {self.value()} where {self.condition()}"

    def update_from(self) -> str:
        # One row of the source for each row: which one of several would be taken is not said by DuckDB.
        source = "(select id, max(n) as n, max(name) as name from shop.s group by id)"
        change = self.random.choice(["n = s.n", "name = s.name, n = t.n + s.n", "amount = t.amount + s.n"])
        return f"update shop.t as t set {change} from {source} as s where t.id = s.id and {self.condition('t')}"

    def delete(self) -> str:
        return f"delete from shop.t where {self.condition()} and {self.condition()}"

    def delete_using(self) -> str:
        return f"delete from shop.t as t using shop.s as s where t.id = s.id and {self.condition('s')}"

    def merge(self) -> str:
        source = self.random.choice(
            [
                f"(values {self.rows(self.ids())}) as s(id, name, amount, seen, n)",
                f"(select * from shop.s where {self.condition()}) as s",
                "shop.s as s",
            ]
        )
        whens = [
            f"when matched and {self.condition('s')} then delete",
            f"when matched and {self.condition('t')} then update set name = s.name, n = t.n + 1",
            "when matched then update set n = s.n, seen = s.seen",
            f"when matched and {self.condition('s')} then do nothing",
            f"when not matched and {self.condition('s')} then insert (id, n) values (s.id, s.n)",
            "when not matched then insert values (s.id, s.name, s.amount, s.seen, s.n)",
            f"when not matched by source and {self.condition('t')} then delete",
            f"when not matched by source and {self.condition('t')} then update set name = 'gone'",
        ]
        chosen = self.random.sample(whens, self.random.randint(1, 4))
        # DuckDB takes no WHEN behind one of its kind with no condition.
        chosen.sort(key=lambda when: when.split(" then ")[0].count(" and "), reverse=True)
        kinds = Counter(when.split(" then ")[0] for when in chosen)
        chosen = [when for when in chosen if kinds[when.split(" then ")[0]] == 1]
        on = self.random.choice(["t.id = s.id", "t.id = s.id and t.n is not null", "s.id = t.id and s.n > 0"])
        return f"merge into shop.t as t using {source} on {on} " + " ".join(chosen)

    def self_merge(self) -> str:
        return (
            f"merge into shop.t as t using (select id, count(*) over () as c from shop.t where {self.condition()}) "
            "as s on t.id = s.id when matched then update set n = s.c when not matched by source then delete"
        )


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def attempt(execute: Callable[[str], Any], text: str) -> Any:
    try:
        return execute(text)
    except (LithifyError, duckdb.Error) as error:
        return error


def run(
    lake: Lake,
    execute: Callable[[str], Any],
    seed: int,
    *,
    key: str | None,
    order_by: str | None,
    statements: int,
) -> int:
    """`execute` runs a statement on the lake. How many were accepted."""
    oracle = duckdb.connect()
    oracle.execute("create schema shop")
    program = Program(seed, keyed=key is not None)
    accepted = 0
    for name in ("t", "s"):
        keyed = ", primary key (id)" if key and name == "t" else ""
        oracle.execute(f"create table shop.{name} {DDL.format(key=keyed)}")
        lake.create_table(
            f"shop.{name}", COLUMNS, key=key if name == "t" else None, order_by=order_by if name == "t" else None
        )
    first = f"insert into shop.s values {program.rows(program.ids(15))}"
    oracle.execute(first)
    lake.execute(first)
    for number in range(statements):
        text = program.statement()
        done, theirs = attempt(execute, text), attempt(oracle.execute, text)
        alike = isinstance(done, Executed) == isinstance(theirs, duckdb.DuckDBPyConnection)
        assert alike, f"seed {seed}: {text}\n{done}\n{theirs}"
        if isinstance(done, Executed):
            accepted += 1
            assert theirs.fetchone() == (done.inserted + done.updated + done.deleted,), f"seed {seed}: {text}"
        mine = rows_of(lake.table("shop.t").to_arrow())
        wanted = rows_of(oracle.sql("select * from shop.t").to_arrow_table())
        assert mine == wanted, f"seed {seed}, statement {number}: {text}"
        if program.random.random() < 0.15:
            lake.table("shop.t").fold()
    oracle.close()
    return accepted
