"""Rows without their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any


def bag(rows: Iterable[Mapping[str, Any]]) -> Counter[Any]:
    return Counter(tuple(sorted(row.items())) for row in rows)
