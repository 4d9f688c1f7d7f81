"""What is told of things that are there if one file is: an error is the word that nothing has changed."""

from __future__ import annotations

from pathlib import Path, PurePath

import pytest

from lithify import CommitUnknown, Corruption
from lithify.files.deciding_file import abolish, establish
from lithify.files.local import LocalStorage
from lithify.files.os_errors import Exists


class _Failing(LocalStorage):
    """Calls of these names fail, and may have done their work before."""

    def __init__(self, *names: str, done: bool = False) -> None:
        self.failing, self.done = set(names), done

    def _fail(self, name: str) -> None:
        if name in self.failing:
            raise Corruption(f"{name} failed")

    def put(self, path: PurePath, data: bytes, mode: int | None = None) -> None:  # type: ignore[override]
        if self.done or "put" not in self.failing:
            super().put(path, data, mode)
        self._fail("put")

    def delete(self, path: PurePath) -> None:
        if self.done or "delete" not in self.failing:
            super().delete(path)
        self._fail("delete")

    def sync_folder(self, folder: PurePath) -> None:
        super().sync_folder(folder)
        self._fail("sync")

    def exists(self, path: PurePath) -> bool:
        self._fail("exists")
        return super().exists(path)


def made(store: LocalStorage, path: Path, *, alone: bool = True) -> None:
    establish(store, store.put, path, b"x", "tag t", alone=alone)


@pytest.mark.parametrize("done", [False, True])
def test_what_was_refused_is_not_there(folder: Path, done: bool) -> None:
    with pytest.raises(Corruption, match="put failed"):
        made(_Failing("put", done=done), folder / "t")
    assert not (folder / "t").exists()


@pytest.mark.parametrize("also", ["delete", "sync"])
def test_what_cannot_be_taken_back_may_be_there(folder: Path, also: str) -> None:
    with pytest.raises(CommitUnknown, match=r"whether tag t was made: .* failed; look what is there"):
        made(_Failing("put", also, done=True), folder / "t")


def test_what_others_may_have_made_is_looked_for_and_not_taken_away(folder: Path) -> None:
    with pytest.raises(Corruption, match="put failed"):
        made(_Failing("put"), folder / "t", alone=False)
    with pytest.raises(CommitUnknown):
        made(_Failing("put", done=True), folder / "t", alone=False)
    assert (folder / "t").exists()


def test_the_name_of_another_is_left_alone(folder: Path) -> None:
    store = LocalStorage()
    store.put(folder / "t", b"another")
    with pytest.raises(Exists):
        establish(store, store.publish, folder / "t", b"x", "tag t")
    assert (folder / "t").read_bytes() == b"another"


def test_what_is_gone_is_not_refused(folder: Path) -> None:
    (folder / "t").touch()
    abolish(LocalStorage(), folder / "t", "tag t")
    assert not (folder / "t").exists()


def test_what_could_not_be_removed_is_still_there(folder: Path) -> None:
    (folder / "t").touch()
    with pytest.raises(Corruption, match="delete failed"):
        abolish(_Failing("delete"), folder / "t", "tag t")
    assert (folder / "t").exists()


@pytest.mark.parametrize("failing", [("delete",), ("sync",), ("delete", "exists")])
def test_what_may_come_back_is_not_called_gone_or_there(folder: Path, failing: tuple[str, ...]) -> None:
    (folder / "t").touch()
    with pytest.raises(CommitUnknown, match="whether tag t is gone for good"):
        abolish(_Failing(*failing, done=True), folder / "t", "tag t")
