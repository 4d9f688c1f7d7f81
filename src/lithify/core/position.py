"""Positions: how far somebody has read a table, as a text that can be kept anywhere.

`shop.orders@1f3a9c02:41` names the table, which one of that name it was (it may have been dropped and created again
since) and the seq up to which its changes are known. A plain number is a seq of the table that is asked. A position of
another table would silently skip or repeat rows, so it is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lithify.errors import InvalidRequest

INCARNATION_LENGTH = 8
SEQ_MAX = 2**63 - 1
_POSITION = re.compile(r"([^@:\s]+)@([0-9a-f]{8}):([0-9]{1,19})")
_SEQ = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True)
class Position:
    table: str
    incarnation: str
    seq: int

    def __str__(self) -> str:
        return f"{self.table}@{short(self.incarnation)}:{self.seq}"


def short(incarnation: str) -> str:
    return incarnation.replace("-", "").lower()[:INCARNATION_LENGTH]


def parse_position(text: str) -> Position:
    found = _POSITION.fullmatch(text)
    if found is None or int(found[3]) > SEQ_MAX:
        raise InvalidRequest(
            f"{_shown(text)} is no position: it is a seq like 41, or what table.position() gives, like "
            "shop.orders@1f3a9c02:41"
        )
    return Position(found[1], found[2], int(found[3]))


def seq_of(position: int | str, name: str, incarnation: str) -> int:
    """The seq that a position of this very table stands for."""
    if isinstance(position, bool) or not isinstance(position, int | str):
        raise InvalidRequest(
            f"a position of table {name} is a seq or what its position() gives, not {type(position).__name__}"
        )
    if isinstance(position, str):
        if _SEQ.fullmatch(position):
            position = int(position)
        else:
            return _checked(parse_position(position), name, incarnation)
    if not 0 <= position <= SEQ_MAX:
        raise InvalidRequest(f"{position} is no seq of table {name}: seqs are counted from 0")
    return position


def _checked(position: Position, name: str, incarnation: str) -> int:
    if position.table != name:
        raise InvalidRequest(
            f"position {position} is of table {position.table}, not of {name}: pass one that {name} gave"
        )
    if short(position.incarnation) != short(incarnation):
        raise InvalidRequest(
            f"position {position} is of a table {name} that was dropped and created again since: read the table anew, "
            "and go on from its position()"
        )
    return position.seq


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
