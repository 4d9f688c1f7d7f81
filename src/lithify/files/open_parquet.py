"""Opening Parquet files: the one door, for our own files and for those of others.

INT96 timestamps are read as microseconds: Arrow's own choice is nanoseconds, which wrap beyond 2262, so that the
9999-12-31 of a warehouse becomes a day in 1816. Page checksums are verified where a file has them. What cannot be read
is an error that names the file.

A `Footer` is what a file says of itself, with one thing that Arrow does not hand on: whether the writer states the
order in which bounds of a column are meant (the last field of a footer, `column_orders`). `files/statistics.py` says
what follows from it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lithify.errors import Corruption, InvalidRequest, LithifyError, NotFound
from lithify.files.addresses import BucketPath, is_remote
from lithify.files.local_files import at_hand, forget, is_on_its_way, read_far, use
from lithify.files.os_errors import os_error, translated
from lithify.files.read_proof import Damaged, Vanished, check_size, tag_of, tag_of_time
from lithify.files.scratch import Scratch

FOOTER_GUESS_BYTES = 16_384
# Of an object that is not larger, the whole is brought with its footer: it is likely to be read next.
WHOLE_BYTES_MAX = 2**20
AWAITED_BYTES_MAX = 2**23
INT96_UNIT = "us"
_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
# Thrift's compact protocol: a list, the structures in it, and the order that its type defines as such a structure.
_LIST, _STRUCT, _TYPE_ORDER = 0x09, 0x0C, 0x1C


@dataclass(frozen=True)
class Footer:
    """`orders`: one byte for each leaf of the schema, 1 where its bounds are in the order of its type; empty if the
    footer says nothing of it. `raw`: as it stands in the file.
    """

    metadata: pq.FileMetaData
    orders: bytes = b""
    raw: bytes = field(default=b"", repr=False)


def open_file(
    path: PurePath | str,
    size_bytes: int | None = None,
    *,
    metadata: pq.FileMetaData | None = None,
    dictionaries: Sequence[str] = (),
) -> pq.ParquetFile:
    """`size_bytes`: what the file has by its log. All reads go through the one descriptor that this is compared on.
    `metadata`: of this file, if it was read before. `dictionaries`: columns to read as such.
    """

    def opened(local: str) -> pq.ParquetFile:
        source = pa.OSFile(local)
        if size_bytes is not None:
            check_size(str(path), source.size(), size_bytes)
        return _opened(source, metadata, dictionaries)

    try:
        try:
            return use(path, size_bytes, opened)
        except (pa.ArrowInvalid, ValueError):
            if not forget(path):
                raise
            return use(path, size_bytes, opened)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise (corrupt(path, error) if size_bytes is None else Vanished.at(str(path))) from error
    except (pa.ArrowException, ValueError, OSError) as error:
        raise corrupt(path, error) from error


def open_far(path: PurePath | str, size_bytes: int, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """The same of an object of which little is read: no more of it is brought than that. `metadata`: if it is known."""
    known = metadata or footer_of(read_footer(path, size_bytes), path).metadata
    # Arrow asks for all columns of a row group at once then, which lie side by side.
    return _opened(pa.PythonFile(read_far(path, size_bytes), "r"), known, pre_buffer=True)


def read_open(file: pq.ParquetFile, path: PurePath | str, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of an open file; what stops the reading is told as what stops the opening is."""
    try:
        return file.read(columns=columns)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise corrupt(path, error) from error


def read_bytes(data: bytes, name: str) -> pa.Table:
    """All rows of a whole file in memory that somebody else wrote. `name`: what to call it in an error."""
    file = open_bytes(data, name)
    try:
        rows = file.read()
        # Afterwards: where a column is encrypted, reading it is an error, and to ask for its metadata ends the process.
        _check_values(file.metadata)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise corrupt(name, error) from error
    return rows


def open_bytes(data: bytes, name: str) -> pq.ParquetFile:
    """A whole file in memory. `name`: what to call it in an error."""
    try:
        return _opened(pa.BufferReader(data))
    except (pa.ArrowException, ValueError, OSError) as error:
        raise corrupt(name, error) from error


