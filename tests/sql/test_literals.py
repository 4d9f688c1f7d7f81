"""Numbers and times of a query mean the same beside every kind of column, at every door and on every path."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from datafusion import DataFrame, SessionConfig, SessionContext

from lithify import Lake, Table
from lithify.errors import LithifyError
from lithify.settings import load_settings
from lithify.sql import scan_memory
from lithify.sql.literals import Constants
from support.effort import examples
from support.folders import memory_folder
from support.literal_matrix import COLUMNS, Case, answer, cases, is_known_to_differ, rows

ROWS = rows()
CASES = cases()
NAMES = ["m.folded", "m.pending", "m.hot"]


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    """The same rows three times: in files of their own range each, in changes, and in memory. No answer is kept."""
    with memory_folder() as path, Lake(path / "lake", settings=load_settings(cache_bytes_max=2**26)) as lake:
        for name in NAMES:
            table = lake.create_table(name, COLUMNS, key="id")
            for start in range(0, len(ROWS), 4):
                table.upsert(ROWS[start : start + 4])
                if name != "m.pending":
                    table.fold()
        lake.cache.pin("m.hot")
        yield lake


def some(number: int, wanted: Callable[[Case], bool] = lambda case: True) -> list[Case]:
    """Other ones in each run; all of them in a soak."""
    found = [case for case in CASES if wanted(case) and not is_known_to_differ("lithify", case)]
    chosen = random.sample(found, min(examples(number, len(found)), len(found)))
    return sorted(chosen, key=lambda case: case.sql)


def ids(rows: pa.Table) -> list[int]:
    return sorted(rows.column("id").to_pylist())


def test_conditions_find_the_rows_that_they_mean(lake: Lake) -> None:
    wrong: list[tuple[str, list[int], Any]] = []
    for case in some(200):
        try:
            found: Any = ids(lake.sql(f"SELECT id FROM m.folded WHERE {case.sql}"))
        except LithifyError as error:
            found = error
        if found != answer(case, ROWS):
            wrong.append((case.sql, answer(case, ROWS), found))

    assert wrong == []


def test_every_door_and_path_finds_the_same(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = []
    for case in some(25):
        found = {name: ids(lake.sql(f"SELECT id FROM {name} WHERE {case.sql}")) for name in NAMES}
        found["where"] = ids(lake.table("m.folded").to_arrow(where=case.sql))
        with monkeypatch.context() as patch:
            patch.setattr(scan_memory, "RAW_BYTES_MAX", 0)
            found["large"] = ids(lake.sql(f"SELECT id FROM m.folded WHERE ({case.sql})"))
        # What is selected is never ruled out.
        marked = lake.sql(f"SELECT id, ({case.sql}) IS TRUE AS found FROM m.folded").to_pylist()
        found["selected"] = sorted(row["id"] for row in marked if row["found"])
        if any(each != answer(case, ROWS) for each in found.values()):
            wrong.append((case.sql, answer(case, ROWS), found))

    assert wrong == []


def test_duckdb_finds_the_same() -> None:
    table = pa.Table.from_pylist(ROWS, schema=COLUMNS)
    with duckdb.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        connection.register("given", table)
        connection.execute("CREATE TABLE t AS SELECT * FROM given")
        wrong = []
        asked = [case for case in CASES if not is_known_to_differ("duckdb", case)]
        asked = asked if examples(0, 1) else asked[:: random.randint(5, 7)]
        for start in range(0, len(asked), 64):
            batch = asked[start : start + 64]
            for case, found in zip(batch, _columns(connection, batch), strict=True):
                if found != answer(case, ROWS):
                    wrong.append((case.sql, answer(case, ROWS), found))

    assert wrong == []


def _columns(connection: duckdb.DuckDBPyConnection, batch: Sequence[Case]) -> Iterator[list[int]]:
    asked = ", ".join(f"({case.sql})" for case in batch)
    lines = connection.execute(f"SELECT id, {asked} FROM t ORDER BY id").fetchall()
    for number in range(len(batch)):
        yield [line[0] for line in lines if line[number + 1]]


@pytest.fixture
def sentinels(folder: Any) -> Iterator[Table]:
    """Two rows: one of 2024, and one that is valid for ever."""
    columns = pa.schema(
        [
            ("id", pa.int64()),
            ("to_utc", pa.timestamp("us", "UTC")),
            ("to_ntz", pa.timestamp("us")),
            ("day", pa.date32()),
            ("amount", pa.decimal128(12, 2)),
            ("x", pa.float64()),
            ("note", pa.string()),
        ]
    )
    with Lake(folder / "lake") as lake:
        table = lake.create_table("s.t", columns, key="id")
        for number, day in enumerate([dt.date(2024, 1, 1), dt.date(9999, 12, 31)]):
            moment = dt.datetime.combine(day, dt.time())
            table.upsert(
                [{"id": number, "to_utc": moment.replace(tzinfo=dt.UTC), "to_ntz": moment, "day": day}
                 | {"amount": Decimal("765474.49"), "x": 0.1 if number else float("nan"), "note": str(day)}]
            )  # fmt: skip
            table.fold()
        yield table


@pytest.mark.parametrize(
    "where",
    [
        "amount = 765474.49 AND id = 1",
        "to_utc = '9999-12-31'",
        "to_ntz >= timestamp '9999-12-31 00:00:00'",
        "to_utc > to_timestamp('2262-05-01')",
        "to_ntz BETWEEN '9000-01-01' AND '9999-12-31'",
        "x < 0.5",
    ],
)
def test_rows_are_deleted_by_what_a_condition_means(sentinels: Table, where: str) -> None:
    assert sentinels.delete_where(where).rows == 1
    assert ids(sentinels.to_arrow()) == [0]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("note = '9999-12-31' AND to_utc = '9999-12-31'", [1]),
        ("note IN ('2024-01-01', '9999-12-31') AND to_ntz < '9999-12-31'", [0]),
        ("to_utc > now()", [1]),
        ("coalesce(to_ntz, now()) > now()", [1]),
        ("to_ntz = cast(day AS timestamp)", [0, 1]),
        ("date_trunc('day', to_ntz) = timestamp '9999-12-31'", [1]),
        ("extract(year FROM to_utc) = 9999", [1]),
        ("to_utc + interval '1 day' > timestamp '9999-12-31 12:00:00'", [1]),
        ("CASE WHEN id = 0 THEN '9999-12-31' ELSE to_ntz END = '9999-12-31'", [0, 1]),
        ("coalesce(x, 0.0) > 0.5", [0]),
        ("CASE WHEN id = 1 THEN x ELSE 0.25 END IN (0.1, 0.25)", [0, 1]),
        ("amount * 1.10 = 842021.939 AND x * 2 < 0.5", [1]),
        ("amount / 3.0 > 255158.16333 AND amount / 3.0 < 255158.16334", [0, 1]),
        ("x > amount * 0.0000001", [0, 1]),
        ("array_has([x], 0.1)", [1]),
        ("amount < 1e300 AND x = 1e-1", [1]),
    ],
)
def test_what_stands_beside_a_constant_decides(sentinels: Table, where: str, found: list[int]) -> None:
    assert ids(sentinels.to_arrow(where=where)) == found


def test_far_times_are_keys_and_order(folder: Any) -> None:
    far, old = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), dt.datetime(1, 1, 1)
    columns = pa.schema([("at", pa.timestamp("us")), ("n", pa.int64()), ("seen", pa.timestamp("us"))])
    with Lake(folder / "lake") as lake:
        table = lake.create_table("s.t", columns, key="at", order_by="seen")
        for n in (1, 2):
            table.upsert([{"at": at, "n": n, "seen": far} for at in (far, old, dt.datetime(2024, 1, 1))])
            table.fold()

        found = table.get(far)
        assert found is not None
        assert found["n"] == 2
        assert table.to_arrow(where=f"at = '{old}'").to_pylist() == [{"at": old, "n": 2, "seen": far}]
        assert lake.sql("SELECT at FROM s.t ORDER BY at DESC").column("at").to_pylist()[0] == far
        assert table.delete([far]).rows == 1
        assert lake.sql("SELECT max(at) AS at FROM s.t").to_pylist() == [{"at": dt.datetime(2024, 1, 1)}]


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ("SELECT 0.5 AS v", [pa.decimal128(1, 1)]),
        ("SELECT 1e3 AS v, 1e400 AS w", [pa.float64(), pa.float64()]),
        ("SELECT 1 / 3.0 AS v, 100.0 * n / 3 AS w FROM (VALUES (1)) q(n)", [pa.float64(), pa.float64()]),
        ("SELECT avg(CASE WHEN n > 1 THEN 1.0 ELSE 0.0 END) AS v FROM (VALUES (1), (2)) q(n)", [pa.float64()]),
        ("SELECT sum(n * 0.1) AS v FROM (VALUES (1.25), (2.25)) q(n)", [pa.decimal128(15, 3)]),
        ("SELECT timestamp '2024-01-01' AS v, cast('2024-01-01' AS timestamp) AS w", [pa.timestamp("us")] * 2),
        ("SELECT now() AS v", [pa.timestamp("us", "UTC")]),
    ],
)
def test_types_of_constants_and_of_what_is_made_of_them(sentinels: Table, query: str, kinds: list[pa.DataType]) -> None:
    assert sentinels._internals.handles.runtime.serving.sql(query, lambda *_: None, dict).schema.types == kinds


ARITHMETIC = [
    "SELECT sum(price * discount) AS v FROM {t} WHERE discount BETWEEN 0.06 - 0.01 AND 0.06 + 0.01 AND quantity < 24",
    "SELECT 100.00 * sum(CASE WHEN id % 2 = 0 THEN price * (1 - discount) ELSE 0 END) / sum(price * (1 - discount)) "
    "AS v FROM {t}",
    "SELECT sum(price) / 7.0 AS v FROM {t} WHERE quantity < (SELECT 0.2 * avg(quantity) FROM {t})",
    "SELECT count(*) AS v FROM {t} WHERE price * quantity > (SELECT sum(price * quantity) * 0.0001000000 FROM {t})",
    "SELECT avg(price) AS v FROM {t} WHERE price > 0.00 AND price * 1.5 > 1000.25",
    "SELECT sum(price * (1 - discount) * (1 + 0.07)) AS v FROM {t}",
    "SELECT count(*) AS v FROM {t} WHERE price = 0.5 * (price + price) AND discount + 0.01 = 0.07",
    "SELECT sum(x * 0.1) + 1e2 AS v FROM {t} WHERE x > 0.25 OR x < -1.5e0",
]


@pytest.mark.parametrize("query", ARITHMETIC, ids=range(len(ARITHMETIC)))
def test_arithmetic_agrees_with_duckdb(folder: Any, query: str) -> None:
    chance = random.Random(11)
    lines = [
        {
            "id": number,
            "price": Decimal(chance.randrange(10**7)).scaleb(-2),
            "discount": Decimal(chance.randrange(11)).scaleb(-2),
            "quantity": Decimal(chance.randrange(1, 51)),
            "x": chance.uniform(-2, 2),
        }
        for number in range(2_000)
    ]
    money = pa.decimal128(15, 2)
    columns = pa.schema(
        [("id", pa.int64()), ("price", money), ("discount", money), ("quantity", money), ("x", pa.float64())]
    )
    with Lake(folder / "lake") as lake, duckdb.connect() as connection:
        lake.create_table("s.t", columns, key="id").upsert(lines)
        connection.register("t", pa.Table.from_pylist(lines, schema=columns))

        (found,) = lake.sql(query.format(t="s.t")).column("v").to_pylist()
        ((expected,),) = connection.execute(query.format(t="t")).fetchall()

    assert float(found) == pytest.approx(float(expected), rel=1e-6)


def test_constants_mean_the_same_in_a_process_of_its_own(lake: Lake) -> None:
    where = "d12_2 = 765474.49 AND ntz = '9999-12-31' AND f64 < 1e301"

    rows = lake.sql(f"SELECT id, repeat('x', 2) AS v FROM m.folded WHERE {where}").to_pylist()

    assert rows == [{"id": 6, "v": "xx"}]


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("SELECT '0.5', 1 FROM t", "SELECT '0.5', 1 FROM t"),
        ("SELECT x AS timestamp FROM t", "SELECT x AS timestamp FROM t"),
        ("SELECT (SELECT x AS timestamp) FROM timestamp", "SELECT (SELECT x AS timestamp) FROM timestamp"),
        ("SELECT x::timestamp(3), 0x1e-3 -- 1e3", "SELECT x::timestamp(3), 0x1e-3 -- 1e3"),
        ("SELECT $$1e3$$", "SELECT $$1e3$$"),
        ("x = 1e3 OR y > .5E1", "x = 1000 OR y > 5"),
        ("x = 1e" + "9" * 30, "x = 1" + "0" * 40),
        ("x = 2e-" + "9" * 30, f"x = cast('2e-{'9' * 30}' as double)"),
        (f"x IN (0e-99999999, 0.0e{'9' * 30}, 1e{'0' * 30}1)", "x IN (0, 0, 10)"),
        ("(x + .5) / 2 > 1.", "(x + cast('.5' as double)) / 2 > 1."),
        ("timestamp '2024-01-01 00:00:00.0000001'", "timestamp '2024-01-01 00:00:00.0000001'"),
    ],
)
def test_only_constants_are_written_in_another_way(given: str, written: str) -> None:
    assert Constants(given).spelled() == written


def test_a_text_that_differs_in_digits_alone_is_understood_at_once() -> None:
    planned = list[str]()
    ctx = SessionContext(SessionConfig().set("datafusion.sql_parser.parse_float_as_decimal", "true"))
    ctx.register_record_batches("t", [[pa.record_batch({"f": [0.5], "d": pa.array([Decimal("0.50")])})]])
    schemas = [ctx.table("t").schema()]

    def plan(text: str) -> DataFrame:
        planned.append(text)
        return ctx.sql(text)

    def written(query: str) -> tuple[str, int]:
        planned.clear()
        return Constants(query).meant(plan, lambda: schemas), len(planned)

    text, plans = written("select * from t where f > 0.25 and d = 0.5")
    assert text == "select * from t where f > cast('0.25' as double) and d = 0.5"
    assert plans > 1
    assert written("select * from t where f > 0.75 and d = 0.1") == (
        "select * from t where f > cast('0.75' as double) and d = 0.1",
        0,
    )
    broken, ctx = ctx, SessionContext()
    assert written("select * from t where f > 1.5 and d = 0.5")[1] > 1, "no way can be planned without the table"
    ctx = broken
    assert written("select * from t where f > 1.5 and d = 0.5")[0].endswith("f > cast('1.5' as double) and d = 0.5")
    # More digits are another type, and another column is another table.
    assert written("select * from t where f > 0.751 and d = 0.1")[1] > 1
    schemas = [schemas[0].remove(0).append(pa.field("f", pa.decimal128(9, 2)))]
    assert written("select * from t where f > 0.25 and d = 0.5")[1] > 0
