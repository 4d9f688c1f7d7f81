"""What the processes of one piece of work lay down in a lake for each other, which all see the same folder.

What a driver stages for its executors saves time, and may be lost. It appears as a whole or not at all, and with the
mode of the lake's folders. Whoever lays something down first takes away what nobody has asked for in a long time. In a
bucket it is an object for each file: a folder is there when the last of them is, `DONE`. Who may still need one puts
that anew several times in `UNUSED_HOURS_MAX`; a vacuum takes away what nobody has, by the server's clock.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path, PurePath
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from lithify.errors import LithifyError, NotFound
from lithify.files.addresses import is_remote
from lithify.files.local_files import draft as new_draft
from lithify.files.modes import follow_folder
from lithify.files.open_storage import storage_of
from lithify.files.os_errors import Exists, translated
from lithify.files.paths import discard_tree

DONE = "done"
UNUSED_HOURS_MAX = 24
PREFIXES = ("overlay-", "scan-", "feed-")


def is_staged(folder: PurePath) -> bool:
    if is_remote(folder):
        return storage_of(folder).exists(folder / DONE)
    with translated(folder):
        return Path(folder).is_dir()


def stage_parquet(path: PurePath, table: Callable[[], pa.Table], group_rows: int, sweep: Callable[[], None]) -> int:
    """Its size. What lies there already counts as asked for now. `sweep`: comes before a folder that is new."""

    def write(draft: Path) -> None:
        pq.write_table(table(), draft, row_group_size=group_rows, coerce_timestamps="us", write_page_checksum=True)

    return _staged(path, write, sweep)


def stage_arrow(path: PurePath, table: pa.Table, sweep: Callable[[], None]) -> int:
    """The same, as a file that is mapped into memory to be read."""

    def write(draft: Path) -> None:
        with pa.OSFile(str(draft), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)

    return _staged(path, write, sweep)


def _staged_object(path: PurePath, write: Callable[[Path], None], sweep: Callable[[], None]) -> int:
    store = storage_of(path)
    with contextlib.suppress(NotFound):
        size_bytes = store.size(path)
        store.touch_ms(path.parent / DONE)
        return size_bytes
    sweep()
    size_bytes = _put(path, write)
    store.touch_ms(path.parent / DONE)
    return size_bytes


def _put(path: PurePath, write: Callable[[Path], None]) -> int:
    """What is made as a local file; where another process is first, it is with the same content."""
    draft = new_draft()
    try:
        with translated(draft):
            write(draft)
            size_bytes = draft.stat().st_size
        with contextlib.suppress(Exists):
            storage_of(path).upload(draft, path)
        return size_bytes
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _staged(path: PurePath, write: Callable[[Path], None], sweep: Callable[[], None]) -> int:
    if is_remote(path):
        return _staged_object(path, write, sweep)
    folder, file = Path(path.parent), Path(path)
    with translated(folder):
        if folder.is_symlink() or file.is_symlink():
            discard_tree(folder)
        if not folder.is_dir():
            sweep()
        folder.mkdir(parents=True, exist_ok=True)
        follow_folder(folder, folder.parent)
        if file.exists():
            os.utime(folder)
            return file.stat().st_size
        draft = folder / f".{file.name}.{uuid4().hex}"
        try:
            write(draft)
            follow_folder(draft, folder.parent)
            os.replace(draft, file)
        finally:
            draft.unlink(missing_ok=True)
        return file.stat().st_size


def stage_folder(folder: PurePath, tables: dict[str, pa.Table], group_rows: int) -> None:
    """Parquet files. Where another process is first, it is with the same content."""
    if is_remote(folder):
        for name, table in tables.items():
            _put(folder / name, partial(pq.write_table, table, coerce_timestamps="us", row_group_size=group_rows))
        storage_of(folder).put(folder / DONE, b"")
        return
    target = Path(folder)
    draft = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        with translated(folder):
            draft.mkdir(parents=True)
            for name, table in tables.items():
                pq.write_table(table, draft / name, coerce_timestamps="us", row_group_size=group_rows)
                follow_folder(draft / name, target.parent)
            follow_folder(draft, target.parent)
            if not target.is_dir():
                os.rename(draft, target)
    except LithifyError:
        if not is_staged(folder):
            raise
    finally:
        discard_tree(draft)


class SpoolFile:
    """Rows that a task lays down for the driver, as they come, without statistics: all of them are read soon."""

    def __init__(self, path: PurePath, columns: pa.Schema) -> None:
        self._path = path
        self._file = new_draft() if is_remote(path) else Path(path)
        with translated(self._file):
            self._writer = pq.ParquetWriter(
                self._file,
                columns.remove_metadata(),
                compression="lz4",
                write_page_checksum=True,
                write_statistics=False,
            )

    def write(self, tables: Sequence[pa.Table]) -> None:
        """One row group."""
        with translated(self._file):
            whole = pa.concat_tables(tables)
            self._writer.write_table(whole, row_group_size=whole.num_rows)

    def close(self) -> int:
        """Its size."""
        with translated(self._file):
            self._writer.close()
            size_bytes = self._file.stat().st_size
        if is_remote(self._path):
            storage_of(self._path).upload(self._file, self._path)
            self._discard()
        return size_bytes

    def abandon(self) -> None:
        """What it was given up for says more; vacuum finds what stays."""
        self._discard()

    def _discard(self) -> None:
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)


def discard(folder: PurePath) -> None:
    """Take what was staged away, as far as that is possible."""
    if not is_remote(folder):
        discard_tree(folder)
        return
    with contextlib.suppress(LithifyError):
        storage_of(folder).delete_folder(folder)


def still_needed(folder: PurePath) -> None:
    """Have what was staged in a bucket stay for `UNUSED_HOURS_MAX` from now on."""
    storage_of(folder).put(folder / DONE, b"")


def staged_folders(index: PurePath, *prefixes: str) -> list[PurePath]:
    if is_remote(index):
        return [index / name for name in storage_of(index).names(index) if name.startswith(prefixes)]
    with translated(index):
        return sorted(folder for prefix in prefixes for folder in Path(index).glob(f"{prefix}*"))


def sweep(index: PurePath, prefixes: Sequence[str] = PREFIXES, unused_s_max: float = UNUSED_HOURS_MAX * 3600) -> None:
    found = staged_folders(index, *prefixes)
    if is_remote(index):
        _sweep_objects(index, found, unused_s_max)
        return
    for folder in found:
        with contextlib.suppress(OSError):
            if time.time() - os.lstat(folder).st_mtime > unused_s_max:
                discard_tree(folder)


def _sweep_objects(index: PurePath, folders: Sequence[PurePath], unused_s_max: float) -> None:
    """By the clock of the server, which is asked where there is something to judge."""
    if not folders:
        return
    store, clock = storage_of(index), index / f"now-{uuid4().hex}"
    now_ms = store.touch_ms(clock)
    store.delete(clock)
    for folder in folders:
        times_ms = [file.mtime_ms for file in store.entries(folder)]
        if times_ms and now_ms - max(times_ms) > unused_s_max * 1000:
            discard(folder)


def json_files(folder: PurePath, *, empty: bool = True) -> list[PurePath]:
    """Those in a folder, sorted; without those that hold nothing, if so asked."""
    if is_remote(folder):
        found = [file for file in storage_of(folder).entries(folder) if file.path.endswith(".json")]
        return [folder / file.path for file in found if empty or file.size_bytes]
    with translated(folder):
        return sorted(file for file in Path(folder).glob("*.json") if empty or file.stat().st_size)


def write_lines(path: PurePath, lines: Iterable[bytes]) -> bool:
    """Whether there are any; without, there is no file either."""
    target = new_draft() if is_remote(path) else Path(path)
    file = None
    try:
        with translated(target):
            try:
                for line in lines:
                    file = file or open(target, "wb")  # noqa: SIM115 (closed below)
                    file.write(line + b"\n")
            finally:
                if file is not None:
                    file.close()
        if file is not None and is_remote(path):
            storage_of(path).upload(target, path)
    finally:
        if is_remote(path):
            target.unlink(missing_ok=True)
    return file is not None
