"""Files that were replaced by others of the same name, size and rows: what the index knew of them counts no more."""

from __future__ import annotations

import gc
import os
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import Corruption, Lake, Settings
from lithify.files.read_proof import Marks, keeps_inodes, tag_of
from lithify.index import entry_tags
from lithify.index.lookup import Coverage

QUIET = Settings(cache_bytes_max=0)
ROWS = 100


def write(path: Path, keys: range) -> None:
    pq.write_table(pa.table({"id": keys}), path, compression="none", use_dictionary=False)


def files_of(folder: Path) -> list[Path]:
    with Lake(folder / "lake", settings=QUIET) as lake:
        table = lake.table("a.t")
        return sorted(table.base_path / file.path for file in table.snapshot().base)


@pytest.fixture
def folder(folder: Path) -> Path:
    """With a table of four files, whose keys are 0 to 99, 100 to 199, … and which have one size."""
    (folder / "p").mkdir()
    for number in range(4):
        keys = range(1_000 + number * ROWS, 1_000 + (number + 1) * ROWS)
        write(folder / "p" / f"{number}.parquet", keys)
    with Lake(folder / "lake", settings=QUIET) as lake:
        lake.adopt("a.t", folder / "p", key="id")
        assert lake.table("a.t").check_index().ok
    assert len({path.stat().st_size for path in files_of(folder)}) == 1
    return folder


