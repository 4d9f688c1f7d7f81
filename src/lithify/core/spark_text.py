"""A query in the words of `lake.sql`, spelled for Spark.

Both write names and text in quotes, but not in the same ones: "…" is a name here and a text there, a backslash is a
letter here and an escape there, and what '' means in a text depends on Spark's settings. So names come in back-quotes,
and a text that holds a quote or a backslash as its bytes, which mean the same under every setting. Nothing else is
touched: functions, casts and operators are Spark's.
"""

from __future__ import annotations

import re

from lithify.core.sql_text import positioned_tokens
from lithify.errors import InvalidRequest

# Texts and names in quotes of any kind, and comments, so that a back-quote inside of one of them is left alone.
_QUOTES = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|(?P<name>`(?:[^`]|``)*`)", re.DOTALL)


def engine_names(query: str) -> str:
    """With names in back-quotes, as Spark writes them, in the quotes that the grammar knows."""

    def spelled(found: re.Match[str]) -> str:
        if found["name"] is None:
            return found[0]
        return '"' + found["name"][1:-1].replace("``", "`").replace('"', '""') + '"'

    return _QUOTES.sub(spelled, query) if "`" in query else query


def spark_text(query: str) -> str:
    tokens = positioned_tokens(query)
    if tokens is None:
        raise InvalidRequest(
            "the query is not accepted: write text as '…' with '' for a quote, and names as \"…\" or `…`; no dollars, "
            "braces, backslashes or prefixes like r'…' outside of them. lake.spark.sql takes all of Spark's dialect, "
            "without the lake's tables"
        )
    text, end = "", 0
    for token in tokens:
        if token.kind == "quoted":
            name = token.text[1:-1].replace('""', '"').replace("`", "``")
            spelled = f"`{name}`"
        elif token.kind == "text" and ("\\" in token.text or "''" in token.text[1:-1]):
            value = token.text[1:-1].replace("''", "'")
            spelled = f"CAST(X'{value.encode().hex()}' AS STRING)"
        else:
            continue
        text += query[end : token.start] + spelled
        end = token.end
    return text + query[end:]
