"""An adopted base is still somebody else's table too: what other Delta writers do to it must not cost a row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lithify import Conflict, InvalidRequest, Lake, NotFound, Unavailable
from lithify.files.local import LocalStorage

pytestmark = pytest.mark.slow


class Interrupted(LocalStorage):
    """Calls `meanwhile` once, at the named step."""

    at = ""
    meanwhile: Callable[[], None] | None = None

    def step(self, name: str) -> None:
        if name == self.at and self.meanwhile is not None:
            call, self.meanwhile = self.meanwhile, None
            call()


@pytest.fixture
def store() -> Interrupted:
    return Interrupted()


@pytest.fixture
def lake(folder: Path, store: Interrupted) -> Iterator[Lake]:
    with Lake(folder / "lake", store=store) as opened:
        yield opened


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=repr)


@pytest.mark.parametrize("value", ["a b", "50%", "é", "a:b", "a+b", "x/y", "ü=:"])
def test_partition_paths_that_need_escaping(lake: Lake, folder: Path, value: str) -> None:
    write_deltalake(folder / "d", pa.table({"id": [1], "p": [value], "v": ["old"]}), partition_by=["p"])
    table = lake.adopt("a.t", folder / "d", key="id")
    table.upsert([{"id": 1, "p": value, "v": "new"}])

    table.fold()

    assert table.to_arrow(["id", "v"]).to_pylist() == [{"id": 1, "v": "new"}]
    assert DeltaTable(folder / "d").to_pyarrow_table().num_rows == 1


def test_a_path_that_could_not_be_removed_is_refused(lake: Lake, folder: Path) -> None:
    write_deltalake(folder / "d", pa.table({"id": [1], "p": ["é"]}), partition_by=["p"])
    log = folder / "d" / "_delta_log" / f"{0:020d}.json"
    (folder / "d" / "p=é").mkdir(exist_ok=True)
    text = log.read_text()
    stored = text.split('"path":"')[1].split('"')[0]
    name = stored.split("/")[1]
    next((folder / "d").rglob(name)).rename(folder / "d" / "p=é" / name)
    log.write_text(text.replace(stored, f"p=é/{name}"))

    with pytest.raises(Conflict, match="cannot be removed safely"):
        lake.adopt("a.t", folder / "d", key="id")


def test_timestamps_in_statistics_are_cut_to_milliseconds(lake: Lake, folder: Path) -> None:
    key = dt.datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=dt.UTC)
    write_deltalake(folder / "d", pa.table({"k": pa.array([key], pa.timestamp("us", "UTC")), "v": ["old"]}))
    table = lake.adopt("a.t", folder / "d", key="k")
    table.upsert([{"k": key, "v": "new"}])

    assert [row["v"] for row in table.to_arrow().to_pylist()] == ["new"]
    table.fold()
    assert [row["v"] for row in table.to_arrow().to_pylist()] == ["new"]


def test_a_file_that_appears_during_a_fold_makes_it_plan_again(lake: Lake, folder: Path, store: Interrupted) -> None:
    """Invariant 5, for files that are no inputs of the fold."""
    write_deltalake(folder / "d", pa.table({"id": [1], "v": ["a"]}))
    table = lake.adopt("a.t", folder / "d", key="id")
    table.upsert([{"id": 9, "v": "mine"}])
    store.at = "fold.commit"
    store.meanwhile = lambda: write_deltalake(folder / "d", pa.table({"id": [9], "v": ["theirs"]}), mode="append")

    table.fold()

    assert rows(table.to_arrow()) == [{"id": 1, "v": "a"}, {"id": 9, "v": "mine"}]


def test_a_column_that_another_writer_added_is_not_folded_away(lake: Lake, folder: Path) -> None:
    write_deltalake(folder / "d", pa.table({"id": [1], "v": ["a"]}))
    table = lake.adopt("a.t", folder / "d", key="id")
    write_deltalake(folder / "d", pa.table({"id": [2], "v": ["b"], "z": ["keep"]}), mode="append", schema_mode="merge")

    with pytest.raises(Conflict, match="'z'"):
        table.to_arrow()

    table.add_column(pa.field("z", pa.string()))
    table.upsert([{"id": 1, "v": "new", "z": None}])
    table.fold()
    assert rows(table.to_arrow()) == [{"id": 1, "v": "new", "z": None}, {"id": 2, "v": "b", "z": "keep"}]


def test_a_column_being_added_stops_neither_reads_nor_folds(lake: Lake, folder: Path, store: Interrupted) -> None:
    """Nor does one that was never added to the end, because the process that began died."""
    write_deltalake(folder / "d", pa.table({"id": [1], "c": ["a"]}))
    table = lake.adopt("a.t", folder / "d", key="id")
    with Lake(folder / "lake") as elsewhere:
        other = elsewhere.table("a.t")

        def use() -> None:
            assert DeltaTable(folder / "d").to_pyarrow_table().column_names == ["id", "c", "z"]
            other.upsert([{"id": 1, "c": "b"}, {"id": 2, "c": "b"}])
            assert other.get(1) == {"id": 1, "c": "b"}
            assert other.fold().final_rows == 2
            assert other.get(1) == {"id": 1, "c": "b"}

        store.at, store.meanwhile = "add_column.committed", use
        table.add_column(pa.field("z", pa.string()))

        table.upsert([{"id": 1, "c": "c", "z": "z"}])
        other.fold()
        expected = [{"id": 1, "c": "c", "z": "z"}, {"id": 2, "c": "b", "z": None}]
        assert rows(other.to_arrow()) == rows(table.to_arrow()) == expected


def test_a_fold_that_a_new_column_overtakes_plans_again(lake: Lake, folder: Path, store: Interrupted) -> None:
    write_deltalake(folder / "d", pa.table({"id": [1], "v": ["a"]}))
    table = lake.adopt("a.t", folder / "d", key="id")
    table.upsert([{"id": 1, "v": "b"}])
    with Lake(folder / "lake") as elsewhere:
        other = elsewhere.table("a.t")

        def add() -> None:
            other.add_column(pa.field("z", pa.string()))
            other.upsert([{"id": 1, "v": "c", "z": "keep"}])

        store.at, store.meanwhile = "fold.staged", add
        table.fold()
        table.fold()
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": "c", "z": "keep"}]


def test_what_others_write_to_a_column_being_added_is_not_folded_away(
    lake: Lake, folder: Path, store: Interrupted
) -> None:
    write_deltalake(folder / "d", pa.table({"id": [1], "v": ["a"]}))
    table = lake.adopt("a.t", folder / "d", key="id")
    with Lake(folder / "lake") as elsewhere:
        other = elsewhere.table("a.t")

        def write() -> None:
            assert other.to_arrow().num_rows == 1
            write_deltalake(folder / "d", pa.table({"id": [2], "v": ["b"], "z": ["theirs"]}), mode="append")
            with pytest.raises(Conflict, match="'z'"):
                other.to_arrow()

        store.at, store.meanwhile = "add_column.committed", write
        table.add_column(pa.field("z", pa.string()))
        assert other.get(2) == {"id": 2, "v": "b", "z": "theirs"}


def test_the_last_moment_there_is_can_be_a_key(lake: Lake, folder: Path) -> None:
    last = dt.datetime.max.replace(tzinfo=dt.UTC)
    write_deltalake(folder / "d", pa.table({"k": pa.array([last], pa.timestamp("us", "UTC")), "v": ["old"]}))
    table = lake.adopt("a.t", folder / "d", key="k")
    assert table.get(last) == {"k": last, "v": "old"}
    table.upsert([{"k": last, "v": "new"}])
    table.fold()
    assert table.to_arrow().to_pylist() == [{"k": last, "v": "new"}]


def test_one_base_has_one_owner_until_it_is_given_back(lake: Lake, folder: Path) -> None:
    write_deltalake(folder / "d", pa.table({"id": [1]}))
    first = lake.adopt("a.x", folder / "d", key="id")
    first.upsert([{"id": 2}])
    first.fold()

    with pytest.raises(Conflict, match=r"a\.x"):
        lake.adopt("a.y", folder / "d", key="id")

    lake.drop_table("a.x")
    second = lake.adopt("a.y", folder / "d", key="id")
    second.upsert([{"id": 3}])
    assert rows(second.to_arrow()) == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_features_that_appear_later_are_refused(lake: Lake, folder: Path) -> None:
    write_deltalake(folder / "d", pa.table({"id": [1]}))
    table = lake.adopt("a.t", folder / "d", key="id")
    DeltaTable(folder / "d").alter.set_table_properties({"delta.enableDeletionVectors": "true"})

    with pytest.raises(InvalidRequest, match="deletion vectors"):
        table.to_arrow()


def test_a_base_whose_log_was_trimmed_does_not_answer_with_another_state(lake: Lake, folder: Path) -> None:
    write_deltalake(folder / "d", pa.table({"id": [1], "v": ["a"]}))
    table = lake.adopt("a.t", folder / "d", key="id")
    for number in range(3):
        table.upsert([{"id": 1, "v": str(number)}])
    table.fold()
    write_deltalake(folder / "d", pa.table({"id": [99], "v": ["f"]}), mode="append")
    DeltaTable(folder / "d").create_checkpoint()
    for commit in sorted((folder / "d" / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()

    with Lake(lake.path) as other, pytest.raises(NotFound, match="as of seq 1"):
        other.table("a.t").to_arrow(as_of=1)


def test_a_base_that_is_gone_does_not_keep_its_table(lake: Lake, folder: Path) -> None:
    write_deltalake(folder / "d", pa.table({"id": [1]}))
    lake.adopt("a.t", folder / "d", key="id")
    (folder / "d").rename(folder / "elsewhere")

    lake.drop_table("a.t")

    assert lake.tables() == []


def test_an_adoption_that_fails_leaves_no_table(lake: Lake, folder: Path, store: Interrupted) -> None:
    (folder / "p").mkdir()
    pq.write_table(pa.table({"id": [1]}), folder / "p" / "x.parquet")

    def full() -> None:
        raise OSError(28, "No space left on device")

    store.at, store.meanwhile = "store.link", full
    with pytest.raises(Unavailable, match="no space left"):
        lake.adopt("a.t", folder / "p", key="id")

    assert lake.tables() == []
    assert lake.adopt("a.t", folder / "p", key="id").to_arrow().num_rows == 1


def test_int96_times_read_alike_everywhere(lake: Lake, folder: Path) -> None:
    (folder / "p").mkdir()
    times = pa.array([dt.datetime(2026, 1, 1, 12)], pa.timestamp("us"))
    path = folder / "p" / "x.parquet"
    pq.write_table(pa.table({"id": [1], "at": times}), path, use_deprecated_int96_timestamps=True)

    table = lake.adopt("a.t", folder / "p", key="id")

    assert [table.get(1)] == table.to_arrow().to_pylist() == [{"id": 1, "at": dt.datetime(2026, 1, 1, 12)}]
