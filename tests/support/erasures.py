"""Somebody who is to be erased, and a look for her with nothing of the product: raw bytes, DuckDB's reader of Parquet,
and compressed blocks that are unpacked wherever they lie in a file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from lithify import Settings, Table

SETTINGS = Settings(actor="clerk", refresh_s=1)
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("mail", pa.string()), ("n", pa.int32())])
OLD, NEW = "wanda.oldest@example.org", "wanda.needle@example.org"


def others(count: int = 40) -> list[dict[str, object]]:
    return [{"id": i, "name": f"name-{i % 5}", "mail": f"user{i}@example.org", "n": i} for i in range(1, count)]


def wanda(mail: str = NEW) -> list[dict[str, object]]:
    return [{"id": 42, "name": "Wanda Needleman", "mail": mail, "n": 77777}]


def places_of(root: Path, *texts: str) -> list[str]:
    """Files below a folder that hold one of these texts in clear, in their bytes, names, values or pages."""
    wanted = [text.encode() for text in texts]
    found = []
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        data = path.read_bytes()
        seen = [data, str(path.relative_to(root)).encode()]
        if data[:4] == b"PAR1":
            seen += [_values(path), *_compressed_blocks(path, data)]
        if any(needle in some.lower() for some in seen for needle in (n.lower() for n in wanted)):
            found.append(str(path.relative_to(root)))
    return found


def _values(path: Path) -> bytes:
    with duckdb.connect() as connection:
        rows = connection.execute("select * from read_parquet(?, hive_partitioning = false)", [str(path)]).fetchall()
    return repr(rows).encode()


def _compressed_blocks(path: Path, data: bytes) -> Iterable[bytes]:
    """What Zstandard frames in the file unpack to, wherever they begin: no footer and no header is asked."""
    codecs = {c.compression for c in _columns(path)}
    assert codecs <= {"ZSTD", "SNAPPY", "UNCOMPRESSED"}, codecs
    place = data.find(_FRAME)
    while place >= 0:
        size = _frame_size(data, place)
        if size is not None:
            try:
                yield pa.Codec("zstd").decompress(data[place:], decompressed_size=size, asbytes=True)
            except (pa.ArrowException, OSError):
                yield from _by_prefixes(data, place, size)
        place = data.find(_FRAME, place + 1)


_FRAME = struct.pack("<I", 0xFD2FB528)


def _columns(path: Path) -> Iterable[pq.ColumnChunkMetaData]:
    metadata = pq.read_metadata(path)
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            yield metadata.row_group(group).column(column)


def _frame_size(data: bytes, place: int) -> int | None:
    """The content size that the frame's header states (RFC 8878)."""
    descriptor = data[place + 4]
    flag, single = descriptor >> 6, descriptor >> 5 & 1
    at = place + 5 + (0 if single else 1) + (0, 1, 2, 4)[descriptor & 3]
    if flag == 0:
        return data[at] if single else None
    width = (1, 2, 4, 8)[flag]
    return int.from_bytes(data[at : at + width], "little") + (256 if width == 2 else 0)


def _by_prefixes(data: bytes, place: int, size: int) -> Iterable[bytes]:
    """A codec that minds what follows the frame: its end is found by its blocks."""
    at = place + 5 + (0 if data[place + 4] >> 5 & 1 else 1) + (0, 1, 2, 4)[data[place + 4] & 3]
    at += ((1 if data[place + 4] >> 5 & 1 else 0), 2, 4, 8)[data[place + 4] >> 6]
    last = False
    while not last and at + 3 <= len(data):
        header = int.from_bytes(data[at : at + 3], "little")
        last, kind, length = bool(header & 1), header >> 1 & 3, header >> 3
        at += 3 + (1 if kind == 1 else length)
    end = at + (4 if data[place + 4] >> 2 & 1 else 0)
    yield pa.Codec("zstd").decompress(data[place:end], decompressed_size=size, asbytes=True)


def told(table: Table, seq: int, *gone: object) -> dict[str, object]:
    """What a table says of its versions up to `seq`, but for the rows with these ids: as rows, changes and a feed."""

    def others(rows: pa.Table) -> list[str]:
        return sorted(repr(row) for row in rows.to_pylist() if row["id"] not in gone)

    changes = table.changes(since=0).to_pylist()
    return {
        "rows": {at: others(table.to_arrow(as_of=at)) for at in range(seq + 1)},
        "changes": [repr(row) for row in changes if row["_seq"] <= seq and row["id"] not in gone],
        "feed": others(table.feed(0, seq, before=True)),
    }


def base_versions(path: Path) -> dict[int, list[dict[str, object]]]:
    """The rows of each version of a Delta table, as deltalake and Polars read it."""
    found = {}
    for version in range(DeltaTable(str(path)).version() + 1):
        rows = DeltaTable(str(path), version=version).to_pyarrow_table().to_pylist()
        assert sorted(map(repr, rows)) == sorted(map(repr, polars.read_delta(str(path), version=version).to_dicts()))
        found[version] = sorted(rows, key=repr)
    return found
