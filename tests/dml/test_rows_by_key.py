"""Statements that name keys change what the same condition finds in a SELECT, in a table of any state."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lithify import Forbidden, InvalidRequest, Lake, Table
from lithify.core.lake_methods import Wish
from lithify.dml import decide
from lithify.errors import LithifyError
from lithify.sql.engine import ServingEngine

COLUMNS = pa.schema([("id", pa.int32()), ("a", pa.int64()), ("B", pa.string())])

CONDITIONS = [
    "id = 3",
    "id IN (3, 4, 5, 99, 12345678901)",
    "id IN (3, 4, 5) AND a > 4",
    "t.id IN (-1, 3, 3, 3)",
    """id IN (5, 6, 7) AND "B" IN ('b5', 'new') -- both""",
    "id IN (1, 2, 3, 4) AND a = (SELECT max(a) FROM s.t WHERE id < 4)",
    "id IN (1, 2, 3, 4) AND EXISTS (SELECT 1 FROM s.t AS o WHERE o.a = t.a + 1)",
    "a > 2 AND id IN (1, 2, 3, 4, 102)",
    "id = 4 OR id = 5",
    "NOT id IN (1, 2)",
    "id = 99999999999999999999",
]


@pytest.fixture(params=["folded", "pending", "partly", "ordered"])
def table(lake: Lake, request: pytest.FixtureRequest) -> Table:
    made = lake.create_table("s.t", COLUMNS, key="id", order_by="a" if request.param == "ordered" else None)
    made.upsert([{"id": n, "a": n, "B": f"b{n}"} for n in range(50)])
    if request.param != "pending":
        made.fold()
    if request.param != "folded":
        made.upsert([{"id": n, "a": n + 100, "B": "new"} for n in (4, 5, 102)])
        made.delete([6], at=1000 if request.param == "ordered" else None)
    if request.param == "partly":
        made.update([{"id": 3, "a": 33}, {"id": 7, "B": "seven"}])
    return made


def rows(lake: Lake, query: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in lake.sql(query).to_pylist())


@pytest.mark.parametrize("condition", CONDITIONS)
def test_an_update_changes_what_a_select_finds(lake: Lake, table: Table, condition: str) -> None:
    expected = rows(lake, f'SELECT id, a * 2, "B" FROM s.t AS t WHERE {condition}')
    others = rows(lake, f"SELECT * FROM s.t AS t WHERE ({condition}\n) IS NOT TRUE")

    done = lake.execute(f"UPDATE s.t AS t SET a = a * 2 WHERE {condition}")

    assert done.updated == len(expected)
    assert rows(lake, "SELECT * FROM s.t") == sorted([*expected, *others])


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_delete_takes_what_a_select_finds(lake: Lake, table: Table, condition: str) -> None:
    left = rows(lake, f"SELECT * FROM s.t AS t WHERE ({condition}\n) IS NOT TRUE")
    count = len(rows(lake, "SELECT * FROM s.t"))

    done = lake.execute(f"DELETE FROM s.t AS t WHERE {condition}")

    assert rows(lake, "SELECT * FROM s.t") == left
    assert done.deleted == count - len(left)


def test_more_keys_than_are_looked_up(lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "LINES_MAX", 2)
    assert lake.execute("UPDATE s.t SET a = 0 WHERE id IN (1, 2, 3)").updated == 3
    assert [row["a"] for row in table.to_arrow(where="id IN (1, 2, 3)").to_pylist()] == [0, 0, 0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("UPDATE s.t SET a = 1 WHERE id IN (1) AND nosuch = 2", "nosuch"),
        ("UPDATE s.t SET a = nosuch WHERE id = 1", "nosuch"),
        ("UPDATE s.t SET a = b WHERE id = 1", "b"),
        ("UPDATE s.t AS x SET a = 1 WHERE t.id = 1", "t.id"),
        ("DELETE FROM s.t WHERE id = 1 AND nosuch", "nosuch"),
    ],
)
def test_a_column_that_is_not_there_is_named(lake: Lake, table: Table, text: str, said: str) -> None:
    before = rows(lake, "SELECT * FROM s.t")
    with pytest.raises(LithifyError, match=said) as refused:
        lake.execute(text)
    assert isinstance(refused.value, InvalidRequest)
    assert rows(lake, "SELECT * FROM s.t") == before


def test_who_may_not_read_may_not_look_up(lake: Lake, table: Table) -> None:
    from lithify.lake.statements import execute

    with pytest.raises(Forbidden, match="may not read"):
        execute(lake._internals, "DELETE FROM s.t WHERE id = 1", None, Wish(), may=lambda scope, name: scope == "write")


DAYS = [dt.datetime(2026, 1, day) for day in range(1, 5)]


@pytest.mark.parametrize(
    ("kind", "keys", "condition"),
    [
        (pa.int64(), [1, 2, 3, 4], "id IN (1, 2, 9)"),
        (pa.int8(), [1, 2, 3, 4], "t.id IN (1, 2, 200) AND a > 0"),
        (pa.string(), ["1", "it's", "", "4"], "id IN ('1', 'it''s', '2')"),
        (pa.decimal128(10, 2), [Decimal(n) for n in range(1, 5)], "a > 0 AND id IN (1.00, 2, 9.5)"),
        (pa.date32(), [day.date() for day in DAYS], "id IN ('2026-01-01', date '2026-01-02', '2026-01-09')"),
        (pa.timestamp("us"), DAYS, "id IN ('2026-01-01 00:00:00', timestamp '2026-01-02 00:00:00.0')"),
        (
            pa.timestamp("us", "UTC"),
            [day.replace(tzinfo=dt.UTC) for day in DAYS],
            "id IN ('2026-01-01 00:00:00', timestamp '2026-01-02T00:00:00')",
        ),
    ],
)
@pytest.mark.parametrize("shop", [True, False])
@pytest.mark.parametrize("folded", [True, False])
def test_of_keys_of_every_type_no_query_names_the_table(
    lake: Lake,
    kind: pa.DataType,
    keys: list[object],
    condition: str,
    shop: bool,
    folded: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their rows are looked up, and the engine is asked of these alone."""
    columns = pa.schema([("id", kind), ("shop", pa.string()), ("a", pa.int64())])
    made = lake.create_table("s.t", columns, key=["shop", "id"] if shop else "id")
    made.upsert([{"id": key, "shop": "x", "a": number} for number, key in enumerate(keys, 1)])
    if folded:
        made.fold()
    asked, ask = list[str](), ServingEngine.rows_of

    def noted(engine: ServingEngine, query: str, *given: Any, **more: Any) -> Any:
        asked.append(query)
        return ask(engine, query, *given, **more)

    monkeypatch.setattr(ServingEngine, "rows_of", noted)
    named = f"{condition} AND t.shop = 'x'" if shop else condition
    assert lake.execute(f"UPDATE s.t AS t SET a = a * 10 WHERE {named}").updated == 2
    assert lake.execute(f"DELETE FROM s.t AS t WHERE {named} AND a = 20").deleted == 1
    assert sorted(row["a"] for row in made.to_arrow().to_pylist()) == [3, 4, 10]
    assert asked
    assert not [query for query in asked if '"s"."t"' in query]


def test_a_source_with_wider_numbers_than_the_key_is_looked_up(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    made = lake.create_table("s.t", COLUMNS, key="id")
    made.upsert([{"id": n, "a": n, "B": "b"} for n in range(5)])
    asked, ask = list[str](), ServingEngine.rows_of

    def noted(engine: ServingEngine, query: str, *given: Any, **more: Any) -> Any:
        asked.append(query)
        return ask(engine, query, *given, **more)

    monkeypatch.setattr(ServingEngine, "rows_of", noted)
    merge = "MERGE INTO s.t USING (VALUES (1), ({})) AS v(k) ON t.id = v.k WHEN MATCHED THEN UPDATE SET a = a + 10"
    assert lake.execute(merge.format(3)).updated == 2
    assert not [query for query in asked if '"s"."t"' in query]
    assert lake.execute(merge.format(2**40)).updated == 1
    assert sorted(row["a"] for row in made.to_arrow().to_pylist()) == [0, 2, 4, 13, 21]
