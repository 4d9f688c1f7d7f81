"""Rows of base that pending updates have asked for, kept for the next snapshot: while base is the same, so are they.

An update that gives some columns needs the row that it leaves the others of. Of a thousand new ones after a hundred
thousand that were read already, a thousand keys are looked up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

import numpy as np
import pyarrow as pa

from lithify.core.arrow_rows import lookup, take

BYTES_MAX = 64 * 2**20


class BaseRows:
    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._known: tuple[Hashable, pa.Table, pa.Table] | None = None

    def forget(self) -> None:
        self._known = None

    def of(self, base: Hashable, keys: pa.Table, columns: pa.Schema, fetch: Callable[[pa.Table], pa.Table]) -> pa.Table:
        """The rows with these keys, which are distinct. `base` tells one state of base and its columns from another."""
        by = keys.column_names
        with self._lock:
            known = self._known
        asked, rows = keys.slice(0, 0), columns.empty_table()
        if known is not None and known[0] == base:
            _, asked, rows = known
        new = take(keys, np.flatnonzero(lookup(keys, asked, by) < 0))
        if new.num_rows:
            rows = pa.concat_tables([rows, fetch(new)])
            asked = pa.concat_tables([asked, new])
            with self._lock:
                fits = asked.nbytes + rows.nbytes <= self._bytes_max
                self._known = (base, asked.combine_chunks(), rows.combine_chunks()) if fits else None
        return take(rows, np.flatnonzero(lookup(rows, keys, by) >= 0))
