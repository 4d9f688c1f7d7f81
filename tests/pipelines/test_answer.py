"""What is looked at in an answer before its target is created: told here of answers that have been fetched."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lithify import InvalidRequest, Lake
from lithify.pipelines.answer import Judged, check_keys, keep_aside
from lithify.pipelines.declaration import Step
from lithify.pipelines.table_step import with_both_zeros
from lithify.spark.transforms import FAILED
from lithify.write.quarantine import set_aside

STEP = Step("p", "s", "a.target", table="a.source")


def test_a_null_in_the_key_is_refused_with_a_way_out_that_a_step_has() -> None:
    answer = Judged(pa.table({"day": ["monday", None], "n": [1, 2]}))

    with pytest.raises(InvalidRequest, match=r"step p\.s: 'day', of the key.*null in 1 row.*\"n\": 2") as refused:
        check_keys(STEP, answer, ["day"], computed=True)
    assert 'expect that "day is not null", otherwise = "quarantine"' in str(refused.value)


def test_a_key_may_come_twice_only_among_rows_that_arrive() -> None:
    answer = Judged(pa.table({"day": ["monday", "monday"], "n": [1, 2]}))

    check_keys(STEP, answer, ["day"], computed=False)
    check_keys(STEP, answer, ["day", "n"], computed=True)
    with pytest.raises(InvalidRequest, match="more than one row comes out for a key"):
        check_keys(STEP, answer, ["day"], computed=True)


def test_what_a_run_that_died_had_set_aside_goes_when_the_next_one_sets_nothing_aside(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        handles = lake.create_table("a.target", pa.schema([("id", pa.int64())]), key="id")._internals.handles
        rows = pa.table({"id": [1]})
        aside = pa.table({"id": [2], FAILED: ["does not hold: small"]})
        count, aside_folder = keep_aside(handles, "p-1-rows", Judged(rows, aside, 1))
        assert count == 1
        assert (Path(str(aside_folder)) / "part-00000.json").exists()

        assert keep_aside(handles, "p-1-rows", Judged(rows)) == (0, None)
        assert not Path(str(aside_folder)).exists()


def test_a_group_of_zero_is_that_of_minus_zero_too() -> None:
    groups = with_both_zeros(pa.table({"w": [-0.0, 1.5, None, float("nan")], "g": ["a", "b", "c", "d"]}))

    assert [(str(row["w"]), row["g"]) for row in groups.to_pylist()] == [
        ("-0.0", "a"),
        ("1.5", "b"),
        ("None", "c"),
        ("nan", "d"),
        ("0.0", "a"),
    ]


def test_records_set_aside_before_stay_until_those_of_the_next_attempt_are_there(folder: Path) -> None:
    """A rival may have committed the same portion, and died before or after us: its records are the same."""
    with Lake(folder / "lake") as lake:
        handles = lake.create_table("a.target", pa.schema([("id", pa.int64())]), key="id")._internals.handles
        aside_folder = handles.folder / "quarantine" / "p-1"
        set_aside(handles, "p-1", [{"why": "small", "record": "{}"}])

        def dies(staging: Path) -> list[Path]:
            staging.mkdir()
            (staging / "part-a.json").write_text("half")
            raise OSError("no room")

        def writes(staging: Path) -> list[Path]:
            staging.mkdir()
            (staging / "part-b.json").write_text("{}\n{}\n")
            return [staging / "part-b.json"]

        with pytest.raises(OSError, match="no room"):
            set_aside(handles, "p-1", dies)
        assert [file.name for file in aside_folder.iterdir()] == ["part-00000.json"]

        assert set_aside(handles, "p-1", writes) == {"quarantined": 2, "quarantine": "quarantine/p-1"}
        assert [file.name for file in aside_folder.iterdir()] == ["part-b.json"]
        assert [entry.name for entry in aside_folder.parent.iterdir()] == ["p-1"]
