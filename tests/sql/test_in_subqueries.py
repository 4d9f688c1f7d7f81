"""Conditions with IN (SELECT …) find the rows that SQL means, whatever is NULL, or are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from datafusion import SessionContext

from lithify import InvalidRequest, Lake
from lithify.sql.in_subqueries import check_in_subqueries

T = pa.table(
    {"id": [1, 2, 3, 4], "a": ["x", "y", None, "w"], "k": [1, 1, 2, 2]},
    schema=pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("a", pa.string()), pa.field("k", pa.int64())]
    ),
)
S = pa.table({"b": ["x", None], "k": [1, 2]}, schema=pa.schema([pa.field("b", pa.string()), pa.field("k", pa.int64())]))
N = pa.table({"m": [1, 2]}, schema=pa.schema([pa.field("m", pa.int64(), nullable=False)]))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder: Path = tmp_path_factory.mktemp("in")
    with Lake(folder / "lake") as lake:
        for name, rows in {"t": T, "s": S, "n": N}.items():
            lake.create_table(f"a.{name}", rows.schema).append(rows)
        yield lake


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as oracle:
        oracle.execute("create schema a")
        for name, rows in {"t": T, "s": S, "n": N}.items():
            oracle.register("rows", rows)
            oracle.execute(f"create table a.{name} as select * from rows")
        yield oracle


@pytest.mark.parametrize(
    "where",
    [
        "a in (select b from a.s)",
        "a not in (select b from a.s)",
        "not a in (select b from a.s) and id > 0",
        "not (a in (select b from a.s) or id = 99)",
        "a in (select b from a.s) or id = 4",
        "(a in (select b from a.s) and id < 9) or id = 4",
        "(a in (select b from a.s)) is not true",
        "(a in (select b from a.s)) is true or id = 3",
        "case when a in (select b from a.s) then false else true end",
        "not ((a not in (select b from a.s)) is false and k = 2) and k > 0",
        "not exists (select 1 from a.s where s.b = t.a) or id = 99",
        "a in (select b from a.s where s.k = t.k) or id = 4",
        "id not in (select m from a.n) or id = 1",
        "not (id in (select m from a.n where m > 1) and k = 1)",
        "coalesce(id in (select m from a.n), false)",
        "'IN (<subquery>)' in ('a', 'b') or id = 2",
        "coalesce(id in (select m from a.n) and a is null, true)",
        "id in (select id from a.t where a is null and id in (select m + 2 from a.n) or k = 1)",
    ],
)
def test_what_is_taken_finds_the_rows_that_are_meant(lake: Lake, oracle: duckdb.DuckDBPyConnection, where: str) -> None:
    query = f"select id from a.t where {where} order by id"

    assert lake.sql(query).to_pylist() == oracle.sql(query).to_arrow_table().to_pylist()


FORGOTTEN = [
    "a not in (select b from a.s) or id = 99",
    "not (a in (select b from a.s) and id < 99)",
    "a not in -- these\n ( /* all */ (select b from a.s)) or id = 99",
    "a not in (values ('x'), (null)) or id = 99",
    "(a in (select b from a.s)) is null",
    "(a in (select b from a.s)) is false",
    "(a not in (select b from a.s)) is true",
    "coalesce(a in (select b from a.s), true)",
    "(a in (select b from a.s)) = false",
    "case when a not in (select b from a.s) then true else false end",
    "not case when id > 0 then a in (select b from a.s) end",
    "a not in (select b from a.s where s.k > t.k)",
    "nullif(id, 1) not in (select m from a.n) or id = 99",
    "id not in (select nullif(m, 1) from a.n) or id = 99",
    "id not in (select sum(m) from a.n where m > 5) or id = 99",
    "id not in (with n as (select nullif(m, 1) as m from a.n) select m from n) or id = 99",
    "id in (select id from (select nullif(id, 1) as id from a.t) as t where id not in (select m from a.n) or id = 99)",
]


@pytest.mark.parametrize("where", FORGOTTEN)
def test_where_nulls_would_be_forgotten_it_is_refused(lake: Lake, where: str) -> None:
    with pytest.raises(InvalidRequest, match=r"NULLs would be forgotten in .* NOT EXISTS"):
        lake.sql(f"select id from (select * from a.t) as t where {where}")


def test_a_long_constant_is_looked_at_once() -> None:
    """Of a condition within a subquery the engine shows the text alone."""
    context = SessionContext()
    context.register_record_batches("t", [T.to_batches()])
    inner = f"select id from t where a = '{'x' * 200_000}' or k in (select k from t)"
    plain = f"select id from t where id in ({inner})"
    negated = f"select id from t where id in ({inner.replace('k in', 'k not in')})"

    check_in_subqueries(context.sql(plain).logical_plan(), plain, {})
    with pytest.raises(InvalidRequest, match="NULLs would be forgotten"):
        check_in_subqueries(context.sql(negated).logical_plan(), negated, {})


def test_a_statement_that_would_delete_other_rows_deletes_none(lake: Lake) -> None:
    with pytest.raises(InvalidRequest, match="NULLs would be forgotten"):
        lake.execute("delete from a.t where a not in (select b from a.s) or id = 99")

    assert lake.table("a.t").to_arrow().num_rows == 4
