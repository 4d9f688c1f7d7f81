"""Fields that come twice in one object of a JSON text. Parsers keep the last of them, and say nothing.

Every field has one colon outside of texts. So a valid text repeats a field exactly if it has more such colons than its
value has fields. Both are counted many lines at once, and first by bounds that cost little: colons outside of texts
are among all colons, and among those behind a quote or a blank (`_colons_most`); fields of the rows themselves, and of
objects right in them, are fields. Where the bounds meet, as they do for most blocks of rows, nothing is repeated. Only
where something is, lines are told apart.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lithify.core import strict_json

TWICE = "the field comes twice in one object"
NAME_SHOWN_MAX = 60
_BLANK, _QUOTE, _COLON, _BRACE = b' ":{'
_PIECE_BYTES = 2**18  # stays in a processor's cache


def repeats(text: bytes, value: Any) -> bool:
    """Whether an object in a valid text, which was parsed to `value`, names a field twice."""
    return _repeat(text, value if type(value) is list else [value])


def repeating_lines(lines: Sequence[bytes], values: Sequence[Any], first: int = 0) -> Iterator[int]:
    """Which of these valid texts do. Searched by halves: most often none, or few."""
    if not _repeat(b"\n".join(lines), values):
        return
    if len(lines) == 1:
        yield first
        return
    half = len(lines) // 2
    yield from repeating_lines(lines[:half], values[:half], first)
    yield from repeating_lines(lines[half:], values[half:], first + half)


def _repeat(text: bytes, values: Sequence[Any]) -> bool:
    rows = [value for value in values if type(value) is dict]
    fields, data = sum(map(len, rows)), np.frombuffer(text, np.uint8)
    colons = int(np.count_nonzero(data == _COLON))
    if colons <= fields:
        return False
    if (objects := np.count_nonzero(data == _BRACE)) > len(rows):
        inside = [value for row in rows for value in row.values() if type(value) is dict]
        fields = fields + sum(map(len, inside)) if objects == len(rows) + len(inside) else _fields(values)
    return colons > fields and _colons_most(text) > fields and _colons(text) > fields


def _colons_most(text: bytes) -> int:
    """Not fewer than there are outside of texts."""
    data = np.frombuffer(text, np.uint8)
    return sum(
        int(np.count_nonzero(_behind(data[start : start + _PIECE_BYTES + 1])))
        for start in range(0, len(data), _PIECE_BYTES)
    )


def _colons(text: bytes) -> int:
    """Outside of texts. Without escaped ones, every other quote ends a text, and only the colon of a field is one that
    comes right behind it; where blanks do, those colons count that have an even number of quotes before them.
    """
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    data = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(data == _QUOTE)
    following = data.take(quotes[1::2] + 1, mode="clip")
    if not np.any(following <= _BLANK):
        return int(np.count_nonzero(following == _COLON))
    colons = np.flatnonzero(_behind(data)) + 1
    return int(np.count_nonzero(np.searchsorted(quotes, colons) % 2 == 0))


def _behind(data: np.ndarray) -> np.ndarray:
    """Colons behind a quote or a blank, all of which are at most a quote."""
    found: np.ndarray = (data[1:] == _COLON) & (data[:-1] <= _QUOTE)
    return found


def _fields(values: Sequence[Any]) -> int:
    """Of all objects, however deep."""
    try:
        if strict_json.QUICK:
            return _colons(strict_json.dumps(values))
    except TypeError:  # too deep for it
        pass
    count, inside = 0, list(values)
    while inside:
        current = inside.pop()
        if type(current) is dict:
            count += len(current)
            inside += current.values()
        elif type(current) is list:
            inside += current
    return count


# -- which field it is: slow, for errors only


class RepeatedField(ValueError):
    def __init__(self, name: str) -> None:
        self.name = name[:NAME_SHOWN_MAX]
        super().__init__(f"the field {self.name!r} comes twice in one object")


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The `object_pairs_hook` of json.loads that refuses repeated fields."""
    found = _Object(pairs)
    if found.twice is not None:
        raise RepeatedField(found.twice)
    return dict(found)


def repeated_field(text: bytes) -> str | None:
    """The name of one, or None where it cannot be told."""
    return _twice_in(_objects(text))


def repeated_in_rows(text: bytes) -> dict[int, str]:
    """Which rows of an array, or of {"rows": [...]}, repeat which field. Empty where it is not in a row, or cannot be
    told.
    """
    document = _objects(text)
    rows = document.get("rows") if isinstance(document, dict) else document
    found = {at: _twice_in(row) for at, row in enumerate(rows)} if isinstance(rows, list) else {}
    return {at: name for at, name in found.items() if name is not None}


class _Object(dict[str, Any]):
    """`twice`: a field that it was given again."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.twice: str | None = None
        if len(self) < len(pairs):
            self.twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)


def _objects(text: bytes) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_Object)
    except (ValueError, RecursionError):
        return None


def _twice_in(value: Any) -> str | None:
    inside = [value]
    while inside:
        current = inside.pop()
        if isinstance(current, _Object):
            if current.twice is not None:
                return current.twice[:NAME_SHOWN_MAX]
            inside += current.values()
        elif isinstance(current, list):
            inside += current
    return None
