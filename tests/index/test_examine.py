"""Files of others are looked at by a child process: what is wrong with one is told by its name, also if that kills."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import Corruption, InvalidRequest, LithifyError, NotFound
from lithify.core.snapshot import DataFile
from lithify.files import examine as examine_module
from lithify.files.examine import BATCH_FILES, check_foreign, examine, read_by_child
from lithify.files.read_proof import tag_at
from lithify.index.block import parse
from lithify.index.footer_reader import read_entries
from support.encrypted import TABLE, encrypted
from support.parquet_footers import (
    COLUMNS,
    GROUP_ROWS,
    I32,
    I64,
    META_DATA,
    NUM_ROWS,
    ROW_GROUPS,
    SCHEMA,
    Fields,
    edited,
)


def _each_group(change: Callable[[Fields], Any]) -> Callable[[Fields], None]:
    def of_footer(footer: Fields) -> None:
        for group in footer[ROW_GROUPS][1][1]:
            change(group)

    return of_footer


FOOTERS: dict[str, tuple[Callable[[Fields], Any], str]] = {
    "fewer rows": (lambda footer: footer.update({NUM_ROWS: (I64, 0)}), "says 0 rows, and its row groups have 3"),
    "more rows": (lambda footer: footer.update({NUM_ROWS: (I64, 9)}), "says 9 rows, and its row groups have 3"),
    "negative rows": (
        _each_group(lambda group: group.update({GROUP_ROWS: (I64, -3)})),
        "row group 0 has -3 rows",
    ),
    "other rows": (
        lambda footer: (
            footer.update({NUM_ROWS: (I64, 2)}),
            _each_group(lambda group: group.update({GROUP_ROWS: (I64, 2)}))(footer),
        ),
        "'id' has 3 values for 2 rows",
    ),
    "fewer columns": (_each_group(lambda group: group[COLUMNS][1][1].pop()), "has 1 columns of 2"),
    "no metadata": (_each_group(lambda group: group[COLUMNS][1][1][0].pop(META_DATA)), "'id' has 0 values"),
    "no such type": (lambda footer: footer[SCHEMA][1][1][1].update({1: (I32, 55)}), "Invalid physical column type"),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LithifyError]:
    """All at once, by few children."""
    folder = tmp_path_factory.mktemp("foreign")
    for name, (change, _) in FOOTERS.items():
        pq.write_table(TABLE, folder / name)
        edited(folder / name, change)
    for name in ("good", "good too"):
        pq.write_table(TABLE, folder / name)
    pq.write_table(pa.table([[1], [2]], names=["id", "id"]), folder / "twice")
    encrypted(folder / "encrypted", plain_footer=False)
    encrypted(folder / "encrypted column", plain_footer=True)
    (folder / "text").write_text("this is a text, and not a Parquet file")
    (folder / "empty").touch()
    # The one that kills stands before others.
    names = ["good", "encrypted column", "twice", "encrypted", "text", "empty", "absent", *FOOTERS, "good too"]
    problems = examine([(str(folder / name), None) for name in names])
    return {Path(path).name: problem for path, problem in problems.items()}


@pytest.mark.parametrize("name", FOOTERS)
def test_a_footer_that_contradicts_itself_is_refused(found: dict[str, LithifyError], name: str) -> None:
    assert isinstance(found[name], Corruption)
    assert FOOTERS[name][1] in found[name].message
    assert name in found[name].message


@pytest.mark.parametrize("name", ["encrypted", "encrypted column"])
def test_an_encrypted_file_is_called_so(found: dict[str, LithifyError], name: str) -> None:
    assert isinstance(found[name], InvalidRequest)
    assert f"{name} is encrypted" in found[name].message


def test_columns_of_one_name_are_refused(found: dict[str, LithifyError]) -> None:
    assert isinstance(found["twice"], InvalidRequest)
    assert "more than one column 'id'" in found["twice"].message


def test_what_is_no_parquet_file_or_none_at_all_is_told(found: dict[str, LithifyError]) -> None:
    assert isinstance(found["text"], Corruption)
    assert isinstance(found["empty"], Corruption)
    assert isinstance(found["absent"], NotFound)


def test_good_files_have_no_problem(found: dict[str, LithifyError]) -> None:
    assert not {"good", "good too"} & set(found)


def test_too_many_deaths_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine_module, "DEATHS_MAX", 1)
    encrypted(tmp_path / "a", plain_footer=True)

    with pytest.raises(Corruption, match=r"1 files end whoever reads them, .*2 more were not looked at"):
        examine([(str(tmp_path / "a"), None)] * 3)


def test_what_stands_beside_a_file_that_kills_is_read_all_the_same(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "good")
    encrypted(tmp_path / "deadly", plain_footer=True)
    names = [f"{number:04d}" for number in range(BATCH_FILES + 20)]
    for name in names:
        (tmp_path / name).hardlink_to(tmp_path / ("deadly" if name == names[-10] else "good"))

    some = list(read_by_child([(name, (tmp_path / name).stat().st_size) for name in names], str(tmp_path)))

    blocks = [parse(each.entries) for each in some if each.entries]
    assert [path for block in blocks for path in block.paths.to_pylist()] == [n for n in names if n != names[-10]]
    assert {tag for block in blocks for tag in block.tags.tolist()} == {tag_at(str(tmp_path / "good"))}
    assert [str(tmp_path / names[-10]) in problem.message for each in some for problem in each.problems.values()] == [
        True
    ]


def test_a_file_that_another_writer_added_does_not_kill_who_looks_its_footer_up(tmp_path: Path) -> None:
    encrypted(tmp_path / "x.parquet", plain_footer=True)
    pq.write_table(TABLE, tmp_path / "y.parquet")
    files = [DataFile(name, name, (tmp_path / name).stat().st_size, 3) for name in ("x.parquet", "y.parquet")]

    blocks, problems = read_entries(tmp_path, files)

    assert [path for block in map(parse, blocks) for path in block.paths.to_pylist()] == ["y.parquet"]
    assert "is encrypted" in problems["x.parquet"].message


def test_footers_that_end_as_all_do_nowadays_are_examined_too(tmp_path: Path) -> None:
    """One wrong bit is enough: a column has the wrong type, which Arrow finds out when it is asked for bounds."""
    pq.write_table(TABLE, tmp_path / "x.parquet")
    mistake = _each_group(lambda group: group[COLUMNS][1][1][0][META_DATA][1].update({1: (I32, 0)}))
    edited(tmp_path / "x.parquet", mistake)

    blocks, problems = read_entries(
        tmp_path, [DataFile("x.parquet", "x.parquet", (tmp_path / "x.parquet").stat().st_size, 3)]
    )

    assert not blocks
    assert "ends whoever reads its footer" in problems["x.parquet"].message


def test_a_file_is_examined_once_unless_it_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(TABLE, path)
    file, asked = (str(path), path.stat().st_size), list[object]()
    real = examine_module.examine
    monkeypatch.setattr(examine_module, "examine", lambda files: asked.append(list(files)) or real(files))

    check_foreign([file])
    check_foreign([file])
    os.utime(path, ns=(1, 1))
    check_foreign([file])

    assert asked == [[file], [], [file]]


def test_files_that_lithify_wrote_are_not_examined(tmp_path: Path) -> None:
    """They need not even be there."""
    id = "0" * 32
    check_foreign([(f"{tmp_path}/base/fold-{id}/d=1/part-0.parquet", 1), (f"{tmp_path}/changes/write-{id}.parquet", 1)])

    for name in (f"adopt-{id}/x.parquet", f"fold-{id}/elsewhere/x.parquet", "x.parquet", "d=1/x.parquet"):
        with pytest.raises(Corruption, match="missing"):
            check_foreign([(f"{tmp_path}/{name}", 1)])
