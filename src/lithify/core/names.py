"""Names of tables and columns, and of everything that is laid down on disk.

A table is `namespace.table`. Both parts become folder names and SQL identifiers, so they are kept to what is
the same everywhere: lower-case letters, digits and underscores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lithify.errors import InvalidRequest

NAME_LENGTH_MAX = 128
COLUMN_LENGTH_MAX = 255
CONTROL_FOLDER = "_lithify"
CATALOG = "lake"
SEQ, OP, DAY = "_seq", "_op", "_day"
RESERVED_COLUMNS = frozenset({SEQ, OP, DAY, "_kind", "_given", "_metadata"})
RESERVED_PREFIX = "_lithify"
# Of lines that say some columns of a row alone: which, and in which order they came within their commit.
GIVEN, NTH = "_lithify_given", "_lithify_nth"

_PART = re.compile(r"[a-z][a-z0-9_]*")
_COLUMN_FORBIDDEN = re.compile(r"[\x00-\x1f ,;{}()=\"`\\/.]")
_JOB_FOLDER = re.compile(r"[a-z]+-[0-9a-f]{32}")


# A table as SQL names it: namespace and table, which need not be there.
TableRef = tuple[str, str]


@dataclass(frozen=True, order=True)
class TableName:
    namespace: str
    table: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.table}"


def parse_table_name(text: str) -> TableName:
    """`namespace.table`, or the same below the lake's only catalog: `lake.namespace.table`."""
    if not isinstance(text, str):
        raise InvalidRequest(f"a table name is text like 'shop.orders', not {type(text).__name__}")
    parts = plain_name(text).split(".")
    if len(parts) == 3 and all(_PART.fullmatch(part.lower()) for part in parts):
        raise InvalidRequest(
            f"{_shown(text)} is no table name of this lake: there is no catalog {_shown(parts[0])}; a lake is one "
            f"catalog, {CATALOG!r}: write {CATALOG}.namespace.table, or namespace.table"
        )
    if len(parts) != 2:
        raise InvalidRequest(f"{_shown(text)} is no table name: write it as namespace.table, e.g. shop.orders")
    for part in parts:
        if len(part) > NAME_LENGTH_MAX:
            raise InvalidRequest(
                f"{_shown(text)} is too long: at most {NAME_LENGTH_MAX} characters on each side of the dot"
            )
        if not _PART.fullmatch(part):
            hint = f" (try {part.lower()!r})" if _PART.fullmatch(part.lower()) else ""
            raise InvalidRequest(
                f"{_shown(text)} is no table name: {_shown(part)} may hold lower-case letters, digits and _, "
                f"and starts with a letter{hint}"
            )
    return TableName(*parts)


def plain_name(text: str) -> str:
    """Without the lake's catalog, if a name has all three parts. Nothing else is looked at."""
    catalog, dot, rest = text.partition(".")
    return rest if dot and catalog == CATALOG and rest.count(".") == 1 else text


def is_table_name(text: str) -> bool:
    parts = text.split(".")
    return len(parts) == 2 and all(len(part) <= NAME_LENGTH_MAX and _PART.fullmatch(part) for part in parts)


def check_column_name(name: str) -> None:
    if not name or len(name) > COLUMN_LENGTH_MAX:
        raise InvalidRequest(f"column name {_shown(name)} must have 1 to {COLUMN_LENGTH_MAX} characters")
    if name.lower() in RESERVED_COLUMNS or name.lower().startswith(RESERVED_PREFIX):
        raise InvalidRequest(f"column name {name!r} is reserved by Lithify: rename the column")
    if found := _COLUMN_FORBIDDEN.search(name):
        raise InvalidRequest(
            f"column name {_shown(name)} holds {found.group()!r}, which Delta tables do not allow: rename the column"
        )


def given_text(names: Iterable[str]) -> str:
    """No name of a column holds a comma, so a name stands in it between two of them, or not at all."""
    return "," + "".join(f"{name}," for name in names)


def names_given(text: str) -> list[str]:
    return text.strip(",").split(",") if text != "," else []


def is_job_folder(name: str) -> bool:
    """Whether a folder name is `<origin>-<uuid>`: written by Lithify, partition columns kept inside the files."""
    return _JOB_FOLDER.fullmatch(name) is not None


def quoted(identifier: str) -> str:
    """An identifier for DataFusion's SQL."""
    return '"' + identifier.replace('"', '""') + '"'


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
