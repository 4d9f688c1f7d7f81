"""Merge rules in plain Python: what a row becomes by one contribution."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lithify.core.merge_rules import Rule

Row = dict[str, Any]
Rows = dict[Any, Row]

_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "last_non_null": lambda old, new: new,
    "first": lambda old, new: old,
    "min": min,
    "max": max,
    "sum": lambda old, new: old + new,
    "count": lambda old, new: old + new,
    "append": lambda old, new: old + new,
    "or": lambda old, new: old or new,
    "and": lambda old, new: old and new,
}


def contributed(rules: Mapping[str, Rule], there: Row | None, line: Row, names: Sequence[str]) -> Row:
    """The row after a line that gives some columns. What is there is not looked at twice, and not cut by itself."""
    row = dict.fromkeys(names) | (there or {})
    line = line | {name: 1 for name, rule in rules.items() if rule.kind == "count"}
    for name, value in line.items():
        rule = rules.get(name)
        if rule is not None and rule.by:
            continue
        if rule is None:
            row[name] = value
        elif value is not None:
            old = row[name]
            made = value if old is None else _TWO[rule.kind](old, value)
            row[name] = made[-rule.bound :] if rule.kind == "append" else made
    for order in {rule.by for rule in rules.values() if rule.by}:
        value, there_at = line.get(order), row[order]
        if value is not None and (there_at is None or value >= there_at):
            row |= {name: line[name] for name, rule in rules.items() if rule.by == order}
    return row