def _opened(
    source: pa.NativeFile,
    metadata: pq.FileMetaData | None = None,
    dictionaries: Sequence[str] = (),
    *,
    pre_buffer: bool = False,
) -> pq.ParquetFile:
    file = pq.ParquetFile(
        source,
        metadata=metadata,
        pre_buffer=pre_buffer,
        read_dictionary=list(dictionaries) or None,
        coerce_int96_timestamp_unit=INT96_UNIT,
        page_checksum_verification=True,
    )
    if metadata is None:
        _check_counts(file.metadata)
    return file


def _check_counts(metadata: pq.FileMetaData) -> None:
    """A reader goes by one of these counts and the next reader by another: they have to agree."""
    rows = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_columns != metadata.num_columns:
            raise ValueError(f"row group {number} has {group.num_columns} columns of {metadata.num_columns}")
        if group.num_rows < 0:
            raise ValueError(f"row group {number} has {group.num_rows} rows")
        rows += group.num_rows
    if rows != metadata.num_rows:
        raise ValueError(f"its footer says {metadata.num_rows} rows, and its row groups have {rows}")


def _check_values(metadata: pq.FileMetaData) -> None:
    """Where rows are counted alike, but are not as many as the values of a column, some would be left out silently.
    An index asks the same of each footer that it takes in.
    """
    nested = [metadata.schema.column(leaf).max_repetition_level > 0 for leaf in range(metadata.num_columns)]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for leaf, repeated in enumerate(nested):
            chunk = group.column(leaf)
            if chunk.num_values < group.num_rows or (chunk.num_values > group.num_rows and not repeated):
                raise ValueError(f"{chunk.path_in_schema!r} has {chunk.num_values} values for {group.num_rows} rows")


@contextmanager
def ranges_of(path: PurePath | str) -> Iterator[Callable[[int, int], bytes]]:
    """What a data file has from an offset on, at most so many bytes; NotFound where it is not on this machine."""
    with translated(path):
        if (local := at_hand(path)) is None:
            raise FileNotFoundError(errno.ENOENT, "no copy", str(path))
        fd = os.open(local, os.O_RDONLY)
        try:
            yield lambda start, length: os.pread(fd, length, start)
        finally:
            os.close(fd)


def hive_partitions(root: PurePath, paths: Sequence[PurePath]) -> tuple[pa.Schema, dict[PurePath, dict[str, Any]]]:
    """Columns that stand in the names of folders (`day=2026-11-16`) and perhaps also in the files, with what each file
    has there.
    """
    import pyarrow.dataset as ds  # which takes as long to import as everything else together

    if is_remote(root):
        with Scratch("names") as here:  # the names tell, and not what the files hold
            local = {path: here / path.relative_to(root) for path in paths}
            for path in local.values():
                path.parent.mkdir(parents=True, exist_ok=True)
                pq.write_table(pa.table({}), path)
            columns, values = hive_partitions(here, list(local.values()))
            return columns, {path: values[local[path]] for path in paths}
    found = ds.dataset(
        [str(path) for path in paths],
        format="parquet",
        partitioning=ds.partitioning(flavor="hive"),
        partition_base_dir=str(root),
    )
    return found.partitioning.schema, {
        PurePath(part.path): ds.get_partition_keys(part.partition_expression) for part in found.get_fragments()
    }


def corrupt(path: PurePath | str, error: BaseException) -> LithifyError:
    if isinstance(error, FileNotFoundError):
        return NotFound(f"{path} does not exist")
    if isinstance(error, OSError) and error.errno:
        return os_error(error, path)
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    forgotten = forget(path)
    if "encrypt" in first.lower() or "decrypt" in first.lower():
        return encrypted(path)
    return (Damaged if forgotten else Corruption)(
        f"{path} cannot be read as Parquet ({first}): restore this file from a copy, or drop its rows", path=str(path)
    )


def encrypted(path: PurePath | str, **details: Any) -> LithifyError:
    return InvalidRequest(
        f"{path} is encrypted, and Lithify has no keys: write it anew without encryption, and then take it",
        path=str(path),
        **details,
    )


# -- footers


def footer_in(data: bytes) -> bytes:
    """The footer of a whole Parquet file in memory."""
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


