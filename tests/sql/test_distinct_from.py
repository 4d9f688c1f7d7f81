"""IS DISTINCT FROM ends before AND, also for an engine that reads on."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from lithify import Lake
from lithify.sql.distinct_from import comparisons_bracketed

LINES = [
    {"id": 4 * x + 2 * a + b, "a": [None, True, False][a], "b": bool(b), "x": x}
    for a in range(2)
    for b in range(2)
    for x in (0, 1, 2)
]
CONDITIONS = [
    "a IS DISTINCT FROM true AND x = 1",
    "x = 1 AND a IS NOT DISTINCT FROM b AND b",
    "a IS DISTINCT FROM b OR x = 1",
    "a IS DISTINCT FROM CASE WHEN b AND x > 0 THEN true ELSE a END AND x < 2",
    "(a IS DISTINCT FROM (b OR x = 1)) AND x IS DISTINCT FROM 1.50 AND x < 2",
    "x IS DISTINCT FROM 2 AND x IS NOT DISTINCT FROM abs(-1) AND a",
    "CASE WHEN a IS DISTINCT FROM b AND x = 1 THEN x = 1 ELSE a IS DISTINCT FROM b END",
]


@pytest.mark.parametrize("where", CONDITIONS)
def test_the_rows_that_duckdb_finds_are_found_and_deleted(folder: Path, where: str) -> None:
    columns = pa.schema([("id", pa.int64()), ("a", pa.bool_()), ("b", pa.bool_()), ("x", pa.int64())])
    with duckdb.connect() as connection:
        connection.register("t", pa.Table.from_pylist(LINES, schema=columns))
        expected = [id for (id,) in connection.execute(f"SELECT id FROM t WHERE {where} ORDER BY id").fetchall()]

    with Lake(folder / "lake") as lake:
        table = lake.create_table("s.t", columns, key="id")
        table.upsert(LINES)
        assert lake.sql(f"SELECT id FROM s.t WHERE {where} ORDER BY id").column(0).to_pylist() == expected
        assert lake.execute(f"DELETE FROM s.t WHERE {where}").deleted == len(expected)
        assert set(table.to_arrow().column("id").to_pylist()) == {line["id"] for line in LINES} - set(expected)


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("a is distinct from b and c", "(a is distinct from b) and c"),
        ("x or not a is not distinct from b and c", "x or not (a is not distinct from b) and c"),
        ("a is distinct from b is not distinct from c or d", "(a is distinct from b is not distinct from c) or d"),
        (
            "f(x, y) = z is distinct from left(b, 1) || 'x' /* and */ and c",
            "(f(x, y) = z is distinct from left(b, 1) || 'x') /* and */ and c",
        ),
        ("a between 1 and 2 and b is distinct from c and d", "a between 1 and 2 and (b is distinct from c) and d"),
        ("select distinct a is distinct from b and c", "select distinct (a is distinct from b) and c"),
        ("select x, a is distinct from b and c", "select x, (a is distinct from b) and c"),
        ("case when p then q end is distinct from b and c", "(case when p then q end is distinct from b) and c"),
        ("t join u on t.a is distinct from u.a join v on b and c", None),
        ("t join u on t.a is distinct from u.a left join v on b and c", None),
        ("select distinct from t where a and b", None),
        ("select a is distinct from b c from t where a and b", None),
        ("select a is distinct from b, c and d", None),
        ("(a is distinct from b) and c", None),
        ("a is distinct from b between c and d", None),
        ("p between 1 and a is distinct from b and c", None),
        ("case when a is distinct from b then c and d end", None),
        ("'a is distinct from b and c' and d", None),
        ("a is distinct from and b", None),
    ],
)
def test_what_is_put_into_brackets(given: str, written: str | None) -> None:
    assert comparisons_bracketed(given) == (written or given)
