"""What a log may forget: which batch ids, lanes and jobs it no longer has to recognise.

Each is an application transaction, and a checkpoint carries all of them on. One may be forgotten when it is older than
`REMEMBERED_DAYS` by the log's own times *and* `REMEMBERED_MIN` newer ones of its kind have come since. Times alone do
not decide: after a clock was a month ahead, everything would look old at once, and a batch that is sent again would be
written over newer rows. All other transactions, such as the seq and how far feeds have come, are never forgotten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

REMEMBERED_DAYS = 30
REMEMBERED_MIN = 100_000
FORGOTTEN_KINDS = ("lithify.batch.", "lithify.bound.", "lithify.lane.", "lithify.job.")


def may_expire(name: str) -> bool:
    return name.startswith(FORGOTTEN_KINDS)


def forgettable(
    txns: Iterable[tuple[str, int | None]], log_ms: int, remembered_min: int = REMEMBERED_MIN
) -> frozenset[str]:
    """Of transactions by name, with when they were set. `log_ms`: the time of the log's newest commit."""
    kinds: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, set_ms in txns:
        if set_ms is not None and may_expire(name):
            kinds[next(filter(name.startswith, FORGOTTEN_KINDS))].append((set_ms, name))
    cutoff_ms = log_ms - REMEMBERED_DAYS * 86_400_000
    found: set[str] = set()
    for entries in kinds.values():
        newest_first = sorted(entries, reverse=True)
        found.update(name for set_ms, name in newest_first[remembered_min:] if set_ms < cutoff_ms)
    return frozenset(found)
