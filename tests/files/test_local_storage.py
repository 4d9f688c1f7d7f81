"""What only storage in a folder has to do: copies without links, and errors of the system told as ours."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path, PurePath

import pytest

import lithify.files.local
from lithify.errors import Corruption, LithifyError, Unavailable
from lithify.files.local import LocalStorage
from lithify.files.mapped import identity_and_size, mapped
from lithify.files.open_parquet import ranges_of, read_footer
from lithify.files.read_proof import check_whole, tag_at
from lithify.files.scratch import links_to
from lithify.files.staging import stage_folder
from lithify.files.storage import Storage
from lithify.files.user_files import size_bytes
from support.faults import FaultyStore, os_failure


def local(root: Path) -> Storage:
    storage = LocalStorage()
    storage.path_guard.trust(root)
    return storage


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that has none."""

    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)


class TestCopiesWithoutLinks:
    """Only when it is whole, and lasts, does a file have its name; what fails leaves nothing."""

    @pytest.fixture
    def storage(self, tmp_path: Path, no_links: None) -> Storage:
        (tmp_path / "one").write_bytes(b"first" * 100_000)
        return local(tmp_path)

    def test_it_is_not_seen_before_it_lasts(
        self, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen, fsync = [], os.fsync

        def synced(fd: int) -> None:
            seen.append((os.fstat(fd).st_size, (tmp_path / "two").exists()))
            fsync(fd)

        monkeypatch.setattr(os, "fsync", synced)
        storage.copy(tmp_path / "one", tmp_path / "two")

        assert seen == [(500_000, False)]
        assert storage.names(tmp_path) == ["one", "two"]

    @pytest.mark.parametrize("point", ["store.write", "store.rename"])
    def test_a_copy_that_fails_leaves_nothing(self, storage: Storage, tmp_path: Path, point: str) -> None:
        faulty = FaultyStore(point, os_failure(errno.ENOSPC))

        with pytest.raises(Unavailable, match="no space left"):
            faulty.upload(tmp_path / "one", tmp_path / "two")

        assert storage.names(tmp_path) == ["one"]

    def test_what_cannot_be_made_to_last_is_not_there(
        self, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(fd: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, "fsync", fail)

        with pytest.raises(Corruption, match="I/O error"):
            storage.copy(tmp_path / "one", tmp_path / "two")

        assert storage.names(tmp_path) == ["one"]


@pytest.mark.parametrize("there", [False, True], ids=["new", "taken"])
def test_a_copy_takes_no_name_away_where_only_links_see_to_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """The file itself cannot be linked, being on another disk, say, but files beside the target can."""
    storage = local(tmp_path)
    (tmp_path / "one").write_bytes(b"first")
    monkeypatch.setattr(lithify.files.local, "_renameat2", None)
    monkeypatch.setattr(storage, "link", lambda path, target: False)
    if there:
        (tmp_path / "two").write_bytes(b"second")
        with pytest.raises(LithifyError):
            storage.copy(tmp_path / "one", tmp_path / "two")
    else:
        storage.copy(tmp_path / "one", tmp_path / "two")

    assert (tmp_path / "two").read_bytes() == (b"second" if there else b"first")
    assert storage.names(tmp_path) == ["one", "two"]


def _break(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """From now on the system refuses every file, and says why."""

    def refuse(*args: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    for name in ("link", "listdir", "lstat", "makedirs", "open", "scandir", "stat", "symlink", "utime"):
        monkeypatch.setattr(os, name, refuse)


ACCESSES: dict[str, Callable[[Storage, Path], object]] = {
    "create": lambda storage, path: storage.create(path, b""),
    "publish": lambda storage, path: storage.publish(path.with_name("two"), b""),
    "put": lambda storage, path: storage.put(path, b""),
    "swap": lambda storage, path: storage.swap(path, lambda before: b"", 30, "it"),
    "copy": lambda storage, path: storage.copy(path, path.with_name("two")),
    "upload": lambda storage, path: storage.upload(path, path.with_name("two")),
    "download": lambda storage, path: storage.download(path, path.with_name("two")),
    "download_all": lambda storage, path: storage.download_all({path: path.with_name("two")}),
    "move": lambda storage, path: storage.move(path, path.with_name("two")),
    "delete": lambda storage, path: storage.delete(path),
    "delete_all": lambda storage, path: storage.delete_all([path]),
    "delete_folder": lambda storage, path: storage.delete_folder(path),
    "touch_ms": lambda storage, path: storage.touch_ms(path),
    "read": lambda storage, path: storage.read(path),
    "read_all": lambda storage, path: storage.read_all([path]),
    "read_range": lambda storage, path: storage.read_range(path, 0, 1),
    "exists": lambda storage, path: storage.exists(path),
    "is_folder": lambda storage, path: storage.is_folder(path),
    "size": lambda storage, path: storage.size(path),
    "modified_ms": lambda storage, path: storage.modified_ms(path),
    "tag": lambda storage, path: storage.tag(path),
    "names": lambda storage, path: storage.names(path.parent),
    "copy_all": lambda storage, path: storage.copy_all({path: path.with_name("two")}),
    "sizes": lambda storage, path: storage.sizes([path]),
    "beginning": lambda storage, path: storage.beginning(path.parent),
    "entries": lambda storage, path: storage.entries(path.parent),
    "below": lambda storage, path: list(storage.below(path.parent)),
    "own": lambda storage, path: storage.own(path.parent),
    "look_at": lambda storage, path: storage.look_at(path.parent, path.name),
    "make_folder": lambda storage, path: storage.make_folder(path.with_name("new")),
    "delete_empty_folder": lambda storage, path: storage.delete_empty_folder(path),
    "sync_file": lambda storage, path: storage.sync_file(path),
    "sync_folder": lambda storage, path: storage.sync_folder(path.parent),
    "is_doubted": lambda storage, path: storage.is_doubted(path),
    "replace": lambda storage, path: storage.replace(path, b""),
    "write_anew": lambda storage, path: storage.write_anew(path, b""),
    "lock": lambda storage, path: storage.lock(path, 0, "it").__enter__(),
    "link": lambda storage, path: storage.link(path, path.with_name("two")),
    "append": lambda storage, path: storage.append(path, b""),
    "extend": lambda storage, path: storage.extend(path, [b""]),
    "patch": lambda storage, path: storage.patch(path, 0, b""),
    "path_guard.is_there": lambda storage, path: storage.path_guard.is_there(path),
    "path_guard.check_entries": lambda storage, path: storage.path_guard.check_entries(path.parent),
    "path_guard.check_files": lambda storage, path: storage.path_guard.check_files(path.parent, [path.name]),
    "path_guard.followed": lambda storage, path: storage.path_guard.followed(path, 1),
    "mapped": lambda storage, path: mapped(path),
    "identity_and_size": lambda storage, path: identity_and_size(path),
    "ranges_of": lambda storage, path: ranges_of(path).__enter__(),
    "read_footer": lambda storage, path: read_footer(path),
    "tag_at": lambda storage, path: tag_at(str(path)),
    "check_whole": lambda storage, path: check_whole(str(path), 3),
    "links_to": lambda storage, path: links_to([str(path)], path.with_name("new")),
    "stage_folder": lambda storage, path: stage_folder(path.with_name("new"), {}, 1),
    "size_bytes": lambda storage, path: size_bytes(path),
}


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EIO, Corruption), (errno.ENOSPC, Unavailable), (errno.EMFILE, Unavailable)]
)
@pytest.mark.parametrize("access", ACCESSES)
def test_no_access_lets_an_error_of_the_system_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, access: str, number: int, kind: type[LithifyError]
) -> None:
    storage, file = local(tmp_path), tmp_path / "one"
    file.write_bytes(b"one")
    with monkeypatch.context() as broken:
        _break(broken, number)
        with pytest.raises(kind) as raised:
            ACCESSES[access](storage, file)

    assert isinstance(raised.value.__cause__, OSError)
    assert file.read_bytes() == b"one"


