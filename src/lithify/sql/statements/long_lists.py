"""Long lists of constants, left out of what is parsed.

Of a statement's expressions only their extents are taken (`grammar.py`), and no constant of a list changes those. So
of `IN (…)` and of the rows of VALUES, where they are constants alone and many, the first stays and the others become
blanks, up to the bracket that closes the last: what is left stands where it stood. A parser in Python takes 0.1 ms for
each of them, and thousands are no rarity.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from lithify.core.sql_text import Kind, cut

# Shorter lists are left as they are.
LISTED_MIN = 16
_WORDS = frozenset({"null", "true", "false", "date", "timestamp"})


def without_long_lists(text: str) -> str:
    """A text of the same length, in which everything but constants of long lists stands where it stood."""
    tokens = cut(text) if text.count(",") >= LISTED_MIN else None
    if tokens is None:
        return text
    starts = [0, *itertools.accumulate(len(piece) for _, piece in tokens)]
    places = [place for place, (kind, _) in enumerate(tokens) if kind != "space"]
    parts, end = [], 0
    for first, last in _blanks([tokens[place] for place in places]):
        begin, until = starts[places[first]], starts[places[last]]
        parts += [text[end:begin], " " * (until - begin)]
        end = until
    return "".join([*parts, text[end:]])


def _blanks(tokens: Sequence[tuple[Kind, str]]) -> Iterator[tuple[int, int]]:
    """From which token to before which one the text can be left out."""
    at = 0
    while at < len(tokens):
        (kind, word), at = tokens[at], at + 1
        if kind != "word" or (end := _group(tokens, at)) is None:
            continue
        match word.lower():
            case "in":
                commas = [number for number in range(at, end) if tokens[number][1] == ","]
                if len(commas) >= LISTED_MIN:
                    yield commas[0], end
            case "values":
                first, rows = end, 1
                while end + 1 < len(tokens) and tokens[end + 1][1] == ",":
                    following = _group(tokens, end + 2)
                    if following is None:
                        break
                    end, rows = following, rows + 1
                if rows >= LISTED_MIN:
                    yield first, end
        at = end + 1


def _group(tokens: Sequence[tuple[Kind, str]], at: int) -> int | None:
    """Where the bracket closes that opens at `at`, if there are constants alone between the two."""
    if at >= len(tokens) or tokens[at] != ("symbol", "("):
        return None
    for position in range(at + 1, len(tokens)):
        kind, text = tokens[position]
        if kind == "symbol":
            if text == ")":
                return position if position > at + 1 else None
            if text not in ",+-":
                return None
        elif kind == "quoted" or (kind == "word" and text.lower() not in _WORDS):
            return None
    return None
