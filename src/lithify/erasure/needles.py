"""What an erasure looks for: the values of the rows that go, and the ways in which bytes may spell them.

A needle is one cell: its column and its value. Nested values give a needle for each leaf. Pure: what is found, and
where, is for `scan.py`.

Some cells cannot be looked for as bytes: the number 42 stands everywhere. A spelling is long enough if it has
`BYTES_MIN` bytes; digits count only where no other digit or letter touches them, or every file would hold them as part
of a time or an id. A whole number in eight bytes is searched for where it is beyond 32 bits. What is too short is
counted, and compared where values stand by column: in key columns, and in the bounds that a log states.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import quote

BYTES_MIN = 6
PREFIX_CHARS = 24
WIDE = 1 << 32
# Told on the receipt: whoever reads it shall know what was looked for.
SPELLINGS = (
    "UTF-8, UTF-16 in both orders, NFC and NFD, lower and upper case",
    f"the first {PREFIX_CHARS} characters of longer texts, as bounds have them",
    "JSON escapes, percent escapes, base64 at each offset, hexadecimal",
    "whole numbers beyond 32 bits in 8 bytes, both orders and as sort key; numbers and times as text",
)


@dataclass(frozen=True)
class Needle:
    """`text` is the value as it is written out; `number` is there where it is a whole one, `raw` where it is bytes."""

    column: str
    text: str
    number: int | None = None
    raw: bytes | None = None

    def document(self) -> dict[str, Any]:
        raw = None if self.raw is None else base64.b64encode(self.raw).decode()
        return {"column": self.column, "text": self.text, "number": self.number, "raw": raw}

    @classmethod
    def parsed(cls, said: Mapping[str, Any]) -> Needle:
        raw = None if said["raw"] is None else base64.b64decode(said["raw"])
        return cls(said["column"], said["text"], said["number"], raw)


@dataclass(frozen=True)
class Spelling:
    """`bounded`: it counts only where neither digit nor letter touches it."""

    data: bytes
    bounded: bool = False


def needles_of(rows: Iterable[Mapping[str, Any]]) -> set[Needle]:
    return {needle for row in rows for column, value in row.items() for needle in _leaves(column, value)}


def _leaves(column: str, value: Any) -> Iterator[Needle]:
    match value:
        case None | bool():
            return  # says nothing of anybody
        case str():
            yield Needle(column, value)
        case int():
            yield Needle(column, str(value), number=value)
        case bytes():
            yield Needle(column, value.hex(), raw=value)
        case Mapping():
            for inner in value.values():
                yield from _leaves(column, inner)
        case list() | tuple():
            for inner in value:
                yield from _leaves(column, inner)
        case _:
            yield Needle(column, text_of(value))


def text_of(value: Any) -> str:
    """One text for each value: as a log writes it, where that is one."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


def spellings(needle: Needle, *, bounded: bool = False) -> frozenset[Spelling]:
    """Empty: it is too short to be looked for as bytes. `bounded`: as a word of its own, because rows that stay hold it
    as a part of others; beside that as Parquet and Thrift have texts, with the length in front.
    """
    if needle.raw is not None:
        found = {needle.raw, needle.text.encode(), needle.text.upper().encode(), *_base64(needle.raw)}
        return frozenset(Spelling(data) for data in found if len(needle.raw) >= BYTES_MIN)
    if needle.number is not None or not any(letter.isalpha() for letter in needle.text):
        return _numbers(needle)
    if bounded:
        plain = needle.text.encode(errors="surrogatepass")
        if len(plain) < BYTES_MIN:
            return frozenset()
        with_length = len(plain).to_bytes(4, "little") + plain
        return frozenset({Spelling(plain, bounded=True), Spelling(with_length)})
    texts: set[str] = set()
    for text in {needle.text, needle.text.strip()}:
        for case in (text, text.lower(), text.upper(), text.casefold()):
            texts |= {unicodedata.normalize("NFC", case), unicodedata.normalize("NFD", case), case}
    texts |= {text[:PREFIX_CHARS] for text in texts}
    return frozenset(
        Spelling(data) for text in texts if _size(text) >= BYTES_MIN for data in _texts(text) if len(data) >= BYTES_MIN
    )


def _size(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def _texts(text: str) -> set[bytes]:
    plain = text.encode(errors="surrogatepass")
    wide = {text.encode(f"utf-16-{order}", errors="surrogatepass") for order in ("le", "be")}
    escaped = json.dumps(text)[1:-1].encode()
    percent = {quote(plain, safe=safe).encode() for safe in ("", "/", "@")}
    return {
        plain,
        escaped,
        escaped.replace(b"/", rb"\/"),
        plain.hex().encode(),
        *wide,
        *percent,
        *_base64(plain),
    }


def _base64(data: bytes) -> set[bytes]:
    """What of it is the same wherever it begins in the encoded text."""
    found = set()
    for offset in range(3):
        text = base64.b64encode(b"\0" * offset + data)
        begin = (0, 2, 3)[offset]
        whole = (offset + len(data)) // 3 * 4
        for core in (text[begin:whole], text[begin:whole].replace(b"+", b"-").replace(b"/", b"_")):
            if len(core) >= BYTES_MIN:
                found.add(core)
    return found


def _numbers(needle: Needle) -> frozenset[Spelling]:
    texts = {needle.text, needle.text.replace("T", " ")}
    found = {Spelling(text.encode(), bounded=True) for text in texts if len(text.strip("+-0.")) >= BYTES_MIN}
    number = needle.number
    if number is not None and WIDE <= abs(number) < 1 << 63:
        sort_key = (number + (1 << 63)).to_bytes(8, "big")
        found |= {
            Spelling(data)
            for data in (number.to_bytes(8, "little", signed=True), number.to_bytes(8, "big", signed=True), sort_key)
        }
    return frozenset(found)
