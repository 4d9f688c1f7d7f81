"""A Parquet footer has no checksum: one that makes no sense is refused by name, and leaves the others as they are."""

from __future__ import annotations

import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify.errors import Corruption
from lithify.files.open_parquet import Footer, footer_in, footer_of
from lithify.index.block import parse
from lithify.index.footers import Entries, entry_of
from support.sidecars import entries, footer, raw_footer

TEXTS = ["a text longer than its key", None, "another text longer than its key"]
GOOD = pa.table({"id": [1, 2, 3], "s": TEXTS, "f": [1.0, 2.0, 3.0]})


def with_negative_values() -> Footer:
    """A footer whose last column claims to have less than no values: one bit of it is wrong."""
    raw = bytearray(raw_footer(pa.concat_tables([GOOD] * 100).combine_chunks()))
    rows = b"\x16\xd8\x04"  # a field of 64 bits with the value 300, in Thrift's compact form
    # The last is the number of rows of the row group, and before it stand the columns.
    offset = raw.rfind(rows, 0, raw.rfind(rows))
    raw[offset + 1] ^= 1
    found = footer_of(bytes(raw), "a footer")
    assert found.metadata.row_group(0).column(2).num_values == -301
    return found


def test_a_footer_that_makes_no_sense_is_refused_by_name() -> None:
    with pytest.raises(Corruption, match="of bad makes no sense"):
        entry_of(with_negative_values(), "bad", 1)


def test_a_refused_footer_leaves_what_was_gathered_as_it_was() -> None:
    metadata, size = footer(GOOD, row_group_size=1)
    gathered, expected = Entries(), Entries()
    expected.add(metadata, "first", size)
    expected.add(metadata, "second", size)
    gathered.add(metadata, "first", size)

    with pytest.raises(Corruption):
        gathered.add(with_negative_values(), "bad", 1)
    gathered.add(metadata, "second", size)

    assert (gathered.files, gathered.groups) == (2, 6)
    assert entries(parse(gathered.block())) == entries(parse(expected.block()))


@pytest.mark.parametrize("raw", [b"", b"\0", b"\xff" * 100, struct.pack("<Q", 2**63)])
def test_bytes_that_are_no_footer_are_refused(raw: bytes) -> None:
    with pytest.raises(Corruption):
        footer_of(raw, "a footer")


def test_a_file_without_row_groups_has_an_entry() -> None:
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, GOOD.schema).close()
    found = footer_of(footer_in(sink.getvalue().to_pybytes()), "a footer")

    assert found.metadata.num_row_groups == 0
    assert entries(parse(entry_of(found, "empty", 5))) == {"empty": (5, found.metadata.serialized_size, 0, ())}
