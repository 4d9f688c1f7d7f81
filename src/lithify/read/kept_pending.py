"""What pending changes came to the last time, for the next snapshot: what is new since then is put on top of it.

Kept where lines that give some columns alone are pending: what they leave comes from base, and of a thousand new ones
after a hundred thousand that were read already, a thousand keys are looked up there. Where rows are whole there is
nothing to look up, and nothing is kept. Rows are a function of base and of the seq, so what was kept is good while base
is the same, for every later seq, also when change files were merged meanwhile.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from lithify.core.ops import Overlay
from lithify.core.snapshot import DataFile

BYTES_MAX = 64 * 2**20


@dataclass(frozen=True)
class Known:
    """What the changes up to a seq come to, over one state of base and its columns."""

    base: Hashable
    seq: int
    overlay: Overlay

    @property
    def nbytes(self) -> int:
        patches = self.overlay.patches
        return int(self.overlay.hidden.nbytes + self.overlay.rows.nbytes + (0 if patches is None else patches.nbytes))


class KeptPending:
    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._known: Known | None = None

    @property
    def empty(self) -> bool:
        return self._known is None

    def before(self, base: Hashable, pending: Sequence[DataFile], wanted: Sequence[DataFile]) -> Known | None:
        """What is known of the first of the wanted change files, if all that is `pending` until then is wanted."""
        known = self._known
        if known is None or known.base != base:
            return None
        reaches = any(file.seq >= known.seq for file in wanted)
        return known if reaches and _is_whole(pending, wanted, known.seq) else None

    def keep(self, base: Hashable, pending: Sequence[DataFile], wanted: Sequence[DataFile], overlay: Overlay) -> None:
        """Unless more is known already, it takes too much, or some of what is `pending` until then was left out."""
        known = Known(base, max(file.seq for file in wanted), overlay)
        if not _is_whole(pending, wanted, known.seq):
            return
        if self._known is not None and self._known.base == base and self._known.seq > known.seq:
            return
        self._known = known if known.nbytes <= self._bytes_max else None

    def replace(self, old: Overlay, new: Overlay) -> None:
        """The same changes with more columns known."""
        if self._known is not None and self._known.overlay is old:
            known = Known(self._known.base, self._known.seq, new)
            self._known = known if known.nbytes <= self._bytes_max else None

    def forget(self) -> None:
        self._known = None


def _is_whole(pending: Sequence[DataFile], wanted: Sequence[DataFile], seq: int) -> bool:
    """Whether all that is pending up to a seq is wanted."""
    paths = {file.path for file in wanted}
    return all(file.seq > seq or file.path in paths for file in pending)
