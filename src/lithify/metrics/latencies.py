"""How long things took, as counts by length.

Each bucket is a fifth wider than the one before, so that a quantile is told to within a tenth, whatever it is, and any
number of measurements takes some hundred numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

SHORTEST_S, STEP, BUCKETS = 1e-5, 1.2, 110


def bucket_of(seconds: float) -> int:
    if seconds <= SHORTEST_S:
        return 0
    return min(math.ceil(math.log(seconds / SHORTEST_S, STEP)), BUCKETS)


def quantile(share: float, after: Mapping[int, int], before: Mapping[int, int]) -> float | None:
    """The length that this share of what came between two counts did not exceed. None: nothing came."""
    came = {bucket: count - before.get(bucket, 0) for bucket, count in after.items()}
    left = math.ceil(share * sum(came.values()))
    if not left:
        return None
    for bucket in sorted(came):
        left -= came[bucket]
        if left <= 0:
            # The middle of the bucket, as ratios go.
            return float(SHORTEST_S * STEP ** (bucket - 0.5))
    raise AssertionError("the counts add up to their sum")
