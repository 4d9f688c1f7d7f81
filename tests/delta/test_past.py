"""Files of a log that come to say something else of the past: what they say, and what stays to the letter."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lithify import Conflict, Corruption
from lithify.delta.folder import checkpoint_name, commit_name
from lithify.delta.past import LogPast
from lithify.files.local import LocalStorage

Said = Mapping[str, Any]


@dataclass
class Instead:
    """One file in place of another; None: none is."""

    old: str
    new: str | None
    reason: str | None = None

    def add(self, add: Said) -> Said | None:
        if add["path"] != self.old:
            return add
        return None if self.new is None else {**add, "path": self.new}

    def removes(self, remove: Said, removed: Collection[str]) -> Sequence[Said]:
        more = remove["path"] == self.old and self.new is not None and self.new not in removed
        return [remove, {**remove, "path": self.new}] if more else [remove]

    def said(self, info: Said) -> Said:
        return {**info, "reason": self.reason} if self.reason and "reason" in info else info

    def concerns(self, path: str, stats: str | None) -> bool:
        return path == self.old


def path_of(table: Path, version: int, commit: str = "add") -> str:
    lines = (table / "_delta_log" / commit_name(version)).read_text().splitlines()
    return str(next(action[commit]["path"] for action in map(json.loads, lines) if commit in action))


@pytest.fixture
def table(folder: Path) -> Path:
    """Each version has its own row, and removes that of the one before; a checkpoint of the third."""
    path = folder / "table"
    for number in range(3):
        write_deltalake(path, pa.table({"id": [number], "x": [0.1]}), mode="overwrite")
    write_deltalake(path, pa.table({"id": [3], "x": [0.1]}), mode="append")
    DeltaTable(str(path)).create_checkpoint()
    return path


def past(table: Path) -> LogPast:
    return LogPast(LocalStorage(), table)


def files(table: Path, version: int) -> set[str]:
    return {Path(uri).name for uri in DeltaTable(str(table), version=version).file_uris()}


def test_the_new_file_is_named_where_the_old_one_was_and_goes_where_it_went(table: Path) -> None:
    old = path_of(table, 1)
    before = [files(table, version) for version in range(4)]
    edit = Instead(old, "new.parquet")
    assert (past(table).edit_commits(edit), past(table).edit_checkpoints(edit)) == (2, 0)
    assert [files(table, version) for version in range(4)] == [
        {"new.parquet" if path == old else path for path in paths} for paths in before
    ]
    assert path_of(table, 2, "remove") == old  # for whoever had it open


def test_a_checkpoint_names_it_too(table: Path) -> None:
    old = path_of(table, 2)
    checkpoint = table / "_delta_log" / checkpoint_name(3)
    before = pq.read_table(checkpoint)
    edit = Instead(old, "new.parquet")
    assert past(table).edit_checkpoints(edit) == 1
    after = pq.read_table(checkpoint)
    assert after.schema == before.schema
    assert after.num_rows == before.num_rows
    assert [
        said if said is None or said["path"] != "new.parquet" else {**said, "path": old}
        for said in after["add"].to_pylist()
    ] == before["add"].to_pylist()
    for name in before.column_names[1:]:
        assert after[name].to_pylist() == before[name].to_pylist()
    assert "new.parquet" in files(table, 3)


def test_one_without_a_successor_is_not_named_any_more(table: Path) -> None:
    old = path_of(table, 2)
    hint = table / "_delta_log/_last_checkpoint"
    before = json.loads(hint.read_text())
    edit = Instead(old, None)
    assert (past(table).edit_commits(edit), past(table).edit_checkpoints(edit)) == (1, 1)
    assert (files(table, 2), len(files(table, 3))) == (set(), 1)
    told = json.loads(hint.read_text())
    assert (told["size"], told["numOfAddFiles"]) == (before["size"] - 1, before["numOfAddFiles"] - 1)
    assert told["sizeInBytes"] == (table / "_delta_log" / checkpoint_name(3)).stat().st_size


def test_a_second_time_writes_nothing(table: Path) -> None:
    edit = Instead(path_of(table, 2), "new.parquet")
    first = past(table).edit_commits(edit), past(table).edit_checkpoints(edit)
    inodes = {path: path.stat().st_ino for path in (table / "_delta_log").iterdir()}
    assert first == (1, 1)
    assert (past(table).edit_commits(edit), past(table).edit_checkpoints(edit)) == (0, 0)
    assert {path: path.stat().st_ino for path in inodes} == inodes


def test_other_actions_keep_their_spelling_and_files_their_time(table: Path) -> None:
    commit = table / "_delta_log" / commit_name(1)
    odd = '{ "txn" : {"appId":"x\\u00e9", "version":1,   "lastUpdated":1} }'
    commit.write_text(commit.read_text() + "\n" + odd)
    os.utime(commit, ns=(1, 123_456_789))
    assert past(table).edit_commits(Instead(path_of(table, 1), "new.parquet")) >= 1
    assert odd in commit.read_text().splitlines()
    assert commit.stat().st_mtime_ns == 123_456_789


def test_how_many_actions_a_commit_of_ours_has_is_said_anew(table: Path) -> None:
    commit = table / "_delta_log" / commit_name(2)
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["lithify"] = {"actions": len(actions), "reason": "hers", "write_id": "w"}
    commit.write_text("\n".join(map(json.dumps, actions)))
    past(table).edit_commits(Instead(path_of(table, 1), "new.parquet", reason="none"))
    said = [json.loads(line) for line in commit.read_text().splitlines()]
    (info,) = [action["commitInfo"]["lithify"] for action in said if "commitInfo" in action]
    assert len(said) == len(actions) + 1
    assert info == {"actions": len(said), "reason": "none", "write_id": "w"}


def test_versions_that_were_kept_elsewhere_are_edited_with_the_log(table: Path, folder: Path) -> None:
    kept, archive = folder / "kept/_delta_log", table / "_log_archive"
    for place in (kept, archive):
        place.mkdir(parents=True)
        os.link(table / "_delta_log" / commit_name(1), place / commit_name(1))
    edit = Instead(path_of(table, 1), "new.parquet")
    assert LogPast(LocalStorage(), table, [kept.parent]).edit_commits(edit) == 4
    assert {"new.parquet" in (place / commit_name(1)).read_text() for place in (kept, archive)} == {True}


def test_everything_that_names_files_is_told(table: Path) -> None:
    named = list(past(table).named())
    assert {each.add["path"] for each in named} == {path_of(table, version) for version in range(4)}
    assert [each.record.version for each in named if each.record is not None] == [0, 1, 2, 3]
    assert sum(each.record is None for each in named) == 2


def test_checksums_and_what_was_cut_off_go(table: Path) -> None:
    log = table / "_delta_log"
    for name in ("00000000000000000002.crc", ".00000000000000000002.json.crc", ".torn-x", "_commit_1.json.tmp"):
        (log / name).write_text("x")
        os.utime(log / name, (1, 1))
    (log / "_commit_2.json.tmp").write_text("under way")
    past(table).sweep((log / "_commit_2.json.tmp").stat().st_mtime * 1000)
    assert {path.name for path in log.iterdir() if "crc" in path.name or "torn" in path.name} == set()
    assert [path.name for path in log.glob("_commit_*")] == ["_commit_2.json.tmp"]


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000000.00000000000000000002.compacted.json",
        "00000000000000000003.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
        "_sidecars/3a0d65cd-4056-49b8-937b-95f9e3ee90e5.parquet",
    ],
)
def test_what_cannot_be_edited_is_refused_by_name(table: Path, name: str) -> None:
    past(table).check_known()
    (table / "_delta_log" / name).parent.mkdir(exist_ok=True)
    (table / "_delta_log" / name).write_text("{}")
    with pytest.raises(Conflict, match=name.partition("/")[0]):
        past(table).check_known()


def test_a_commit_that_cannot_be_read_is_told(table: Path) -> None:
    (table / "_delta_log" / commit_name(1)).write_text('{"add": {"path"')
    with pytest.raises(Corruption, match=commit_name(1)):
        past(table).edit_commits(Instead("x", "y"))
