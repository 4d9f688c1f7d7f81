"""Fields inside of structs that are added, renamed and dropped: what every door shows of it, then and now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from lithify import Conflict, InvalidRequest, Lake, LithifyError, NotFound, Table
from lithify.core.column_changes import ColumnChange, stood_at
from lithify.core.schema import FIELDS_FORMAT
from lithify.core.type_text import parse_type
from lithify.files.local import LocalStorage
from lithify.jobs import recovery
from support.effort import SOAK
from support.faults import FaultyStore, RecordingStore, Stopped, stop

PLACE = "struct<city:string,geo:struct<lat:int64,lon:int64>>"
COLUMNS = pa.schema([("id", pa.int64()), ("place", parse_type(PLACE)), ("v", pa.string())])


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as lake:
        yield lake


@pytest.fixture
def table(lake: Lake) -> Table:
    """Rows in base and pending: whole ones, updates and deletes."""
    return filled(lake)


def filled(lake: Lake) -> Table:
    table = lake.create_table("s.t", COLUMNS, key="id")
    table.upsert([row(1), row(2), {"id": 3, "place": None, "v": "x"}, row(4), row(5, geo=False)])
    table.fold()
    table.upsert([row(2, "ulm")])
    table.update([{"id": 1, "place": {"city": "bonn", "geo": {"lat": 7, "lon": 8}}}, {"id": 3, "v": "y"}])
    table.delete([4])
    return table


def row(i: int, city: str | None = "kiel", geo: bool = True) -> dict[str, Any]:
    return {"id": i, "place": {"city": city, "geo": {"lat": i, "lon": -i} if geo else None}, "v": "x"}


def rows_of(table: Table, **asked: Any) -> list[dict[str, Any]]:
    return sorted(table.to_arrow(**asked).to_pylist(), key=lambda found: found["id"])


def base_rows(table: Table) -> list[dict[str, Any]]:
    found = pa.table(deltalake.DeltaTable(str(table.base_path)).to_pyarrow_table())
    return sorted(found.to_pylist(), key=lambda found: found["id"])


Change = Callable[[dict[str, Any]], dict[str, Any]]


def each_place(rows: list[dict[str, Any]], change: Change) -> list[dict[str, Any]]:
    return [{**found, "place": None if found["place"] is None else change(found["place"])} for found in rows]


def _geo(change: Change) -> Change:
    return lambda place: {**place, "geo": None if place["geo"] is None else change(place["geo"])}


CHANGES: dict[str, tuple[Callable[[Table], Any], str, Change]] = {
    "add": (
        lambda t: t.add_column(pa.field("place.zip", pa.int32())),
        "struct<city:string,geo:struct<lat:int64,lon:int64>,zip:int32>",
        lambda place: {**place, "zip": None},
    ),
    "add deep": (
        lambda t: t.add_column(pa.field("place.geo.alt", pa.list_(pa.int64()))),
        "struct<city:string,geo:struct<lat:int64,lon:int64,alt:list<int64>>>",
        _geo(lambda geo: {**geo, "alt": None}),
    ),
    "rename": (
        lambda t: t.rename_column("place.city", "town"),
        "struct<town:string,geo:struct<lat:int64,lon:int64>>",
        lambda place: {"town": place["city"], "geo": place["geo"]},
    ),
    "rename deep": (
        lambda t: t.rename_column("place.geo.lon", "LON"),
        "struct<city:string,geo:struct<lat:int64,LON:int64>>",
        _geo(lambda geo: {"lat": geo["lat"], "LON": geo["lon"]}),
    ),
    "drop": (
        lambda t: t.drop_column("place.city"),
        "struct<geo:struct<lat:int64,lon:int64>>",
        lambda place: {"geo": place["geo"]},
    ),
    "drop deep": (
        lambda t: t.drop_column("place.geo.lat"),
        "struct<city:string,geo:struct<lon:int64>>",
        _geo(lambda geo: {"lon": geo["lon"]}),
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_field_changes_for_every_reader_and_then_stays_then(lake: Lake, table: Table, what: str) -> None:
    act, kind, change = CHANGES[what]
    before, first, second = rows_of(table), table.feed(0).to_pylist(), table.feed(1, before=True).to_pylist()

    act(table)

    seq, after = table.snapshot().seq, each_place(before, change)
    assert table.schema.field("place").type == parse_type(kind)
    assert rows_of(table) == after == sorted(lake.sql("select * from s.t").to_pylist(), key=lambda found: found["id"])
    assert rows_of(table, as_of=seq - 1) == before
    assert rows_of(table, as_of=seq) == after
    assert table.get(1) == after[0]
    lake.cache.pin("s.t")
    assert rows_of(table) == after
    assert table.feed(0).to_pylist() == each_place(first, change)
    assert table.feed(1, before=True).to_pylist() == each_place(second, change)
    shown = [found["place"] for found in table.changes(0).to_pylist() if found["place"] is not None]
    assert all(set(place) == set(parse_type(kind).names) for place in shown)
    table.fold()
    table.compact()
    assert rows_of(table) == after == base_rows(table)
    table.restore(1)
    assert [found["id"] for found in rows_of(table)] == [1, 2, 3, 4, 5]
    assert rows_of(table)[0]["place"] == change(row(1)["place"])


def test_what_a_dropped_field_held_does_not_come_back_with_a_new_one_of_its_name(table: Table) -> None:
    table.drop_column("place.city")
    table.add_column(pa.field("place.city", pa.string()))
    table.rename_column("place.geo", "at")
    table.add_column(pa.field("place.geo", parse_type("struct<lat:int64,lon:int64>")))

    for found in (*rows_of(table), *table.feed(0).to_pylist(), *table.changes(0).to_pylist()):
        if found["place"] is not None:
            assert (found["place"]["city"], found["place"]["geo"]) == (None, None)
    assert rows_of(table)[0]["place"]["at"] == {"lat": 7, "lon": 8}
    table.rename_column("place", "spot")
    table.upsert([{"id": 9, "spot": {"at": None, "city": "rom", "geo": {"lat": 1, "lon": 2}}, "v": ""}])
    table.drop_column("spot.at")
    assert rows_of(table)[-1]["spot"] == {"city": "rom", "geo": {"lat": 1, "lon": 2}}
    assert rows_of(table)[0]["spot"] == {"city": None, "geo": None}
    assert table.feed(0).to_pylist()[0]["spot"] == {"city": None, "geo": None}


def test_the_same_in_sql(lake: Lake, table: Table) -> None:
    before = rows_of(table)
    lake.execute("ALTER TABLE s.t ADD COLUMN place.geo.alt bigint")
    lake.execute("ALTER TABLE s.t ADD COLUMN IF NOT EXISTS place.geo.alt bigint")
    lake.execute("ALTER TABLE s.t RENAME COLUMN place.city TO town")
    lake.execute("ALTER TABLE s.t DROP COLUMN place.geo.lat")
    lake.execute("ALTER TABLE s.t DROP COLUMN IF EXISTS place.geo.lat")

    assert table.schema.field("place").type == parse_type("struct<town:string,geo:struct<lon:int64,alt:int64>>")
    assert [found["place"] and found["place"]["town"] for found in rows_of(table)] == [
        found["place"] and found["place"]["city"] for found in before
    ]
    assert lake.sql("select place['town'] as town from s.t where id = 2").to_pylist() == [{"town": "ulm"}]


@pytest.mark.parametrize(
    ("what", "error", "said"),
    [
        (lambda t: t.rename_column("place.nope", "x"), NotFound, "'nope' is not in 'place' of table s.t"),
        (lambda t: t.rename_column("place.geo.nope", "x"), NotFound, "'nope' is not in 'place.geo'"),
        (lambda t: t.rename_column("place.city", "GEO"), Conflict, "has a field 'geo' already"),
        (lambda t: t.rename_column("place.city", "geo.city"), InvalidRequest, "holds '.'"),
        (lambda t: t.rename_column("place.city.x", "y"), InvalidRequest, "only structs have fields"),
        (lambda t: t.rename_column("v.x", "y"), NotFound, "'v.x' is not in table"),
        (lambda t: t.add_column(pa.field("place.city", pa.int64())), Conflict, "has a field 'city' already"),
        (lambda t: t.add_column(pa.field("place.x", pa.int64(), nullable=False)), InvalidRequest, "must be nullable"),
        (lambda t: t.add_column(pa.field("place.x", pa.int64()), default=1), InvalidRequest, "has no default"),
        (lambda t: t.alter_column("place.city", type="binary"), InvalidRequest, "added, renamed and dropped"),
        (lambda t: t.alter_column("place.city", nullable=False), InvalidRequest, "added, renamed and dropped"),
        (
            lambda t: (t.drop_column("place.geo"), t.drop_column("place.city")),
            InvalidRequest,
            "the only one of 'place'",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    table: Table, what: Callable[[Table], Any], error: type[LithifyError], said: str
) -> None:
    with pytest.raises(error, match=said):
        what(table)


def test_a_table_without_a_key_changes_inside_too(lake: Lake) -> None:
    table = lake.create_table("s.k", COLUMNS)
    table.append([row(1), row(2)])
    table.fold()
    table.append([row(3, "rom")])
    table.delete([{"id": 2}])
    table.rename_column("place.city", "town")
    table.drop_column("place.geo")
    table.delete([{"id": 1}])

    assert rows_of(table) == [{"id": 3, "place": {"town": "rom"}, "v": "x"}]
    fed = [(found["id"], found["place"], found["_kind"]) for found in table.feed(1).to_pylist()]
    kiel = {"town": "kiel"}
    assert fed == [(3, {"town": "rom"}, "insert"), (2, kiel, "delete"), (1, kiel, "delete")]
    table.fold()
    assert rows_of(table) == base_rows(table) == [{"id": 3, "place": {"town": "rom"}, "v": "x"}]


def test_a_writer_that_still_sends_an_old_field_is_told_and_nothing_is_lost(table: Table) -> None:
    table.rename_column("place.city", "town")
    old = [row(1, "rom")]
    for data in (old, pa.Table.from_pylist(old, COLUMNS)):
        with pytest.raises(InvalidRequest, match="city"):
            table.upsert(data)
    assert table.get(1)["place"]["town"] == "bonn"  # type: ignore[index]


def test_a_program_that_does_not_know_changed_fields_refuses_the_table(
    table: Table, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.drop_column("v")
    monkeypatch.setattr("lithify.core.schema.FORMAT_MAX", FIELDS_FORMAT - 1)
    with Lake(folder / "lake") as older:
        assert older.table("s.t").to_arrow().num_rows == 4
    monkeypatch.undo()
    table.drop_column("place.city")
    monkeypatch.setattr("lithify.core.schema.FORMAT_MAX", FIELDS_FORMAT - 1)
    with Lake(folder / "lake") as older, pytest.raises(InvalidRequest, match="newer Lithify"):
        older.table("s.t").to_arrow()


def test_fields_are_followed_back_through_their_changes() -> None:
    history = [
        ColumnChange("rename_field", "s", "b", inside="a"),
        ColumnChange("add_field", "s", "int64", inside="a"),
        ColumnChange("rename", "s", "t"),
        ColumnChange("drop_field", "t", inside="c"),
        ColumnChange("rename_field", "t", "y", inside="x"),
        ColumnChange("rename_field", "t", "n", inside="y.m"),
    ]
    assert stood_at(("t", "b"), history) == ("s", "a")
    assert stood_at(("t", "a"), history) is None
    assert stood_at(("t", "c"), history) is None
    assert stood_at(("t", "y", "n", "z"), history) == ("s", "x", "m", "z")
    assert stood_at(("t", "y", "m"), history) is None
    assert stood_at(("t", "x"), history) is None
    assert stood_at(("s", "a"), history) is None
    assert stood_at(("t", "q"), history[3:]) == ("t", "q")


def test_a_change_that_somebody_died_of_is_there_as_a_whole_or_not_at_all(folder: Path) -> None:
    """Invariant 15, at every point that the engine names."""
    recording = RecordingStore()
    assert _renamed(folder / "recorded", recording)
    points = [point for point in recording.occurrences() if SOAK or not point[0].startswith("store.")]
    assert {"columns.written", "columns_settled.commit"} <= {name for name, _ in points}
    if not SOAK:
        points = [
            point for point in points if point[0] in ("columns.written", "columns.durable", "columns_settled.files")
        ]
    for number, (name, nth) in enumerate(points):
        path = folder / f"dies-{number}"
        assert not _renamed(path, FaultyStore(name, stop, nth=nth)), f"{name} {nth}"
        with Lake(path) as lake:
            table = lake.table("s.t")
            recovery.recover(lake._runtime)
            table.fold()
            then = "city" in table.schema.field("place").type.names
            assert then or name not in ("columns.written", "columns.commit")
            if then:
                table.rename_column("place.city", "town")
            towns = [found["place"] and found["place"]["town"] for found in rows_of(table)]
            assert towns == ["bonn", "ulm", None, "kiel"], f"{name} {nth}"


def _renamed(path: Path, store: LocalStorage) -> bool:
    """Whether nobody died of it."""
    with Lake(path) as lake:
        filled(lake)
    try:
        with Lake(path, store=store) as lake:
            lake.table("s.t").rename_column("place.city", "town")
    except Stopped:
        return False
    return True
