"""A field that comes twice in one object is found in any text, by counting, and in no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lithify.text.json_fields import once, repeated_field, repeated_in_rows, repeating_lines, repeats
from support.effort import SOAK

# Names and texts that look like the marks that are counted.
LETTERS = ["", "i", "d", ":", '"', "\\", " ", "\t", "\n", "{", "}", ",", "ü", "\u2028", "😀"]
texts = st.lists(st.sampled_from(LETTERS), max_size=4).map("".join)
scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | texts
# An object is a tuple of pairs, so that fields can come twice.
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.lists(st.tuples(texts, inner), max_size=5).map(tuple),
    max_leaves=12,
)


def spelled(tree: Any, draw: Callable[[Any], Any]) -> str:
    """As JSON, with blanks and escapes anywhere."""

    def blank() -> str:
        return draw(st.sampled_from(["", "", " ", "\t", "\r", " \n "]))

    def text(value: str) -> str:
        def letter(char: str) -> str:
            if draw(st.booleans()) and ord(char) < 0x10000:
                return f"\\u{ord(char):04x}"
            return json.dumps(char, ensure_ascii=False)[1:-1]

        return '"' + "".join(map(letter, value)) + '"'

    def value(item: Any) -> str:
        if isinstance(item, tuple):
            pairs = [f"{blank()}{text(name)}{blank()}:{blank()}{value(inner)}{blank()}" for name, inner in item]
            return "{" + ",".join(pairs) + blank() + "}"
        if isinstance(item, list):
            return "[" + ",".join(f"{blank()}{value(inner)}{blank()}" for inner in item) + "]"
        return text(item) if isinstance(item, str) else json.dumps(item)

    return value(tree)


def has_twice(tree: Any) -> bool:
    if isinstance(tree, tuple):
        names = [name for name, _ in tree]
        return len(set(names)) < len(names) or any(has_twice(inner) for _, inner in tree)
    return isinstance(tree, list) and any(map(has_twice, tree))


@settings(max_examples=20_000 if SOAK else 400)
@given(trees, st.data())
@example((("id", 1), ("id", 2)), None)
def test_any_text(tree: Any, data: Any) -> None:
    text = spelled(tree, data.draw if data else lambda strategy: "").encode()
    found = repeats(text, orjson.loads(text))
    assert found == has_twice(tree), text
    assert (repeated_field(text) is not None) == found


@settings(max_examples=2_000 if SOAK else 100)
@given(st.lists(trees, min_size=1, max_size=6), st.data())
def test_any_lines(rows: list[Any], data: Any) -> None:
    """Each is found among all of them, whatever the others look like."""
    lines = [spelled(row, data.draw).replace("\n", " ").encode() for row in rows]
    found = repeating_lines(lines, [orjson.loads(line) for line in lines])
    assert list(found) == [at for at, row in enumerate(rows) if has_twice(row)]


@settings(max_examples=2_000 if SOAK else 100)
@given(st.lists(trees, max_size=6), st.data())
def test_any_array(rows: list[Any], data: Any) -> None:
    text = spelled(rows, data.draw).encode()
    assert set(repeated_in_rows(text)) == {at for at, row in enumerate(rows) if has_twice(row)}


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (r'{"id":1,"i\u0064":2}', "id"),
        ('{"":1,"":2}', ""),
        ('{"a":{"b":1,"b":2}}', "b"),
        ('[{"a":[{"b" : 1, "b" : ":"}]}]', "b"),
        ('{"a":":","a":"::"}', "a"),
        (r'{"\"":1,"\u0022":2}', '"'),
    ],
)
def test_the_field_is_named(text: str, field: str) -> None:
    assert repeats(text.encode(), orjson.loads(text))
    assert repeated_field(text.encode()) == field
    with pytest.raises(ValueError, match="comes twice"):
        json.loads(text, object_pairs_hook=once)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":"12:00:00","b":"x : y"}',
        '{"a":":"}',
        r'{"a":"\":","b":1}',
        r'{"a":"\\","b":":"}',
        '{"a":{"a":{"a":1}}}',
        '":"',
    ],
)
def test_colons_in_texts_are_none(text: str) -> None:
    assert not repeats(text.encode(), orjson.loads(text))


def test_deep_texts_are_looked_at_too() -> None:
    deep = b'{"a":' * 900 + b'{"b":1,"b":2}' + b"}" * 900
    assert repeats(deep, orjson.loads(deep))
