"""The hot cache of a lake: what it keeps, what it lets go of, and that no answer ever depends on it."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lithify import InvalidRequest, Lake, LimitExceeded, NotFound, Settings, Table
from lithify.cache import hot_tables as hot_module
from lithify.cache import load as hot_load
from support.waiting import WAIT_S_MAX

COLUMNS = pa.schema([("id", pa.int64()), ("kind", pa.string()), ("v", pa.int64()), ("note", pa.string())])
ALL = "select count(*) as n, sum(v) as v from a.t where note is not null"


def rows(first: int, count: int, v: int = 1) -> pa.Table:
    ids = np.arange(first, first + count)
    kinds = [f"kind {i % 3}" for i in range(count)]
    return pa.table([ids, kinds, np.full(count, v), [f"note {i}" for i in ids]], schema=COLUMNS)


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake", settings=Settings(cache_bytes_max=64 * 2**20)) as opened:
        yield opened


@pytest.fixture
def table(lake: Lake) -> Table:
    made = lake.create_table("a.t", COLUMNS, key="id")
    made.upsert(rows(0, 5_000))
    made.fold()
    return made


@pytest.fixture
def any_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strings of small tables are kept as dictionaries too."""
    monkeypatch.setattr(hot_load, "SAVED_BYTES_MIN", 0)


def answer(lake: Lake, query: str = ALL) -> list[dict[str, Any]]:
    return list(lake.sql(query).to_pylist())


def hits(lake: Lake) -> int:
    return lake.cache.stats().hits


# -- loading


def test_a_pinned_table_is_read_from_memory(lake: Lake, table: Table) -> None:
    stats = lake.cache.pin("a.t")
    assert (stats.table, stats.rows, stats.pinned, stats.columns) == ("a.t", 5_000, True, tuple(COLUMNS.names))

    before = hits(lake)
    assert answer(lake) == [{"n": 5_000, "v": 5_000}]
    assert hits(lake) == before + 1


def test_a_table_that_queries_read_twice_becomes_hot(lake: Lake, table: Table) -> None:
    answer(lake, "select max(v) as v from a.t where kind <> 'x'")
    lake.cache.settle()
    assert lake.cache.stats().tables == ()

    answer(lake, "select min(v) as v from a.t where kind <> 'x'")
    lake.cache.settle()
    assert [hot.table for hot in lake.cache.stats().tables] == ["a.t"]
    assert not lake.cache.stats().tables[0].pinned
    before = hits(lake)
    assert answer(lake) == [{"n": 5_000, "v": 5_000}]
    assert hits(lake) == before + 1


def test_lookups_do_not_make_a_large_table_hot(lake: Lake, folder: Path) -> None:
    table = lake.create_table("a.many", COLUMNS, key="id")
    for first in range(0, 8_000, 1_000):
        table.upsert(rows(first, 1_000))
        table.fold()
    for _ in range(4):
        assert len(answer(lake, "select note from a.many where id = 77")) == 1

    lake.cache.settle()
    assert lake.cache.stats().tables == ()


