"""What can be told of a Spark query from its text, before Spark sees it.

The text is cut into words, with quotes and comments out of the way; nothing is parsed beyond brackets. So this finds
names, and says of a query that it *evidently* does not go row by row; what it does not find, it cannot rule out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from lithify.core.sql_text import spark_tokens

SOURCE = "source"
_BEFORE_RELATION = frozenset({"from", "join", ","})


@dataclass(frozen=True)
class _Word:
    """A word or a sign, lower-case; `name`: it may be an identifier. Where it stands in the text."""

    text: str
    name: bool
    start: int
    end: int


def _words(sql: str) -> list[_Word]:
    found = []
    for token in spark_tokens(sql):
        text = token.text.lower()
        if token.kind == "quoted":
            text = text[1:-1].replace("``", "`")
        elif token.kind == "text":
            text = "''"
        found.append(_Word(text, token.kind in ("word", "quoted"), token.start, token.end))
    return found


def _at(words: list[_Word], position: int) -> str:
    return words[position].text if 0 <= position < len(words) else ""


def without_end(sql: str) -> str:
    """Without semicolons and comments after the last word."""
    words = _words(sql)
    while words and words[-1].text == ";":
        words.pop()
    return sql[: words[-1].end] if words else ""


def reads_source(sql: str) -> bool:
    words = _words(sql)
    return any(_is_relation(words, position, {SOURCE}) for position in range(len(words)))


def _is_relation(words: list[_Word], position: int, names: Collection[str]) -> bool:
    """Whether one of these names stands where a table may stand."""
    word = words[position]
    if not word.name or word.text not in names or _at(words, position + 1) == "." or _at(words, position - 1) == ".":
        return False
    before = position - 1
    while _at(words, before) in ("(", "lateral"):
        before -= 1
    return _at(words, before) in _BEFORE_RELATION


# -- tables that a query looks things up in


def lookups(sql: str, is_table: Callable[[str], bool]) -> list[str]:
    """Tables (`namespace.table`) that the query names, in order."""
    return list(dict.fromkeys(name for name, _, _ in _references(sql, is_table)))


def _references(sql: str, is_table: Callable[[str], bool]) -> list[tuple[str, int, int]]:
    words = _words(sql)
    found = []
    for position in range(len(words) - 2):
        first, dot, second = words[position : position + 3]
        if dot.text != "." or not (first.name and second.name) or _at(words, position - 1) == ".":
            continue
        name = f"{first.text}.{second.text}"
        if (_behind_from(words, position) or not _stands_alone(words, first.text)) and is_table(name):
            found.append((name, first.start, second.end))
    return found


def _behind_from(words: list[_Word], position: int) -> bool:
    """Whether nothing but a table can stand here. A comma may also stand between two columns."""
    before = position - 1
    while _at(words, before) == "(":
        before -= 1
    return _at(words, before) in ("from", "join")


def _stands_alone(words: list[_Word], name: str) -> bool:
    """Whether a name occurs without dots around it: then it is an alias, and what follows its dot a column."""
    return any(
        word.name and word.text == name and _at(words, position + 1) != "." and _at(words, position - 1) != "."
        for position, word in enumerate(words)
    )


def with_relations(sql: str, frames: Mapping[str, str], source: str = SOURCE) -> str:
    """The query of a step with its source and the tables that it names. `frames`: table → name of the frame."""
    return with_inputs(sql, frames, {SOURCE: source})


def with_inputs(sql: str, tables: Mapping[str, str], given: Mapping[str, str]) -> str:
    """The query with its inputs before it, each as `WITH name AS (SELECT * FROM {frame})`, ready for
    `spark.sql(text, **frames)`. The query begins at the second line. `tables` of two parts and what is `given` under
    one name, each with the name of its frame.

    A name of two parts cannot stand before AS. So the table goes by its last part, which its columns are called by too,
    or, where that is the name of something else in the query, by both parts as one quoted name.
    """
    words, names = _words(sql), {}
    for table in tables:
        short = table.partition(".")[2]
        twice = sum(other.partition(".")[2] == short for other in tables) > 1
        names[table] = f"`{table}`" if twice or short in given or _stands_alone(words, short) else f"`{short}`"
    text, end = "", 0
    for table, start, stop in _references(sql, tables.__contains__):
        text, end = text + _escaped(sql[end:start]) + names[table], stop
    text += _escaped(sql[end:])
    inputs = [f"`{name}` AS (SELECT * FROM {{{frame}}})" for name, frame in given.items()]
    inputs += [f"{names[table]} AS (SELECT * FROM {{{frame}}})" for table, frame in tables.items()]
    before = f"WITH {', '.join(inputs)} " if inputs else ""
    return f"{before}SELECT * FROM (\n{text}\n)"


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


# -- row by row


def not_row_by_row(sql: str) -> str | None:
    """What evidently makes rows of the answer depend on more than one row of `source`, or None.

    Only in parts of the query that read the source: a subquery over other tables may do as it likes.
    """
    words = _words(sql)
    blocks = _blocks(words)
    from_source = {SOURCE}
    reading: set[int] = set()
    for _ in range(len(blocks) + 1):
        reading = _reading(words, blocks, from_source)
        named = {name for number, name in _named(words, blocks).items() if number in reading}
        if named <= from_source:
            break
        from_source |= named
    for number, block in enumerate(blocks):
        if number in reading and (why := _gathers(words, block)):
            return why
    return None


@dataclass
class _Block:
    """The positions of a bracket's own words, without those of brackets inside it."""

    opened: int
    parent: int
    positions: list[int]


