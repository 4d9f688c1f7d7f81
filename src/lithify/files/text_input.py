"""The text of a file or a body as blocks of UTF-8, whatever it is packed with and however its letters are written.

Content decides, not a name: gzip, zstd and bzip2 by their first bytes; UTF-8, UTF-16 and UTF-32 by a byte order mark,
which is no part of the text. UTF-16 without a mark is told by its zeros. Everything else is UTF-8 unless an encoding is
declared.

Bytes that mean nothing in the encoding are not replaced: they stay, or go on as bytes that are no UTF-8, so that
whoever reads records finds them, and sets that record aside or names its line.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath

import pyarrow as pa

from lithify.errors import InvalidRequest
from lithify.files.os_errors import translated

BLOCK_BYTES = 4 * 2**20
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
_FOREIGN = {
    b"PK\x03\x04": "a ZIP archive (or a spreadsheet): unpack it, or save it as CSV",
    b"\xfd7zXZ\x00": "packed with xz: unpack it, or pack it with gzip, zstd or bzip2",
    b"PAR1": "a Parquet file: say so with format parquet",
    b"ARROW1": "an Arrow file: say so with format arrow",
}
# The longer mark first: that of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Encodings in which every byte below 128 is that letter, wherever it stands: a file can be cut at a line break.
_CUTTABLE = frozenset(("utf-8", "ascii", "iso8859-1", "iso8859-15", "cp1252"))
_NO_TEXT = frozenset(("idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined"))
_PEEK_BYTES = 4096
_MARK = "lithify.undecodable"


def _undecodable(error: UnicodeError) -> tuple[str, int]:
    """Half a surrogate pair per byte: no text has them, and UTF-8 has no spelling for them."""
    assert isinstance(error, UnicodeDecodeError)
    return "".join(chr(0xDC00 + byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_MARK, _undecodable)


def check_encoding(name: str | None) -> str | None:
    """The encoding's own name."""
    if name is None:
        return None
    try:
        found = codecs.lookup(name)
        b"text".decode(name, "replace")
    except (LookupError, ValueError, TypeError, UnicodeError):
        found = None
    if found is None or found.name in _NO_TEXT:
        raise InvalidRequest(
            f"encoding {name!r} is not known: use utf-8, utf-16, latin-1, cp1252 or another of Python's"
        )
    return "utf-8" if found.name == "utf-8-sig" else found.name


@dataclass(frozen=True)
class TextInput:
    """A source that was looked at. `label` is how errors call it; `skip`: bytes of its byte order mark."""

    source: PurePath | bytes
    label: str
    packed: str | None
    encoding: str
    skip: int
    size: int

    @property
    def cuttable(self) -> bool:
        """Whether reading can begin anywhere in it."""
        return self.packed is None and self.encoding in _CUTTABLE

    def blocks(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """From byte `start` up to `end`, which only cuttable text takes."""
        raw = self.raw_blocks(start, end, BLOCK_BYTES)
        if self.encoding == "utf-8":
            skip = self.skip if start == 0 else 0
            for block in raw:
                yield block[skip:]
                skip = 0
            return
        decoder = codecs.getincrementaldecoder(self.encoding)(_MARK)
        first = start == 0
        for block in raw:
            text = decoder.decode(block)
            yield (text.removeprefix("\ufeff") if first else text).encode("utf-8", "surrogatepass")
            first = first and not text
        if rest := decoder.decode(b"", True):
            yield rest.encode("utf-8", "surrogatepass")

    def raw_blocks(self, start: int, end: int | None, block_bytes: int) -> Iterator[bytes]:
        """Bytes as they are, but unpacked."""
        with _opened(self.source, self.packed, self.label) as stream:
            if start:
                stream.seek(start)
            left = None if end is None else end - start
            while left is None or left > 0:
                with _named(self.label, self.packed):
                    block = stream.read(block_bytes if left is None else min(block_bytes, left))
                if not block:
                    return
                left = None if left is None else left - len(block)
                yield block


def look_at(source: PurePath | bytes, label: str, encoding: str | None = None) -> TextInput:
    """Find out how to read a source. A declared encoding that the source itself contradicts is refused."""
    declared = check_encoding(encoding)
    if isinstance(source, bytes):
        head, size = source[:_PEEK_BYTES], len(source)
    else:
        with translated(source):
            size = os.stat(source).st_size
            with open(source, "rb") as file:
                head = file.read(_PEEK_BYTES)
    packed = next((name for magic, name in _PACKED.items() if head.startswith(magic)), None)
    if packed is not None:
        with _opened(source, packed, label) as stream, _named(label, packed):
            head = stream.read(_PEEK_BYTES)
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise InvalidRequest(f"{label} is {what}")
    return TextInput(source, label, packed, *_encoding_of(head, declared, label), size)


def _encoding_of(head: bytes, declared: str | None, label: str) -> tuple[str, int]:
    for mark, name in _MARKS:
        if head.startswith(mark):
            if declared is not None and declared not in (name, name[:6].rstrip("-")):
                raise InvalidRequest(
                    f"{label} begins with the byte order mark of {name}, and {declared} was declared: leave the "
                    "encoding out, or declare that one"
                )
            return name, len(mark)
    if declared in ("utf-16", "utf-32"):
        return _by_zeros(head) or f"{declared}-le", 0
    return declared or _by_zeros(head) or "utf-8", 0


def _by_zeros(head: bytes) -> str | None:
    """UTF-16 without a mark: the column names and quotes of a file are mostly letters below 256."""
    even, odd = head[0::2], head[1::2]
    few, many = len(head) // 16, len(head) // 5
    if odd.count(0) >= max(many, 1) and even.count(0) <= few:
        return "utf-16-le"
    if even.count(0) >= max(many, 1) and odd.count(0) <= few:
        return "utf-16-be"
    return None


@contextmanager
def _opened(source: PurePath | bytes, packed: str | None, label: str) -> Iterator[pa.NativeFile]:
    if isinstance(source, bytes):
        raw: pa.NativeFile = pa.BufferReader(source)
    else:
        with translated(source):
            raw = pa.OSFile(str(source), "rb")
    with raw:
        if packed is None:
            yield raw
            return
        with _named(label, packed):
            stream = pa.CompressedInputStream(raw, packed)
        with stream:
            yield stream


@contextmanager
def _named(label: str, packed: str | None) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        if packed is None:
            raise
        raise InvalidRequest(f"{label} is no complete {packed} data: copy or pack it again ({error})") from error
