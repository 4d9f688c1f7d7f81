"""What may be asked, wherever it runs: one SELECT of a bounded size, over the lake's tables and nothing else.

Anything but a SELECT is refused by the text, by the engine's own options, and by the kinds of the plan's nodes. There
is no function that reads a file, and a path is the name of a table that does not exist. What a query costs is not
decided here: queries from outside run in processes of their own (`isolated`), within limits of the operating system.
"""

from __future__ import annotations

import re

from datafusion.plan import LogicalPlan

from lithify.core.sql_text import Words, words_of
from lithify.core.sql_text import normalised as normalised
from lithify.errors import InvalidRequest
from lithify.sql.pin_clock import asks_the_clock

LENGTH_MAX = 256 * 2**10
# As deep as the engine's parser goes.
DEPTH_MAX = 50
_FIRST = {"select", "with", "values"}
# They tell where files are.
_REFUSED = frozenset(["input_file_name", "file_row_index"])
_BEHIND_SAMPLE = {("symbol", "("), *(("word", how) for how in ("bernoulli", "system", "row", "block"))}
_CHANCE = re.compile(r"\b(random|rand|uuid\w*|gen_random_uuid|now|today|current_\w+|local\w+)\b", re.IGNORECASE)
_NODE = re.compile(
    r"(?:Projection|Filter|Aggregate|Sort|Limit|Union|Distinct|DistinctOn|WindowAggr|Values|EmptyRelation|TableScan|"
    r"SubqueryAlias|Subquery|RecursiveQuery|Unnest|Repartition|(?:[A-Za-z]+ )?(?:Cross |Inner )?Join)\b"
)
# Of a row, as the engine shows it, a value that is a subquery, or has one.
_IN_VALUES = re.compile(r"\(<subquery>\)")


def check_text(query: str, *, made: bool = False) -> Words:
    """InvalidRequest unless it looks like one SELECT of a bounded size. `made`: of a statement whose own text was
    measured, so that it may be longer.
    """
    if len(query) > LENGTH_MAX and not made:
        raise InvalidRequest(f"the query is longer than {LENGTH_MAX // 2**10} KiB: join a table instead")
    words = words_of(query)
    meaningful = [text for kind, text in words.tokens if (kind, text) != ("symbol", "(")]
    if not meaningful or meaningful == [";"]:
        raise InvalidRequest("the query is empty")
    if meaningful[0] not in _FIRST:
        raise InvalidRequest(f"the query is not accepted: only SELECT is, and this begins with {meaningful[0][:40]!r}")
    for kind, text in words.tokens:
        if kind in ("word", "quoted") and text.strip('"').lower() in _REFUSED:
            raise InvalidRequest(f"there is no function {text} here")
    if _samples(words):
        raise InvalidRequest("TABLESAMPLE is not accepted: the engine would answer with all rows; use random() < 0.1")
    if depth_of(words) > DEPTH_MAX:
        raise InvalidRequest(f"the query is nested more than {DEPTH_MAX} levels deep: name its parts in a WITH")
    end = len(words.tokens)
    while end and words.tokens[end - 1] == ("symbol", ";"):
        end -= 1
    if not words.odd and ("symbol", ";") in words.tokens[:end]:
        raise InvalidRequest("one statement at a time: there is something after the semicolon")
    return words


def _samples(words: Words) -> bool:
    """Whether rows of a table are to be drawn. A column may go by the same word."""
    behind = zip(words.tokens, words.tokens[1:], strict=False)
    return any(token == ("word", "tablesample") and following in _BEHIND_SAMPLE for token, following in behind)


def depth_of(words: Words) -> int:
    depth = deepest = 0
    for kind, text in words.tokens:
        if kind == "symbol":
            depth += (text in "([") - (text in ")]")
            deepest = max(depth, deepest)
    return deepest


def check_condition(where: str) -> Words:
    """InvalidRequest for what is no condition on the rows of one table."""
    if len(where) > LENGTH_MAX:
        raise InvalidRequest(f"the condition is longer than {LENGTH_MAX // 2**10} KiB: use SQL, and join a table")
    words = words_of(where)
    if not _is_closed(words):
        raise InvalidRequest("the condition is not accepted: its brackets do not match")
    if ("word", "select") in words.tokens:
        raise InvalidRequest("the condition is not accepted: it holds a subquery; use SQL for that")
    return words


def _is_closed(words: Words) -> bool:
    """Whether every bracket is closed, and none that the condition did not open."""
    depth = 0
    for token in words.tokens:
        depth += (token == ("symbol", "(")) - (token == ("symbol", ")"))
        if depth < 0:
            return False
    return depth == 0


def check_plan(plan: LogicalPlan) -> None:
    """InvalidRequest if a plan, not yet optimised, does anything but read."""
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        text = node.display()
        if _NODE.match(text) is None:
            kind = text.split(":", 1)[0].split(" ", 1)[0]
            raise InvalidRequest(f"the query is not accepted: only SELECT is, and this is {kind}")
        if text.startswith("Values: ") and _IN_VALUES.search(text) is not None:
            raise InvalidRequest(
                "the query is not accepted: a subquery stands within VALUES, which the engine cannot evaluate there: "
                "write that row as a SELECT, and put the rows together with UNION ALL"
            )
        waiting.extend(node.inputs())


def is_repeatable(plan_text: str, query: str) -> bool:
    """Whether the same query over the same rows gives the same answer: it asks for neither the time nor chance."""
    if asks_the_clock(query) or _CHANCE.search(query) is not None:
        return False
    return _CHANCE.search(plan_text) is None
