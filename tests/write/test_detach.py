"""A day moved out of a table as Parquet, and into one: one commit each, and no row in neither place."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import Conflict, Corruption, InvalidRequest, Lake, NotFound, Settings, Table, Unavailable
from support.bags import bag
from support.faults import FaultyStore
from support.parquet_footers import GROUP_ROWS, I64, NUM_ROWS, ROW_GROUPS, Fields, edited

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("v", pa.string())])
KINDS: list[dict[str, Any]] = [{"key": "id"}, {}, {"key": "id", "order_by": "v"}]


def row(number: int, day: int, v: str = "x") -> dict[str, Any]:
    return {"id": number, "at": dt.datetime(2026, 11, day, number % 24, tzinfo=dt.UTC), "v": v}


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as lake:
        yield lake


def filled(lake: Lake, **options: Any) -> Table:
    """Three days, some of it folded, some pending, some changed and deleted."""
    table = lake.create_table("a.t", SCHEMA, time="at", **options)
    table.append([row(number, 1 + number % 3) for number in range(30)])
    table.fold()
    table.append([row(number, 2, "late") for number in range(100, 105)])
    table.delete([{"id": 4}] if not options.get("key") else [4])
    return table


def of_day(table: Table, day: int) -> list[dict[str, Any]]:
    return [r for r in table.to_arrow().to_pylist() if r["at"].day == day]


def seen_by_duckdb(path: Path) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        found = connection.execute('select id, "at", v from read_parquet(?)', [f"{path}/*.parquet"])
        return [dict(zip(("id", "at", "v"), line, strict=True)) for line in found.fetchall()]


@pytest.mark.parametrize("options", KINDS)
def test_a_day_goes_out_whole_and_the_others_stay(lake: Lake, folder: Path, options: dict[str, Any]) -> None:
    table = filled(lake, **options)
    before, day = bag(table.to_arrow().to_pylist()), bag(of_day(table, 2))

    report = table.detach("2026-11-02", folder / "second", reason="archived")

    assert bag(seen_by_duckdb(folder / "second")) == day
    assert bag(table.to_arrow().to_pylist()) == before - day
    assert report.rows == day.total()
    assert [str(part.values["_day"]) for part in table.partitions()] == ["2026-11-01", "2026-11-03"]
    last = next(entry for entry in table.history() if entry.operation == "detach")
    assert last.seq == report.seq


@pytest.mark.parametrize("options", KINDS)
def test_a_day_comes_back_with_one_commit(lake: Lake, folder: Path, options: dict[str, Any]) -> None:
    table = filled(lake, **options)
    before = bag(table.to_arrow().to_pylist())
    report = table.detach(dt.date(2026, 11, 2), folder / "second")

    commit = table.attach(folder / "second")

    assert commit.seq == report.seq + 1
    assert commit.rows == report.rows
    assert bag(table.to_arrow().to_pylist()) == before
    table.fold()
    assert bag(table.to_arrow().to_pylist()) == before


def test_a_day_goes_into_another_table(lake: Lake, folder: Path) -> None:
    table = filled(lake, key="id")
    day = bag(of_day(table, 3))
    table.detach("2026-11-03", folder / "third")
    other = lake.create_table("a.other", pa.schema([*SCHEMA, ("w", pa.int32())]), key="id", time="at")

    other.attach(folder / "third", batch_id="b")
    assert other.attach(folder / "third", batch_id="b").replayed

    assert bag({k: v for k, v in r.items() if k != "w"} for r in other.to_arrow().to_pylist()) == day


def test_files_in_any_order_and_of_other_writers_are_attached(lake: Lake, folder: Path) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id", time="at")
    rows = [row(number, 1 + number % 2) for number in (5, 3, 9, 1)]
    (folder / "day").mkdir()
    loose = pa.schema([("v", pa.large_string()), ("id", pa.int32()), ("at", pa.timestamp("ms", "UTC"))])
    pq.write_table(pa.Table.from_pylist(rows, schema=loose), folder / "day" / "x.parquet", row_group_size=2)

    table.attach(folder / "day")

    assert bag(table.to_arrow().to_pylist()) == bag(rows)


def test_a_write_that_comes_in_between_is_not_lost(folder: Path) -> None:
    """Whatever is written while the day is laid out goes out with it, or stays: it is in one place."""
    wrote: list[int] = []

    def write() -> None:
        wrote.append(1)
        with Lake(folder / "lake") as other:
            other.table("a.t").upsert([row(1_000, 2, "between")])

    with Lake(folder / "lake", store=FaultyStore("detach.laid_out", write)) as lake:
        table = filled(lake, key="id")
        table.detach("2026-11-02", folder / "second")

        out = {r["id"] for r in seen_by_duckdb(folder / "second")}
        inside = {r["id"] for r in table.to_arrow().to_pylist()}
        assert wrote
        assert not out & inside
        assert 1_000 in out | inside
        assert len(out | inside) == 30 + 5 - 1 + 1


@pytest.mark.parametrize(
    ("day", "word"),
    [("2026-11-31", "no day"), ("yesterday", "no day"), (dt.datetime(2026, 11, 2), "date"), ("2026-12-24", "no rows")],
)
def test_what_is_no_day_of_the_table_is_refused(lake: Lake, folder: Path, day: Any, word: str) -> None:
    table = filled(lake, key="id")
    before = bag(table.to_arrow().to_pylist())

    with pytest.raises((InvalidRequest, NotFound), match=word):
        table.detach(day, folder / "out")

    assert not (folder / "out").exists()
    assert bag(table.to_arrow().to_pylist()) == before


def test_places_that_cannot_take_a_day_are_refused(lake: Lake, folder: Path) -> None:
    table = filled(lake, key="id")
    (folder / "there").mkdir()
    with pytest.raises(Conflict, match="exists"):
        table.detach("2026-11-02", folder / "there")
    with pytest.raises(InvalidRequest, match="inside this lake"):
        table.detach("2026-11-02", lake.path / "out")
    plain = lake.create_table("a.plain", SCHEMA, key="id")
    with pytest.raises(InvalidRequest, match="no time column"):
        plain.detach("2026-11-02", folder / "out")


def test_files_that_do_not_fit_are_refused_and_nothing_changes(lake: Lake, folder: Path) -> None:
    table = lake.create_table("a.t", SCHEMA, key="id", time="at")
    cases = {
        "twice": (pa.table({"id": [1, 1]}), "more than once"),
        "nokey": (pa.table({"v": ["a"]}), "lacks column 'id'"),
        "more": (pa.table({"id": [1], "zzz": [1]}), "zzz"),
        "wrong": (pa.table({"id": [1], "at": ["never"]}), "at"),
    }
    for name, (rows, word) in cases.items():
        (folder / name).mkdir()
        pq.write_table(rows, folder / name / "a.parquet")
        with pytest.raises(InvalidRequest, match=word):
            table.attach(folder / name)
    (folder / "empty").mkdir()
    with pytest.raises(NotFound, match="no Parquet files"):
        table.attach(folder / "empty")
    with pytest.raises(NotFound, match="no folder"):
        table.attach(folder / "nowhere")
    assert table.snapshot().seq == 0


def test_a_crash_before_the_commit_leaves_the_rows_in_the_table(folder: Path) -> None:
    class Crash(BaseException):
        pass

    def crash() -> None:
        raise Crash

    settings = Settings()
    with Lake(folder / "lake", settings=settings) as lake:
        filled(lake, key="id").fold()
        before = bag(lake.table("a.t").to_arrow().to_pylist())
    with (
        Lake(folder / "lake", settings=settings, store=FaultyStore("detach.laid_out", crash)) as lake,
        pytest.raises(Crash),
    ):
        lake.table("a.t").detach("2026-11-02", folder / "out")

    with Lake(folder / "lake", settings=settings) as lake:
        assert bag(lake.table("a.t").to_arrow().to_pylist()) == before


@pytest.mark.parametrize("change", ["added with a default", "dropped", "dropped and added again"])
def test_a_day_goes_out_and_comes_back_with_the_columns_that_the_table_has_now(
    lake: Lake, folder: Path, change: str
) -> None:
    """Its files may be from before: null stays null, and what was dropped does not go out."""
    table = filled(lake, key="id")
    table.fold()
    if change == "added with a default":
        table.add_column(pa.field("w", pa.string()), default="new rows only")
    else:
        table.drop_column("v")
    if change == "dropped and added again":
        table.add_column(pa.field("v", pa.string()))
    before = bag(table.to_arrow().to_pylist())

    table.detach("2026-11-02", folder / "second")

    for file in (folder / "second").iterdir():
        assert pq.read_schema(file).names == table.schema.names
    table.attach(folder / "second")
    assert bag(table.to_arrow().to_pylist()) == before


def test_a_file_that_contradicts_itself_is_not_attached(lake: Lake, folder: Path) -> None:
    """A reader that goes by the wrong count would take two rows of three."""
    table = lake.create_table("a.t", SCHEMA, key="id", time="at")
    (folder / "day").mkdir()
    pq.write_table(pa.Table.from_pylist([row(n, 1) for n in range(3)], schema=SCHEMA), folder / "day" / "x.parquet")

    def fewer(footer: Fields) -> None:
        footer.update({NUM_ROWS: (I64, 2)})
        for group in footer[ROW_GROUPS][1][1]:
            group.update({GROUP_ROWS: (I64, 2)})

    edited(folder / "day" / "x.parquet", fewer)

    with pytest.raises(Corruption, match=r"x\.parquet makes no sense: 'id' has 3 values for 2 rows"):
        table.attach(folder / "day")

    assert table.to_arrow().num_rows == 0


def test_what_was_laid_out_does_not_stay_where_the_commit_was_refused(folder: Path) -> None:
    """Its rows are in the table, and the next attempt takes the same name."""

    def refuse() -> None:
        raise Unavailable("there is no room for the rows")

    with Lake(folder / "lake") as lake:
        filled(lake, key="id").fold()
    with Lake(folder / "lake", store=FaultyStore("write.files", refuse)) as lake:
        table = lake.table("a.t")
        with pytest.raises(Unavailable, match="no room"):
            table.detach("2026-11-02", folder / "second")
        assert not (folder / "second").exists()
        assert of_day(table, 2)

        table.detach("2026-11-02", folder / "second")

        assert not of_day(table, 2)
