"""What a log says in place of what it said of files with rows that go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lithify.erasure.edits import Edits
from lithify.erasure.file_without import FileWithout
from lithify.erasure.needles import needles_of
from lithify.erasure.words import Words, without_bounds
from lithify.errors import Conflict
from lithify.files.local import LocalStorage
from support.erasures import NEW

WORDS = Words(needles_of([{"id": 42, "name": "Wanda Needleman", "mail": NEW, "n": 5}]))
HERS = {"numRecords": 3, "minValues": {"mail": NEW}, "maxValues": {"mail": "z"}, "nullCount": {"mail": 0}}
OTHERS = {"numRecords": 3, "minValues": {"mail": "a"}, "maxValues": {"mail": "b"}, "nullCount": {"mail": 0}}


def edits(folder: Path, *, names: bool, **instead: FileWithout) -> Edits:
    return Edits(
        LocalStorage(), folder, {f"{name}.parquet": file for name, file in instead.items()}, WORDS, names=names
    )


def add(path: str, stats: dict[str, Any] | None) -> dict[str, Any]:
    said = {"path": path, "partitionValues": {}, "size": 9, "tags": {"a": "b"}, "dataChange": True}
    return said if stats is None else {**said, "stats": json.dumps(stats)}


def test_the_first_pass_takes_bounds_away_and_names_nothing_else(folder: Path) -> None:
    before = add("old.parquet", HERS)
    after = edits(folder, names=False, old=FileWithout("new.parquet")).add(before)
    assert after is not None
    told = json.loads(after["stats"])
    assert told == {"numRecords": 3, "minValues": {}, "maxValues": {}, "nullCount": {"mail": 0}}
    assert {**before, "stats": 0} == {**after, "stats": 0}


def test_what_is_not_meant_stays_the_same_object(folder: Path) -> None:
    said, removed = add("other.parquet", OTHERS), {"path": "other.parquet"}
    for names in (False, True):
        edit = edits(folder, names=names, old=FileWithout("new.parquet"))
        assert edit.add(said) is said
        assert [edit.removes(removed, set())[0] is removed, len(edit.removes(removed, set()))] == [True, 1]
        assert not edit.concerns("other.parquet", said["stats"])


def test_a_file_that_is_gone_keeps_its_place_and_loses_bounds_that_name_her(folder: Path) -> None:
    said = add("gone.parquet", HERS)
    after = edits(folder, names=True).add(said)
    assert after is not None
    assert (after["path"], json.loads(after["stats"])["minValues"]) == ("gone.parquet", {})
    (folder / "gone.parquet").write_text("not gone: then other rows have her values, too")
    assert edits(folder, names=True).add(said) is said


def test_a_commit_that_removes_the_old_file_removes_the_new_one_once(folder: Path) -> None:
    remove = {"path": "old.parquet", "size": 9, "dataChange": True, "stats": json.dumps(HERS)}
    edit = edits(folder, names=False, old=FileWithout("a b.parquet", 7))
    first, second = edit.removes(remove, {"old.parquet"})
    assert (first["path"], first["stats"]) == ("old.parquet", None)
    assert second == {"path": "a%20b.parquet", "size": 7, "dataChange": True, "stats": None}
    assert len(edit.removes(remove, {"old.parquet", "a%20b.parquet"})) == 1


def test_a_removal_whose_path_names_her_goes_with_the_second_pass(folder: Path) -> None:
    path = "mail=wanda.needle@example.org/old"
    remove = {"path": f"{path}.parquet"}
    instead = {f"{path}.parquet": FileWithout(None)}
    for names, left in ((False, 1), (True, 0)):
        edit = Edits(LocalStorage(), folder, instead, WORDS, names=names)
        assert len(edit.removes(remove, {remove["path"]})) == left


def test_a_deletion_vector_is_refused(folder: Path) -> None:
    said = {**add("old.parquet", HERS), "deletionVector": {"storageType": "u"}}
    with pytest.raises(Conflict, match="deletion vector"):
        edits(folder, names=True, old=FileWithout("new.parquet")).add(said)


@pytest.mark.parametrize(
    ("info", "left"),
    [
        ({"operation": "delete where", "condition": "id = 42"}, {"operation": "delete where"}),
        ({"operation": "delete where", "condition": "id = 421"}, None),
        ({"reason": "wanda needleman asked", "actor": "clerk"}, {"actor": "clerk"}),
        ({"detail": f"to {NEW}", "seq": 42}, {"seq": 42}),
        ({"detail": "42 inserted, 1 updated"}, None),  # a number, and not hers
        ({"writes": [{"reason": "as agreed"}, {"reason": "42"}]}, {"writes": [{"reason": "as agreed"}, {}]}),
    ],
)
def test_free_texts_that_name_her_are_blanked(info: dict[str, Any], left: dict[str, Any] | None) -> None:
    after = WORDS.blanked(info)
    assert after == (info if left is None else left)
    assert (after is info) == (left is None)


def test_statistics_without_bounds_stay_as_they_are() -> None:
    for stats in ('{"numRecords": 3}', '{"numRecords":3,"minValues":{},"maxValues":{},"nullCount":{}}', "torn {"):
        assert without_bounds(stats) == stats
