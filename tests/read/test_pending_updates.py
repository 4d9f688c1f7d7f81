"""Pending updates that give some columns: what they leave is looked up in base for whoever asks for it, and once."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Conflict, Lake, Settings
from lithify.core.ops import Op, Overlay
from lithify.core.read_plan import Source
from lithify.core.snapshot import DataFile
from lithify.lake.internals import internals
from lithify.read.kept_pending import KeptPending
from lithify.sql.key_queries import KeyQueries
from support.background import merge_changes
from support.bags import bag

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
NAMES = ["a", "b", "c"]


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake", settings=Settings(cache_bytes_max=0, minor_files_min=2)) as opened:
        table = opened.create_table("shop.t", SCHEMA, key="id")
        table.upsert([{"id": n, "a": n, "b": f"b{n}", "c": n / 2} for n in range(10)])
        table.fold()
        yield opened


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[int], list[str]]]:
    """The keys that are looked up in base, and their columns."""
    found: list[tuple[list[int], list[str]]] = []
    ask = KeyQueries.rows

    def rows(self: KeyQueries, base: Sequence[Source], keys: pa.Table, columns: pa.Schema) -> pa.Table:
        found.append((sorted(keys.column("id").to_pylist()), columns.names))
        return ask(self, base, keys, columns)

    monkeypatch.setattr(KeyQueries, "rows", rows)
    return found


def test_what_every_update_gives_is_read_without_a_look_at_base(
    lake: Lake, looked_up: list[tuple[list[int], list[str]]]
) -> None:
    lake.table("shop.t").update([{"id": 3, "a": 100, "b": "x"}, {"id": 77, "a": 1, "b": "new"}])
    assert lake.sql("SELECT sum(a) AS a, count(*) AS n FROM shop.t").to_pylist() == [{"a": 45 - 3 + 101, "n": 11}]
    assert lake.sql("SELECT a FROM shop.t WHERE b = 'x'").to_pylist() == [{"a": 100}]
    assert looked_up == []


def test_what_an_update_leaves_is_looked_up_once_and_of_later_ones_what_is_new(
    lake: Lake, looked_up: list[tuple[list[int], list[str]]]
) -> None:
    table, total = lake.table("shop.t"), "SELECT sum(c) AS c FROM shop.t"
    table.update([{"id": 3, "a": 100}, {"id": 4, "b": "x"}, {"id": 5, "c": 0.0}])
    for _ in range(2):
        assert lake.sql(total).to_pylist() == [{"c": 22.5 - 2.5}]
    table.update([{"id": 4, "a": 7}, {"id": 6, "b": "y"}])
    assert lake.sql(total).to_pylist() == [{"c": 20.0}]
    assert lake.sql("SELECT * FROM shop.t WHERE id IN (3, 4, 5, 6) ORDER BY id").to_pylist() == [
        {"id": 3, "a": 100, "b": "b3", "c": 1.5},
        {"id": 4, "a": 7, "b": "x", "c": 2.0},
        {"id": 5, "a": 5, "b": "b5", "c": 0.0},
        {"id": 6, "a": 6, "b": "y", "c": 3.0},
    ]
    assert looked_up == [([3, 4], ["id", "c"]), ([6], ["id", "c"]), ([3, 5, 6], ["id", "a", "b"])]


def test_one_row_needs_no_other_rows_of_base(lake: Lake, looked_up: list[tuple[list[int], list[str]]]) -> None:
    table = lake.table("shop.t")
    table.update([{"id": 3, "a": 100}, {"id": 4, "b": "x"}, {"id": 77, "c": 1.0}])
    table.delete([5])
    assert [table.get(key) for key in (3, 5, 6, 77)] == [
        {"id": 3, "a": 100, "b": "b3", "c": 1.5},
        None,
        {"id": 6, "a": 6, "b": "b6", "c": 3.0},
        {"id": 77, "a": None, "b": None, "c": 1.0},
    ]
    assert looked_up == []


@pytest.mark.parametrize("seed", range(3))
def test_any_columns_at_any_moment_are_those_of_a_dict(lake: Lake, seed: int) -> None:
    chance, table = random.Random(seed), lake.table("shop.t")
    model: dict[int, dict[str, Any]] = {row["id"]: row for row in table.to_arrow().to_pylist()}
    past: list[tuple[int, dict[int, dict[str, Any]]]] = []

    def value(name: str) -> Any:
        number = chance.choice([None, chance.randrange(50)])
        return number if number is None or name == "a" else f"b{number}" if name == "b" else number / 2

    for _ in range(40):
        ids = chance.sample(range(14), chance.randrange(1, 4))
        match chance.choice(["update"] * 6 + ["upsert", "delete", "fold", "merge"]):
            case "update":
                lines = [{"id": n, **{k: value(k) for k in chance.sample(NAMES, chance.randrange(1, 4))}} for n in ids]
                table.update(lines)
                for line in lines:
                    model[line["id"]] = {**dict.fromkeys(NAMES), **model.get(line["id"], {}), **line}
            case "upsert":
                rows = [{"id": n, **{name: value(name) for name in NAMES}} for n in ids]
                table.upsert(rows)
                model |= {row["id"]: row for row in rows}
            case "delete":
                table.delete(ids)
                model = {n: row for n, row in model.items() if n not in ids}
            case "fold":
                table.fold()
            case "merge":
                merge_changes(table)
        past.append((table.snapshot().seq, dict(model)))
        seq, rows_then = chance.choice([past[-1], past[-1], chance.choice(past[-5:])])
        names = chance.sample(["id", *NAMES], chance.randrange(1, 5))
        where, holds = chance.choice([("", None), (" WHERE a > 9", "a"), (" WHERE c IS NOT NULL", "c")])
        found = lake.sql(f"SELECT {', '.join(names)} FROM shop.t{where}", as_of=seq).to_pylist()
        wanted = [row for row in rows_then.values() if holds is None or row[holds] is not None]
        wanted = [row for row in wanted if holds != "a" or row["a"] > 9]
        assert bag(found) == bag([{name: row[name] for name in names} for row in wanted]), f"seed {seed}"
    assert bag(table.to_arrow().to_pylist()) == bag(model.values())
    told = lake.query("SELECT id, a FROM shop.t").rows.to_pylist()
    assert bag(told) == bag([{"id": row["id"], "a": row["a"]} for row in model.values()])


# -- what is kept


def files(*seqs: int) -> list[DataFile]:
    return [DataFile(f"{seq}", f"{seq}.parquet", 1, 1, seq=seq, op=Op.UPDATE) for seq in seqs]


def overlay(*ids: int) -> Overlay:
    return Overlay(pa.table({"id": ids}), pa.table({"id": ids}))


def test_what_is_kept_is_good_for_later_seqs_of_the_same_base() -> None:
    kept, known = KeptPending(), overlay(1)
    kept.keep("base", files(1, 2), files(1, 2), known)
    found = kept.before("base", files(1, 2, 3), files(1, 2, 3))
    assert found is not None
    assert (found.seq, found.overlay) == (2, known)
    assert kept.before("base", files(2, 3), files(2, 3)) is not None, "the files until then were merged"
    assert kept.before("another", files(1, 2, 3), files(1, 2, 3)) is None
    assert kept.before("base", files(1), files(1)) is None, "an older snapshot"
    assert kept.before("base", files(1, 2, 3), files(2, 3)) is None, "not all that is pending is asked for"
    kept.keep("base", files(1, 2), files(1), overlay(9))
    assert kept.before("base", files(1, 2), files(1, 2)) == found, "more was known already"
    kept.keep("base", files(1, 2, 3), files(2, 3), overlay(9))
    assert kept.before("base", files(1, 2, 3), files(1, 2, 3)) == found, "of a part of the changes nothing is kept"


def test_what_is_too_much_is_not_kept() -> None:
    kept, known = KeptPending(bytes_max=100), overlay(1)
    kept.keep("base", files(1), files(1), known)
    kept.replace(known, overlay(*range(100)))
    assert kept.before("base", files(1), files(1)) is None
    kept.keep("base", files(1), files(1), overlay(*range(100)))
    assert kept.before("base", files(1), files(1)) is None


def test_a_fold_that_is_only_planned_changes_no_answer(folder: Path) -> None:
    """It looks at the changes without those that it could link: what they come to is not what all of them come to."""
    with Lake(folder / "lake", settings=Settings(cache_bytes_max=0)) as lake:
        columns = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.int64())])
        table = lake.create_table("s.t", columns, key="id")
        table.upsert([{"id": 1, "a": "x", "b": 1}, {"id": 2, "a": "y", "b": 2}])
        table.update([{"id": 2, "b": 20}])
        table.fold(dry_run=True)
        wanted = [{"id": 1, "a": "x", "b": 1}, {"id": 2, "a": "y", "b": 20}]
        assert table.to_arrow().sort_by("id").to_pylist() == wanted
        assert table.get(1) == wanted[0]
        with pytest.raises(Conflict):
            lake.execute("insert into s.t values (1, 'overwritten', 0)")
        table.update([{"id": 1, "b": 10}])
        table.fold(dry_run=True)
        assert lake.sql("select sum(b) as b, count(a) as a from s.t").to_pylist() == [{"b": 30, "a": 2}]


def test_structs_within_structs_are_read_with_updates_pending(folder: Path) -> None:
    inner = pa.struct([("x", pa.int64()), ("q", pa.struct([("z", pa.int64())]))])
    with Lake(folder / "lake", settings=Settings(cache_bytes_max=0)) as lake:
        table = lake.create_table("s.t", pa.schema([("id", pa.int64()), ("v", pa.int64()), ("pp", inner)]), key="id")
        table.upsert([{"id": 0, "v": 25, "pp": None}])
        table.fold()
        table.update([{"id": 0, "pp": {"x": 4, "q": {"z": 6}}}, {"id": 4, "v": 97}])
        lake.execute("update s.t set v = 5 where id < 3")
        internals(table).reader.plan(table.snapshot())
        rows = lake.sql("select * from s.t order by id").to_pylist()
        assert rows == [{"id": 0, "v": 5, "pp": {"x": 4, "q": {"z": 6}}}, {"id": 4, "v": 97, "pp": None}]
