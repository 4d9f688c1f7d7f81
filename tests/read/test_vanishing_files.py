"""A file that vanishes, or changes, under a read: the answer is right, or there is an error. Never fewer rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Conflict, Corruption, Lake, NotFound, Settings, Table
from lithify.errors import LithifyError
from lithify.files.read_proof import LOOKS_MAX, Vanished, look_again
from lithify.read import one_row
from lithify.read import reader as reader_module
from lithify.sql import key_rows, scan_memory
from support.effort import thinned
from support.folders import copied, memory_folder
from support.vanishing import HARMS, MOMENTS, Once, SavedFile, after_planning, as_rows, before_listing, move_on

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
SINCE = 2

Door = Callable[[Lake], Any]


def rows(*ids: int, v: str = "first") -> list[dict[str, Any]]:
    return [{"id": i, "v": v} for i in ids]


def filled(lake: Lake, order_by: str | None = None) -> Table:
    """Two files of base: one that pending changes touch, and one that they do not."""
    table = lake.create_table("a.t", SCHEMA, key="id", order_by=order_by)
    table.upsert(rows(*range(100), v="m"))
    table.fold()
    table.upsert(rows(*range(1000, 1100), v="m"))
    table.fold()
    table.upsert(rows(5, v="x"))
    table.delete([6])
    return table


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    with memory_folder() as folder:
        with Lake(folder / "lake") as lake:
            filled(lake)
        yield folder / "lake"


@pytest.fixture
def lake(made: Path, folder: Path) -> Iterator[Lake]:
    with Lake(copied(made, folder / "lake"), settings=Settings(cache_bytes_max=0)) as opened:
        yield opened


def file_with(lake: Lake, id: int) -> Path:
    table = lake.table("a.t")
    files = [file for file in table.snapshot().base if file.bound("id").low <= id <= file.bound("id").high]
    return table._internals.handles.base_folder / files[0].path


def scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As large tables are read."""
    monkeypatch.setattr(scan_memory, "RAW_BYTES_MAX", -1)
    monkeypatch.setattr(key_rows, "OTHERS_RAW_BYTES_MAX", -1)
    monkeypatch.setattr(one_row, "DECODED_BYTES_MAX", -1)


READS: dict[str, Door] = {
    "sql": lambda lake: as_rows(lake.sql("select id, v from a.t")),
    "sql of an aggregate": lambda lake: lake.sql("select count(v) n, min(v) low from a.t").to_pylist(),
    "sql with a join": lambda lake: lake.sql("select count(*) n from a.t l join a.t r on l.id = r.id").to_pylist(),
    "to_arrow": lambda lake: as_rows(lake.table("a.t").to_arrow()),
    "to_arrow where": lambda lake: as_rows(lake.table("a.t").to_arrow(where="v <> 'q'")),
    "as of": lambda lake: as_rows(lake.table("a.t").to_arrow(as_of=SINCE)),
    "a held snapshot": lambda lake: as_rows(lake.table("a.t").to_arrow(as_of=lake.table("a.t").snapshot())),
    "get": lambda lake: (lake.table("a.t").get(7), lake.table("a.t").get(1007)),
    "feed": lambda lake: lake.table("a.t").feed(SINCE).to_pylist(),
}
HEAD_READS = [door for door in READS if door not in ("as of", "a held snapshot", "feed")]
CASES = [case for case in product(READS, (7, 1007), MOMENTS, HARMS) if case[0] != "feed"]
# Of what stood there before only keys that were changed are read.
CASES += product(["feed"], [7], MOMENTS, HARMS)
CASES = thinned(CASES, lambda case: [(case[0], case[2]), (case[0], case[3]), (case[2], case[3]), case[:2]])


def answer_of(door: Door, lake: Lake) -> Any:
    try:
        return door(lake)
    except LithifyError as error:
        return error


@pytest.mark.parametrize(("door", "id", "moment", "harm"), CASES)
def test_no_read_passes_over_a_file(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, door: str, id: int, moment: str, harm: str
) -> None:
    expected, path = READS[door](lake), file_with(lake, id)
    lake.table("a.t")._internals.reader.forget_plans()
    if moment == "before listing":
        scanned(monkeypatch)
    happened = MOMENTS[moment](monkeypatch, path, lambda: HARMS[harm](path))

    found = answer_of(READS[door], lake)

    assert happened.done
    if isinstance(found, LithifyError):
        assert isinstance(found, Corruption | NotFound), found
        assert str(path) in str(found)
    else:
        assert found == expected


# -- the log has moved on: no damage


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("door", HEAD_READS)
def test_a_read_of_the_head_is_planned_anew(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, door: str, moment: str
) -> None:
    expected = READS[door](lake)
    lake.table("a.t")._internals.reader.forget_plans()
    if moment == "before listing":
        scanned(monkeypatch)
    happened = MOMENTS[moment](monkeypatch, file_with(lake, 7), lambda: move_on(lake.path, "a.t"))

    assert READS[door](lake) == expected
    assert happened.done


