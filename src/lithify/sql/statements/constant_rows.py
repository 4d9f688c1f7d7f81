"""The rows of a VALUES that are plain constants, taken out of a query's text and given to it as a table.

The engine plans each value of a VALUES as an expression: a thousand rows take it ten times as long as what is then done
with them. Rows of numbers, texts, truth values and NULL are read here instead, and have the types that the engine
gives them (a test compares). Everything else is left to it, and so is saying what is wrong. Where rows are not all
that is asked, but stand beside columns, so are numbers with a point and times: what these are depends on the column
(`literals.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.sql_text import positioned_tokens

# Fewer rows are planned in no time.
ROWS_MIN = 16
DIGITS_MAX = 38
_INTEGER_DIGITS = 20  # of an integer beside decimals

_VALUES = re.compile(r"\bvalues[ \t\r\n]*\(", re.IGNORECASE)
_CELL = r"(?:-?+[0-9]{1,18}+(?:\.[0-9]{1,18}+)?+|'(?:[^']|'')*+'|(?i:null|true|false))"
_GAP = r"[ \t\r\n]*+"
_FIRST = re.compile(rf"\({_GAP}{_CELL}(?:{_GAP},{_GAP}{_CELL})*+{_GAP}\)")
_ANY_CELL = re.compile(_CELL)
_ENDS_QUERY = re.compile(rf"{_GAP}(?:\)|\Z)")
_CELLS_MAX = 1_000
_BLANK = r"[ \t\r\n]++"
_NAME = r'(?:[^\W\d]\w*|"(?:[^"]|"")*")'
_COLUMN = rf"{_NAME}(?:\.{_NAME})?"
_NAMED = rf"(?:AS{_BLANK})?{_NAME}(?:{_GAP}\({_GAP}{_NAME}(?:{_GAP},{_GAP}{_NAME})*{_GAP}\))?"
# Rows as they are, however often some of their columns are taken under other names.
_ALL_BEFORE = re.compile(
    rf"(?:SELECT{_BLANK}(?:\*|{_COLUMN}(?:{_GAP},{_GAP}{_COLUMN})*){_BLANK}FROM{_GAP}\({_GAP})*", re.IGNORECASE
)
_ALL_BEHIND = re.compile(rf"(?:{_GAP}\){_GAP}(?:{_NAMED})?)*{_GAP}", re.IGNORECASE)
_TIME = re.compile(r"'\d{4}-\d\d")
# By the character that they begin with.
_KINDS = {"'": "text", "n": "null", "N": "null", "t": "bool", "T": "bool", "f": "bool", "F": "bool"}


def without_constant_rows(query: str, name: str) -> tuple[str, pa.Table | None]:
    """The query with its first long VALUES of constants replaced by a SELECT from `name`, and the rows of that. It is
    as it was, and they are None, where there is nothing of the kind.
    """
    if query.count("(") < ROWS_MIN or (found := _VALUES.search(query)) is None:
        return query, None
    begin = found.start()
    if not _begins_query(query[:begin]):
        return query, None
    cells, end = _cells(query, found.end() - 1)
    if not cells or len(cells[0]) < ROWS_MIN or _ENDS_QUERY.match(query, end) is None:
        return query, None
    is_all = _ALL_BEFORE.fullmatch(query[:begin].lstrip()) and _ALL_BEHIND.fullmatch(query[end:])
    table = _table(cells) if is_all or not _depends(cells) else None
    return (query, None) if table is None else (f"{query[:begin]}SELECT * FROM {name}{query[end:]}", table)


def _begins_query(before: str) -> bool:
    """Whether what follows is a query, or the first in a bracket. Within a text or a comment it is neither: of the one
    the quote alone is odd, and the other is no white space.
    """
    tokens = positioned_tokens(before)
    if not tokens:
        return tokens is not None and not before.strip()
    return tokens[-1].text == "(" and not before[tokens[-1].end :].strip()


def _depends(cells: Sequence[Sequence[str]]) -> bool:
    """Whether one of the constants is what it stands beside."""
    return any(_TIME.match(cell) if cell[0] == "'" else "." in cell for column in cells for cell in column)


def _cells(query: str, at: int) -> tuple[list[list[str]], int]:
    """The cells of the rows from there on, column by column, and where the rows end. One pattern goes over all of them:
    each on its own takes ten times as long.
    """
    first = _FIRST.match(query, at)
    width = len(_ANY_CELL.findall(first[0])) if first else 0
    if not 0 < width <= _CELLS_MAX:
        return [], at
    row = rf"\({_GAP}{_CELL}(?:{_GAP},{_GAP}{_CELL}){{{width - 1}}}{_GAP}\)"
    rows = re.compile(rf"{row}(?:{_GAP},{_GAP}{row})*+").match(query, at)
    if rows is None:
        return [], at
    found = _ANY_CELL.findall(rows[0])
    return [found[number::width] for number in range(width)], rows.end()


def _table(cells: Sequence[Sequence[str]]) -> pa.Table | None:
    columns = [_column(column) for column in cells]
    found = [column for column in columns if column is not None]
    return pa.table(found, names=[f"column{number + 1}" for number in range(len(found))]) if found == columns else None


def _column(cells: Sequence[str]) -> pa.Array | None:
    """None: their type is not plain to see."""
    texts = pa.array(cells, pa.string())
    first = pc.utf8_slice_codeunits(texts, 0, 1)
    texts = pc.if_else(pc.is_in(first, pa.array(["n", "N"])), pa.scalar(None, pa.string()), texts)
    kinds = {_KINDS.get(character, "number") for character in first.unique().to_pylist()} - {"null"}
    if len(kinds) != 1:
        return None
    match kinds.pop():
        case "text":
            return pc.replace_substring(pc.utf8_slice_codeunits(texts, 1, -1), "''", "'")
        case "bool":
            return pc.equal(pc.utf8_lower(texts), "true")
    return _decimals(texts) if pc.any(pc.match_substring(texts, ".")).as_py() else texts.cast(pa.int64())


def _decimals(texts: pa.Array) -> pa.Array | None:
    """As wide as the widest of them before the point, and behind it."""
    plain = pc.utf8_ltrim(texts, "-")
    point = pc.find_substring(plain, ".")
    behind = pc.if_else(pc.less(point, 0), 0, pc.subtract(pc.subtract(pc.utf8_length(plain), point), 1))
    digits = pc.utf8_length(pc.utf8_ltrim(pc.replace_substring(plain, ".", ""), "0"))
    before = pc.subtract(pc.max_element_wise(digits, behind, 1), behind)
    whole = pc.max(pc.if_else(pc.less(point, 0), _INTEGER_DIGITS, before)).as_py()
    scale = pc.max(behind).as_py()
    return None if whole + scale > DIGITS_MAX else texts.cast(pa.decimal128(whole + scale, scale))
