"""Where the records and fields of CSV text begin and end, as RFC 4180 says it: a quoted value may hold commas, line
breaks and doubled quotes.

Nearly always it is enough to count quotes: what has an odd number of them before it lies inside of a value. That is so
as long as every quote that opens stands at the beginning of a field, and one that closes at its end. Both are checked
for a whole block at once; only from a quote that breaks this rule on, the block is read field by field. There a quote
inside of an unquoted value is a letter like any other, as every reader takes it; text behind a closing quote has no
meaning that readers agree on, and makes its record a bad one, as does a quote that is never closed.

A line ends with \\n, \\r\\n or \\r. Empty lines are no records.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

QUOTE, COMMA, LF, CR = b'",\n\r'
FINE, BEHIND_QUOTE, UNCLOSED = 0, 1, 2
WHY = {BEHIND_QUOTE: "text follows on a closing quote", UNCLOSED: "a quote is opened and never closed"}
_FIELD = re.compile(rb'(?:"[^"]*(?:""[^"]*)*("?)([^,\r\n]*)|[^,\r\n]*)(,|\r\n|\n|\r|\Z)')


@dataclass(frozen=True)
class Records:
    """Whole records of a block: where each begins and ends (without its line break), how many fields it has, how many
    lines of the block lie before it, and whether its quotes are in order.
    """

    starts: np.ndarray
    ends: np.ndarray
    fields: np.ndarray
    lines: np.ndarray
    quoting: np.ndarray
    # How much of the block the records take, in bytes and lines; the rest belongs to a record that goes on.
    used: int
    lines_used: int

    def __len__(self) -> int:
        return len(self.starts)


def split_records(block: bytes, *, last: bool) -> Records:
    """The records of a block that begins with one. `last`: nothing follows on it."""
    data = np.frombuffer(block, np.uint8)
    breaks = line_breaks(block, data, last=last)
    quotes = np.flatnonzero(data == QUOTE) if QUOTE in block else np.empty(0, np.int64)
    commas = np.flatnonzero(data == COMMA)
    marks = breaks
    wrong = len(data)
    if len(quotes):
        inside = np.bitwise_xor.accumulate((data == QUOTE).view(np.uint8))
        marks, commas = breaks[inside[breaks] == 0], commas[inside[commas] == 0]
        wrong = first_misplaced(data, quotes)
    if wrong < len(data):
        return _field_by_field(block, data, breaks, marks, commas, wrong, last=last)
    opened = len(quotes) % 2 == 1
    return _records(data, breaks, marks, commas, last=last, opened=opened)


def line_breaks(block: bytes, data: np.ndarray, *, last: bool) -> np.ndarray:
    """The last byte of every line. A \\r at the end of a block may have its \\n in the next one: it is left."""
    found = np.flatnonzero(data == LF)
    if CR not in block:
        return found
    returns = np.flatnonzero(data == CR)
    following = np.minimum(returns + 1, len(data) - 1)
    alone = (data[following] != LF) | (returns == len(data) - 1)
    if not last:
        alone &= returns < len(data) - 1
    lone = returns[alone]
    return np.sort(np.concatenate([found, lone])) if len(lone) else found


def first_misplaced(data: np.ndarray, quotes: np.ndarray, *, opened: bool = False) -> int:
    """The first quote that is neither at the edge of a field nor one of two; the length of `data` if there is none.
    `opened`: the data begins inside of a value.
    """
    opening, closing = (quotes[1::2], quotes[0::2]) if opened else (quotes[0::2], quotes[1::2])
    before, after = data[np.maximum(opening - 1, 0)], data[np.minimum(closing + 1, len(data) - 1)]
    bad = opening[~(_edge(before) | (opening == 0))]
    worse = closing[~(_edge(after) | (closing == len(data) - 1))]
    return int(min(bad[0] if len(bad) else len(data), worse[0] if len(worse) else len(data)))


def _edge(letters: np.ndarray) -> np.ndarray:
    return np.asarray((letters == COMMA) | (letters == LF) | (letters == CR) | (letters == QUOTE))


def _records(
    data: np.ndarray, breaks: np.ndarray, marks: np.ndarray, commas: np.ndarray, *, last: bool, opened: bool
) -> Records:
    """`marks`: the breaks that end a record; `commas`: those between fields."""
    starts = np.concatenate([[0], marks + 1])
    ends = np.concatenate([marks, [len(data)]])
    if not last or starts[-1] == len(data):
        starts, ends = starts[:-1], ends[:-1]
    used = len(data) if last else int(starts_used(marks))
    with_return = (ends > starts) & (ends < len(data))
    with_return[with_return] = (data[ends[with_return]] == LF) & (data[ends[with_return] - 1] == CR)
    ends = ends - with_return
    fields = np.diff(np.searchsorted(commas, np.concatenate([starts, [used]]))) + 1
    quoting = np.zeros(len(starts), np.int64)
    if last and opened and len(quoting):
        quoting[-1] = UNCLOSED
    lines = np.searchsorted(breaks, starts)
    filled = ends > starts
    if not filled.all():
        starts, ends, fields, lines, quoting = (each[filled] for each in (starts, ends, fields, lines, quoting))
    return Records(starts, ends, fields, lines, quoting, used, int(np.searchsorted(breaks, used)))


def starts_used(marks: np.ndarray) -> int:
    return int(marks[-1]) + 1 if len(marks) else 0


def _field_by_field(
    block: bytes,
    data: np.ndarray,
    breaks: np.ndarray,
    marks: np.ndarray,
    commas: np.ndarray,
    wrong: int,
    *,
    last: bool,
) -> Records:
    """Counted up to the record with the misplaced quote, read from there on."""
    whole = marks[: np.searchsorted(marks, wrong)]
    at = starts_used(whole)
    counted = _records(data[:at], breaks, whole, commas, last=False, opened=False)
    starts, ends, fields, quoting = [], [], [], []
    start, count, state = at, 1, FINE
    while at < len(block):
        found = _FIELD.match(block, at)
        assert found is not None, "every text is a field"
        if found[1] == b"":
            state = UNCLOSED
        elif found[2]:
            state = BEHIND_QUOTE
        if found[3] == b",":
            at, count = found.end(), count + 1
            if at < len(block):
                continue
        if not last and (not found[3] or (found[3] == b"\r" and found.end() == len(block)) or found[3] == b","):
            break
        end = found.start(3) if found[3] != b"," else found.end()
        starts.append(start)
        ends.append(end)
        fields.append(count)
        quoting.append(state)
        start = at = found.end()
        count, state = 1, FINE
    more = np.array(starts, np.int64)
    filled = np.array(ends, np.int64) > more
    used = len(block) if last else start
    return Records(
        np.concatenate([counted.starts, more[filled]]),
        np.concatenate([counted.ends, np.array(ends, np.int64)[filled]]),
        np.concatenate([counted.fields, np.array(fields, np.int64)[filled]]),
        np.concatenate([counted.lines, np.searchsorted(breaks, more[filled])]),
        np.concatenate([counted.quoting, np.array(quoting, np.int64)[filled]]),
        used,
        int(np.searchsorted(breaks, used)),
    )
