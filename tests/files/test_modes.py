"""Files and folders of a lake have the mode that the settings say, whoever writes them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import Lake, Settings
from lithify.http.tokens import Tokens
from lithify.settings import load_settings
from support.untrusted import COLUMNS, TABLE


@pytest.fixture(params=[0o022, 0o077, 0o000])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def _modes(folder: Path) -> dict[str, set[str]]:
    """The modes of files and of folders, with how they are found."""
    found: dict[str, set[str]] = {}
    for path in (folder, *folder.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        found.setdefault(f"{'folders' if path.is_dir() else 'files'} {mode:o}", set()).add(str(path))
    return found


def _work(lake: Lake) -> None:
    table = lake.create_table(TABLE, COLUMNS, key="id", partition_by="p")
    for number in range(5):
        table.upsert([{"id": number, "p": "x", "v": "a"}, {"id": number + 10, "p": "y", "v": "b"}])
        if number % 2:
            table.fold()
    table.delete([1])
    table.build_index()
    lake.maintain()
    with table.pin():
        table.fold()


@pytest.mark.parametrize(("file_mode", "folders"), [(0o640, 0o750), (0o660, 0o770), (0o600, 0o700), (0o664, 0o775)])
def test_every_file_and_folder_follows_the_setting(folder: Path, umask: int, file_mode: int, folders: int) -> None:
    with Lake(folder / "lake", settings=Settings(file_mode=f"{file_mode:o}", checkpoint_every=2)) as lake:
        _work(lake)

    assert set(_modes(folder / "lake")) == {f"files {file_mode:o}", f"folders {folders:o}"}
    assert set(_modes(folder)) >= {f"folders {stat.S_IMODE(folder.stat().st_mode):o}"}


def test_without_the_setting_the_umask_counts(folder: Path, umask: int) -> None:
    with Lake(folder / "lake") as lake:
        _work(lake)

    modes = _modes(folder / "lake")
    assert not any(int(kind.split()[1], 8) & umask for kind in modes)


def test_tokens_are_their_owners_whatever_the_setting_says(folder: Path) -> None:
    with Lake(folder / "lake", settings=Settings(file_mode="664")) as lake:
        tokens = Tokens(lake.path, lake._runtime.store)
        tokens.create("first", ["read"])
        tokens.create("second", ["read"])

    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600


def test_files_that_are_adopted_keep_their_mode(folder: Path) -> None:
    (folder / "given").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), folder / "given/a.parquet")
    (folder / "given/a.parquet").chmod(0o604)
    with Lake(folder / "lake", settings=Settings(file_mode="640")) as lake:
        lake.adopt("s.given", folder / "given", key="id")

    assert stat.S_IMODE((folder / "given/a.parquet").stat().st_mode) == 0o604
    assert stat.S_IMODE((folder / "given").stat().st_mode) != 0o750


@pytest.mark.parametrize("given", ["rw-r-----", "400", "755", "99", ""])
def test_a_mode_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    from lithify import InvalidRequest

    monkeypatch.setenv("LITHIFY_FILE_MODE", given)
    with pytest.raises(InvalidRequest, match="file_mode"):
        load_settings()
