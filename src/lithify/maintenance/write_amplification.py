"""Write amplification: how many bytes of base a byte of changes makes upkeep write.

Changes count as large as their rows are in base, not as their small files are on disk. A fold of changes to random keys
rewrites every file that they can meet, so it pays to let them gather: folding when a share s of a table has changed
writes 1 + 1/s bytes per byte. While a fold would exceed `write_amplification_max`, change files are merged among
themselves instead, which keeps them few.

Reads win in the end. A fold is not put off any longer when, after that merge, fresh reads would take `READS_WIN` times
as long as they may for it to be due, when there are `FILES_WIN` times as many change files, or when a change has waited
`AGE_WINS` times as long: what a reader feels stays bounded, and so does what other engines miss in base. Disk is
bounded by retention.
"""

from __future__ import annotations

from lithify.maintenance.read_cost import ReadCost, estimated_rows

READS_WIN, FILES_WIN, AGE_WINS = 2, 10, 24
# Rewriting less than this is not worth putting off.
FREE_BYTES = 2**20


def rewritten_bytes(cost: ReadCost) -> int:
    """What a fold of the pending changes would write: the files that they can meet, and themselves."""
    return sum(file.size_bytes for file in cost.touched) + changed_bytes(cost)


def changed_bytes(cost: ReadCost) -> int:
    rows = sum(estimated_rows(file, cost.row_bytes) for file in cost.merged)
    return int(rows * cost.row_bytes)


def fold_amplification(cost: ReadCost) -> float:
    """Bytes written per byte of changes; 1 where nothing has to be rewritten for them."""
    return rewritten_bytes(cost) / max(changed_bytes(cost), 1)