def _blocks(words: list[_Word]) -> list[_Block]:
    blocks, open_ = [_Block(-1, -1, [])], [0]
    for position, word in enumerate(words):
        if word.text == "(":
            blocks[open_[-1]].positions.append(position)
            blocks.append(_Block(position, open_[-1], []))
            open_.append(len(blocks) - 1)
        elif word.text == ")" and len(open_) > 1:
            open_.pop()
        else:
            blocks[open_[-1]].positions.append(position)
    return blocks


def _reading(words: list[_Word], blocks: list[_Block], names: set[str]) -> set[int]:
    """Blocks that read one of these names, and those around them; not the one that only defines a name by them."""
    defined = _named(words, blocks)
    found: set[int] = set()
    for number, block in enumerate(blocks):
        if not any(_is_relation(words, position, names) for position in block.positions):
            continue
        found.add(number)
        while number > 0 and number not in defined:
            number = blocks[number].parent
            found.add(number)
    return found


def _named(words: list[_Word], blocks: list[_Block]) -> dict[int, str]:
    """Blocks of a WITH clause: number → name, from `name AS (` and `name (columns) AS (`."""
    found = {}
    for number, block in enumerate(blocks):
        position = block.opened
        if (
            position < 2
            or _at(words, position - 1) != "as"
            or _at(words, position + 1) not in ("select", "with", "(", "from")
        ):
            continue
        position -= 2
        if _at(words, position) == ")":
            while position > 0 and words[position].text != "(":
                position -= 1
            position -= 1
        if words[position].name:
            found[number] = words[position].text
    return found


def _gathers(words: list[_Word], block: _Block) -> str | None:
    own = [words[position] for position in block.positions]
    for position, word in enumerate(own):
        following = own[position + 1].text if position + 1 < len(own) else ""
        preceding = own[position - 1].text if position else ""
        if not word.name or preceding == ".":
            continue
        match word.text, following:
            case "group", "by" | "all":
                return "GROUP BY"
            case "distinct", _ if preceding == "select":
                return "SELECT DISTINCT"
            case "over", "(":
                return "a window (OVER)"
            case "limit" | "offset", _ if following[:1].isdigit():
                return word.text.upper()
    return None
