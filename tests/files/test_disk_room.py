"""A folder of copies keeps to its limit, however many add to it at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import lithify.files.bucket.disk_room
from lithify.files.bucket.disk_room import DiskRoom


def test_what_comes_while_another_thread_counts_is_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "copies/00").mkdir(parents=True)
    room = DiskRoom(folder / "copies", folder / "lock", bytes_max=10_000)
    files_in, others = lithify.files.bucket.disk_room._files_in, []

    def add(name: str) -> None:
        (folder / "copies/00" / name).write_bytes(bytes(6_000))
        room.added(6_000)

    def listed(copies: Path) -> Iterator[tuple[float, int, str]]:
        found = list(files_in(copies))
        if not others:
            others.append(threading.Thread(target=add, args=["second"]))
            others[0].start()
            others[0].join(0.3)  # it may have to wait for this one
        return iter(found)

    monkeypatch.setattr(lithify.files.bucket.disk_room, "_files_in", listed)
    add("first")
    others[0].join(60)

    assert room.used_bytes() <= 10_000
