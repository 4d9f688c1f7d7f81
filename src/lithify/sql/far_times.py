"""Times that nanoseconds do not reach, beside days and within functions.

Beside a time the engine takes a day, or a text, for one of nanoseconds, and so do some functions, which ends in 1677
and 2262. So where a plan converts something to nanoseconds, the text is written so that it need not: what is converted
is cast to microseconds by name. And `date_trunc` and `date_bin` become our own (`time_functions`), the second always:
it answers NULL for what it does not reach, and a NULL can delete a row.

What is written so must answer with the same types, but for the unit of times.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lithify.core.sql_text import Token, positioned_tokens
from lithify.errors import InvalidRequest
from lithify.sql.literal_positions import Brackets
from lithify.sql.time_functions import FROM, KINDS, PREFIX, UTC

# How a text is planned: the optimised plan, and the types that it really gives.
Types = tuple[pa.DataType, ...]
Plan = Callable[[str], tuple[str, Types]]
Edit = tuple[int, int, str]

# Beyond so many places of a text, the others are written alike.
PLACES_MAX = 24
# As many calls that differ are looked at one by one.
CALLS_MAX, TEXT_CALLS_MAX = 12, 1_000

_FUNCTIONS = ("date_trunc", "date_bin")
_CALLED = re.compile(r"\bdate_(?:trunc|bin)\b", re.IGNORECASE)
_BINNED = re.compile(r"(?<!\w)date_bin\(")
_NANOSECONDS = " AS Timestamp(ns"
_OTHER_ZONE = re.compile(r'Timestamp\([^)"]*"(?!UTC"|\+00(?::00)?"|Z")')
_NAME = re.compile(r'"(?:[^"]|"")*"|[^\W\d]\w*')
# Units of which the engine's own `date_trunc` reaches every time without a zone.
_FINE = frozenset({"'microsecond'", "'millisecond'", "'second'", "'minute'", "'hour'", "'day'"})
_ZONE_SHOWN = re.compile(r"%:?:?z|%#?z|%Z|%c|%\+")
_COMPARING = frozenset("=<>!")
_BEHIND_AN_OPERAND = frozenset(
    {"join", "left", "right", "full", "inner", "cross", "natural", "window", "qualify", "fetch", "except", "intersect"}
)
_CAST, _TYPE = "cast(", " as timestamp(6))"


def is_to_be_written(query: str, planned: str) -> bool:
    """Whether there is anything that `reaching` could write in another way."""
    return _NANOSECONDS in planned or _CALLED.search(query) is not None


def reaching(query: str, plan: Plan, days: set[str]) -> str:
    """The text to plan instead. `days`: the names of all columns that are days."""
    planned, types = _tried(query, plan)
    if _CALLED.search(query):
        text = _Text(query, plan, types)
        query = _with_own_functions(text, in_utc=_OTHER_ZONE.search(planned or "") is None)
        planned, _ = _tried(query, plan)
    if planned is None or _NANOSECONDS in planned:
        text = _Text(query, plan, types)
        query = text.written(_best(text, planned or "", days))
    return query


def _tried(query: str, plan: Plan) -> tuple[str | None, Types | None]:
    """Nothing if it cannot be planned, as where a constant that is far stands beside something of nanoseconds."""
    try:
        return plan(query)
    except Exception:  # perhaps it can be written otherwise; if not, the query itself says why
        return None, None


def converted(plan_text: str) -> list[str]:
    """What a plan converts to nanoseconds."""
    found = []
    start = plan_text.find(_NANOSECONDS)
    while start >= 0:
        depth, begin = 1, start
        while begin and depth:
            begin -= 1
            depth += (plan_text[begin] == ")") - (plan_text[begin] == "(")
        found.append(plan_text[begin + 1 : start])
        start = plan_text.find(_NANOSECONDS, start + 1)
    return list(dict.fromkeys(found))


def check_bins(plan_text: str) -> None:
    """InvalidRequest for a `date_bin` that would answer NULL for times that it does not reach: what is converted to
    nanoseconds fails instead.
    """
    for found in _BINNED.finditer(plan_text):
        depth, end = 1, found.end()
        while end < len(plan_text) and depth:
            depth += (plan_text[end] == "(") - (plan_text[end] == ")")
            end += 1
        if _NANOSECONDS in plan_text[found.end() : end]:
            continue
        raise InvalidRequest(
            "the query is not accepted: what this date_bin is given is not sure, and it would answer NULL for times "
            "before 1677 and after 2262. Write its interval as a constant and cast the time: "
            "date_bin(interval '1 day', cast(… as timestamp))"
        )


@dataclass(frozen=True)
class _Text:
    query: str
    plan: Plan
    types: Types | None

    def written(self, edits: Sequence[Edit]) -> str:
        """With these parts replaced. What is put in at one place is put in in any order: it is the same."""
        parts, last = [], 0
        for start, end, put in sorted(set(edits), key=lambda edit: edit[:2]):
            if start >= last:
                parts += [self.query[last:start], put]
                last = end
        return "".join([*parts, self.query[last:]])

    def cost(self, edits: Sequence[Edit]) -> float:
        """How much the plan converts; infinite if there is none, or it gives something else."""
        planned, types = _tried(self.written(edits), self.plan)
        if planned is None or self.types not in (None, types):
            return math.inf
        return planned.count(_NANOSECONDS)


# -- functions


@dataclass(frozen=True)
class _Call:
    name: str
    start: int
    end: int
    arguments: tuple[tuple[int, int], ...]
    shape: tuple[str, ...]
    unit: str

    def edits(self, suffix: str) -> list[Edit]:
        """The call of our own function for a kind of times."""
        if self.name == "date_trunc" and suffix == "" and self.unit in _FINE:
            return []
        origin = self.arguments[2:]
        name = f"{PREFIX}{self.name}{FROM if origin else ''}{suffix}"
        wrapped = [edit for start, end in origin for edit in _wrapped(start, end)]
        return [(self.start, self.end, name), *wrapped]

    def tried(self, suffix: str) -> list[Edit]:
        return self.edits(suffix) or [(self.start, self.end, f"{PREFIX}{self.name}{suffix}")]


def _wrapped(start: int, end: int) -> list[Edit]:
    return [(start, start, _CAST), (end, end, _TYPE)]


def _with_own_functions(text: _Text, *, in_utc: bool) -> str:
    """Calls that are written alike have to stay alike, as in GROUP BY; perhaps all of them."""
    tokens = positioned_tokens(text.query)
    calls = list(itertools.islice(_calls(tokens), TEXT_CALLS_MAX)) if tokens else []
    groups: dict[tuple[str, ...], list[_Call]] = {}
    for call in calls:
        groups.setdefault(call.shape, []).append(call)
    edits: list[Edit] = []
    left = [call for group in list(groups.values())[CALLS_MAX:] for call in group]
    for group in list(groups.values())[:CALLS_MAX]:
        found = _own(text, group, in_utc=in_utc)
        edits += found or []
        left += group if found is None else []
    if left:
        edits += _own(text, left, in_utc=in_utc) or []
    return text.written(edits)


def _own(text: _Text, calls: Sequence[_Call], *, in_utc: bool) -> list[Edit] | None:
    """None: none of ours. What takes times of UTC is tried last, and would take days, and times of any other zone."""
    for suffix in KINDS:
        if suffix == UTC and not in_utc:
            continue
        if text.cost([edit for call in calls for edit in call.tried(suffix)]) < math.inf:
            return [edit for call in calls for edit in call.edits(suffix)]
    return None


def _calls(tokens: Sequence[Token]) -> Iterator[_Call]:
    brackets = Brackets.of(tokens)
    for position, token in enumerate(tokens[:-1]):
        if token.kind == "word" and token.word in _FUNCTIONS and tokens[position + 1].text == "(":
            close = brackets.partner.get(position + 1)
            if close is None:
                continue
            inside = range(position + 2, close)
            commas = [at for at in inside if tokens[at].text == "," and brackets.around[at] == position + 1]
            firsts = [position + 2, *(at + 1 for at in commas)]
            lasts = [*(at - 1 for at in commas), close - 1]
            arguments = tuple((tokens[a].start, tokens[b].end) for a, b in zip(firsts, lasts, strict=True) if a <= b)
            shape = tuple(each.word for each in tokens[position : close + 1])
            unit = tokens[position + 2].text.lower() if lasts[0] == firsts[0] else ""
            yield _Call(token.word, token.start, token.end, arguments, shape, unit)


# -- what is converted


def _best(text: _Text, planned: str, days: set[str]) -> list[Edit]:
    """The places that are cast, whose plan converts least."""
    tokens = positioned_tokens(text.query)
    if not tokens:
        return []
    names = days | {_folded(name) for inner in converted(planned) for name in _NAME.findall(inner)}
    columns = list(_columns(tokens, names))
    places = [*columns, *_operands(tokens)]
    places = [*places[: PLACES_MAX - 1], [edit for place in places[PLACES_MAX - 1 :] for edit in place]]
    starts: list[list[list[Edit]]] = [[], columns]
    best = min(starts, key=lambda chosen: text.cost(_flat(chosen)))
    cost = text.cost(_flat(best))
    for place in places:
        if place in best:
            fewer = [other for other in best if other != place]
            if (found := text.cost(_flat(fewer))) <= cost:
                best, cost = fewer, found
        elif place and cost and (found := text.cost(_flat([*best, place]))) < cost:
            best, cost = [*best, place], found
    return _flat(best)


def _flat(places: Sequence[Sequence[Edit]]) -> list[Edit]:
    return [edit for place in places for edit in place]


def _folded(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _columns(tokens: Sequence[Token], names: set[str]) -> Iterator[list[Edit]]:
    """Where one of these columns is read."""
    brackets = Brackets.of(tokens)
    position = 0
    while position < len(tokens):
        first = last = position
        while tokens[last].kind in ("word", "quoted") and [each.text for each in tokens[last + 1 : last + 2]] == ["."]:
            last = min(last + 2, len(tokens) - 1)
        position = last + 1
        token, before = tokens[last], tokens[first - 1].word if first else ""
        after = [each.word for each in tokens[last + 1 : last + 5]]
        name = _folded(token.text) if token.kind == "quoted" else token.word
        is_read = token.kind in ("word", "quoted") and name in names and after[:1] != ["("]
        compared = first > 1 and (tokens[first - 2].word, before) == ("distinct", "from")
        if not is_read or (before in ("as", "from", "join") and not compared) or _shows_zone(brackets, first):
            continue
        start, end = tokens[first].start, token.end
        if after[:3] == ["at", "time", "zone"]:
            zone = tokens[last + 4] if len(tokens) > last + 4 else token
            if zone.kind == "text" and '"' not in zone.text:
                kind = f"'Timestamp(Microsecond, Some(\"{zone.text[1:-1]}\"))'"
                yield [(start, start, "arrow_cast("), (end, zone.end, f", {kind})")]
        else:
            yield _wrapped(start, end)


def _shows_zone(brackets: Brackets, position: int) -> bool:
    """Whether this is given to a `to_char` whose format shows a zone, which a time without one has not."""
    opened = brackets.around[position]
    if not opened or brackets.tokens[opened - 1].word not in ("to_char", "date_format"):
        return False
    inside = brackets.tokens[opened : brackets.partner.get(opened, len(brackets.tokens))]
    texts = [token.text for token in inside if token.kind == "text"]
    return not texts or any(_ZONE_SHOWN.search(text) for text in texts)


def _operands(tokens: Sequence[Token]) -> Iterator[list[Edit]]:
    """Both sides of comparisons, where they are more than a name."""
    brackets = Brackets.of(tokens)
    for position, token in enumerate(tokens):
        symbol = token.kind == "symbol" and token.text in _COMPARING
        word = token.kind == "word" and token.word in ("between", "in", "and")
        if not symbol and not word:
            continue
        if token.word != "and" and tokens[position - 1].text not in _COMPARING:
            negated = position and tokens[position - 1].word == "not"
            yield from _operand(tokens, brackets.reach(position - bool(negated), -1) + 1, position - bool(negated))
        if token.word != "in" and (position + 1 == len(tokens) or tokens[position + 1].text not in _COMPARING):
            yield from _operand(tokens, position + 1, brackets.reach(position, 1))


def _operand(tokens: Sequence[Token], first: int, end: int) -> Iterator[list[Edit]]:
    words = [token.word for token in tokens[first:end]]
    end = next((first + at for at, word in enumerate(words) if word in _BEHIND_AN_OPERAND), end)
    if end - first > 1 and any(token.text == "(" or token.text in "+-" for token in tokens[first:end]):
        yield _wrapped(tokens[first].start, tokens[end - 1].end)
