"""Where CSV records begin and end: as Python's own reader says, whatever the text and however it is cut into blocks."""

from __future__ import annotations

import csv
import io
import itertools
import random

import pytest

from lithify.text.csv_records import BEHIND_QUOTE, FINE, UNCLOSED, split_records

LETTERS = 'a,"\n\r'


def by_python(text: str) -> list[tuple[int, int, list[str]]]:
    """Line, number of fields and fields of each record that is no empty line."""
    reader = csv.reader(io.StringIO(text, newline=""))
    found, line = [], 0
    for fields in reader:
        if fields:
            found.append((line, len(fields), fields))
        line = reader.line_num
    return found


def by_us(text: str, cuts: list[int]) -> list[tuple[int, int, str, int]]:
    """Line, number of fields, text and state of each record; blocks end at `cuts`."""
    found, buffer, line, data = [], b"", 0, text.encode()
    edges = [0, *cuts, len(data)]
    for start, end in itertools.pairwise(edges):
        buffer += data[start:end]
        records = split_records(buffer, last=end == len(data))
        for at in range(len(records)):
            record = buffer[records.starts[at] : records.ends[at]].decode()
            found.append((line + int(records.lines[at]), int(records.fields[at]), record, int(records.quoting[at])))
        line, buffer = line + records.lines_used, buffer[records.used :]
    assert buffer == b""
    return found


def check(text: str, cuts: list[int]) -> None:
    ours, theirs = by_us(text, cuts), by_python(text)
    assert [(line, fields) for line, fields, _, _ in ours] == [(line, fields) for line, fields, _ in theirs], text
    for (_, _, record, state), (_, _, fields) in zip(ours, theirs, strict=True):
        if state == FINE:
            assert next(csv.reader(io.StringIO(record, newline=""), strict=True)) == fields


@pytest.mark.parametrize("length", range(6))
def test_every_text_of_a_few_letters(length: int) -> None:
    for number, letters in enumerate(itertools.product(LETTERS, repeat=length)):
        text = "".join(letters)
        check(text, [number % (length + 1)] if length and number % (length + 1) < length else [])


@pytest.mark.parametrize("seed", range(200))
def test_longer_texts_in_blocks_of_any_size(seed: int) -> None:
    draw = random.Random(seed)
    letters = LETTERS if seed % 2 else 'aé,,,\n""""'
    text = "".join(draw.choices(letters, k=draw.randrange(1, 300)))
    size = len(text.encode())
    check(text, sorted(draw.sample(range(1, size), min(size - 1, draw.randrange(6)))))


def states(text: bytes) -> list[int]:
    return [int(state) for state in split_records(text, last=True).quoting]


def test_a_quote_inside_of_an_unquoted_value_is_a_letter() -> None:
    assert states(b'1,5" disk\n2,"fine"\n') == [FINE, FINE]


def test_text_behind_a_closing_quote_spoils_its_record_only() -> None:
    assert states(b'1,"a"b\n2,"c"\n') == [BEHIND_QUOTE, FINE]


def test_a_quote_that_is_never_closed_takes_the_rest() -> None:
    assert states(b'1,a\n2,"b\n3,c\n') == [FINE, UNCLOSED]
