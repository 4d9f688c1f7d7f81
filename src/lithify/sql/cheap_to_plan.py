"""Which texts are planned in the process of a Python program that asks (`lake.sql`, conditions): the tame ones.

The engine plans a query in one go, and evaluates a constant or a function in one go: none of that can be stopped, and
some of it takes the process down (a chain of 5,000 UNIONs overflows its stack, `repeat('x', 2000000000)` takes 2 GB
while it is planned). A tame text has few operators and no function that makes much out of little. This spares a program
most accidents and is no protection against malice: other SQL, and all that comes over HTTP, runs in processes of its
own (`sql/isolated/pool.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lithify.core.sql_text import Kind, Words
from lithify.errors import InvalidRequest
from lithify.sql.guard import check_condition, check_text

# Planning takes time with the square of these; at the bounds it takes some milliseconds.
OPERATORS_MAX = 200
WORDS_MAX = 2_000
SELECTS_MAX = 40
JOINS_MAX = 24
# How many times a subquery under a name may be put in, where each names others.
COPIES_MAX = 64
# How many times longer a text value can get by a query's own operators.
GROWTH_MAX = 1_024
# A text in the query becomes one of every row: some thousand at a time.
TEXT_LENGTH_MAX = 1_000
TEXTS_LENGTH_MAX = 64 * 2**10
# Of a replacement that stands in a column; nobody knows it before.
REPLACEMENT_LENGTH = 8

_OPERATORS = frozenset(
    ["and", "or", "not", "like", "ilike", "between", "in", "is", "when", "union", "intersect", "except", "div", "xor"]
)
# They make much out of little, or take the square of a length, in one go.
_EXPENSIVE_FUNCTIONS = frozenset(
    [
        "repeat",
        "lpad",
        "rpad",
        "space",
        "levenshtein",
        "array_has_all",
        "array_has_any",
        "list_has_all",
        "list_has_any",
        "arrays_overlap",
        "array_repeat",
        "list_repeat",
        "array_resize",
        "list_resize",
        "generate_series",
        "gen_series",
        "range",
        "cube",
        "grouping",
        "recursive",
        "pivot",
    ]
)
# Over a window they are made anew for every row: the square of the rows in time, and in memory that nobody counts.
_COLLECTING = frozenset(
    [
        "array_agg",
        "string_agg",
        "median",
        "approx_median",
        "approx_distinct",
        "percentile_cont",
        "quantile_cont",
        "approx_percentile_cont",
        "approx_percentile_cont_with_weight",
    ]
)
# One value holds all rows of a group; the query around may put it beside every row again.
_WHOLE = frozenset(["array_agg", "string_agg"])
_JOINING = frozenset(
    [
        "concat",
        "concat_ws",
        "row",
        "struct",
        "named_struct",
        "map",
        *(
            f"{kind}_{how}"
            for kind in ("array", "list")
            for how in ("concat", "cat", "append", "prepend", "push_back", "push_front", "union", "zip")
        ),
        "arrays_zip",
        "make_array",
        "make_list",
    ]
)
_REPLACING = frozenset(
    [
        "replace",
        "regexp_replace",
        "overlay",
        "concat_ws",
        "string_agg",
        "array_to_string",
        "list_to_string",
        "array_join",
        "list_join",
        "array_replace",
        "array_replace_n",
        "array_replace_all",
        "list_replace",
        "list_replace_n",
        "list_replace_all",
    ]
)
_TABLES = ("from", "join")


def check_explained(query: str) -> None:
    """InvalidRequest for a text that cannot be planned in this process."""
    if not is_cheap_to_plan(check_text(query)):
        raise InvalidRequest("this query is not planned before it runs: it is too large, or its functions are")


def check_cheap_condition(where: str) -> None:
    """InvalidRequest also for one that is not planned and run in this process."""
    if not is_cheap_to_plan(check_condition(where)):
        raise InvalidRequest(
            "the condition is not accepted: it holds too many operators, or a function that makes much out of little; "
            "use SQL for that"
        )


def is_cheap_to_plan(words: Words) -> bool:
    """Whether a text can be planned in this process: soon, and with little memory, whatever it says."""
    tokens = words.tokens
    if words.odd:
        return False
    called = {text.strip('"').lower() for kind, text in tokens if kind in ("word", "quoted")}
    counts = Counter(text for kind, text in tokens if kind == "word")
    if called & _EXPENSIVE_FUNCTIONS and not _only_harmless(tokens):
        return False
    if ("over" in called and called & _COLLECTING) or (counts["select"] > 1 and called & _WHOLE):
        return False
    operators = sum(counts[word] for word in _OPERATORS)
    operators += sum(kind == "symbol" and text not in ",().;" for kind, text in tokens)
    return (
        operators <= OPERATORS_MAX
        and counts.total() <= WORDS_MAX
        and counts["select"] <= SELECTS_MAX
        and counts["join"] <= JOINS_MAX
        and _comma_joins(tokens) <= JOINS_MAX
        and _copies(tokens) <= COPIES_MAX
        and _texts_are_small(tokens)
        and _growth(tokens, counts, called) <= GROWTH_MAX
    )


def _only_harmless(tokens: Sequence[tuple[Kind, str]]) -> bool:
    """Words of _WILD that are no calls (a window's RANGE), or tables that are made as they are read."""
    for position, (kind, text) in enumerate(tokens):
        if kind not in ("word", "quoted") or text.strip('"').lower() not in _EXPENSIVE_FUNCTIONS:
            continue
        called = position + 1 < len(tokens) and tokens[position + 1] == ("symbol", "(")
        before = tokens[position - 1][1] if position else ""
        if text in ("recursive", "pivot", "grouping") or (
            called and not (text in ("range", "generate_series") and before in _TABLES)
        ):
            return False
    return True


def _comma_joins(tokens: Sequence[tuple[Kind, str]]) -> int:
    """Commas between FROM and the next word that ends a list of tables, at most."""
    commas, counting, outside = 0, False, list[bool]()
    for position, (kind, text) in enumerate(tokens):
        if kind == "symbol" and text == "(":
            outside.append(counting)
        elif kind == "symbol" and text == ")":
            counting = outside.pop() if outside else False
        elif kind == "symbol" and text == ",":
            commas += counting
        elif kind == "word" and text in ("from", "where", "group", "order", "select", "having", "limit", "union"):
            counting = text == "from"
        elif (kind, text) == ("word", "values") and tokens[position - 1][1] == "(" == _text(tokens, position + 1):
            counting = False  # up to the bracket that closes behind its rows
    return commas


def _text(tokens: Sequence[tuple[Kind, str]], position: int) -> str:
    return tokens[position][1] if position < len(tokens) else ""


def _copies(tokens: Sequence[tuple[Kind, str]]) -> int:
    """How often the innermost of the named subqueries can stand in the plan, at most."""
    names = {
        tokens[position][1]
        for position in range(len(tokens) - 2)
        if tokens[position][0] in ("word", "quoted")
        and tokens[position + 1][1] == "as"
        and tokens[position + 2][1] == "("
    }
    used = Counter(
        text
        for position, (kind, text) in enumerate(tokens)
        if position and text in names and kind in ("word", "quoted") and tokens[position - 1][1] in (*_TABLES, ",")
    )
    copies = 1
    for count in used.values():
        copies *= max(count, 1)
    return copies


def _texts_are_small(tokens: Sequence[tuple[Kind, str]]) -> bool:
    texts = [text for kind, text in tokens if kind == "text"]
    return (
        sum(map(len, texts)) <= TEXTS_LENGTH_MAX
        and max(map(len, texts), default=0) <= TEXT_LENGTH_MAX
        and not any("fixedsize" in text.lower() for text in texts)  # a type that takes its size for every value
    )


def _growth(tokens: Sequence[tuple[Kind, str]], counts: Counter[str], called: set[str]) -> float:
    """How many times as long as its parts a value can be at most, if every level of the query joins what the level
    below has joined, and every replacement replaces what another one has made.
    """
    parts = sum(kind == "symbol" and text == "|" for kind, text in tokens) // 2
    if called & _JOINING or ("symbol", "[") in tokens:
        parts += sum(kind == "symbol" and text == "," for kind, text in tokens) + 1
    levels = max(counts["select"], 1)
    names = Counter(text.strip('"').lower() for kind, text in tokens if kind in ("word", "quoted"))
    replacements = sum(names[name] for name in _REPLACING)
    longest = max((len(text) for kind, text in tokens if kind == "text"), default=0)
    return float(
        min(1 + parts / levels, GROWTH_MAX + 1) ** levels
        * max(longest, REPLACEMENT_LENGTH) ** min(replacements, SELECTS_MAX)
        * 2 ** min(names["encode"], SELECTS_MAX)
    )
