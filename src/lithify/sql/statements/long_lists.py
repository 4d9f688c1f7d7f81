"""Long lists of constants, left out of what is cut into words and parsed.

Of a statement's expressions only their extents are taken (`grammar.py`), and no constant of a list changes those. So
of `IN (…)` and of the rows of VALUES, where they are plain constants and many, the first stays and the others are cut
out; where a word of what is left stood is known. One pattern goes over such a list in no time, and whoever looks at
each of its words in Python takes tens of milliseconds for a thousand of them.

The pattern meets the text word by word, as everybody does who cuts it (`core/sql_text.py`), so a list within a text or
a comment is none. What is cut out is never odd, and what is left is odd where the whole is.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

from lithify.core.sql_text import ENGINE

# Shorter lists are left as they are.
LISTED_MIN = 16

# As `ENGINE` has them; a comment that is odd is none of these, so it is not cut out.
_GAP = r"(?:[ \t\r\n]++|--[^\r\n]*+\r?+\n|/\*(?:(?!/\*).)*?\*/)*+"
_TEXT = r"'(?:[^']|'')*+'"
_NUMBER = rf"(?:[+-]{_GAP})?+[0-9]++(?:\.[0-9]*+)?+(?:[eE][+-]?+[0-9]++)?+(?![\w.])"
_CONSTANT = rf"(?:{_NUMBER}|(?:(?i:date|timestamp){_GAP})?+{_TEXT}|(?i:null|true|false)(?!\w))"
_ROW = rf"\({_GAP}{_CONSTANT}{_GAP}(?:,{_GAP}{_CONSTANT}{_GAP})*+\)"
_MORE = f"{{{LISTED_MIN - 1},}}+"
_PATTERN = re.compile(
    rf"(?P<listed>(?i:in){_GAP}\({_GAP}{_CONSTANT}(?=(?P<constants>(?:{_GAP},{_GAP}{_CONSTANT}){_MORE}){_GAP}\)))"
    rf"|(?P<valued>(?i:values){_GAP}{_ROW}(?=(?P<rows>(?:{_GAP},{_GAP}{_ROW}){_MORE})))"
    rf"|{ENGINE.pattern}",
    re.DOTALL,
)


@dataclass(frozen=True)
class Shortened:
    """`cuts`: where something was cut out of `text`, and how many characters of `whole` up to there."""

    whole: str
    text: str
    cuts: tuple[tuple[int, int], ...] = ()

    def place(self, at: int) -> int:
        """Where a character of the text stands in the whole."""
        passed = bisect_right(self.cuts, at, key=lambda cut: cut[0])
        return at + (self.cuts[passed - 1][1] if passed else 0)


def shortened(text: str) -> Shortened:
    if text.count(",") < LISTED_MIN - 1:
        return Shortened(text, text)
    parts, places, lengths = list[str](), list[int](), list[int]()
    at = end = kept = 0
    while (found := _PATTERN.match(text, at)) is not None:
        at = found.end()
        match found.lastgroup:
            case "listed":
                begin, until = at, found.end("constants")
            case "valued":  # the last row's bracket closes the first one, and so the rows
                begin, until = at - 1, found.end("rows") - 1
            case _:
                continue
        parts.append(text[end:begin])
        kept += begin - end
        places.append(kept)
        lengths.append(until - begin)
        at = end = until
    if not places:
        return Shortened(text, text)
    return Shortened(text, "".join([*parts, text[end:]]), tuple(zip(places, accumulate(lengths), strict=True)))
