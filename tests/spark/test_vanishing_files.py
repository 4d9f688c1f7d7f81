"""A file that vanishes, or changes, under a read in Spark: the answer is right, or there is an error. Never fewer rows.

The session is set to pass over what is missing or damaged, as users set it for folders of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from lithify import Corruption, Lake, LithifyDataSource, NotFound, Settings, Table
from lithify.spark import overlay
from support.vanishing import HARMS, MOMENTS, SavedFile, after_opening, as_rows, before_listing, move_on

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
LOUD = {"removed", "emptied", "truncated"}
FORGIVING = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")


@pytest.fixture
def forgiving(spark: SparkSession) -> Iterator[SparkSession]:
    for name in FORGIVING:
        spark.conf.set(name, "true")
    yield spark
    for name in FORGIVING:
        spark.conf.unset(name)


@pytest.fixture
def table(tmp_path: Path, forgiving: SparkSession) -> Iterator[Table]:
    settings = Settings(local_job_bytes_max=0, feed_rows_max=0, cache_bytes_max=0)
    with Lake(tmp_path / "lake", spark=forgiving, settings=settings) as lake:
        yield filled(lake)


def filled(lake: Lake) -> Table:
    """Two files of base, one of them touched by changes: all of them small, so that folding them needs no Spark."""
    with Lake(lake.path) as here:
        made = here.create_table("a.t", SCHEMA, key="id")
        made.upsert([{"id": i, "v": "m"} for i in range(100)])
        made.fold()
        made.upsert([{"id": i, "v": "m"} for i in range(1000, 1100)])
        made.fold()
        made.upsert([{"id": 5, "v": "x"}, {"id": 2000, "v": "new"}])
        made.delete([6])
    return lake.table("a.t")


def base_file(table: Table, id: int) -> Path:
    files = [file for file in table.snapshot().base if file.bound("id").low <= id <= file.bound("id").high]
    return table._internals.handles.base_folder / files[0].path


def change_file(table: Table, id: int) -> Path:
    return table._internals.handles.folder / "changes" / table.snapshot().changes[0].path


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    return as_rows(frame.toArrow())


FRAMES: dict[str, tuple[Callable[[Table], DataFrame], Callable[[Table, int], Path]]] = {
    "to_spark": (lambda table: table.to_spark(), base_file),
    "to_spark where": (lambda table: table.to_spark(where="v <> 'q'"), base_file),
    "feed_to_spark, what was there before": (lambda table: table.feed_to_spark(2), base_file),
    "feed_to_spark, what was written": (lambda table: table.feed_to_spark(2), change_file),
}


@pytest.mark.spark
@pytest.mark.parametrize("harm", sorted(LOUD))
@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_that_waits_fails_when_its_file_is_gone(table: Table, name: str, harm: str) -> None:
    frame_of, file_of = FRAMES[name]
    frame, path = frame_of(table), file_of(table, 7)
    HARMS[harm](path)
    with pytest.raises(Exception, match=path.name):
        collected(frame)


@pytest.mark.spark
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", FRAMES)
def test_no_frame_is_made_without_a_file(table: Table, monkeypatch: pytest.MonkeyPatch, name: str, harm: str) -> None:
    frame_of, file_of = FRAMES[name]
    path = file_of(table, 7)
    happened = before_listing(monkeypatch, path, lambda: HARMS[harm](path))
    with pytest.raises((Corruption, NotFound), match=path.name):
        frame_of(table)
    assert happened.done


@pytest.mark.spark
@pytest.mark.parametrize("moment", ["after planning", "before listing"])
def test_a_frame_of_the_head_is_planned_anew(table: Table, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    expected = as_rows(table.to_arrow())
    table._internals.reader.forget_plans()
    lake = table._internals.handles.folder.parents[1]
    happened = MOMENTS[moment](monkeypatch, base_file(table, 7), lambda: move_on(lake, "a.t"))
    assert collected(table.to_spark()) == expected
    assert happened.done


@pytest.mark.spark
@pytest.mark.parametrize("part", ["rows.parquet", "filter.parquet"])
def test_an_overlay_that_was_swept_is_an_error(table: Table, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    monkeypatch.setattr(overlay, "HANDED_MAX_WORDS", 0)  # so that hidden keys lie in a file, as many of them do
    frame = table.to_spark()
    (laid_down,) = table._internals.handles.folder.glob(f"index/overlay-*/{part}")
    laid_down.unlink()
    with pytest.raises(Exception, match=part):
        collected(frame)


@pytest.mark.spark
@pytest.mark.parametrize("harm", ["removed", "replaced"])
def test_clustering_leaves_a_file_alone_that_it_cannot_read(
    table: Table, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    before, path = as_rows(table.to_arrow()), base_file(table, 7)
    copy = SavedFile(path)
    with monkeypatch.context() as harmed:
        happened = before_listing(harmed, path, lambda: HARMS[harm](path))
        (report,) = table.optimize(by="v")
    assert happened.done
    assert any(str(path) in problem for problem in report.problems)
    copy.restore()
    assert as_rows(table.to_arrow()) == before


@pytest.mark.spark
def test_a_folder_whose_name_is_a_pattern_is_no_other_folder(tmp_path: Path, forgiving: SparkSession) -> None:
    for name in ("la*ke", "laXke", "l[a]k{e,s}?"):
        with Lake(tmp_path / name, spark=forgiving) as lake:
            table = filled(lake)
            assert collected(table.to_spark()) == as_rows(table.to_arrow())
            assert collected(table.to_spark(where="id >= 1000")) == as_rows(table.to_arrow(where="id >= 1000"))


@pytest.mark.spark
def test_a_file_that_vanishes_before_it_is_loaded_fails_the_load(tmp_path: Path, forgiving: SparkSession) -> None:
    from lithify.spark.ingest import parquet_rows

    files = [tmp_path / f"{number}.parquet" for number in range(3)]
    for file in files:
        pq.write_table(pa.table({"id": [1, 2], "v": ["x", "y"]}), file)
    frame = parquet_rows(forgiving, [str(file) for file in files], SCHEMA)
    files[1].unlink()
    with pytest.raises(Exception, match=r"1\.parquet"):
        frame.collect()


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("early", [True, False], ids=["before opening", "after opening"])
def test_a_task_of_the_data_source_reads_the_file_that_was_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, early: bool, harm: str
) -> None:
    with Lake(tmp_path / "lake") as lake:
        table = filled(lake)
        expected, path = as_rows(table.to_arrow()), base_file(table, 1007)
    source = LithifyDataSource(CaseInsensitiveDict({"path": f"{tmp_path}/lake/a/t"}))
    reader = source.reader(source.schema())
    partitions = list(reader.partitions())
    if early:
        HARMS[harm](path)
    else:
        happened = after_opening(monkeypatch, path, lambda: HARMS[harm](path))

    def read() -> list[dict[str, Any]]:
        batches = [batch for part in partitions for batch in reader.read(part)]
        return as_rows(pa.Table.from_batches(batches))

    if not early and harm in ("removed", "replaced"):
        assert read() == expected
    else:
        with pytest.raises((Corruption, NotFound), match=path.name):
            read()
    assert early or happened.done
