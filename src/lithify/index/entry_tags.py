"""Whether entries of an index still speak of the files that are there.

A file never changes, but somebody may put another one of its name, size and rows in its place. An entry's tag tells
(`files/read_proof.py: tag_of`). It is compared when the entry first meets its file, and again while a process goes on
reading: a millisecond at a time, at most `SHARE_MAX` of all time, round by round. So what is replaced under a
running process is noticed by the next read but for `ROUND_S`, and in tables of very many files after some more reads.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from lithify.errors import LithifyError
from lithify.files.read_proof import tag_at
from lithify.index.block import Block
from lithify.index.lookup import Coverage, Files, Flags

if TYPE_CHECKING:
    from lithify.index.reader import View

# So long a query waits for tags to be compared for the first time: local files take some microseconds each.
FIRST_S_MAX = 0.25
# So long for tags that were compared before.
AGAIN_S_MAX = 0.001
SHARE_MAX = 0.02
ROUND_S = 1.0
_NOT_LOOKED, _SAME, _REPLACED = 0, 1, 2


class EntryTags:
    """Of one index. Not for several threads at once."""

    def __init__(
        self,
        data: PurePath,
        now_s: Callable[[], float] = time.monotonic,
        tag_at: Callable[[str], int] = tag_at,
    ) -> None:
        self._data, self._now_s, self._tag_at = data, now_s, tag_at
        # Per block, of which of its files the tag was compared, and how that went.
        self._looked: WeakKeyDictionary[Block, npt.NDArray[np.uint8]] = WeakKeyDictionary()
        self._rounds: WeakKeyDictionary[Coverage, Iterator[tuple[Block, int]]] = WeakKeyDictionary()
        self._again_s = 0.0
        self._replaced: list[str] = []

    def fresh(self, files: Files, view: View, seconds_max: float | None = None) -> list[tuple[Block, Flags]]:
        """The blocks with their live entries, without those whose file was replaced. What does not fit into the time is
        left for the next call.
        """
        until = self._now_s() + (FIRST_S_MAX if seconds_max is None else seconds_max)
        found = []
        for block, live in ((live.block, live.live) for live in view.blocks):
            looked = self._of(block)
            new = live & (looked == _NOT_LOOKED) & (block.tags != 0)
            if new.any():
                there = pc.is_in(block.paths, files.paths).to_numpy(zero_copy_only=False)
                for file in np.flatnonzero(new & there).tolist():
                    if self._now_s() > until:
                        break
                    self._look(block, file)
            found.append((block, live & self.unreplaced(block)))
        self._again_s = max(self._again_s, self._now_s() + ROUND_S)
        return found

    def unreplaced(self, block: Block) -> Flags:
        """Entries whose file was not found to be another one."""
        flags: Flags = self._of(block) != _REPLACED
        return flags

    def take_replaced(self) -> list[str]:
        """The paths of files that were found to be replaced since this was asked last."""
        found, self._replaced = self._replaced, []
        return found

    def look_again(self, coverage: Coverage) -> None:
        """At entries that were compared before, as far as it is due."""
        begun_s = self._now_s()
        if begun_s < self._again_s:
            return
        looks = self._rounds.setdefault(coverage, coverage.tagged())
        ended = True
        for block, file in looks:
            self._look(block, file)
            if self._now_s() - begun_s > AGAIN_S_MAX:
                ended = False
                break
        if ended:
            del self._rounds[coverage]
        now_s = self._now_s()
        self._again_s = now_s + max((now_s - begun_s) / SHARE_MAX, ROUND_S if ended else 0)

    def _of(self, block: Block) -> npt.NDArray[np.uint8]:
        return self._looked.setdefault(block, np.zeros(block.files, np.uint8))

    def _look(self, block: Block, file: int) -> None:
        path, same = block.paths[file].as_py(), True
        with contextlib.suppress(LithifyError):  # whoever reads the file says what is wrong with it
            same = self._tag_at(f"{self._data}/{path}") == int(block.tags[file])
        looked = self._of(block)
        if not same and looked[file] != _REPLACED:
            self._replaced.append(path)
        looked[file] = _SAME if same else _REPLACED
