"""The numbers of the format: structures, array numbers, limits. docs/format.md says what they mean."""

from __future__ import annotations

import enum
import struct
import uuid
import zlib

import numpy as np

from lithify.errors import Corruption

MAGIC = b"LITHPM\r\n"
VERSION = 1
# Entries have tags, and bounds only where their order is known: without it, a file is of an older time.
TAGGED = 1 << 32
FEATURES_KNOWN = TAGGED
REQUIRED_FEATURES = 0xFFFFFFFF_00000000
HEADER_BYTES = 64
HEAD_OFFSET = 56

FOOTER_MAGIC, FOOTER_END, BLOCK_MAGIC = b"PMFT", b"PMFE", b"PMBK"
FOOTER_BYTES, BLOCK_HEAD_BYTES = 64, 48

HEADER = struct.Struct("<8sIIQ16sQQQ")
FOOTER = struct.Struct("<4sIQQQQQIIQ")
BLOCK = struct.Struct("<4sIQIIIIIIQ")

REFERENCE = np.dtype(
    [
        ("offset", "<u8"),
        ("length", "<u8"),
        ("mask", "<u8"),
        ("live_files", "<u4"),
        ("mask_crc", "<u4"),
        ("block_crc", "<u4"),
        ("reserved", "<u4"),
    ]
)
COLUMN = np.dtype(
    [("kind", "u1"), ("physical", "u1"), ("scale", "u1"), ("flags", "u1"), ("name_bytes", "<u2"), ("precision", "<u2")]
)
ENTRY = np.dtype([("array", "u1"), ("width", "u1"), ("column", "<u2"), ("crc", "<u4"), ("offset", "<u8")])

NESTED = 1
OF_NO_COLUMN = 0xFFFF
CONSTANT, HEAP = 0, 255
GROUPS_MAX = 4_194_304
COLUMNS_MAX = 65_534
BOUND_BYTES_MAX = 64
CODEC_OTHER = 255


class Array(enum.IntEnum):
    PATH_END = 1
    PATHS = 2
    SIZE = 3
    FOOTER_BYTES = 4
    GROUP_END = 5
    PATH_HASH = 6
    TAG = 7
    GROUP_ROWS = 16
    GROUP_BYTES = 17
    GROUP_RAW_BYTES = 18
    ENTRY_OFFSET = 19
    ENTRY_BYTES = 20
    FLAGS = 32
    LOW = 33
    HIGH = 34
    NULLS = 35
    OFFSET = 36
    BYTES = 37
    RAW_BYTES = 38
    VALUES = 39
    DISTINCT = 40
    CODEC = 41
    ENCODINGS = 42
    BLOOM_OFFSET = 43
    BLOOM_BYTES = 44
    LOW_END = 45
    HIGH_END = 46
    BOUNDS = 47
    SORT = 48


# One element per row group, for every column; bounds that do not fit into them lie in a heap of their own.
CHUNK_ARRAYS = (*(array for array in Array if Array.FLAGS <= array <= Array.BLOOM_BYTES), Array.SORT)


def crc32(*parts: bytes | memoryview) -> int:
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return value


def aligned(offset: int) -> int:
    return (offset + 7) & ~7


def check_features(features: int, what: str) -> None:
    if unknown := features & REQUIRED_FEATURES & ~FEATURES_KNOWN:
        raise Corruption(f"{what} needs features that this version of Lithify does not know ({unknown:#x}): upgrade it")


def table_bytes(table_id: str) -> bytes:
    """A Delta table's id is a UUID; what another writer made of it is hashed to one."""
    try:
        return uuid.UUID(table_id).bytes
    except ValueError:
        return uuid.uuid5(uuid.NAMESPACE_OID, table_id).bytes
