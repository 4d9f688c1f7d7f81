"""What tells that a commit is not the one that was written: somebody has cut it off, or put another in its place.

Nothing else would say so: a commit without actions is one that changes nothing, and so is one that ends after its
first line. Each commit of files says how many actions it has; what deltalake writes for us always has more than one;
and seqs are given out one by one, so that those of the changes log have no gap.

Of what other writers commit only this is known: it has some action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SEQ_TXN = "lithify.seq"
ACTIONS = "actions"
CREATION = "create table"


class NotWhole(ValueError):
    """It was not written so."""


class OutOfOrder(NotWhole):
    """As it stands it could have been written, but not in this place."""


def check_whole(version: int, actions: Sequence[Mapping[str, Any]], commit: Mapping[str, Any]) -> None:
    """`commit`: what its commitInfo says."""
    if not actions:
        raise NotWhole(f"version {version} has no action")
    info = commit.get("lithify")
    if not isinstance(info, dict):
        return
    # A table without files that is dropped has a commit of files with nothing else.
    stated = info.get(ACTIONS, 1 if commit.get("operation", "WRITE") == "WRITE" else 2)
    if len(actions) != stated if ACTIONS in info else len(actions) < stated:
        raise NotWhole(f"version {version} has {len(actions)} actions, and was written with {stated}")


def seq_after(version: int, txns: Mapping[str, Any], info: Mapping[str, Any], before: int | None) -> int | None:
    """The newest seq after a commit; None where it is not known, as before the first one of a table."""
    if "write_id" not in info:
        return before
    given = txns.get(SEQ_TXN)
    if before is None or info.get("operation") == CREATION:
        return given
    if given is None:
        given, expected = before, info.get("seq", before)
    else:
        expected = before + 1
    if given != expected:
        raise OutOfOrder(f"version {version} is of seq {given} where {expected} follows")
    return given
