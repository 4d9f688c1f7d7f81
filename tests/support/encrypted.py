"""Parquet files that are encrypted, and what another writer does to have one in the base of an adopted table."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from deltalake import write_deltalake

from lithify import Lake

TABLE = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})


class _Keys(pe.KmsClient):
    def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped: bytes, _: str) -> bytes:
        return base64.b64decode(wrapped)


def encrypted(path: Path, *, plain_footer: bool, rows: pa.Table = TABLE) -> None:
    """The column `v` has a key of its own."""
    config = pe.EncryptionConfiguration(footer_key="f", column_keys={"k": ["v"]}, plaintext_footer=plain_footer)
    factory = pe.CryptoFactory(lambda _: _Keys())
    options = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    with pq.ParquetWriter(path, rows.schema, encryption_properties=options) as writer:
        writer.write_table(rows)


def adopted(folder: Path) -> Path:
    """A lake whose table `a.t` is an adopted one of two rows, which another writer goes on writing to."""
    write_deltalake(str(folder / "d"), pa.table({"id": pa.array([1, 2], pa.int64()), "v": ["a", "b"]}))
    with Lake(folder / "lake") as lake:
        lake.adopt("a.t", folder / "d", key="id")
    return folder / "lake"


def add_file(folder: Path, path: Path, rows: int) -> None:
    """The other writer's commit of a file that lies in the folder of the Delta table."""
    log = folder / "_delta_log"
    version = max(int(commit.stem) for commit in log.glob("*.json")) + 1
    add = {
        "path": path.name,
        "partitionValues": {},
        "size": path.stat().st_size,
        "modificationTime": 0,
        "dataChange": True,
        "stats": json.dumps({"numRecords": rows}),
    }
    (log / f"{version:020d}.json").write_text(json.dumps({"add": add}) + "\n")


def with_encrypted_column(folder: Path) -> Path:
    """A lake as `adopted` makes it, and a file of which one column is encrypted, while its footer is not."""
    lake = adopted(folder)
    encrypted(folder / "d" / "x.parquet", plain_footer=True, rows=pa.table({"id": [5, 6], "v": ["e", "f"]}))
    add_file(folder / "d", folder / "d" / "x.parquet", 2)
    return lake
