"""What the processes of one piece of work lay down in a lake for each other, which all see the same folder.

What a driver stages for its executors saves time, and may be lost. It appears as a whole or not at all, and with the
mode of the lake's folders. Whoever lays something down first takes away what nobody has asked for in a long time.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from lithify.errors import LithifyError
from lithify.files.modes import follow_folder
from lithify.files.os_errors import translated
from lithify.files.paths import discard_tree


def is_staged(folder: PurePath) -> bool:
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


def _staged(path: PurePath, write: Callable[[Path], None], sweep: Callable[[], None]) -> int:
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
        self.path = Path(path)
        with translated(path):
            self._writer = pq.ParquetWriter(
                path, columns.remove_metadata(), compression="lz4", write_page_checksum=True, write_statistics=False
            )

    def write(self, tables: Sequence[pa.Table]) -> None:
        """One row group."""
        with translated(self.path):
            whole = pa.concat_tables(tables)
            self._writer.write_table(whole, row_group_size=whole.num_rows)

    def close(self) -> int:
        """Its size."""
        with translated(self.path):
            self._writer.close()
            return self.path.stat().st_size

    def abandon(self) -> None:
        with contextlib.suppress(OSError):  # what it was given up for says more; vacuum finds it
            self.path.unlink(missing_ok=True)


def staged_folders(index: PurePath, prefix: str) -> list[Path]:
    with translated(index):
        return sorted(Path(index).glob(f"{prefix}*"))


def sweep(index: PurePath, prefixes: Sequence[str], unused_s_max: float) -> None:
    for folder in (folder for prefix in prefixes for folder in staged_folders(index, prefix)):
        with contextlib.suppress(OSError):
            if time.time() - folder.lstat().st_mtime > unused_s_max:
                discard_tree(folder)


def json_files(folder: PurePath, *, empty: bool = True) -> list[PurePath]:
    """Those in a folder, sorted; without those that hold nothing, if so asked."""
    with translated(folder):
        return sorted(file for file in Path(folder).glob("*.json") if empty or file.stat().st_size)


def write_lines(path: str, lines: Iterable[bytes]) -> bool:
    """Whether there are any; without, there is no file either."""
    file = None
    with translated(path):
        try:
            for line in lines:
                file = file or open(path, "wb")  # noqa: SIM115 (closed below)
                file.write(line + b"\n")
        finally:
            if file is not None:
                file.close()
    return file is not None
