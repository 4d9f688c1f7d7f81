"""Parameters are values: whatever a text says, it stays a text."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lithify import InvalidRequest, Lake
from lithify.core.sql_text import positioned_tokens
from lithify.sql.parameters import bound

MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 6)
VALUES: list[Any] = [
    None,
    True,
    0,
    -7,
    2**63 - 1,
    1.5,
    float("inf"),
    Decimal("12.340"),
    "it's; -- '' drop",
    "",
    b"\x00'",
    dt.date(2026, 1, 2),
    MOMENT,
    MOMENT.replace(tzinfo=dt.timezone(dt.timedelta(hours=2))),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_it_is(folder: Path, value: Any) -> None:
    with Lake(folder / "lake") as lake:
        found = lake.sql("select $1 as v, ':1 $1' as t", parameters=[value]).to_pylist()[0]

    assert found == {"v": value, "t": ":1 $1"}


def test_names_and_numbers_stand_where_they_are_used(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", pa.schema([("id", pa.int64()), ("v", pa.string())]), key="id")
        lake.execute("insert into a.t values (:id, :v), (2, :v || '!')", {"id": 1, "v": "x' or '1'='1"})
        lake.execute("update a.t set v = $2 where id = $1", [2, None])

        assert lake.sql("select v from a.t where id::int = :id", parameters={"id": 1}).to_pylist() == [
            {"v": "x' or '1'='1"}
        ]
        assert lake.table("a.t").get(2) == {"id": 2, "v": None}


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_text_leaves_its_quotes(first: str, second: str) -> None:
    try:
        text = bound("select $1, $2", [first, second])
    except InvalidRequest:
        assert any("\ud800" <= letter <= "\udfff" for letter in first + second)
        return
    tokens = positioned_tokens(text)
    assert tokens is not None
    assert [token.kind for token in tokens] == ["word", "text", "symbol", "text"]
    assert [token.text[1:-1].replace("''", "'") for token in tokens if token.kind == "text"] == [first, second]


@pytest.mark.parametrize(
    ("query", "parameters", "message"),
    [
        ("select $2", [1], r"parameter \$2 has no value"),
        ("select 1", [1], r"parameter \$1 is not in the query"),
        ("select :a", {"b": 1}, "parameter :a has no value"),
        ("select :a", {"a": object()}, "parameter :a is object"),
        ("select $1", "x", "parameters are a list"),
        ("select $1", [float], "parameter"),
        ("select $1, E'\\' $1'", ["x"], "with parameters"),
        ("select $1, $$ $1 $$", ["x"], "with parameters"),
        ("select $1, `x`", ["x"], "with parameters"),
        ("select $1", ["\ud800"], "half of one"),
        ("select $1", [Decimal("NaN")], "parameter"),
    ],
)
def test_what_cannot_be_put_in_is_refused(query: str, parameters: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        bound(query, parameters)


# -- versions, and parameters without a value


@pytest.fixture
def versions(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as lake:
        table = lake.create_table("s.t", pa.schema([("id", pa.int64()), ("v", pa.int64())]), key="id")
        table.upsert([{"id": 1, "v": 1}])
        table.tag("good")
        table.upsert([{"id": 1, "v": 2}])
        yield lake


@pytest.mark.parametrize("value", [1, "1", "good"])
def test_a_version_is_told_by_a_parameter(versions: Lake, value: Any) -> None:
    for query, parameters in (("$1", [value]), (":v", {"v": value})):
        for sql in (f"SELECT v FROM s.t VERSION AS OF {query}", f"SELECT x.v FROM s.t VERSION AS OF {query} x"):
            assert versions.sql(sql, parameters=parameters).to_pylist() == [{"v": 1}]
    done = versions.execute("INSERT INTO s.t SELECT 7, v FROM s.t VERSION AS OF $1", parameters=[value])
    assert (done.inserted, versions.table("s.t").get(7)) == (1, {"id": 7, "v": 1})


def test_a_time_is_told_by_a_parameter(versions: Lake) -> None:
    now = versions.table("s.t").history(1)[0].time
    for word in ("TIMESTAMP AS OF", "TIMESTAMP AS OF TIMESTAMP"):
        for value in (now, now.isoformat()):
            assert versions.sql(f"SELECT v FROM s.t {word} $1", parameters=[value]).to_pylist() == [{"v": 2}]


@pytest.mark.parametrize("value", [None, 1.5, -1, True, b"1", dt.date(2026, 1, 1)])
def test_what_is_no_version_is_refused(versions: Lake, value: Any) -> None:
    with pytest.raises(InvalidRequest, match="give a seq, a time or a tag"):
        versions.sql("SELECT v FROM s.t VERSION AS OF $1", parameters=[value])


@pytest.mark.parametrize("name", ["$1", ":x"])
def test_a_parameter_without_a_value_is_told(versions: Lake, name: str) -> None:
    queries = (f"SELECT v FROM s.t WHERE id={name}", f"SELECT v FROM s.t VERSION AS OF {name}")
    for query in queries:
        with pytest.raises(InvalidRequest, match=re.escape(f"parameter {name} has no value")):
            versions.sql(query)
    with pytest.raises(InvalidRequest, match=re.escape(f"parameter {name} has no value")):
        versions.execute(f"UPDATE s.t SET v = {name} WHERE id = 1")


def test_what_only_looks_like_a_parameter_is_none(versions: Lake) -> None:
    query = "SELECT id::int AS a, ':x $1' AS b, make_array(5, 6, 7)[1:id] AS c /* :y */ FROM s.t -- $2"
    assert versions.sql(query).to_pylist() == [{"a": 1, "b": ":x $1", "c": [5]}]
