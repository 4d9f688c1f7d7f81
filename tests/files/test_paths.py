"""Paths are walked from their root without following a link: what is put in their place meanwhile is harmless."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lithify.errors import Corruption, NotFound
from lithify.files.local import LocalStorage
from lithify.files.paths import LISTED_MIN, PathGuard, remove_tree


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside/inner").mkdir(parents=True)
    (tmp_path / "outside/file").write_text("keep")
    (tmp_path / "outside/inner/file").write_text("keep")
    return tmp_path / "outside"


@pytest.fixture
def store(tmp_path: Path) -> LocalStorage:
    store = LocalStorage()
    (tmp_path / "lake/table/base").mkdir(parents=True)
    (tmp_path / "lake/table/base/file").write_text("go")
    store.path_guard.trust(tmp_path / "lake")
    return store


def _there(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def _swap_for_a_link(folder: Path, target: Path) -> None:
    folder.rename(folder.with_name(f"{folder.name}-before"))
    folder.symlink_to(target)


@pytest.mark.parametrize("level", ["lake/table", "lake/table/base"])
def test_no_call_goes_through_a_link(store: LocalStorage, tmp_path: Path, outside: Path, level: str) -> None:
    (outside / "base").mkdir()
    (outside / "base/file").write_text("keep")
    _swap_for_a_link(tmp_path / level, outside)
    base, before = tmp_path / "lake/table/base", _there(outside)

    for call in (
        lambda: store.read(base / "file"),
        lambda: store.size(base / "file"),
        lambda: store.modified_ms(base / "file"),
        lambda: store.names(base),
        lambda: store.create(base / "new", b"x"),
        lambda: store.put(base / "file", b"x"),
        lambda: store.append(base / "file", b"x"),
        lambda: store.extend(base / "file", [b"x"]),
        lambda: store.patch(base / "file", 0, b"x"),
        lambda: store.make_folder(base / "new"),
        lambda: store.touch_ms(base / "new"),
        lambda: store.copy(tmp_path / "outside/file", base / "new"),
        lambda: store.move(base / "file", tmp_path / "lake/moved"),
        lambda: store.move(tmp_path / "lake/table", base / "moved"),
        lambda: store.lock(base / "lock", 0, "test").__enter__(),
        lambda: store.delete(base / "file"),
        lambda: store.delete_folder(base / "inner"),
        lambda: store.delete_empty_folder(base / "inner"),
    ):
        with pytest.raises(Corruption, match="is a link"):
            call()
    assert _there(outside) == before
    assert (outside / "file").read_text() == "keep"


def test_a_file_that_is_a_link_is_removed_as_a_link_and_otherwise_left_alone(
    store: LocalStorage, tmp_path: Path, outside: Path
) -> None:
    link = tmp_path / "lake/table/link"
    link.symlink_to(outside / "file")
    for call in (
        lambda: store.read(link),
        lambda: store.append(link, b"x"),
        lambda: store.patch(link, 0, b"x"),
        lambda: store.sync_file(link),
        lambda: store.touch_ms(link),
        lambda: store.size(link),
    ):
        with pytest.raises(Corruption, match="is a link"):
            call()

    store.delete(link)

    assert not link.is_symlink()
    assert (outside / "file").read_text() == "keep"


@pytest.mark.parametrize("name", ["../outside/file", "table/../../outside/file", "../lake/../outside/file"])
def test_dots_do_not_lead_out(store: LocalStorage, tmp_path: Path, outside: Path, name: str) -> None:
    path = tmp_path / "lake" / name
    for call in (lambda: store.read(path), lambda: store.delete(path), lambda: store.create(path, b"x")):
        with pytest.raises(Corruption, match="leads out of its folder"):
            call()
    assert (outside / "file").read_text() == "keep"


def test_what_lies_below_no_root_is_not_touched(store: LocalStorage, outside: Path) -> None:
    with pytest.raises(Corruption, match="outside of this lake"):
        store.delete_folder(outside)
    assert _there(outside) == ["file", "inner", "inner/file"]


def test_a_folder_that_becomes_a_link_on_the_way_is_not_followed(
    store: LocalStorage, tmp_path: Path, outside: Path
) -> None:
    base = tmp_path / "lake/table/base"
    with store.path_guard.entry(base / "file") as (at, name):
        _swap_for_a_link(base, outside)
        os.unlink(name, dir_fd=at)

    assert not (tmp_path / "lake/table/base-before/file").exists()
    assert (outside / "file").read_text() == "keep"


def test_a_folder_that_becomes_a_link_while_a_tree_is_deleted_goes_as_a_link(
    store: LocalStorage, tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, unlink = tmp_path / "lake/table/base", os.unlink
    (base / "inner").mkdir()

    def swap_first(path: str, *, dir_fd: int | None = None) -> None:
        if path == "file":
            _swap_for_a_link(base / "inner", outside)
        unlink(path, dir_fd=dir_fd)

    (base / "zzz").mkdir()
    monkeypatch.setattr(os, "unlink", swap_first)
    monkeypatch.setattr("lithify.files.paths.os.scandir", _files_first(os.scandir))
    with store.path_guard.entry(base) as (at, name), pytest.raises(OSError, match="not empty"):
        remove_tree(at, name)  # what the attacker has put aside is still there

    assert _there(outside) == ["file", "inner", "inner/file"]
    assert not (base / "inner").exists()


def _files_first(scandir):  # type: ignore[no-untyped-def]
    from contextlib import contextmanager

    @contextmanager
    def sorted_entries(at):  # type: ignore[no-untyped-def]
        with scandir(at) as entries:
            yield sorted(entries, key=lambda entry: entry.is_dir())

    return sorted_entries


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    """Whoever opens a lake says where it is."""
    (tmp_path / "real").mkdir()
    (tmp_path / "named").symlink_to(tmp_path / "real")
    store = LocalStorage()
    store.path_guard.trust(tmp_path / "named")

    store.make_folder(tmp_path / "named/folder")
    store.put(tmp_path / "named/folder/file", b"data")

    assert (tmp_path / "real/folder/file").read_bytes() == b"data"
    store.delete_folder(tmp_path / "named/folder")
    assert _there(tmp_path / "real") == []


def test_the_longest_root_counts(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake/index").symlink_to(outside)
    path_guard = PathGuard()
    path_guard.trust(tmp_path / "lake")
    with pytest.raises(Corruption), path_guard.entry(tmp_path / "lake/index/file"):
        pass

    path_guard.trust(tmp_path / "lake/index")

    with path_guard.entry(tmp_path / "lake/index/file") as (at, name):
        assert os.stat(name, dir_fd=at).st_size == 4


def test_a_store_without_roots_takes_the_callers_word(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=str(tmp_path / "missing")):
        LocalStorage().read(tmp_path / "missing/file")
    LocalStorage().put(tmp_path / "file", b"data")
    assert LocalStorage().read(tmp_path / "file") == b"data"


@pytest.mark.parametrize("at", ["", "deep/er/"])
def test_a_link_among_very_many_files_is_found(store: LocalStorage, tmp_path: Path, outside: Path, at: str) -> None:
    """Where many files of a folder are asked for it is listed, and that counts as if each had been looked at."""
    folder = tmp_path / "lake" / "table"
    (folder / at).mkdir(parents=True, exist_ok=True)
    names = [f"{at}{number}" for number in range(LISTED_MIN + 5)]
    for name in names[:50]:
        (folder / name).touch()
    guard = store.path_guard
    guard.check_files(folder, names)  # those that are not there are no links

    (folder / names[7]).unlink()
    (folder / names[7]).symlink_to(outside / "file")
    with pytest.raises(Corruption, match=f"{names[7]} is a link"):
        guard.check_files(folder, names)

    guard.allow(outside)
    guard.check_files(folder, names)
    assert guard.linked[str(folder)] == {str(outside.resolve())}


def test_a_folder_that_is_a_link_is_not_listed(
    store: LocalStorage, tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lake" / "table"
    (folder / "deep").symlink_to(outside)
    monkeypatch.setattr(os, "scandir", None)
    with pytest.raises(Corruption, match="deep is a link"):
        store.path_guard.check_files(folder, [f"deep/{number}" for number in range(LISTED_MIN)])
