"""Answers that are kept for a while, so that their pages can be asked for one after the other.

All pages come from one answer, so they fit together whatever is written meanwhile. An answer is kept for the token that
asked, for five minutes, as a compact copy: as Arrow hands it over it may hold on to a whole table. All of them together
take a bounded number of bytes; the least recently used goes first.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lithify.errors import LimitExceeded, NotFound
from lithify.text.rows_out import arrow_stream

BYTES_MAX = 128 * 2**20
SECONDS_MAX = 300.0


@dataclass(frozen=True)
class Paged:
    """An answer in pages of `page_rows`, and what is said about it on each of them."""

    id: str
    rows: pa.Table
    page_rows: int
    facts: Mapping[str, Any]

    @property
    def pages(self) -> int:
        return max(1, -(-int(self.rows.num_rows) // self.page_rows))

    def page(self, number: int) -> pa.Table:
        """Pages count from 1."""
        if not 1 <= number <= self.pages:
            raise NotFound(f"the answer {self.id} has the pages 1 to {self.pages}, and no page {number}")
        return self.rows.slice((number - 1) * self.page_rows, self.page_rows)

    def next(self, number: int) -> str | None:
        """The path of the page after this one."""
        return f"/v1/query/results/{self.id}?page={number + 1}" if number < self.pages else None


@dataclass
class _Entry:
    answer: Paged
    bytes: int
    until: float


@dataclass
class PagedAnswers:
    bytes_max: int = BYTES_MAX
    seconds_max: float = SECONDS_MAX
    clock: Callable[[], float] = time.monotonic
    _entries: OrderedDict[tuple[str, str], _Entry] = field(default_factory=OrderedDict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def bytes(self) -> int:
        with self._lock:
            return sum(entry.bytes for entry in self._entries.values())

    def keep(self, owner: str, answer: Paged) -> None:
        """Replaces an earlier answer of the same owner and id."""
        # Before it is copied: its columns may be views of something larger, but take at least this much.
        if answer.rows.nbytes > self.bytes_max:
            raise self._too_large(answer)
        packed = b"".join(arrow_stream(answer.rows))
        if len(packed) > self.bytes_max:
            raise self._too_large(answer)
        rows = pa.ipc.open_stream(pa.py_buffer(packed)).read_all()
        copy = Paged(answer.id, rows, answer.page_rows, answer.facts)
        with self._lock:
            self._entries.pop((owner, answer.id), None)
            self._forget_old()
            room = self.bytes_max - len(packed)
            while self._entries and sum(entry.bytes for entry in self._entries.values()) > room:
                self._entries.popitem(last=False)
            self._entries[owner, answer.id] = _Entry(copy, len(packed), self.clock() + self.seconds_max)

    def get(self, owner: str, id: str) -> Paged:
        with self._lock:
            self._forget_old()
            entry = self._entries.get((owner, id))
            if entry is None:
                raise NotFound(
                    f"there is no kept answer {id} of this token: pages are kept for {self.seconds_max / 60:.0f} "
                    "minutes at most, less when memory is short; send the query again"
                )
            self._entries.move_to_end((owner, id))
            return entry.answer

    def take(self, owner: str, id: str) -> Paged:
        """It is fetched once: what is taken is kept no longer."""
        found = self.get(owner, id)
        self.drop(owner, id)
        return found

    def drop(self, owner: str, id: str) -> None:
        with self._lock:
            self._entries.pop((owner, id), None)

    def forget_old(self) -> None:
        with self._lock:
            self._forget_old()

    def _forget_old(self) -> None:
        now = self.clock()
        for key in [key for key, entry in self._entries.items() if entry.until <= now]:
            del self._entries[key]

    def _too_large(self, answer: Paged) -> LimitExceeded:
        return LimitExceeded(
            f"the answer takes {answer.rows.nbytes / 2**20:,.0f} MiB, more than the {self.bytes_max / 2**20:,.0f} MiB "
            "that pages are kept in: ask for fewer rows or columns, or without page_rows",
            limit="size",
        )
