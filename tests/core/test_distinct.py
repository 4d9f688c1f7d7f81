"""Distinct numbers are those that numpy finds."""

from __future__ import annotations

import numpy as np
import pytest

from lithify.core.distinct import distinct


@pytest.mark.parametrize("values", [[], [5], [1, 1, 1], [3, -1, 3, 2**62, -1], list(range(100, 0, -1)) * 2])
@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.float64])
def test_distinct_numbers_in_order(values: list[int], kind: type[np.generic]) -> None:
    given = np.array([abs(value) if kind is np.uint64 else value for value in values], kind)
    found = distinct(given)
    assert found.dtype == given.dtype
    assert found.tolist() == sorted(set(given.tolist()))