def read_footer(path: PurePath | str, size_bytes: int | None = None) -> bytes:
    """The footer of a Parquet file as it stands there, mostly in one read; nothing of it is understood yet.
    `size_bytes`: what the file must have.
    """
    return read_tagged_footer(path, size_bytes)[0]


def read_tagged_footer(path: PurePath | str, size_bytes: int | None = None) -> tuple[bytes, int]:
    """The same, and the tag of the file that it was read from."""
    try:
        if not _comes_whole(path, size_bytes) and at_hand(path, size_bytes) is None:
            return _footer_from(partial(_tail_of_object, path), path, size_bytes)
        fd = use(path, size_bytes, lambda local: os.open(local, os.O_RDONLY))
        try:
            return _footer_from(partial(_tail_of_file, path, fd), path, size_bytes)
        finally:
            os.close(fd)
    except NotFound as error:
        raise (error if size_bytes is None else Vanished.at(str(path))) from error
    except (ValueError, OSError) as error:
        raise corrupt(path, error) from error


def _comes_whole(path: PurePath | str, size_bytes: int | None) -> bool:
    """Whether its end is not worth a request of its own."""
    if size_bytes is None or size_bytes > AWAITED_BYTES_MAX:
        return False
    return size_bytes <= WHOLE_BYTES_MAX or is_on_its_way(path)


# So many bytes of the end of a file, its size, and its tag.
Tail = Callable[[int], tuple[bytes, int, int]]


def _footer_from(tail_of: Tail, path: PurePath | str, size_bytes: int | None) -> tuple[bytes, int]:
    tail, size, tag = tail_of(FOOTER_GUESS_BYTES)
    if size_bytes is not None and size != size_bytes:
        raise ValueError(f"it has {size} bytes instead of {size_bytes}")
    length = int.from_bytes(tail[-8:-4], "little")
    if tail[-4:] == _ENCRYPTED:
        raise encrypted(path)
    if tail[-4:] != _MAGIC or length > size - 12:
        raise ValueError("it does not end as a Parquet file does")
    if length > len(tail) - 8:
        tail = tail_of(length + 8)[0]
    return tail[-8 - length : -8], tag


def _tail_of_file(path: PurePath | str, fd: int, length: int) -> tuple[bytes, int, int]:
    found = os.fstat(fd)
    return os.pread(fd, length, max(found.st_size - length, 0)), found.st_size, tag_of(path, found)


def _tail_of_object(path: PurePath | str, length: int) -> tuple[bytes, int, int]:
    from lithify.files.bucket.local_copies import time_for
    from lithify.files.bucket.reads import read_tail

    tail, size, tag = read_tail(BucketPath(path), length)
    return tail, size, tag_of_time(time_for(tag))


def footer_of(raw: bytes, path: PurePath | str) -> Footer:
    """`raw`: as `read_footer` gives it. `path`: where it comes from, for the error."""
    try:
        metadata = parsed(raw)
        _check_counts(metadata)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise corrupt(path, error) from error
    orders, _ = column_orders(raw)
    return Footer(metadata, orders if len(orders) == metadata.num_columns else b"", raw)


def parsed(raw: bytes) -> pq.FileMetaData:
    """Raises as Arrow does. Nothing of it is checked."""
    return pq.read_metadata(pa.BufferReader(b"".join((_MAGIC, raw, len(raw).to_bytes(4, "little"), _MAGIC))))


def column_orders(raw: bytes) -> tuple[bytes, bytes]:
    """`Footer.orders`, and the footer up to this field, which its writer's name ends.

    The field stands last: structures of one empty structure each (three bytes), then the end of the footer. Going back
    from there finds it without walking through all row groups. Where something follows it, it counts as missing.
    """
    end = start = len(raw) - 1
    while start >= 3 and raw[start - 2 : start] == b"\0\0" and raw[start - 3] & 0x0F == _STRUCT:
        start -= 3
    count = (end - start) // 3
    head = bytes([count << 4 | _STRUCT]) if count < 15 else bytes([0xF0 | _STRUCT]) + varint(count)
    list_start = start - len(head) - 1
    if not count or list_start < 0 or raw[list_start] & 0x0F != _LIST or raw[list_start + 1 : start] != head:
        return b"", raw
    return bytes(int(code == _TYPE_ORDER) for code in raw[start:end:3]), raw[:list_start]


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
