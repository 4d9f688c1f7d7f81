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

GAP = r"[ \t\r\n]*+"
_TEXT = r"'(?:[^']|'')*+'"
_NUMBER = rf"(?:[+-]{GAP})?+[0-9]++(?:\.[0-9]*+)?+(?:[eE][+-]?+[0-9]++)?+(?![\w.])"
CONSTANT = rf"(?:{_NUMBER}|(?:(?:(?i:date|timestamp)){GAP})?+{_TEXT}|(?i:null|true|false)(?!\w))"
CONSTANTS = rf"{GAP}{CONSTANT}{GAP}(?:,{GAP}{CONSTANT}{GAP})*+"
_ROW = rf"\({CONSTANTS}\)"


def _pattern(least: int) -> re.Pattern[str]:
    more = f"{{{least - 1},}}+"
    return re.compile(
        rf"(?P<listed>(?i:in){GAP}\({GAP}{CONSTANT}(?=(?P<constants>(?:{GAP},{GAP}{CONSTANT}){more}){GAP}\)))"
        rf"|(?P<valued>(?i:values){GAP}{_ROW}(?=(?P<rows>(?:{GAP},{GAP}{_ROW}){more})))"
        rf"|{ENGINE.pattern}",
        re.DOTALL,
    )


_PATTERN = _pattern(LISTED_MIN)


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


def shortened(text: str, pattern: re.Pattern[str] = _PATTERN) -> Shortened:
    if text.count(",") < LISTED_MIN - 1:
        return Shortened(text, text)
    parts, places, lengths = list[str](), list[int](), list[int]()
    at = end = kept = 0
    while (found := pattern.match(text, at)) is not None:
        at = found.end()
        if (name := found.lastgroup) in ("listed", "valued"):
            parts.append(text[end:at])
            kept += at - end
            at = end = found.end("constants" if name == "listed" else "rows")
            places.append(kept)
            lengths.append(end - found.end())
    if not places:
        return Shortened(text, text)
    return Shortened(text, "".join([*parts, text[end:]]), tuple(zip(places, accumulate(lengths), strict=True)))
