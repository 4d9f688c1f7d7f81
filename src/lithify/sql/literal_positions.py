"""Where the constants of an SQL text stand that can be written in several ways, and which ways these are.

Only the words of the text are looked at, and the brackets around them. What stands beside a constant is for the engine
to say (`literals`).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from lithify.core.sql_text import Token

DECIMAL_DIGITS_MAX = 76
# From here on the engine takes a decimal for one of 256 bits.
WIDE_DIGITS = 39
# More digits than a column has before the point, and few enough to be compared with one.
BEYOND_DIGITS = 40
# Python reads no larger exponents, and no text has so many digits that they could make up for one.
EXPONENT_DIGITS_MAX = 15
# An integer of fewer digits is one of 64 bits.
LONG_DIGITS = 19

_NUMBER = re.compile(r"(\d*)\.?(\d*)([eE][+-]?\d+)?")
_TIME = re.compile(r"'(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d:\d\d(?::\d\d(?:\.\d+)?)?))?\s*(Z|[+-]\d\d(?::?\d\d)?)?'")
_MIDNIGHT = re.compile(r"[0:.]*")
_TIMES_FROM, _TIMES_TO = 1678, 2261  # whole years that nanoseconds reach

_TYPES = frozenset({"timestamp", "timestamptz", "interval", "time", "zone"})
_MADE_TIMES = frozenset({"to_timestamp", "to_timestamp_micros", "to_timestamp_millis", "to_timestamp_seconds"})
_COMPARING = frozenset({"=", "<", ">", "!", "between", "in", "like", "ilike", "distinct"})
# Words before brackets that hold no part of an arithmetic expression.
_NO_OPERANDS = frozenset({"from", "join", "as", "in", "exists", "values", "array", "over", "filter"})
_AVERAGES = frozenset({"avg", "mean"})
_DIVIDING = _AVERAGES | {"/"}
# Where an arithmetic expression ends.
_ENDS = frozenset(
    {",", ";", "and", "or", "not", "case", "when", "then", "else", "end", "as", "is", "from", "where", "select"}
    | {"group", "order", "by", "having", "limit", "offset", "union", "on", "asc", "desc", "over", "filter", "within"}
    | _COMPARING
)


@dataclass(frozen=True)
class Spot:
    """A part of the text, and the ways to write it, the best first."""

    start: int
    end: int
    ways: tuple[str, ...]


def fixed(brackets: Brackets) -> list[Spot]:
    """What is written in one way, whatever stands beside it."""
    found, tokens = [], brackets.tokens
    for position, token in enumerate(tokens):
        if token.kind == "number" and _NUMBER.fullmatch(token.text) and _exact(token.text) is None:
            found.append(_spot(token, _double(token.text)))
        elif token.kind == "word" and token.word in ("timestamp", "timestamptz"):
            text = _text_after(tokens, position)
            if (text is not None and not _is_finer(text.text)) or _is_cast_to(brackets, position):
                zone = " with time zone" if token.word == "timestamptz" else ""
                found.append(_spot(token, f"timestamp(6){zone}"))
        elif token.kind == "text" and is_far(token.text):
            made, after = _at(tokens, position - 2), _at(tokens, position + 1)
            if made is not None and made.word in _MADE_TIMES and after is not None and after.text == ")":
                found.append(_spot(token, f"cast({token.text} as timestamp(6) with time zone)"))
                found.append(_spot(made, ""))
    return found


def numbers(brackets: Brackets) -> list[list[Spot]]:
    """Numbers that are exact, unless a float stands beside them, and the others, unless a decimal does. Those of one
    list are written alike.
    """
    groups: list[list[Spot]] = []
    tokens = brackets.tokens
    divides = any(token.word in _DIVIDING for token in tokens)
    last = -1
    for position, token in enumerate(tokens):
        exact = _exact(token.text) if token.kind == "number" else None
        if exact is None or (token.text.isdigit() and len(token.text) < LONG_DIGITS):
            continue
        double, wide = _double(token.text), _wide(exact)
        divided = divides and _is_divided(brackets, position)
        if divided or ("e" in token.text.lower() and not _is_compared(brackets, position)):
            spot = _spot(token, double, wide, exact)
        else:
            spot = _spot(token, exact, wide, double)
        between = {some.text for some in tokens[last + 1 : position]}
        _put(groups, spot, alike=bool(between) and between <= {",", "-"})
        last = position
    return groups


def _put(groups: list[list[Spot]], spot: Spot, *, alike: bool) -> None:
    """`alike`: it is written as the one before it."""
    if groups and alike:
        groups[-1].append(spot)
    else:
        groups.append([spot])


def times(tokens: Sequence[Token]) -> list[list[Spot]]:
    """Texts and days that may stand beside times; those of one list, or one BETWEEN, are written alike. None at all if
    nanoseconds reach every time of the text.
    """
    if not any(token.kind == "text" and is_far(token.text) for token in tokens):
        return []
    groups: list[list[Spot]] = []
    last = -2
    for position, token in enumerate(tokens):
        if token.kind != "text" or _TIME.fullmatch(token.text) is None:
            continue
        before = _at(tokens, position - 1)
        is_day = before is not None and before.kind == "word" and before.word == "date"
        if not is_day and _has_type(tokens, position):
            continue
        first = position - is_day
        plain = f"date {token.text}" if is_day else token.text
        spot = Spot(tokens[first].start, token.end, (plain, f"timestamp(6) {token.text}"))
        _put(groups, spot, alike=first == last + 2 and tokens[last + 1].word in (",", "and"))
        last = position
    return groups


def midnights(tokens: Sequence[Token]) -> Iterator[list[Spot]]:
    """`timestamp '2024-01-31'`, which beside days is a day."""
    for position, token in enumerate(tokens):
        text = _text_after(tokens, position) if token.word == "timestamp" else None
        time = _TIME.fullmatch(text.text) if text is not None else None
        if text is not None and time is not None and time[5] is None and _MIDNIGHT.fullmatch(time[4] or ""):
            day = f"date '{time[1]}-{time[2]}-{time[3]}'"
            yield [Spot(token.start, text.end, (f"timestamp(6) {text.text}", day))]


def is_far(text: str) -> bool:
    """Whether a text is a time that nanoseconds do not reach."""
    found = _TIME.fullmatch(text)
    if found is None or _TIMES_FROM <= int(found[1]) <= _TIMES_TO:
        return False
    try:
        return bool(dt.date(int(found[1]), int(found[2]), int(found[3])))
    except ValueError:
        return False


def _at(tokens: Sequence[Token], position: int) -> Token | None:
    return tokens[position] if 0 <= position < len(tokens) else None


def _spot(token: Token, *ways: str) -> Spot:
    return Spot(token.start, token.end, ways)


# -- ways to write a number


def _exact(number: str) -> str | None:
    """Without an exponent; None for a number of more digits than any decimal has. Beyond all columns, it does not
    matter how far.
    """
    found = _NUMBER.fullmatch(number)
    digits = len(found[1]) + len(found[2]) if found is not None else 0
    if found is None or not digits:
        return None
    if not found[3]:
        return number if digits <= DECIMAL_DIGITS_MAX else None
    if len(found[3].lstrip("eE+-0")) > EXPONENT_DIGITS_MAX:
        if not (found[1] + found[2]).strip("0"):
            return "0"
        return None if "-" in found[3] else "1" + "0" * BEYOND_DIGITS
    value = Decimal(number)
    if not value and value.adjusted() < -DECIMAL_DIGITS_MAX:
        return "0"
    if value and value.adjusted() >= BEYOND_DIGITS:
        return "1" + "0" * BEYOND_DIGITS
    if value and value.adjusted() < -DECIMAL_DIGITS_MAX:
        return None
    written = f"{value:f}"
    return written if len(written) <= DECIMAL_DIGITS_MAX else None


def _double(number: str) -> str:
    return f"cast('{number}' as double)"


def _wide(exact: str) -> str:
    """The same number, beside which the engine has room for more than 38 digits."""
    decimals = len(exact.partition(".")[2])
    digits = max(WIDE_DIGITS, len(exact.replace(".", "")))
    return f"arrow_cast('{exact}', 'Decimal256({digits}, {decimals})')"


# -- what a time says of itself


def _text_after(tokens: Sequence[Token], position: int) -> Token | None:
    """The text of a typed constant that begins here."""
    after = _at(tokens, position + 1)
    if after is not None and after.word in ("with", "without"):
        after = _at(tokens, position + 4)
    return after if after is not None and after.kind == "text" else None


def _is_finer(text: str) -> bool:
    """Whether a time tells more than microseconds."""
    found = _TIME.fullmatch(text)
    return found is not None and len((found[4] or "").partition(".")[2].rstrip("0")) > 6


def _is_cast_to(brackets: Brackets, position: int) -> bool:
    """Whether a type stands here, of which nothing but its name is told."""
    tokens = brackets.tokens
    before, after = _at(tokens, position - 1), _at(tokens, position + 1)
    if before is None or (after is not None and after.text == "("):
        return False
    if before.text == ":":
        return True
    opened = brackets.around[position] if before.word == "as" else None
    called = _at(tokens, opened - 1) if opened is not None else None
    return called is not None and called.word in ("cast", "try_cast")


def _has_type(tokens: Sequence[Token], position: int) -> bool:
    """Whether a text says what it is: `timestamp '…'`, `'…'::date`, `cast('…' as date)`, `to_date('…')`."""
    before, after = _at(tokens, position - 1), _at(tokens, position + 1)
    if before is not None and (before.text == ")" or before.word in _TYPES):
        return True
    if after is not None and (after.text == ":" or after.word == "as"):
        return True
    called = _at(tokens, position - 2) if before is not None and before.text == "(" else None
    return called is not None and called.kind == "word" and called.word not in _ENDS


# -- what is around a number


@dataclass(frozen=True)
class Brackets:
    """Words with their brackets looked for once: a list of thousands of numbers has as many looks at them."""

    tokens: Sequence[Token]
    # For each position where the innermost brackets around it open, and for each bracket where its partner is.
    around: Sequence[int | None]
    partner: Mapping[int, int]

    @classmethod
    def of(cls, tokens: Sequence[Token]) -> Brackets:
        open_now: list[int] = []
        around: list[int | None] = []
        partner = {}
        for position, token in enumerate(tokens):
            closes = token.kind == "symbol" and token.text in ")]"
            if closes and open_now:
                opened = open_now.pop()
                partner[opened], partner[position] = position, opened
            around.append(open_now[-1] if open_now else None)
            if token.kind == "symbol" and token.text in "([":
                open_now.append(position)
        return cls(tokens, around, partner)

    def reach(self, position: int, step: int) -> int:
        """Where the expression around this position ends, in one direction; brackets in it count as one."""
        tokens = self.tokens
        if step > 0 and _is_bracket(tokens[position], "(["):
            # Of brackets we are given the position where they open.
            position = self.partner.get(position, len(tokens))
        position += step
        while 0 <= position < len(tokens):
            token = tokens[position]
            if _is_bracket(token, "([" if step > 0 else ")]"):
                position = self.partner.get(position, len(tokens) if step > 0 else -1)
            elif _is_bracket(token, ")]" if step > 0 else "([") or token.word in _ENDS:
                return position
            position += step
        return max(-1, min(position, len(tokens)))


def _is_bracket(token: Token, kinds: str) -> bool:
    return token.kind == "symbol" and token.text in kinds


def _is_divided(brackets: Brackets, position: int) -> bool:
    """Whether a number goes into a quotient or an average, through brackets and functions around it."""
    tokens = brackets.tokens
    while True:
        left, right = brackets.reach(position, -1), brackets.reach(position, 1)
        if any(token.text == "/" for token in tokens[left + 1 : right]):
            return True
        opened = None if _is_compared(brackets, position) else brackets.around[position]
        if opened is None:
            return False
        called = _at(tokens, opened - 1)
        if called is not None and called.kind == "word":
            if called.word in _AVERAGES:
                return True
            if called.word in _NO_OPERANDS:
                return False
        position = opened


def _is_compared(brackets: Brackets, position: int) -> bool:
    """Whether the expression around this position is a side of a comparison, or in a list of what may be equal."""
    tokens = brackets.tokens
    left, right = brackets.reach(position, -1), brackets.reach(position, 1)
    before, after = _at(tokens, left), _at(tokens, right)
    if any(end is not None and end.word in _COMPARING for end in (before, after)):
        return True
    if before is not None and before.word in ("and", "from"):  # BETWEEN … AND, IS DISTINCT FROM
        earlier = _at(tokens, brackets.reach(left, -1))
        return earlier is not None and earlier.word in ("between", "distinct")
    opened = brackets.around[position]
    called = _at(tokens, opened - 1) if opened is not None else None
    return called is not None and called.word == "in"
