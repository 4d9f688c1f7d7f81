"""How often the logs of tables are asked for their heads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lithify.delta.log import DeltaLog


@contextmanager
def looks_counted() -> Iterator[Counter[str]]:
    """By table and log, as in `orders/changes`."""
    looks: Counter[str] = Counter()
    refresh = DeltaLog.refresh

    def counted(log: DeltaLog) -> None:
        looks["/".join(log.path.parts[-2:])] += 1
        refresh(log)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeltaLog, "refresh", counted)
        yield looks