def test_pending_changes_that_are_gone_are_looked_for_in_base(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, table = READS["sql"](lake), lake.table("a.t")
    table._internals.reader._changes.clear()
    table._internals.reader.forget_plans()
    happened = Once(lambda: move_on(lake.path, "a.t"))
    real = reader_module._solid

    def solid(*arguments: Any) -> Any:
        happened()
        return real(*arguments)

    monkeypatch.setattr(reader_module, "_solid", solid)
    assert READS["sql"](lake) == expected
    assert happened.done


@pytest.mark.parametrize("door", ["as of", "a held snapshot"])
def test_a_read_of_the_past_says_that_it_is_gone(lake: Lake, monkeypatch: pytest.MonkeyPatch, door: str) -> None:
    scanned(monkeypatch)
    before_listing(monkeypatch, file_with(lake, 7), lambda: move_on(lake.path, "a.t"))

    with pytest.raises(NotFound, match=r"as of \d can no longer be read: vacuum has removed"):
        READS[door](lake)


@pytest.mark.parametrize("moment", ["after planning", "before listing"])
def test_a_feed_says_where_to_start_again(lake: Lake, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    if moment == "before listing":
        scanned(monkeypatch)
    MOMENTS[moment](monkeypatch, file_with(lake, 7), lambda: move_on(lake.path, "a.t"))

    with pytest.raises(NotFound, match="Start again: read the whole table as of its position"):
        READS["feed"](lake)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_table_that_is_dropped_under_a_read_does_not_exist(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    expected, path = READS["sql"](lake), file_with(lake, 7)
    if moment == "before listing":
        scanned(monkeypatch)

    def drop() -> None:
        with Lake(lake.path) as other:
            other.drop_table("a.t")

    happened = MOMENTS[moment](monkeypatch, path, drop)
    found = answer_of(READS["sql"], lake)

    assert happened.done
    assert found == expected or (isinstance(found, NotFound) and "a.t does not exist" in str(found))


def test_a_reader_that_keeps_losing_its_files_gives_up() -> None:
    missed = (Vanished.at(f"/lake/{number}.parquet") for number in range(LOOKS_MAX))

    def read() -> None:
        raise next(missed)

    with pytest.raises(Conflict, match=f"removed {LOOKS_MAX} times while they were read.*read again"):
        look_again(read)
    with pytest.raises(StopIteration):
        next(missed)


def test_a_file_that_is_missing_twice_is_damage() -> None:
    looks = []

    def read() -> None:
        looks.append(1)
        raise Vanished.at("/lake/1.parquet")

    with pytest.raises(Corruption, match=r"/lake/1\.parquet is missing although the table's log names it: restore it"):
        look_again(read)
    assert len(looks) == 2


# -- in a process of its own


@pytest.fixture
def unresolved(made: Path, folder: Path) -> Iterator[Lake]:
    """Changes are merged by the engine, so that it scans files however small they are."""
    settings = Settings(cache_bytes_max=0, resolve_rows_max=1)
    with Lake(copied(made, folder / "lake"), settings=settings) as opened:
        yield opened


APART = "select id, v from a.t order by id"


def test_a_query_apart_fails_with_its_file(unresolved: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_with(unresolved, 1007)
    happened = after_planning(monkeypatch, path, path.unlink)

    with pytest.raises(Corruption, match=f"{path} is missing"):
        unresolved.query(APART)
    assert happened.done


def test_a_query_apart_is_planned_anew(unresolved: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = unresolved.query(APART).rows
    unresolved.table("a.t")._internals.reader.forget_plans()
    happened = after_planning(monkeypatch, file_with(unresolved, 7), lambda: move_on(unresolved.path, "a.t"))

    assert unresolved.query(APART).rows == expected
    assert happened.done


# -- what is written from what is read


WORK: dict[str, Door] = {
    "fold": lambda lake: lake.table("a.t").fold(),
    "optimize": lambda lake: lake.table("a.t").optimize(by="v"),
    "delete_where": lambda lake: lake.table("a.t").delete_where("id >= 0 and v <> 'q'"),
    "pin": lambda lake: lake.cache.pin("a.t"),
}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize(
    ("work", "moment"), [*((work, "after opening") for work in WORK), ("delete_where", "before listing")]
)
def test_no_work_passes_over_a_file(
    made: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, work: str, moment: str, harm: str
) -> None:
    with Lake(copied(made, folder / "lake"), settings=Settings(cache_bytes_max=64 * 2**20)) as lake:
        before, path = READS["sql"](lake), file_with(lake, 7)
        if moment == "before listing":
            scanned(monkeypatch)
        copy = SavedFile(path)
        with monkeypatch.context() as harmed:
            happened = MOMENTS[moment](harmed, path, lambda: HARMS[harm](path))
            failed = answer_of(WORK[work], lake)
    assert happened.done
    assert not isinstance(failed, LithifyError) or isinstance(failed, Corruption | NotFound), failed
    with Lake(folder / "lake") as again:
        copy.restore()
        done = work == "delete_where" and not isinstance(failed, LithifyError)
        assert READS["sql"](again) == ([] if done else before)


@pytest.mark.parametrize("use", [lambda lake: READS["sql"](lake), lambda lake: lake.table("a.t").fold()])
def test_a_contest_is_not_decided_without_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch, use: Door) -> None:
    """The row of base has the higher order value: without its file, the change would win, and a fold keep it."""
    with Lake(folder / "lake", settings=Settings(cache_bytes_max=0)) as lake:
        table = filled(lake, order_by="v")
        table.upsert(rows(1007, v="a"))
        expected, path = READS["sql"](lake), file_with(lake, 1007)
        copy = SavedFile(path)
        table._internals.reader.forget_plans()
        with monkeypatch.context() as harmed:
            happened = before_listing(harmed, path, path.unlink)
            with pytest.raises(Corruption, match=f"{path} is missing"):
                use(lake)
        assert happened.done
        copy.restore()
        assert READS["sql"](lake) == expected
        assert lake.table("a.t").get(1007) == {"id": 1007, "v": "m"}
