"""What a notebook shows of an object: a small table, escaped and bounded whatever is in it.

Only what an object knows already is shown; nothing here reads a file or asks an engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from itertools import islice
from typing import Any, TypeVar

from lithify.core.fields import Documented
from lithify.core.wording import plural

ROWS_MAX = 20
COLUMNS_MAX = 30
CELL_CHARS_MAX = 200
ITEMS_MAX = 5
WORDS = {None: "–", True: "yes", False: "no"}

T = TypeVar("T")


class Shown(Documented):
    """A dataclass that a notebook shows by its fields."""

    def _html_facts(self) -> Mapping[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def _repr_html_(self) -> str:
        return facts_html(type(self).__name__, self._html_facts())


class Listed(list[T]):
    """A list of dataclasses of one kind that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        if not self:
            return "<p>none</p>"
        shown = [each for each in fields(self[0]) if each.repr]  # type: ignore[arg-type]
        rows = [[getattr(one, each.name) for each in shown] for one in self]
        return table_html([each.name for each in shown], rows)


def facts_html(title: str, facts: Mapping[str, Any]) -> str:
    """Names and values, one below the other."""
    return table_html((), list(facts.items())[:COLUMNS_MAX], title)


def table_html(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None, note: str | None = None
) -> str:
    """At most ROWS_MAX rows where there are column names; what is left out is counted, where it can be."""
    bound = ROWS_MAX if columns else COLUMNS_MAX
    shown = list(islice(rows, bound))
    left_out = len(rows) - len(shown) if isinstance(rows, Sequence) else 0
    parts = ["<table>"]
    if title is not None:
        parts.append(f'<caption style="text-align:left"><b>{text(title)}</b></caption>')
    if columns:
        parts.append("<tr>" + "".join(f"<th>{text(name)}</th>" for name in columns[:COLUMNS_MAX]) + "</tr>")
    for row in shown:
        cells = "".join(f'<td style="text-align:left">{text(cell)}</td>' for cell in row[:COLUMNS_MAX])
        parts.append(f"<tr>{cells}</tr>")
    parts.append("</table>")
    notes = [f"and {left_out:,} more"] if left_out else []
    notes += [note] if note else []
    return "".join(parts) + (f"<p>{text('; '.join(notes))}</p>" if notes else "")


def text(value: Any) -> str:
    """One value, escaped, at most CELL_CHARS_MAX characters of it."""
    return escape(_shortened(_plain(value)))


def _plain(value: Any) -> str:
    match value:
        case None | bool():
            return WORDS[value]
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.6g}"
        case str():
            return value
        case Mapping():
            return _listed([f"{name}: {_plain(each)}" for name, each in islice(value.items(), ITEMS_MAX)], len(value))
        case tuple() | list() | set() | frozenset():
            if len(value) > ITEMS_MAX or any(is_dataclass(each) for each in islice(value, ITEMS_MAX)):
                return plural(len(value), "entry").replace("entrys", "entries")
            return _listed([_plain(each) for each in islice(value, ITEMS_MAX)], len(value))
    return str(value)


def _listed(parts: Sequence[str], count: int) -> str:
    more = [f"{count - len(parts):,} more"] if count > len(parts) else []
    return ", ".join([*(_shortened(part) for part in parts), *more]) or "–"


def _shortened(value: str) -> str:
    return value if len(value) <= CELL_CHARS_MAX else value[: CELL_CHARS_MAX - 1] + "…"
