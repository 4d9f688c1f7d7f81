"""Whether a text is a statement that writes, by a look at its first word: what only reads pays nothing more for it."""

from __future__ import annotations

import re

_FIRST = re.compile(r"(?:\s+|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*(\w+)", re.DOTALL)
_WORDS = frozenset({"insert", "update", "delete", "merge"})
_DEFINING = frozenset({"create", "alter", "drop", "truncate"})
_AFTER_WITH = re.compile(r"\b(?:insert\s+into|update|delete\s+from|merge\s+into)\b", re.IGNORECASE)


def first_word(text: str) -> str:
    """In lower case; nothing if the text does not begin with one."""
    found = _FIRST.match(text)
    return "" if found is None else found[1].lower()


def is_statement(text: str) -> bool:
    word = first_word(text)
    return word in _WORDS or word in _DEFINING or (word == "with" and _writes_behind_with(text))


def is_definition(text: str) -> bool:
    """A statement about a table, not about rows."""
    return first_word(text) in _DEFINING


def _writes_behind_with(text: str) -> bool:
    """A WITH may stand before a SELECT or before a statement. The words may also stand in a text or be a name, so
    whoever parses it has the last word.
    """
    if _AFTER_WITH.search(text) is None:
        return False
    from lithify.core.sql_text import words_of

    depth = 0
    for kind, word in words_of(text).tokens[1:]:
        depth += (word == "(") - (word == ")")
        if depth == 0 and kind == "word" and word in (*_WORDS, "select", "values"):
            return word in _WORDS
    return False