def swap_names(first: Path, second: Path) -> None:
    aside = first.with_suffix(".aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def swap_content(first: Path, second: Path) -> None:
    contents = first.read_bytes(), second.read_bytes()
    for path, content in zip((second, first), contents, strict=True):
        path.unlink()
        path.write_bytes(content)


def swap_in_place(first: Path, second: Path) -> None:
    contents = first.read_bytes(), second.read_bytes()
    second.write_bytes(contents[0])
    first.write_bytes(contents[1])


def swap_names_of_one_time(first: Path, second: Path) -> None:
    """Files that were written by one program at once, or unpacked, may have one time to the nanosecond."""
    swap_names(first, second)


SWAPS = [swap_names, swap_content, swap_in_place, swap_names_of_one_time]


def index_with_one_time(folder: Path) -> None:
    for path in files_of(folder):
        os.utime(path, ns=(1, 1_000_000_007))
    with Lake(folder / "lake", settings=QUIET) as lake:
        assert lake.table("a.t").build_index().added == 4
        assert lake.table("a.t").check_index().ok


@pytest.mark.parametrize("swap", SWAPS)
def test_answers_stay_right_when_files_were_swapped(folder: Path, swap: Callable[[Path, Path], None]) -> None:
    first, second, *_ = files_of(folder)
    if swap is swap_names_of_one_time:
        index_with_one_time(folder)
    swap(first, second)

    with Lake(folder / "lake", settings=QUIET) as lake:
        for key in (1_005, 1_105, 1_205):
            assert lake.sql(f"select count(*) c from a.t where id = {key}").to_pylist() == [{"c": 1}], key
            assert lake.table("a.t").get(key) == {"id": key}
        assert lake.table("a.t").check_index().ok


@pytest.fixture
def _looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is always time to look again, and however long that takes: a machine may stand still between two looks."""
    monkeypatch.setattr(entry_tags, "ROUND_S", 0)
    monkeypatch.setattr(entry_tags, "SHARE_MAX", float("inf"))
    monkeypatch.setattr(entry_tags, "FIRST_S_MAX", float("inf"))
    monkeypatch.setattr(entry_tags, "AGAIN_S_MAX", float("inf"))


@pytest.mark.usefixtures("_looking")
@pytest.mark.parametrize("slow", [False, True], ids=["at once", "file by file"])
@pytest.mark.parametrize("swap", SWAPS)
def test_a_running_process_notices_that_files_were_swapped(
    folder: Path, swap: Callable[[Path, Path], None], slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Lake(folder / "lake", settings=QUIET) as lake:
        table = lake.table("a.t")
        if swap is swap_names_of_one_time:
            index_with_one_time(folder)

        def assert_right() -> None:
            for key in (1_005, 1_105, 1_205):
                assert lake.sql(f"select count(*) c from a.t where id = {key}").to_pylist() == [{"c": 1}], key
                assert table.to_arrow(where=f"id = {key}").num_rows == 1
                assert table.get(key) == {"id": key}

        assert_right()
        first, second, *_ = sorted(table.base_path / file.path for file in table.snapshot().base)
        if slow:  # so that one look is all that a read has time for
            monkeypatch.setattr(entry_tags, "AGAIN_S_MAX", 0)
        for _ in range(2):
            swap(first, second)
            for _ in range(4 if slow else 0):
                lake.sql("select id from a.t where id = 0")
            assert_right()
        assert table.check_index().ok


@pytest.mark.parametrize(("cost_s", "rounds"), [(0.000_01, 20), (0.01, 8)])
def test_looking_again_takes_a_bounded_share_of_the_time(folder: Path, cost_s: float, rounds: int) -> None:
    """Once a second; less often where that would take more."""
    now_s, looks = 1_000.0, 0

    def tag_at(path: str) -> int:
        nonlocal now_s, looks
        looks, now_s = looks + 1, now_s + cost_s
        return tag_of(path, os.stat(path))

    with Lake(folder / "lake", settings=QUIET) as lake:
        table = lake.table("a.t")
        coverage = table._internals.reader._base_coverage(table.snapshot())
        tags = entry_tags.EntryTags(table.base_path, lambda: now_s, tag_at)
        while now_s < 1_020:
            tags.look_again(coverage)
            now_s += 0.01
        assert tags.take_replaced() == []
    assert rounds * 0.8 < looks / 4 < rounds * 1.2
    assert looks * cost_s / 20 < 1.1 * entry_tags.SHARE_MAX


def test_a_round_that_has_not_ended_keeps_nothing_alive(folder: Path) -> None:
    with Lake(folder / "lake", settings=QUIET) as lake:
        table = lake.table("a.t")
        coverage = Coverage(table._internals.reader._base_part(table.snapshot()).arrays, table.snapshot().schema)
        tags = entry_tags.EntryTags(table.base_path)
        tags._rounds[coverage] = coverage.tagged()
        gone = weakref.ref(coverage)
        del coverage
        gc.collect()
        assert gone() is None


def test_a_value_that_no_file_had_is_found_in_a_replaced_one(folder: Path) -> None:
    first, *_ = files_of(folder)
    write(folder / "new.parquet", range(9_000, 9_000 + ROWS))
    assert (folder / "new.parquet").stat().st_size == first.stat().st_size
    os.replace(folder / "new.parquet", first)

    with Lake(folder / "lake", settings=QUIET) as lake:
        assert lake.sql("select count(*) c from a.t where id = 9005").to_pylist() == [{"c": 1}]
        assert lake.sql("select min(id) low, max(id) high, count(*) c from a.t").to_pylist() == [
            {"low": 1_100, "high": 9_099, "c": 400}
        ]


def test_check_finds_swapped_files_and_build_puts_them_right(folder: Path) -> None:
    first, second, *_ = files_of(folder)
    swap_names(first, second)

    with Lake(folder / "lake", settings=QUIET) as lake:
        table = lake.table("a.t")
        found = table.check_index()
        built = table.build_index()

        assert sorted(found.different) == [str(first), str(second)]
        assert not found.ok
        assert built.added == 2
        assert table.check_index().ok


def test_rebuild_reads_every_footer_again(folder: Path) -> None:
    with Lake(folder / "lake", settings=QUIET) as lake:
        table = lake.table("a.t")

        assert table.build_index().added == 0
        assert table.rebuild_index().added == 4
        assert table.check_index().ok


def test_a_lake_that_was_moved_keeps_its_index(folder: Path) -> None:
    (folder / "lake").rename(folder / "moved")
    with Lake(folder / "moved", settings=QUIET) as lake:
        assert lake.table("a.t").check_index().ok
        assert lake.table("a.t").build_index().added == 0


@pytest.mark.parametrize("copy", [shutil.copy2, shutil.copyfile], ids=["with its times", "without"])
def test_a_lake_that_was_copied_reads_right_and_is_indexed_again(
    folder: Path, copy: Callable[[str, str], object]
) -> None:
    shutil.copytree(folder / "lake", folder / "copy", copy_function=copy)
    with Lake(folder / "copy", settings=QUIET) as lake:
        assert lake.sql("select count(*) c from a.t where id = 1005").to_pylist() == [{"c": 1}]
        assert lake.table("a.t").check_index().ok


def test_a_file_that_is_replaced_by_one_of_its_time_under_a_scan_is_noticed(folder: Path) -> None:
    index_with_one_time(folder)
    first, second, *_ = files_of(folder)
    marks = Marks()
    marks.add(str(first), first.stat().st_size)
    marks.check()

    swap_names(first, second)

    with pytest.raises(Corruption, match="replaced, while it was read"):
        marks.check()


@pytest.mark.parametrize(("kind", "keeps"), [("ext4", True), ("fuse.sshfs", False), ("vfat", False), ("nfs4", True)])
def test_inodes_count_where_the_file_system_keeps_them(kind: str, keeps: bool) -> None:
    assert keeps_inodes(kind) is keeps


def test_files_of_folds_and_compactions_are_bound_too(folder: Path) -> None:
    with Lake(folder / "lake", settings=QUIET) as lake:
        table = lake.table("a.t")
        table.upsert([{"id": 5_000}])
        table.fold()
        table.compact()
        view = table._internals.handles.base_index.look(lambda sidecar: sidecar.view())
        assert view is not None
        for live in view.blocks:
            assert bool((live.block.tags[live.live] != 0).all())
        assert table.check_index().ok
