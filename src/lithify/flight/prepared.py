"""Prepared statements: a text, and the values that stand in it by now. A bounded number of them, each of one token."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lithify.core.sql_text import all_tokens
from lithify.errors import InvalidRequest, LimitExceeded, NotFound
from lithify.sql.parameters import bound

STATEMENTS_MAX, TEXT_MAX, PARAMETERS_MAX = 1_000, 2**20, 1_000
SECONDS_MAX = 3_600.0


@dataclass(frozen=True)
class Prepared:
    """`text` has $1, $2, …, of which there are `count`."""

    text: str
    count: int
    values: Sequence[Any] = ()

    def query(self) -> str:
        return bound(self.text, self.values) if self.values else self.text

    def with_nulls(self) -> str:
        """What tells the columns of the answer before there are values."""
        return bound(self.text, [None] * self.count) if self.count else self.text


def prepared(query: str) -> Prepared:
    """Parameters are written ? or $1, $2, …"""
    if len(query) > TEXT_MAX:
        raise LimitExceeded(
            f"a statement has at most {TEXT_MAX:,} characters, this one has {len(query):,}", limit="size"
        )
    text, end, marks = "", 0, 0
    tokens = all_tokens(query)
    for token in tokens:
        if token.text == "?":
            marks += 1
            text += f"{query[end : token.start]}${marks}"
            end = token.end
    text += query[end:]
    numbers = [
        int(after.text[: len(str(PARAMETERS_MAX)) + 1])
        for sign, after in itertools.pairwise(tokens)
        if sign.text == "$" and after.start == sign.end and after.kind == "number" and after.text.isdecimal()
    ]
    if (count := max([marks, *numbers])) > PARAMETERS_MAX:
        raise InvalidRequest(f"a query has at most {PARAMETERS_MAX:,} parameters")
    return Prepared(text, count)


@dataclass
class PreparedStatements:
    count_max: int = STATEMENTS_MAX
    seconds_max: float = SECONDS_MAX
    clock: Callable[[], float] = time.monotonic
    _kept: OrderedDict[tuple[str, bytes], tuple[Prepared, float]] = field(default_factory=OrderedDict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def keep(self, owner: str, statement: Prepared) -> bytes:
        """Its handle. The one that was not used for longest goes, where there are too many."""
        handle = secrets.token_hex(16).encode()
        with self._lock:
            self._put(owner, handle, statement)
        return handle

    def bind(self, owner: str, handle: bytes, values: Sequence[Any]) -> None:
        statement = self.get(owner, handle)
        with self._lock:
            self._put(owner, handle, replace(statement, values=tuple(values)))

    def get(self, owner: str, handle: bytes) -> Prepared:
        with self._lock:
            self._forget_old()
            if (found := self._kept.pop((owner, handle), None)) is None:
                raise NotFound(
                    "there is no such prepared statement of this token: it was closed, or not used for "
                    f"{self.seconds_max / 60:.0f} minutes, or others took its place; prepare it again"
                )
            self._put(owner, handle, found[0])
            return found[0]

    def close(self, owner: str, handle: bytes) -> None:
        with self._lock:
            self._kept.pop((owner, handle), None)

    def _put(self, owner: str, handle: bytes, statement: Prepared) -> None:
        self._kept[owner, handle] = statement, self.clock() + self.seconds_max
        self._kept.move_to_end((owner, handle))
        while len(self._kept) > self.count_max:
            self._kept.popitem(last=False)

    def _forget_old(self) -> None:
        now = self.clock()
        for key in [key for key, (_, until) in self._kept.items() if until <= now]:
            del self._kept[key]
