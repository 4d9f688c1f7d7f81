"""Order groups: columns that several sources feed into one row, each with an order of its own.

A group is a set of columns and the column that tells which of two lines knows them better. For each key the columns of
a group, that column among them, come from one line: the one with the highest value there, of equal ones the last. A
line with null there says nothing of the group. Groups know nothing of each other, and what is in none goes by arrival.

So each column of a group has the merge rule `newest`, and is merged as every column with a rule is (`merge/rules.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from lithify.core.merge_rules import NEWEST, Rule, check_merged
from lithify.errors import Corruption, InvalidRequest

Groups = Mapping[str, tuple[str, ...]]


def group_rules(groups: Groups) -> dict[str, Rule]:
    """What becomes of the columns of all groups."""
    return {name: Rule(NEWEST, by=order) for order, names in groups.items() for name in (order, *names)}


def groups_in(texts: Iterable[str]) -> dict[str, list[str]]:
    """Groups that are spelled ORDER=COLUMN,COLUMN, one or several in a text, with semicolons between them."""
    found: dict[str, list[str]] = {}
    for part in (part for text in texts for part in text.split(";")):
        order, equals, names = (word.strip() for word in part.partition("="))
        listed = [name.strip() for name in names.split(",")]
        if not equals or not order or not all(listed):
            raise InvalidRequest(
                f"{part.strip()[:60]!r} is no order group: write ORDER=COLUMN,COLUMN, e.g. price_ts=price,currency"
            )
        if order in found:
            raise InvalidRequest(f"order column {order!r} is given two groups: name all its columns in one")
        found[order] = listed
    return found


def checked_groups(
    wanted: Any, columns: pa.Schema, roles: Mapping[str, tuple[str, ...]], rules: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """A user's groups, each in the order of the columns. `roles`: columns that tell which row it is, or where it lies;
    `rules`: those of columns that have one.
    """
    if wanted is None:
        return {}
    if not isinstance(wanted, Mapping):
        raise InvalidRequest(
            "order_groups are columns by their order column, like {'price_ts': ['price', 'currency']}, not "
            f"{type(wanted).__name__}"
        )
    groups = {order: _members(order, names) for order, names in wanted.items()}
    if not groups:
        return {}
    if not roles.get("key"):
        raise InvalidRequest(
            "order_groups say which of several rows with one key knows a column best: give the table a key, or leave "
            "them out"
        )
    if roles.get("order_by"):
        raise InvalidRequest(
            "order_groups and order_by do not go together: by order_by a late row loses as a whole, and by a group in "
            "some columns; make the other columns a group too, or leave one of them out"
        )
    seen: dict[str, str] = {}
    for order, names in groups.items():
        for name in (order, *names):
            _check_column(name, order, columns, roles, rules)
            if name in seen:
                where = f"{seen[name]!r} and {order!r}" if seen[name] != order else f"{order!r} twice"
                raise InvalidRequest(f"column {name!r} is in the order groups of {where}: each goes by one, once")
            seen[name] = order
    return {order: tuple(name for name in columns.names if name in names) for order, names in groups.items()}


def _members(order: Any, names: Any) -> list[str]:
    listed: list[Any] = [names] if isinstance(names, str) else list(names) if isinstance(names, Iterable) else [None]
    if not isinstance(order, str) or not all(isinstance(name, str) for name in listed):
        raise InvalidRequest(
            f"the order group of {order!r} is a list of names of columns, like {{'price_ts': ['price', 'currency']}}"
        )
    if not listed:
        raise InvalidRequest(f"the order group of {order!r} has no columns: name those that go by it, or leave it out")
    return listed


def _check_column(
    name: str,
    order: str,
    columns: pa.Schema,
    roles: Mapping[str, tuple[str, ...]],
    rules: Mapping[str, str],
) -> None:
    group = f"the order group of {order!r}"
    check_merged(name, columns, roles, f"{group} names {name!r}", f"leave it out of {group}")
    if name in rules:
        raise InvalidRequest(
            f"column {name!r} has the merge rule {rules[name]!r} and is in {group}: it goes by one of them, leave the "
            "other out"
        )
    if not columns.field(name).nullable:
        raise InvalidRequest(
            f"column {name!r} is in {group} and may not be null, but a row whose sources have not all said something "
            "has nothing in it: make it nullable"
        )


def shown_groups(groups: Mapping[str, Iterable[str]]) -> str:
    """As `groups_in` reads it."""
    return "; ".join(f"{order}={','.join(names)}" for order, names in groups.items())


def stored_groups(groups: Groups) -> str:
    return json.dumps({order: list(names) for order, names in groups.items()})


def read_groups(text: str | None, where: str) -> dict[str, tuple[str, ...]]:
    """The inverse of `stored_groups`."""
    if text is None:
        return {}
    try:
        return {str(order): tuple(map(str, names)) for order, names in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise Corruption(f"{where} has order groups that cannot be read: {text[:200]!r}") from error