def test_a_table_is_loaded_once_however_many_ask(lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    started, go_on = threading.Event(), threading.Event()
    real = hot_module.load

    def slow(*arguments: Any) -> Any:
        started.set()
        go_on.wait(WAIT_S_MAX)
        return real(*arguments)

    monkeypatch.setattr(hot_module, "load", slow)
    pinners = [threading.Thread(target=lake.cache.pin, args=("a.t",)) for _ in range(4)]
    for pinner in pinners:
        pinner.start()
    started.wait(WAIT_S_MAX)
    assert answer(lake) == [{"n": 5_000, "v": 5_000}]  # nobody waits for a load who did not ask for one
    go_on.set()
    for pinner in pinners:
        pinner.join()

    assert lake.cache.stats().loads == 1


def test_some_columns_may_be_pinned_and_more_later(lake: Lake, table: Table) -> None:
    assert lake.cache.pin("a.t", ["v"]).columns == ("id", "v")
    before = lake.cache.stats().misses
    assert answer(lake) == [{"n": 5_000, "v": 5_000}]
    assert lake.cache.stats().misses == before + 1

    assert lake.cache.pin("a.t", ["note"]).columns == ("id", "v", "note")
    before = lake.cache.stats().misses
    assert answer(lake, "select sum(v) as v, count(note) as n from a.t") == [{"v": 5_000, "n": 5_000}]
    assert lake.cache.stats().misses == before


@pytest.mark.parametrize(
    ("name", "columns", "error", "says"),
    [
        ("a.none", None, NotFound, "a.none does not exist"),
        ("nonsense", None, InvalidRequest, "nonsense"),
        ("a.t", ["w"], InvalidRequest, "'w' is not in table a.t"),
    ],
)
def test_what_cannot_be_pinned_is_named(
    lake: Lake, table: Table, name: str, columns: list[str] | None, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        lake.cache.pin(name, columns)


def test_no_cache_means_none(folder: Path) -> None:
    with Lake(folder / "lake", settings=Settings(cache_bytes_max=0)) as lake:
        lake.create_table("a.t", COLUMNS, key="id").upsert(rows(0, 10))
        with pytest.raises(InvalidRequest, match="cache_bytes_max is 0"):
            lake.cache.pin("a.t")
        for _ in range(3):
            assert answer(lake) == [{"n": 10, "v": 10}]
        assert lake.cache.stats().bytes == 0


# -- staying fresh


def refreshed(lake: Lake, change: Callable[[], object], query: str = ALL) -> list[dict[str, Any]]:
    """The answer after a change, which must come from the same hot table."""
    before = lake.cache.stats()
    change()
    found = answer(lake, query)
    after = lake.cache.stats()
    assert (after.loads, after.misses, after.evictions) == (before.loads, before.misses, before.evictions)
    assert after.refreshes == before.refreshes + 1
    return found


def test_changes_are_applied_in_place_of_a_reload(lake: Lake, table: Table) -> None:
    lake.cache.pin("a.t")
    assert refreshed(lake, lambda: table.upsert(rows(4_990, 20, v=5))) == [{"n": 5_010, "v": 4_990 + 100}]
    assert refreshed(lake, lambda: table.delete([0, 4_995, 77_777])) == [{"n": 5_008, "v": 4_990 + 100 - 6}]
    assert refreshed(lake, lambda: table.delete_where("v = 5")) == [{"n": 4_989, "v": 4_989}]


def test_folds_and_compactions_cost_no_reload(lake: Lake, table: Table) -> None:
    lake.cache.pin("a.t")
    table.upsert(rows(0, 10, v=3))
    assert refreshed(lake, table.fold) == [{"n": 5_000, "v": 5_020}]
    assert refreshed(lake, lambda: table.optimize(by=["v"])) == [{"n": 5_000, "v": 5_020}]


def test_changes_that_were_folded_before_anybody_looked(lake: Lake, table: Table) -> None:
    lake.cache.pin("a.t")
    table.upsert(rows(0, 10, v=3))
    table.delete([20])
    table.upsert(rows(9_000, 1))
    assert refreshed(lake, table.fold) == [{"n": 5_000, "v": 5_019 + 1}]


def test_changes_of_another_process_are_seen(lake: Lake, table: Table, folder: Path) -> None:
    lake.cache.pin("a.t")
    with Lake(folder / "lake") as other:
        other.table("a.t").upsert(rows(6_000, 3, v=7))
        other.table("a.t").fold()
    assert answer(lake) == [{"n": 5_003, "v": 5_021}]


def test_an_earlier_state_is_not_read_from_a_hot_table(lake: Lake, table: Table) -> None:
    seq = table.snapshot().seq
    lake.cache.pin("a.t")
    table.upsert(rows(0, 10, v=3))
    assert answer(lake) == [{"n": 5_000, "v": 5_020}]

    assert lake.sql(ALL, as_of=seq).to_pylist() == [{"n": 5_000, "v": 5_000}]
    assert answer(lake) == [{"n": 5_000, "v": 5_020}]


def test_queries_of_an_earlier_state_cost_no_reload(lake: Lake, table: Table) -> None:
    seq = table.snapshot().seq
    table.add_column(pa.field("extra", pa.int64()))
    table.upsert(rows(0, 10, v=3).append_column("extra", pa.array(range(10))))
    lake.cache.pin("a.t")

    for number in range(5):
        earlier = f"select count(*) as n, sum(v) as v from a.t where note is not null and id > -{number}"
        assert lake.sql(earlier, as_of=seq).num_rows == 1
    lake.cache.settle()
    stats = lake.cache.stats()
    assert (stats.loads, stats.evictions, [hot.columns[-1] for hot in stats.tables]) == (1, 0, ["extra"])


def test_columns_that_others_read_do_not_take_the_place_of_pinned_ones(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hot_module, "WHOLE_SHARE_MAX", 0.0)
    lake.cache.pin("a.t", ["v"])
    for number in range(3):
        lake.sql(f"select min(kind) from a.t where id > -{number}")
    lake.cache.settle()

    assert [(hot.columns, hot.pinned) for hot in lake.cache.stats().tables] == [(("id", "kind", "v"), True)]


def test_a_new_column_reloads_a_pinned_table(lake: Lake, table: Table) -> None:
    lake.cache.pin("a.t")
    table.add_column(pa.field("extra", pa.int64()))
    table.upsert([{"id": 1, "kind": "x", "v": 1, "note": "n", "extra": 9}])

    assert answer(lake, "select sum(extra) as e, count(*) as n from a.t") == [{"e": 9, "n": 5_000}]
    lake.cache.settle()
    assert "extra" not in lake.cache.stats().tables[0].columns  # what was pinned: the columns of then
    assert answer(lake) == [{"n": 5_000, "v": 5_000}]


def test_files_without_a_column_of_strings_are_loaded(lake: Lake, folder: Path, any_dictionary: None) -> None:
    made = lake.create_table("a.t", COLUMNS, key="id")
    made.upsert(rows(0, 5_000))
    made.fold()
    made.add_column(pa.field("extra", pa.string()))
    write_deltalake(folder / "base", rows(0, 5_000), partition_by=["kind"])
    lake.adopt("a.parts", folder / "base", key="id")

    assert lake.cache.pin("a.t").rows == lake.cache.pin("a.parts").rows == 5_000
    assert answer(lake, "select count(extra) as n, count(*) as m from a.t where id >= 0") == [{"n": 0, "m": 5_000}]
    assert answer(lake, "select count(*) as n from a.parts where kind = 'kind 1'") == [{"n": 1_667}]
    assert lake.cache.stats().hits == 2


def test_fields_of_structs_beside_strings_that_are_dictionaries(lake: Lake, any_dictionary: None) -> None:
    columns = pa.schema([("id", pa.int64()), ("s", pa.string()), ("p", pa.struct([("a", pa.string())]))])
    made = lake.create_table("a.t", columns, key="id")
    made.upsert([{"id": i, "s": f"{i % 3}", "p": {"a": "x"}} for i in range(2_000)])
    made.fold()
    lake.cache.pin("a.t")

    # The length of a dictionary's strings is a dictionary of numbers, which `abs` does not take.
    query = (
        "select p['a'] = 'x' as p, sum(abs(length(s))) as n, min(strpos(s, '2')) as at from a.t where id > 0 group by 1"
    )
    assert answer(lake, query) == [{"p": True, "n": 1_999, "at": 0}]


def test_a_foreign_commit_to_base_is_seen(lake: Lake, folder: Path) -> None:
    write_deltalake(folder / "d", rows(0, 100))
    table = lake.adopt("a.t", folder / "d", key="id")
    lake.cache.pin("a.t")
    assert answer(lake) == [{"n": 100, "v": 100}]

    write_deltalake(folder / "d", rows(1_000, 5), mode="append")
    assert answer(lake) == [{"n": 105, "v": 105}]
    DeltaTable(folder / "d").delete("id < 50")
    assert answer(lake) == [{"n": 55, "v": 55}]
    assert table.snapshot().seq == lake.table("a.t").snapshot().seq


def test_a_table_that_is_created_anew_has_none_of_the_old_rows(lake: Lake, table: Table) -> None:
    lake.cache.pin("a.t")
    lake.drop_table("a.t")
    assert lake.cache.stats().tables == ()
    lake.create_table("a.t", COLUMNS, key="id").upsert(rows(0, 3, v=2))

    assert answer(lake) == [{"n": 3, "v": 6}]


def test_a_row_is_found_in_memory(lake: Lake, table: Table) -> None:
    lake.cache.pin("a.t")
    table.upsert(rows(7, 1, v=8))
    table.delete([9])
    before = hits(lake)

    assert table.get(7) == {"id": 7, "kind": "kind 0", "v": 8, "note": "note 7"}
    assert table.get(8) == {"id": 8, "kind": "kind 2", "v": 1, "note": "note 8"}
    assert table.get(9) is None
    assert hits(lake) == before + 3


# -- room


def test_the_least_recently_used_table_goes_first(lake: Lake) -> None:
    sizes = []
    for name in ("a.x", "a.y", "a.z"):
        lake.create_table(name, COLUMNS, key="id").upsert(rows(0, 20_000))
        lake.table(name).fold()
        lake.cache.pin(name)
        lake.cache.unpin(name)
        sizes.append(lake.cache.stats().tables[-1].bytes)
    lake.sql("select sum(v) from a.x")
    lake._serving.cache.bytes_max = sum(sizes) + sizes[0]
    lake.create_table("a.new", COLUMNS, key="id").upsert(rows(0, 20_000))
    lake.table("a.new").fold()
    lake.cache.pin("a.new")

    assert [hot.table for hot in lake.cache.stats().tables] == ["a.z", "a.x", "a.new"]
    assert lake.cache.stats().evictions == 1


def test_a_table_too_large_is_refused_and_nothing_is_kept(lake: Lake, table: Table) -> None:
    lake._serving.cache.bytes_max = 50_000
    with pytest.raises(LimitExceeded, match=r"a\.t takes more in memory.* raise cache_bytes_max") as caught:
        lake.cache.pin("a.t")
    assert caught.value.details["limit"] == "size"

    assert lake.cache.stats().bytes == 0, "also while the error is still held"
    assert answer(lake) == [{"n": 5_000, "v": 5_000}]


def test_a_pin_that_fails_keeps_nothing_until_the_garbage_collector_comes_by(lake: Lake, table: Table) -> None:
    lake.cache.pin("a.t", ["v"])
    lake._serving.cache.bytes_max = lake.cache.stats().bytes + 150_000
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(LimitExceeded):
            lake.cache.pin("a.t")
        lake.cache.evict()
        assert lake.cache.stats().bytes == 0
    finally:
        gc.enable()


def test_a_pinned_table_is_not_given_up_for_another(lake: Lake, table: Table) -> None:
    lake.cache.pin("a.t")
    lake._serving.cache.bytes_max = lake.cache.stats().bytes + 1_000
    lake.create_table("a.u", COLUMNS, key="id").upsert(rows(0, 20_000))
    lake.table("a.u").fold()

    with pytest.raises(LimitExceeded):
        lake.cache.pin("a.u")
    assert [hot.table for hot in lake.cache.stats().tables] == ["a.t"]


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.slow
def test_values_that_compress_well_do_not_burst_the_budget(lake: Lake, same: bool) -> None:
    """A file of some kilobytes can hold gigabytes."""
    wide = pa.schema([("id", pa.int64()), ("text", pa.string())])
    table = lake.create_table("a.bomb", wide, key="id")
    for first in range(0, 8_000, 1_000):
        texts = ["x" * 20_000 + ("" if same else str(id)) for id in range(first, first + 1_000)]
        table.upsert(pa.table([np.arange(first, first + 1_000), texts], schema=wide))
        table.fold()
    assert table.stats().base_bytes < 2**20
    lake._serving.cache.bytes_max = limit = 16 * 2**20
    gc.collect()
    peak = _Peak(pa.total_allocated_bytes())

    with peak:
        if same:
            assert lake.cache.pin("a.bomb").bytes < 2**20
        else:
            with pytest.raises(LimitExceeded):
                lake.cache.pin("a.bomb")

    assert peak.bytes <= limit


class _Peak:
    """The most that Arrow has allocated beyond `base`, while it is looked at."""

    def __init__(self, base: int) -> None:
        self._base, self.bytes, self._stop = base, 0, threading.Event()

    def _watch(self) -> None:
        while not self._stop.wait(0.001):
            self.bytes = max(self.bytes, pa.total_allocated_bytes() - self._base)

    def __enter__(self) -> None:
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


def test_evicting_gives_everything_back(lake: Lake, table: Table) -> None:
    lake.cache.pin("a.t")
    answer(lake)
    freed = lake.cache.evict("a.t")

    assert freed > 0
    assert lake.cache.stats().tables == ()
    lake.cache.evict()
    gc.collect()
    assert lake.cache.stats().bytes == 0
    assert lake.cache.evict("a.t") == 0


# -- trouble


def test_a_damaged_file_is_not_loaded(lake: Lake, table: Table) -> None:
    file = next(iter(table.base_path.rglob("part-*.parquet")))
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 0xFF
    file.chmod(0o644)
    file.write_bytes(data)

    with pytest.raises(Exception, match=file.name):
        lake.cache.pin("a.t")
    assert lake.cache.stats().tables == ()


@pytest.mark.slow
def test_queries_and_changes_at_once_always_see_whole_states(lake: Lake, table: Table) -> None:
    """Every write moves the same amount between two rows: no answer may show half of one."""
    lake.cache.pin("a.t")
    table.upsert(rows(0, 2, v=100))
    stop, wrong = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            found = lake.sql("select sum(v) as v, count(*) as n from a.t").to_pylist()
            if found != [{"v": 5_198, "n": 5_000}]:
                wrong.append(found)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for step in range(25):
        moved = rows(0, 2).to_pylist()
        moved[0]["v"], moved[1]["v"] = 100 + step, 100 - step
        table.upsert(moved)
        if step % 8 == 5:
            table.fold()
        if step % 10 == 7:
            lake.cache.evict("a.t")
            lake.cache.pin("a.t")
    stop.set()
    for reader in readers:
        reader.join()

    assert wrong == []


def test_explain_tells_that_rows_are_in_memory(lake: Lake, table: Table) -> None:
    assert not lake.explain(ALL)[0].hot
    lake.cache.pin("a.t")

    told = lake.explain(ALL)[0]
    assert (told.hot, told.files_read, told.bytes_read) == (True, 0, 0)


def test_a_table_waits_once_however_often_it_is_asked_for(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create_table("a.slow", COLUMNS, key="id").upsert(rows(0, 100))
    lake.table("a.slow").fold()
    started, go_on = threading.Event(), threading.Event()
    real = hot_module.load

    def slow(plan: Any, *arguments: Any) -> Any:
        if plan.snapshot.table == "a.slow":
            started.set()
            go_on.wait(WAIT_S_MAX)
        return real(plan, *arguments)

    monkeypatch.setattr(hot_module, "load", slow)
    for number in range(3):
        answer(lake, f"select max(v) + {number} as v from a.slow where kind <> 'x'")
    started.wait(WAIT_S_MAX)
    for number in range(8):
        answer(lake, f"select max(v) + {number} as v from a.t where kind <> 'x'")
    go_on.set()
    lake.cache.settle()

    assert lake.cache.stats().loads == 2


def test_what_could_not_be_loaded_is_not_tried_with_every_query(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def fails(plan: Any, *arguments: Any) -> Any:
        tried.append(plan.snapshot.table)
        raise LimitExceeded("no room", limit="size")

    monkeypatch.setattr(hot_module, "load", fails)
    for number in range(6):
        answer(lake, f"select max(v) + {number} as v from a.t where kind <> 'x'")
        lake.cache.settle()

    assert tried == ["a.t"]


def test_a_pin_outlives_a_time_without_room(lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.cache.pin("a.t")
    before = lake._serving.cache.bytes_max
    lake._serving.cache.bytes_max = lake.cache.stats().bytes
    table.upsert(rows(10_000, 3_000))
    assert answer(lake) == [{"n": 8_000, "v": 8_000}]
    lake.cache.settle()
    assert lake.cache.stats().tables == ()

    lake._serving.cache.bytes_max = before
    monkeypatch.setattr(lake._runtime.hot, "_not_before_s", {})
    answer(lake, ALL.replace("count(*)", "count(id)"))
    lake.cache.settle()
    assert [(hot.table, hot.pinned, hot.rows) for hot in lake.cache.stats().tables] == [("a.t", True, 8_000)]
    assert lake.cache.unpin("a.t")
    assert not lake.cache.unpin("a.t")