def test_every_access_is_tried() -> None:
    """All of the interface but what reaches no file."""
    methods = {name for name, found in vars(Storage).items() if not name.startswith("_") and callable(found)}

    assert methods - {"step", "local", "give_modes", "probe"} <= set(ACCESSES)


@pytest.mark.parametrize(
    ("point", "call"),
    [
        ("store.write", lambda storage, path: storage.create(path, b"")),
        ("store.write", lambda storage, path: storage.publish(path, b"")),
        ("store.rename", lambda storage, path: storage.publish(path, b"")),
        ("store.write", lambda storage, path: storage.put(path, b"")),
        ("store.rename", lambda storage, path: storage.put(path, b"")),
        ("store.sync", lambda storage, path: storage.put(path, b"")),
        ("store.rename", lambda storage, path: storage.move(path.parent / "there", path)),
        ("store.link", lambda storage, path: storage.copy(path.parent / "there", path)),
        ("store.delete", lambda storage, path: storage.delete(path)),
        ("store.delete_folder", lambda storage, path: storage.delete_folder(path)),
        ("store.make_folder", lambda storage, path: storage.make_folder(path)),
        ("store.sync", lambda storage, path: storage.sync_file(path.parent / "there")),
    ],
)
def test_errors_of_the_system_are_told_as_ours(
    tmp_path: Path, point: str, call: Callable[[Storage, PurePath], None]
) -> None:
    """With their cause, and nothing half-written stays behind."""
    storage = FaultyStore(point, os_failure(errno.ENOSPC))
    (tmp_path / "there").write_bytes(b"there")

    with pytest.raises(Unavailable, match="no space left") as raised:
        call(storage, tmp_path / "one")

    assert isinstance(raised.value.__cause__, OSError)
    assert {path.name for path in tmp_path.iterdir()} <= {"there", "one"}
